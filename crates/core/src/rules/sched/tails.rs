// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tails that waiting for a CPU and throttling cause for a group.

use super::evidence::turns;
use super::quota;
use crate::finding::{Tail, TailOf};
use crate::recording::{WaitHist, bucket_of};
use crate::rules::tail::{self, ExcludedWaiting};
use crate::view::{Group, GroupCulprit, Groups, View};

/// The tails of both kinds: run-queue waits, then throttling.
pub(in crate::rules) fn all(
    view: &View,
    groups: &Groups<'_>,
    at: usize,
) -> impl Iterator<Item = Tail> {
    of_waits(view, groups, at).into_iter().chain(of_throttling(view, &groups.list()[at]))
}

/// The tail that run-queue waits cause for a group of the target. Waiting behind the observer is excused: OBS003
/// reports it.
pub(super) fn of_waits(view: &View, groups: &Groups<'_>, at: usize) -> Option<Tail> {
    let usage = groups.list()[at].usage.as_ref()?;
    let turns = turns(view, usage)?;
    let blame = groups.blame(at);
    let is_observer = |behind: &GroupCulprit| match behind {
        GroupCulprit::Group(other) => groups.list()[*other].is_observer(),
        _ => false,
    };
    let observers_ns: u64 = blame.iter().filter(|it| is_observer(it.0)).map(|it| it.1).sum();
    let blamed_ns = blame.values().sum::<u64>().max(1);
    let excused = ExcludedWaiting {
        nobodys_ns: usage.wakeup_latency_ns,
        observers_share: observers_ns as f64 / blamed_ns as f64,
    };
    tail::of_waits(TailOf::RunQueue, turns, &usage.waits, excused)
}

/// The tail that throttling causes for a group of the target. The number of stops is the quota's `nr_throttled`. Their
/// mean length is a lower bound: as if each stop had stopped all threads of the group, or all per-CPU queues of the
/// quota, at once.
pub(super) fn of_throttling(view: &View, group: &Group<'_>) -> Option<Tail> {
    let usage = group.usage.as_ref()?;
    let (turns, turn_ns) = turns(view, usage)?;
    let quota = view.cgroups().get(&quota::of(view, group.cgroup).level()?)?;
    let stops = quota.nr_throttled.delta().filter(|&stops| stops > 0)?;
    let throttled_ns = usage.states.throttled_ns;
    let queues_ns = quota.throttled_ns.delta().unwrap_or(0);
    let by_threads_ns = throttled_ns / u64::from(usage.threads_max.max(1));
    let by_queues_ns = queues_ns / u64::from(view.cpu_count().max(1));
    let stop_ns = by_threads_ns.max(by_queues_ns).min(throttled_ns) / stops;
    let mut waits = WaitHist::default();
    waits.count[bucket_of(stop_ns)] = stops.min(turns);
    waits.ns[bucket_of(stop_ns)] = stops.min(turns) * stop_ns;
    tail::of_waits(TailOf::Throttled, (turns, turn_ns), &waits, ExcludedWaiting::default())
}
