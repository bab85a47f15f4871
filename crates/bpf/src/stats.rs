// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a run of a BPF program costs, from the kernel's own count.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The kernel counts runs and time of BPF programs while this lives (`BPF_ENABLE_STATS`). It is bound to a file
/// descriptor: whatever ends this process also ends the counting. Counting itself costs two clock reads a run,
/// some 50 ns, which are part of what it counts.
#[derive(Debug)]
pub struct RunStats {
    _fd: OwnedFd,
}

impl RunStats {
    /// Starts counting.
    ///
    /// # Errors
    /// Without privileges.
    pub fn start() -> io::Result<Self> {
        // SAFETY: a plain system call; the result is a new descriptor or a negative errno.
        let fd = unsafe {
            libbpf_rs::libbpf_sys::bpf_enable_stats(libbpf_rs::libbpf_sys::BPF_STATS_RUN_TIME)
        };
        if fd < 0 {
            return Err(io::Error::from_raw_os_error(-fd));
        }
        // SAFETY: the descriptor is new and ours.
        Ok(Self { _fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }
}

/// The loaded programs of an object, by name.
pub(crate) type Programs<'a> = [(&'static str, BorrowedFd<'a>)];

/// Time in nanoseconds and number of counted runs of each program so far.
pub(crate) fn run_times(programs: &Programs<'_>) -> BTreeMap<&'static str, (u64, u64)> {
    programs.iter().filter_map(|(name, program)| Some((*name, run_time(*program)?))).collect()
}

/// The same of all together; `None` where the kernel does not tell.
pub(crate) fn run_time_of_all(programs: &Programs<'_>) -> Option<(u64, u64)> {
    run_times(programs).into_values().reduce(|sum, time| (sum.0 + time.0, sum.1 + time.1))
}

/// Instructions that the verifier looked at to admit each program.
pub(crate) fn verified(programs: &Programs<'_>) -> BTreeMap<&'static str, u64> {
    let told = |(name, program): &(_, _)| Some((*name, verified_instructions(*program)?));
    programs.iter().filter_map(told).collect()
}

/// Events that a program was not run for, because it was already running on that CPU; of all together.
pub(crate) fn missed_by_all(programs: &Programs<'_>) -> u64 {
    programs.iter().filter_map(|(_, program)| missed(*program)).sum()
}

/// Time in nanoseconds and number of counted runs of a program so far.
pub(crate) fn run_time(program: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let text = information(program)?;
    Some((item(&text, "run_time_ns:")?, item(&text, "run_cnt:")?))
}

/// Events that a program was not run for, because it was already running on that CPU. Counted from 5.12 on.
fn missed(program: BorrowedFd<'_>) -> Option<u64> {
    item(&information(program)?, "recursion_misses:")
}

/// Instructions that the verifier looked at when the program was loaded. Told from 5.16 on.
pub(crate) fn verified_instructions(program: BorrowedFd<'_>) -> Option<u64> {
    item(&information(program)?, "verified_insns:")
}

fn information(program: BorrowedFd<'_>) -> Option<String> {
    std::fs::read_to_string(format!("/proc/self/fdinfo/{}", program.as_raw_fd())).ok()
}

fn item(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
}
