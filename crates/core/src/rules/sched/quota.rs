// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which levels of the cgroup tree throttled a group, and the kernel's counters there. The quota may be on a cgroup
//! above the group's own.

use super::evidence::Loss;
use crate::finding::{Cause, Entity, EntityKind, Evidence, Severity, Share, Unit};
use crate::recording::{CgroupId, Source};
use crate::rules::words::{cgroup_entity, evidence};
use crate::text::units;
use crate::view::{CgroupView, Group, View};

/// The levels whose quota throttled a group, the one that did so most first.
#[derive(Clone, Debug, Default)]
pub(super) struct Binding {
    /// Each level with its share of the throttling, 0..1.
    levels: Vec<(CgroupId, f64)>,
    /// How the level was chosen, if not by counters.
    guess: Option<&'static str>,
}

/// The levels that throttled a group in that cgroup: those whose `nr_throttled` rose, weighted by it; without any, the
/// level with the tightest quota.
pub(super) fn of(view: &View, cgroup: Option<CgroupId>) -> Binding {
    let path = cgroup.map(|id| view.cgroup_path(id)).unwrap_or_default();
    let weight = |level: &CgroupView| {
        level.nr_throttled.delta().filter(|&periods| periods > 0).map(|periods| periods as f64)
    };
    let mut counted: Vec<(CgroupId, f64)> =
        path.iter().filter_map(|(id, level)| Some((*id, weight(level)?))).collect();
    if counted.is_empty() {
        let limits = path.iter().filter_map(|(id, level)| Some((*id, level.limit_cpus()?)));
        let limits: Vec<_> = limits.collect();
        let guess = match limits.len() {
            1 => "the only level above it that has a quota",
            _ => "the tightest of the levels that have a quota; no counter says which one ran out",
        };
        let tightest = limits.into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
        return match tightest {
            Some((id, _)) => Binding { levels: vec![(id, 1.0)], guess: Some(guess) },
            None => Binding::default(),
        };
    }
    let whole: f64 = counted.iter().map(|(_, weight)| weight).sum();
    counted.iter_mut().for_each(|(_, weight)| *weight /= whole);
    // Stable sort: of equals, the level further down stays first.
    counted.sort_by(|a, b| b.1.total_cmp(&a.1));
    Binding { levels: counted, guess: None }
}

/// A binding to that level alone.
pub(super) fn of_level(id: CgroupId) -> Binding {
    Binding { levels: vec![(id, 1.0)], guess: None }
}

impl Binding {
    /// The level that throttled most.
    pub(super) fn level(&self) -> Option<CgroupId> {
        self.levels.first().map(|&(id, _)| id)
    }

    /// A level's share of the throttling, 0..1; 0 for a level that did not throttle.
    pub(super) fn part(&self, level: CgroupId) -> f64 {
        self.levels.iter().find(|(id, _)| *id == level).map_or(0.0, |&(_, part)| part)
    }

    /// Whether the levels were found by the kernel's counters, not guessed.
    pub(super) fn counted(&self) -> bool {
        !self.levels.is_empty() && self.guess.is_none()
    }

    /// The levels as causes.
    pub(super) fn causes(&self, view: &View) -> Vec<Cause> {
        if self.levels.is_empty() {
            let note = "the limits of its cgroups could not be read";
            let entity = Entity { note: Some(note.into()), ..Entity::new(EntityKind::Unknown) };
            return vec![Cause { entity, share: Share::WHOLE }];
        }
        let cause = |&(id, share): &(CgroupId, f64)| {
            let note = self.guess.map(str::to_owned);
            Cause {
                entity: Entity { note, ..cgroup_entity(view, id) },
                share: Share::saturating(share),
            }
        };
        self.levels.iter().map(cause).collect()
    }
}

/// Whether the delay of a group from `/proc/PID/schedstat` is due to a quota, by the counters of its cgroup or of
/// one above.
pub(super) fn throttles(view: &View, group: &Group<'_>) -> bool {
    let levels = group.cgroup.map(|id| view.cgroup_path(id)).unwrap_or_default();
    levels.iter().any(|(_, level)| counted_loss(view, level).is_some())
}

/// The loss by a level's counters, and its severity; `None` without a quota or below the limits. The loss is the time
/// of its throttled per-CPU queues, each of which held at least one thread.
pub(super) fn counted_loss(view: &View, quota: &CgroupView) -> Option<(Loss, Severity)> {
    let limit_cpus = quota.limit_cpus()?;
    let queues_ns = quota.throttled_ns.delta()?;
    // Where usage is not counted, the quota is the most that can have been used.
    let most_ns = (limit_cpus * view.window_ns() as f64) as u64;
    let wanted_ns = queues_ns + quota.usage_ns.delta().unwrap_or(most_ns);
    let loss = Loss::new(view, queues_ns, wanted_ns, wanted_ns);
    Some((loss, loss.severity()?))
}

/// Evidence lines: a level's quota and the kernel's counters of it.
pub(super) fn counters(view: &View, quota: &CgroupView) -> Vec<Evidence> {
    let label = Source::CgroupCpu.label();
    let line = |name, value, unit, note: String| evidence(view, name, value, unit, label, note);
    let mut all = Vec::new();
    if let (Some(facts), Some(cpus)) = (quota.facts.as_ref(), quota.limit_cpus()) {
        let us = |value: Option<u64>| units::value(value.unwrap_or(0) as f64, Unit::Us);
        let mut note = format!("{} in each period of {}", us(facts.quota_us), us(facts.period_us));
        if facts.burst_us.is_some_and(|burst_us| burst_us > 0) {
            note += &format!(", up to {} saved up for peaks", us(facts.burst_us));
        }
        if quota.limits_changed {
            note += "; it was changed within the window";
        }
        all.push(line("quota", cpus, Unit::Cpus, note));
    }
    if let Some(used_ns) = quota.usage_ns.delta() {
        let note = "on average, by everything in that cgroup".to_owned();
        all.push(line("CPU time used", view.per_second(used_ns) as f64 / 1e9, Unit::Cpus, note));
    }
    if let (Some(share), Some(periods), Some(throttled)) =
        (quota.throttled_share(), quota.nr_periods.delta(), quota.nr_throttled.delta())
    {
        let note = format!(
            "{} of {} with work",
            units::count(throttled as f64),
            units::count(periods as f64)
        );
        all.push(line("periods that ran out", share, Unit::Ratio, note));
    }
    if let Some(queues_ns) = quota.throttled_ns.delta() {
        let note = "a sum over its per-CPU queues, however many threads each held: not wall time, and equal to \
                    the threads' time only where one thread runs"
            .to_owned();
        all.push(line("throttled queues", queues_ns as f64, Unit::Ns, note));
    }
    all
}
