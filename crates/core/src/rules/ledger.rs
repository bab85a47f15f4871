// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the wall time of a group of processes went, in parts that sum to it.

use super::words::group_entity;
use crate::finding::{Ledger, LedgerPart, LedgerState};
use crate::view::{Delay, Group, Usage, View};

/// The ledger of a group; `None` if neither source saw it.
pub(super) fn of(view: &View, group: &Group<'_>) -> Option<Ledger> {
    let (wall_ns, threads, parts) = match (&group.usage, &group.delay) {
        (Some(usage), _) => (usage.wall_ns, usage.threads_max, parts_of_usage(usage)),
        (None, Some(delay)) => (delay.wall_ns, delay.threads_max, parts_of_delay(delay)),
        (None, None) => return None,
    };
    let mut parts: Vec<LedgerPart> =
        parts.into_iter().map(|(state, ns)| LedgerPart { state, ns }).collect();
    let known_ns: u64 = parts.iter().map(|part| part.ns).sum();
    // Clocks of two CPUs differ by microseconds: what is known may exceed the wall time by that.
    let wall_ns = wall_ns.max(known_ns);
    parts.push(LedgerPart { state: LedgerState::Unattributed, ns: wall_ns - known_ns });
    Some(Ledger { victim: group_entity(view, group), wall_ns, threads, parts })
}

fn parts_of_usage(usage: &Usage) -> Vec<(LedgerState, u64)> {
    let states = &usage.states;
    vec![
        (LedgerState::OnCpu, states.on_cpu_ns),
        (LedgerState::Queued, states.queued_ns),
        (LedgerState::Throttled, states.throttled_ns),
        (LedgerState::BlockIo, states.block_io_ns),
        (LedgerState::MemStall, states.mem_stall_ns),
        (LedgerState::Uninterruptible, states.uninterruptible_ns),
        (LedgerState::Sleep, states.sleep_ns),
        (LedgerState::Stopped, states.stopped_ns),
    ]
}

fn parts_of_delay(delay: &Delay) -> Vec<(LedgerState, u64)> {
    vec![(LedgerState::OnCpu, delay.on_cpu_ns), (LedgerState::QueuedOrThrottled, delay.delay_ns)]
}

/// What orders ledgers that no finding asks for: time that the group wanted but did not have, then time that
/// it used.
pub(super) fn weight(group: &Group<'_>) -> (u64, u64) {
    match (&group.usage, &group.delay) {
        (Some(usage), _) => {
            let states = &usage.states;
            let stalled_ns = states.block_io_ns + states.mem_stall_ns + states.uninterruptible_ns;
            (states.queued_ns + states.throttled_ns + stalled_ns, states.on_cpu_ns)
        }
        (None, Some(delay)) => (delay.delay_ns, delay.on_cpu_ns),
        (None, None) => (0, 0),
    }
}
