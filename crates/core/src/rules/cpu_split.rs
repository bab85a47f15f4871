// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the CPU time of a group of processes divides into the program's own and the kernel's.

use crate::text::Share;
use crate::view::{Group, View};

/// CPU time below which it is not divided: the kernel samples it with its clock tick, of 1 to 10 ms.
const LEAST_NS: u64 = 200_000_000;

/// Its CPU time that was read, and the part of it in the kernel; `None` if it was not read, or is too little.
pub(super) fn of(view: &View, group: &Group<'_>) -> Option<(u64, Share)> {
    let read =
        group.members.iter().filter_map(|(id, _)| view.processes().get(id)?.cpu_time.as_ref());
    let (mut user_ns, mut system_ns) = (0u64, 0u64);
    for it in read {
        user_ns = user_ns.saturating_add(it.user_ns());
        system_ns = system_ns.saturating_add(it.system_ns());
    }
    let all_ns = user_ns.saturating_add(system_ns);
    (all_ns >= LEAST_NS).then(|| (all_ns, Share::of(system_ns, all_ns)))
}
