// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Watches the threads of processes that run already.

use crate::collect::Roots;
use deburr_bpf::syscalls::SyscallProbe;
use deburr_core::procfs;
use std::path::PathBuf;

/// Maximum number of times that the threads of a process are listed. A listing finds threads that were started during
/// the one before; those started by threads that are watched already are found by the probe.
const MAX_LOOKS: usize = 10;

pub(super) fn watch(probe: &SyscallProbe, roots: &Roots, pids: &[u32], group: u32) -> usize {
    let mut all = 0;
    for &pid in pids {
        for _ in 0..MAX_LOOKS {
            let new =
                of(roots, pid).filter(|&tid| watch_one(probe, roots, pid, tid, group)).count();
            all += new;
            if new == 0 {
                break;
            }
        }
    }
    all
}

/// Watches a thread. Returns whether it is new, and lives: of one that has ended before it was watched, as the first thread
/// of a process may have, the probe would not hear any more.
fn watch_one(probe: &SyscallProbe, roots: &Roots, pid: u32, tid: u32, group: u32) -> bool {
    if !probe.watch(tid, pid, group) {
        return false;
    }
    let stat = std::fs::read(tasks(roots, pid).join(tid.to_string()).join("stat"));
    let lives = stat.is_ok_and(|stat| procfs::pid::stat(&stat).is_ok_and(|it| !it.exiting));
    if !lives {
        probe.forget(tid);
    }
    lives
}

fn tasks(roots: &Roots, pid: u32) -> PathBuf {
    roots.proc.join(pid.to_string()).join("task")
}

fn of(roots: &Roots, pid: u32) -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir(tasks(roots, pid));
    let entries = entries.into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}
