// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages that a group reads from a disk although they were in memory a short while ago, where the kernel counts the waiting as
//! block IO: it marks only that for pages which were in use for longer as waiting for memory (`PG_workingset`).

use super::losses::MemoryLoss;
use crate::recording::IoOp;
use crate::recording::Source;
use crate::rules::Limit;
use crate::view::{Group, Usage, View};

/// Which part of what a group read must have been in memory.
pub(super) const READ_AGAIN: Limit = Limit {
    name: "read_again",
    value: 0.5,
    unit: "of what the victim read from disks had been in memory a short while ago",
    why: "with less, most of its waiting for the disk has another reason",
};
/// Of a group's transfers: one that writes more waits for that, too.
const WRITES: f64 = 0.1;

/// What a group read from disks, and how much of it at least had been in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadAgain {
    pub(super) read_bytes: u64,
    pub(super) again_bytes: u64,
    /// Of its waiting for block IO, the same part.
    pub(super) ns: u64,
}

impl ReadAgain {
    /// That of a group; `None` if it is too little, or cannot be known. Pages that come back are counted for the whole host: those
    /// that others may have read are taken off.
    pub(super) fn of(view: &View, group: &Group<'_>, usage: &Usage) -> Option<Self> {
        if !view.covers(Source::Block) {
            return None;
        }
        let activated = view.reclaim().counters(None)?.activated_bytes.delta()?;
        let is_member = |id| group.members.iter().any(|(member, _)| *member == id);
        let (mut all_bytes, mut read_bytes, mut reads, mut writes) = (0_u64, 0_u64, 0_u64, 0_u64);
        for (key, sum) in view.block().sums() {
            let own = key.submitter.is_some_and(is_member);
            if key.op == IoOp::Read {
                all_bytes = all_bytes.saturating_add(sum.bytes);
                read_bytes = read_bytes.saturating_add(if own { sum.bytes } else { 0 });
                reads = reads.saturating_add(if own { sum.ios } else { 0 });
            } else if own {
                writes = writes.saturating_add(sum.ios);
            }
        }
        let of_others = all_bytes.saturating_sub(read_bytes);
        let again_bytes = activated.saturating_sub(of_others).min(read_bytes);
        let share = again_bytes as f64 / read_bytes.max(1) as f64;
        let is_enough = share >= READ_AGAIN.value && writes as f64 <= WRITES * reads as f64;
        let ns = (usage.states.block_io_ns as f64 * share) as u64;
        is_enough.then_some(Self { read_bytes, again_bytes, ns })
    }

    /// The loss of the group, `waits_ns` of waiting for memory with it.
    pub(super) fn loss(&self, view: &View, usage: &Usage, waits_ns: u64) -> MemoryLoss {
        let ns = waits_ns.saturating_add(self.ns);
        let MemoryLoss { ns, ns_per_s, .. } = MemoryLoss::of(view, usage, ns);
        let wanted_ns = usage
            .wanted_ns()
            .saturating_add(usage.states.mem_stall_ns)
            .saturating_add(usage.states.block_io_ns);
        MemoryLoss { ns, ns_per_s, share: (ns as f64 / wanted_ns.max(1) as f64).min(1.0) }
    }
}
