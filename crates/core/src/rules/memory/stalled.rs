// SPDX-License-Identifier: Apache-2.0 OR MIT
//! For what the threads of a group waited when memory was short. What they slept while they freed or moved memory is
//! measured. The rest has the only reason that is not ruled out, or it is not known.

use super::losses::{PAGE_WAIT, reclaimed};
use crate::finding::{MemoryPart, MemoryWait};
use crate::recording::{MemoryBound, ReclaimKind, Source, State};
use crate::view::{Counter, Group, MemoryCounters, ReclaimKey, View};
use std::cmp::Reverse;

/// Lost reclaims, as a part of all: with more, the rest may be reclaim that was not seen.
const TOLERATED: f64 = 0.01;

/// The kinds of reclaim, which the probe tells apart.
const RECLAIM: [(ReclaimKind, MemoryWait); 3] = [
    (ReclaimKind::Limit, MemoryWait::LimitReclaim),
    (ReclaimKind::Direct, MemoryWait::DirectReclaim),
    (ReclaimKind::Compaction, MemoryWait::Compaction),
];

/// The parts of a group's waiting for memory, which sum to it, the longest first; none if it did not wait, or reclaim was not
/// observed.
pub(in crate::rules) fn of(view: &View, group: &Group<'_>) -> Vec<MemoryPart> {
    let whole_ns = group.usage.as_ref().map_or(0, |usage| usage.states.mem_stall_ns);
    if whole_ns == 0 || !view.covers(Source::Reclaim) {
        return vec![];
    }
    let mut left_ns = whole_ns;
    let mut part = |kind, may_be, ns: u64| {
        let ns = ns.min(left_ns);
        left_ns -= ns;
        MemoryPart { kind, may_be, ns }
    };
    let mut parts = Vec::new();
    let (mut unmeasured, mut unmeasured_ns) = (Vec::new(), 0_u64);
    for (reclaim, kind) in RECLAIM {
        let of = reclaimed(view, group, |key| key.kind == reclaim);
        // At the window's begin, what began before it may be in one of both accounts only.
        parts.push(part(kind, vec![], of.memory_ns));
        if of.ns > of.known_ns {
            unmeasured.push(kind);
            unmeasured_ns = unmeasured_ns.saturating_add(of.ns - of.known_ns);
        }
    }
    // Of some reclaim it is not known how much of it was sleep: it may be in what is left.
    parts.push(part(MemoryWait::NotKnown, unmeasured, unmeasured_ns));
    // Threads of the kernel that free memory in the background are not seen to do that.
    let (kind, may_be) = match group.is_kernel() {
        true => (MemoryWait::NotKnown, vec![]),
        false => rest(view, group, left_ns),
    };
    parts.push(MemoryPart { kind, may_be, ns: left_ns });
    parts.retain(|part| part.ns > 0);
    // Stable: equals stay in the order of their kinds.
    parts.sort_by_key(|part| Reverse(part.ns));
    parts
}

/// Why a group waited for memory without freeing or moving any: by what was observed, or what it may be.
fn rest(view: &View, group: &Group<'_>, ns: u64) -> (MemoryWait, Vec<MemoryWait>) {
    let keys = || group.members.iter().flat_map(|(id, _)| view.reclaim().of(*id));
    let any = |is: &dyn Fn(&ReclaimKey) -> bool| keys().any(|(key, _)| is(&key));
    let all_seen = view.coverage(Source::Reclaim) == Some(&State::Active) && !lost_some(view);
    // Before the kernel makes a thread pause above `memory.high`, the thread frees memory there.
    let above_high = any(&|key| {
        let may_be_high = key.bound.is_none_or(|bound| bound == MemoryBound::High);
        key.kind == ReclaimKind::Limit && may_be_high
    });
    let direct = any(&|key| key.kind == ReclaimKind::Direct);
    let counters = view.reclaim().counters(None);
    let came_back = |of: fn(&MemoryCounters) -> &Counter| {
        counters.is_none_or(|it| of(it).delta().is_none_or(|pages| pages > 0))
    };
    let candidates = [
        (MemoryWait::LimitReclaim, !all_seen),
        (MemoryWait::DirectReclaim, !all_seen),
        (MemoryWait::Compaction, !all_seen),
        (MemoryWait::RefaultFile, came_back(|it| &it.refaults_file)),
        (MemoryWait::RefaultSwap, came_back(|it| &it.refaults_anon)),
        (MemoryWait::AboveHigh, above_high || !all_seen),
        (MemoryWait::BesideReclaim, direct || !all_seen),
    ];
    let may_be: Vec<MemoryWait> =
        candidates.into_iter().filter(|(_, is_possible)| *is_possible).map(|(it, _)| it).collect();
    // Of the whole host: whoever waits for a page may not be the one that asked for it.
    let pages = counters.and_then(MemoryCounters::refaults).unwrap_or(0);
    let enough = pages as f64 * PAGE_WAIT.value * 1e6 >= ns as f64;
    match may_be.as_slice() {
        [only @ (MemoryWait::RefaultFile | MemoryWait::RefaultSwap)] if enough => (*only, vec![]),
        [MemoryWait::AboveHigh] => (MemoryWait::AboveHigh, vec![]),
        _ => (MemoryWait::NotKnown, may_be),
    }
}

/// Whether so much reclaim was lost that the rest may be that.
fn lost_some(view: &View) -> bool {
    let lost = view.observer().lost.iter().filter(|(name, _)| name.starts_with("reclaim_"));
    let lost = lost.map(|(_, amount)| *amount).fold(0, u64::saturating_add);
    lost as f64 > view.reclaim().count() as f64 * TOLERATED
}
