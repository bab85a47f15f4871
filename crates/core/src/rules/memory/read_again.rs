// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages that a group reads from a disk although they were in memory a short while ago, where the kernel counts the waiting as
//! block IO: it marks only that for pages which were in use for longer as waiting for memory (`PG_workingset`).

use super::losses::MemoryLoss;
use crate::recording::{IoOp, ProcId, Source, StallKind};
use crate::rules::Limit;
use crate::view::block::IoSum;
use crate::view::{Group, Usage, View};
use std::collections::BTreeSet;

/// Which part of what a group read must have been in memory.
pub(super) const READ_AGAIN: Limit = Limit {
    name: "read_again",
    value: 0.5,
    unit: "of what the victim read from disks had been in memory a short while ago",
    why: "with less, most of its waiting for the disk has another reason",
};
/// Of the time of a group's transfers: one that writes more waits for that, too.
const WRITES: f64 = 0.1;
/// Less is within what the kernel's counters lag behind by, which each CPU adds up now and then.
const LEAST_BYTES: u64 = 4 << 20;

/// What a group read from disks, and how much of it at least had been in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadAgain {
    pub(super) read_bytes: u64,
    pub(super) again_bytes: u64,
    /// Of its waiting for reads, the same part.
    pub(super) ns: u64,
}

impl ReadAgain {
    /// That of a group; `None` if it is too little, or cannot be known. Pages that come back are counted for the whole host: those
    /// that others may have read are taken off.
    pub(super) fn of(view: &View, group: &Group<'_>, usage: &Usage) -> Option<Self> {
        let block_io_ns = usage.states.block_io_ns;
        if block_io_ns == 0 || !view.covers(Source::Block) {
            return None;
        }
        let activated = view.reclaim().counters(None)?.read_again_bytes()?;
        if activated < LEAST_BYTES {
            return None;
        }
        let members: BTreeSet<ProcId> = group.members.iter().map(|(id, _)| *id).collect();
        let [mut all, mut reads, mut writes] = [IoSum::default(); 3];
        for (key, sum) in view.block().sums() {
            let own = key.submitter.is_some_and(|id| members.contains(&id));
            match key.op {
                IoOp::Read => {
                    all.merge(sum);
                    if own {
                        reads.merge(sum);
                    }
                }
                _ if own => writes.merge(sum),
                _ => {}
            }
        }
        // More came back than all disks read: some came from elsewhere, as from a network filesystem.
        if activated > all.bytes || writes.total_ns as f64 > WRITES * reads.total_ns as f64 {
            return None;
        }
        let of_others = all.bytes.saturating_sub(reads.bytes);
        let again_bytes = activated.saturating_sub(of_others);
        let share = again_bytes as f64 / reads.bytes.max(1) as f64;
        let waits_ns = block_io_ns.saturating_sub(held_up_ns(view, group)).min(reads.total_ns);
        let is_enough = share >= READ_AGAIN.value && again_bytes >= LEAST_BYTES;
        let ns = (waits_ns as f64 * share) as u64;
        is_enough.then_some(Self { read_bytes: reads.bytes, again_bytes, ns })
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

/// Waiting of a group for block IO to read again what was in memory a short while ago, as far as that is certain.
pub(in crate::rules) fn reads_again_ns(view: &View, group: &Group<'_>) -> u64 {
    let usage = group.usage.as_ref();
    usage.and_then(|usage| ReadAgain::of(view, group, usage)).map_or(0, |it| it.ns)
}

/// Waiting of a group for its files to be synced, and in which the kernel paused it because too much was dirty.
fn held_up_ns(view: &View, group: &Group<'_>) -> u64 {
    let waits = group.members.iter().flat_map(|(id, _)| view.block().waits_of(*id));
    let held = waits.filter(|((_, kind, _), _)| *kind != StallKind::Request);
    held.map(|(_, it)| it.waits.total_ns()).fold(0, u64::saturating_add)
}
