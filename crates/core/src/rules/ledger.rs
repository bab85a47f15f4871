// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time ledgers. For a group of processes: where the wall time of its threads went, in parts that sum to it. For a
//! whole host: where the time went in which its threads wanted to run.

use super::block::support::beside_others;
use super::words::group_entity;
use super::{asleep, candidates, cpu_split, interrupts, memory, sched};
use crate::finding::{Entity, EntityKind, Ledger, LedgerPart, LedgerState};
use crate::recording::check::{fits, roughly_fits};
use crate::view::{Delay, Group, Groups, View};

/// In the report on a whole host, a group that lost less than this gets no ledger; nanoseconds per second.
const LOST_NS_PER_S: u64 = 1_000_000;

/// The ledger of a group; `None` if neither the scheduler probe nor schedstat saw it.
pub(super) fn of(view: &View, groups: &Groups<'_>, at: usize) -> Option<Ledger> {
    let group = &groups.list()[at];
    let (wall_ns, threads, parts) = match (&group.usage, &group.delay) {
        (Some(usage), _) => (usage.wall_ns, usage.threads_max, usage.by_state().to_vec()),
        (None, Some(delay)) => (delay.wall_ns, delay.threads_max, parts_of_delay(delay)),
        (None, None) => return None,
    };
    let mut parts: Vec<LedgerPart> =
        parts.into_iter().map(|(state, ns)| LedgerPart { state, ns }).collect();
    let known_ns: u64 = parts.iter().map(|part| part.ns).sum();
    // The clocks of two CPUs differ by microseconds, so the known parts may exceed the wall time by that much. A larger
    // excess was counted twice and is reported.
    let tolerated = if group.usage.is_some() { fits } else { roughly_fits };
    let excess_ns = if tolerated(known_ns, wall_ns) { 0 } else { known_ns.saturating_sub(wall_ns) };
    let wall_ns = wall_ns.max(known_ns);
    parts.push(LedgerPart { state: LedgerState::Unattributed, ns: wall_ns - known_ns });
    let mut tails = vec![];
    if group.in_target {
        tails.extend(sched::tails::all(view, groups, at));
        tails.extend(beside_others::tail_at(view, groups, at));
    }
    let victim = group_entity(view, group);
    let asleep = asleep::of(view, group);
    let in_kernel = cpu_split::of(view, group).map(|(_, share)| share);
    let (interrupted, interrupted_by) = interrupts::taken::of_cpu_time(view, group).unzip();
    Some(Ledger {
        victim,
        awaited: false,
        wall_ns,
        threads,
        parts,
        in_kernel,
        interrupted,
        interrupted_by: interrupted_by.unwrap_or_default(),
        mem_stall_by: memory::stalled::of(view, group),
        tasks_of: if asleep.is_empty() { vec![] } else { asleep::tasks::of(group) },
        asleep,
        excess_ns,
        unseen_ns: 0,
        tails,
    })
}

/// The ledger of the host: the time in which its threads wanted to run. `None` if none was seen.
pub(super) fn of_host(view: &View) -> Option<Ledger> {
    let (mut on_cpu_ns, mut queued_ns, mut throttled_ns, mut delay_ns) = (0, 0, 0, 0);
    let (mut threads, mut unseen_ns) = (0u32, 0);
    for process in view.processes().values() {
        match (process.usage(), &process.delay) {
            (Some(usage), _) => {
                on_cpu_ns += usage.states.on_cpu_ns;
                queued_ns += usage.states.queued_ns;
                throttled_ns += usage.states.throttled_ns;
                threads = threads.saturating_add(usage.threads_max);
                if usage.is_much_unattributed() {
                    unseen_ns += usage.unattributed_ns();
                }
            }
            (None, Some(delay)) => {
                on_cpu_ns += delay.on_cpu_ns;
                delay_ns += delay.delay_ns;
                threads = threads.saturating_add(delay.threads_max);
            }
            (None, None) => {}
        }
    }
    let by_probe = view.processes().values().any(|process| process.has_usage());
    let mut parts = vec![(LedgerState::OnCpu, on_cpu_ns)];
    if by_probe {
        parts.extend([(LedgerState::Queued, queued_ns), (LedgerState::Throttled, throttled_ns)]);
    }
    if !by_probe || delay_ns > 0 {
        parts.push((LedgerState::QueuedOrThrottled, delay_ns));
    }
    let parts: Vec<_> = parts.into_iter().map(|(state, ns)| LedgerPart { state, ns }).collect();
    let wall_ns = parts.iter().map(|part| part.ns).sum();
    let victim = Entity::new(EntityKind::Host);
    let tails = vec![];
    (wall_ns > 0).then_some(Ledger {
        victim,
        awaited: false,
        wall_ns,
        threads,
        parts,
        in_kernel: None,
        interrupted: None,
        interrupted_by: vec![],
        mem_stall_by: vec![],
        asleep: vec![],
        tasks_of: vec![],
        excess_ns: 0,
        unseen_ns,
        tails,
    })
}

/// Whether a group lost enough time to get a ledger in the report on a whole host.
pub(super) fn lost_something(view: &View, group: &Group<'_>) -> bool {
    candidates::may_suffer(view, group) && view.per_second(lost_ns(group)) >= LOST_NS_PER_S
}

/// Time that a group lost, in nanoseconds: contention, throttling, block IO and memory stalls; without the probe,
/// run-queue delay.
pub(super) fn lost_ns(group: &Group<'_>) -> u64 {
    match (&group.usage, &group.delay) {
        (Some(usage), _) => {
            let states = &usage.states;
            usage.contended_ns() + states.throttled_ns + states.block_io_ns + states.mem_stall_ns
        }
        (None, Some(delay)) => delay.delay_ns,
        (None, None) => 0,
    }
}

fn parts_of_delay(delay: &Delay) -> Vec<(LedgerState, u64)> {
    vec![(LedgerState::OnCpu, delay.on_cpu_ns), (LedgerState::QueuedOrThrottled, delay.delay_ns)]
}

/// Sort key of the ledgers that no finding asks for: lost time (queued, throttled, stalled, uninterruptible), then CPU
/// time; nanoseconds.
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
