// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions that a runtime has made, from the list that it writes for `perf`: Java, Node.js, Python, .NET, if they are told
//! to.
//!
//! Anybody may put a file of that name there. It is believed only if it belongs to the user of the process, and was written
//! since the process began.

use super::fit;
use crate::collect::Roots;
use crate::snapshot::Tree;
use deburr_core::procfs::{perf_map, pid, stat::ticks_ns};
use deburr_core::text::name;
use rustix::fs::fstat;
use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};

/// What is read of a list, and of a line. A large Java service has 10 MB.
const MOST_BYTES: u64 = 64 << 20;
const MOST_LINE_BYTES: u64 = 64 << 10;
/// How much older than the process a list may seem: both times are rounded.
const ROUNDING_NS: i128 = 2_000_000_000;

/// The functions of these addresses, in their order; `None` = there is no list, or it is not believed.
pub(super) fn functions(roots: &Roots, pid: u32, addresses: &[u64]) -> Option<Vec<Option<String>>> {
    let mut list = BufReader::new(list(roots, pid)?.take(MOST_BYTES));
    let mut sorted: Vec<(u64, usize)> = addresses.iter().copied().zip(0..).collect();
    sorted.sort_unstable();
    let mut names = vec![None; addresses.len()];
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = list.by_ref().take(MOST_LINE_BYTES).read_until(b'\n', &mut line).ok()?;
        if read == 0 {
            return Some(names);
        }
        let Some(function) = perf_map::parse(&line) else { continue };
        let first = sorted.partition_point(|(address, _)| *address < function.start);
        let within = sorted[first..].iter().take_while(|(address, _)| *address < function.end);
        // The memory of a function that is no longer needed is used again: the last one is there.
        for &(_, at) in within {
            names[at] = Some(fit(&name::decode(function.name)));
        }
    }
}

/// The list that belongs to a process.
fn list(roots: &Roots, pid: u32) -> Option<File> {
    let dir = roots.proc.join(pid.to_string());
    let status = pid::status(&std::fs::read(dir.join("status")).ok()?);
    let own_pid = status.own_pid.unwrap_or(pid);
    let tree = Tree::open(&dir.join("root")).ok()?;
    let file = tree.file(&format!("tmp/perf-{own_pid}.map")).ok()?;
    let it = fstat(&file).ok()?;
    let start = pid::stat(&std::fs::read(dir.join("stat")).ok()?).ok()?.start_ticks;
    let age_ns = now_ns(ClockId::Boottime) - i128::from(ticks_ns(start, clock_ticks_per_second()));
    let changed_ns = i128::from(it.st_mtime) * 1_000_000_000 + i128::from(it.st_mtime_nsec);
    let unchanged_ns = now_ns(ClockId::Realtime) - changed_ns;
    let is_its = Some(it.st_uid) == status.euid && unchanged_ns <= age_ns + ROUNDING_NS;
    is_its.then(|| file.into())
}

fn now_ns(clock: ClockId) -> i128 {
    let now = clock_gettime(clock);
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}
