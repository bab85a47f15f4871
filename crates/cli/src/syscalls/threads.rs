// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Watches the threads of processes that run already.

use crate::collect::Roots;
use deburr_bpf::syscalls::SyscallProbe;

/// Maximum number of times that the threads of a process are listed. A listing finds threads that were started during
/// the one before; those started by threads that are watched already are found by the probe.
const MAX_LOOKS: usize = 10;

pub(super) fn watch(probe: &SyscallProbe, roots: &Roots, pids: &[u32], group: u32) -> usize {
    let mut all = 0;
    for &pid in pids {
        for _ in 0..MAX_LOOKS {
            let new = of(roots, pid).filter(|tid| probe.watch(*tid, pid, group)).count();
            all += new;
            if new == 0 {
                break;
            }
        }
    }
    all
}

fn of(roots: &Roots, pid: u32) -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir(roots.proc.join(pid.to_string()).join("task"));
    let entries = entries.into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}
