// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much CPU time all processes under a quota want, and whether a larger quota would be enough.

use super::quota::Binding;
use crate::recording::CgroupId;
use crate::view::{CgroupView, Group, View};

/// The processes that were seen must account for at least this share of the CPU time that the kernel counted under a
/// quota.
const SEEN: f64 = 0.9;
/// A promise is made only if at most this share of the throttled time is left.
pub(super) const LEFT: f64 = 0.25;

/// Demand of the processes in a cgroup and below it, whether they belong to the target or not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// CPU time and throttled time, in nanoseconds.
    pub(super) wanted_ns: u64,
    /// Throttled time, in nanoseconds.
    stopped_ns: u64,
    /// Whether all or nearly all of the quota's users ([`SEEN`]) were observed.
    seen: bool,
}

/// The demand under a level, from the ledgers of all processes in it.
pub(super) fn of_level(view: &View, groups: &[Group<'_>], id: CgroupId) -> Demand {
    let below = |group: &&Group<'_>| {
        let path = group.cgroup.map(|at| view.cgroup_path(at)).unwrap_or_default();
        path.iter().any(|(level, _)| *level == id)
    };
    let usages = groups.iter().filter(below).filter_map(|group| group.usage.as_ref());
    let (on_cpu_ns, stopped_ns) = usages.fold((0, 0), |(on_cpu, stopped), usage| {
        (on_cpu + usage.states.on_cpu_ns, stopped + usage.states.throttled_ns)
    });
    let used_ns = view.cgroups().get(&id).and_then(used_at_most_ns);
    Demand {
        wanted_ns: on_cpu_ns.max(used_ns.unwrap_or(0)) + stopped_ns,
        stopped_ns,
        seen: used_ns.is_some_and(|used_ns| on_cpu_ns as f64 >= SEEN * used_ns as f64),
    }
}

/// The demand under a level by the kernel's counters alone: each throttled per-CPU queue is taken to want one CPU.
pub(super) fn of_counters(wanted_ns: u64, queues_ns: u64) -> Demand {
    Demand { wanted_ns, stopped_ns: queues_ns, seen: true }
}

/// CPU time used under a quota, in nanoseconds. Where usage is not counted (cgroup v1 without cpuacct): the quota times
/// the number of periods with work, an upper bound.
fn used_at_most_ns(level: &CgroupView) -> Option<u64> {
    level.usage_ns.delta().or_else(|| {
        let quota_us = level.facts.as_ref()?.quota_us?;
        Some(quota_us.saturating_mul(1000).saturating_mul(level.nr_periods.delta()?))
    })
}

/// A quota to be raised.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuotaIncrease<'a> {
    /// The cgroup that has the quota.
    pub(super) id: CgroupId,
    /// The victim's cgroup, or the level's own where no victim is known.
    pub(super) from: CgroupId,
    /// The demand under it.
    pub(super) demand: Demand,
    /// How it was found that this level binds.
    pub(super) binding: &'a Binding,
    /// All groups of the view.
    pub(super) groups: &'a [Group<'a>],
}

impl QuotaIncrease<'_> {
    /// Why it cannot be promised that a quota of `cpus` CPUs leaves at most [`LEFT`] of the throttled time; `None` if
    /// it can.
    pub(super) fn doubt(&self, view: &View, cpus: f64) -> Option<&'static str> {
        let level = view.cgroups().get(&self.id)?;
        let Some(limit_cpus) = level.limit_cpus() else { return Some("its quota is not known") };
        if !self.binding.counted() {
            return Some("no counter says which quota ran out, so it may be another one");
        }
        if !self.demand.seen {
            return Some(
                "not all who use this quota were seen: what they want is not known, and the new one may be too small \
                 as well",
            );
        }
        if level.limits_changed {
            return Some("the quota was changed meanwhile: how far a new one carries is not known");
        }
        if self.others_bind(view, cpus) {
            return Some(
                "another quota above or below it may stop them next, or not let it be raised",
            );
        }
        let part = self.binding.part(self.id);
        let left = part * self.stops_left(view, level, cpus - limit_cpus) + (1.0 - part);
        // A quota of as many CPUs as the host has cannot run out.
        let whole_host = cpus >= f64::from(view.cpu_count()) && part >= 1.0;
        (left > LEFT && !whole_host).then_some(
            "where the quota runs out, more may be missing than this adds: it is enough for the mean, perhaps not for \
             peaks",
        )
    }

    /// The share of the throttled time that is left with `more_cpus` more CPUs of quota. The throttled thread time
    /// divided by the length of the periods in which the quota ran out is the number of CPUs that were missing in
    /// these; throttled time shrinks at least in proportion to the part of them that the raise adds.
    fn stops_left(&self, view: &View, level: &CgroupView, more_cpus: f64) -> f64 {
        let period_us = level.facts.as_ref().and_then(|facts| facts.period_us).unwrap_or(0);
        let stops = level.nr_throttled.delta().unwrap_or(0);
        let in_ns = (stops as f64 * period_us as f64 * 1e3).min(view.window_ns() as f64);
        let missing_cpus = self.demand.stopped_ns as f64 / in_ns.max(1.0);
        if missing_cpus > 0.0 { (1.0 - more_cpus / missing_cpus).max(0.0) } else { 0.0 }
    }

    /// Whether another level on the victim's path has a quota that is too small as well, or does not allow the raise. A
    /// level whose demand was not fully seen counts as too small.
    fn others_bind(&self, view: &View, cpus: f64) -> bool {
        let path = view.cgroup_path(self.from);
        let at = path.iter().position(|(id, _)| *id == self.id);
        path.iter().enumerate().filter(|(_, (id, _))| *id != self.id).any(|(i, (id, level))| {
            let Some(limit_cpus) = level.limit_cpus() else { return false };
            let demand = of_level(view, self.groups, *id);
            let wanted_cpus = view.per_second(demand.wanted_ns) as f64 / 1e9;
            // On cgroup v1, a quota may not be larger than that of a level above it.
            let is_below = at.is_some_and(|at| i < at);
            !demand.seen || wanted_cpus > limit_cpus || !is_below && limit_cpus < cpus
        })
    }
}
