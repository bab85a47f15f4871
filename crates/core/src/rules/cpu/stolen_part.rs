// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much of a machine's steal time falls on the target.
//!
//! A steal counter belongs to a CPU, not to a thread. It rises while that CPU has something to run, so in each second
//! the steal time falls on the threads that are on CPUs then. On which CPUs the target ran is not known, so it gets its
//! share of their CPU time.

use crate::finding::{Entity, EntityKind, Severity};
use crate::rules::candidates::{may_suffer, target_is_host};
use crate::rules::words::{group_entity, group_name};
use crate::rules::{Limit, severity};
use crate::view::{CpuTotals, Group, Series, View};

pub(super) const BUSY_HOST: Limit = Limit {
    name: "busy_host",
    value: 0.25,
    unit: "of the CPUs' time in which they have something to run",
    why: "on a host that does less, what counts is who loses most: time taken from housekeeping is not felt",
};

/// What a group lost to the hypervisor, in nanoseconds of the window.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StolenTime {
    /// The group that lost it; the host if the target has several groups.
    pub(super) victim: Entity,
    pub(super) name: String,
    /// Expected loss; `least_ns` and `most_ns` are its certain bounds.
    pub(super) ns: u64,
    pub(super) least_ns: u64,
    pub(super) most_ns: u64,
    /// Time in which the group wanted to run.
    pub(super) wanted_ns: u64,
}

impl StolenTime {
    /// Expected loss as a share of the time in which the group wanted to run, 0..1.
    pub(super) fn share(&self) -> f64 {
        (self.ns as f64 / self.wanted_ns.max(1) as f64).min(1.0)
    }

    pub(super) fn severity(&self, view: &View) -> Option<Severity> {
        severity::of_loss(view.per_second(self.ns), self.share())
    }
}

/// The loss of the target; if that is the whole host, the loss of the group that lost most. `None` if no group was
/// observed.
pub(super) fn of(view: &View, totals: &CpuTotals) -> Option<StolenTime> {
    let groups = view.groups();
    let (stolen_ns, busy_ns) = (totals.steal_ns, totals.busy_ns + totals.steal_ns);
    let of_group = |group: &Group<'_>| {
        let demand = demand(group)?;
        let wanted_ns = demand.wanted_ns;
        let Estimate { ns, least_ns, most_ns } = demand.part_of(stolen_ns, busy_ns);
        let (victim, name) = (group_entity(view, group), group_name(group));
        Some(StolenTime { victim, name, ns, least_ns, most_ns, wanted_ns })
    };
    let suffering = groups.list().iter().filter(|group| may_suffer(view, group));
    let parts: Vec<StolenTime> = suffering.filter_map(of_group).collect();
    let most = parts.iter().enumerate().max_by_key(|(at, part)| (part.ns, std::cmp::Reverse(*at)));
    let most = most.map(|(_, part)| part.clone())?;
    if target_is_host(view) {
        return Some(most);
    }
    let sum = |of: fn(&StolenTime) -> u64| parts.iter().map(of).sum::<u64>();
    let wanted_ns = sum(|part| part.wanted_ns);
    let Estimate { ns, least_ns, most_ns } = by_second(view).unwrap_or_else(|| Estimate {
        ns: sum(|part| part.ns),
        least_ns: sum(|part| part.least_ns),
        most_ns: sum(|part| part.most_ns).min(stolen_ns),
    });
    let (victim, name) = match parts.len() {
        1 => (most.victim, most.name),
        _ => (Entity::new(EntityKind::Host), "the target".into()),
    };
    Some(StolenTime { victim, name, ns, least_ns, most_ns, wanted_ns })
}

/// What each CPU of a host loses on average, in nanoseconds of the window and as a share of the time in which it had
/// work. `None` if the target is not the whole host, or the host is less than [`BUSY_HOST`] busy.
pub(super) fn of_each_cpu(view: &View, totals: &CpuTotals) -> Option<(u64, f64)> {
    let cpus = u64::from(view.cpu_count().max(1));
    let wanted_ns = totals.busy_ns + totals.steal_ns;
    let busy = wanted_ns as f64 / (wanted_ns + totals.idle_ns).max(1) as f64;
    (target_is_host(view) && busy >= BUSY_HOST.value)
        .then(|| Some((totals.steal_ns / cpus, totals.stolen_share()?)))?
}

/// How much of steal time falls on somebody, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Estimate {
    /// Expected.
    ns: u64,
    /// At least.
    least_ns: u64,
    /// At most.
    most_ns: u64,
}

impl Estimate {
    fn plus(self, other: Self) -> Self {
        Self {
            ns: self.ns + other.ns,
            least_ns: self.least_ns + other.least_ns,
            most_ns: self.most_ns + other.most_ns,
        }
    }
}

/// What a group or the target asked of the CPUs.
#[derive(Clone, Copy, Debug)]
struct Demand {
    /// CPU time.
    on_cpu_ns: u64,
    /// Time in which it wanted to run.
    wanted_ns: u64,
}

fn demand(group: &Group<'_>) -> Option<Demand> {
    let (on_cpu_ns, wanted_ns) = match (&group.usage, &group.delay) {
        (Some(usage), _) => (usage.states.on_cpu_ns, usage.wanted_ns()),
        (None, Some(delay)) => (delay.on_cpu_ns, delay.wanted_ns()),
        (None, None) => return None,
    };
    Some(Demand { on_cpu_ns, wanted_ns })
}

impl Demand {
    /// What falls on it of `stolen_ns` while CPUs had work for `busy_ns` in all (steal included). The least is what
    /// exceeds the CPU time of all others, who cannot have lost more than that.
    fn part_of(self, stolen_ns: u64, busy_ns: u64) -> Estimate {
        let Self { on_cpu_ns, wanted_ns } = self;
        // The counters have a resolution of 10 ms: a group may have run for longer than they say.
        let busy_ns = busy_ns.max(on_cpu_ns).max(1);
        let ns = (u128::from(stolen_ns) * u128::from(on_cpu_ns) / u128::from(busy_ns)) as u64;
        let most_ns = stolen_ns.min(wanted_ns);
        let least_ns = stolen_ns.saturating_sub(busy_ns - on_cpu_ns).min(ns);
        Estimate { ns, least_ns, most_ns: most_ns.max(ns) }
    }
}

/// The sum over the seconds of the window; `None` if it is not known when the target ran.
fn by_second(view: &View) -> Option<Estimate> {
    let target = view.target_load();
    if target.on_cpu.total() == 0 {
        return None;
    }
    let cpus = || view.cpus().values();
    let load = [&target.on_cpu, &target.queued, &target.throttled];
    let all = cpus().flat_map(|cpu| [&cpu.stolen, &cpu.wanted]).chain(load);
    let width_ns = all.map(Series::width_ns).max()?.max(1_000_000_000);
    let sum = |series: Vec<&Series>| {
        let mut sum: Vec<u64> = vec![];
        for bins in series.into_iter().map(|series| series.in_bins_of(width_ns)) {
            sum.resize(sum.len().max(bins.len()), 0);
            sum.iter_mut().zip(bins).for_each(|(sum, bin)| *sum = sum.saturating_add(bin));
        }
        sum
    };
    let stolen = sum(cpus().map(|cpu| &cpu.stolen).collect());
    let busy = sum(cpus().map(|cpu| &cpu.wanted).collect());
    let (on_cpu, wanted) = (sum(vec![&target.on_cpu]), sum(load.to_vec()));
    let at = |bins: &[u64], second: usize| bins.get(second).copied().unwrap_or(0);
    let seconds = (0..stolen.len()).map(|second| {
        let demand = Demand { on_cpu_ns: at(&on_cpu, second), wanted_ns: at(&wanted, second) };
        demand.part_of(stolen[second], at(&busy, second))
    });
    Some(seconds.fold(Estimate::default(), Estimate::plus))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn who_is_alone_loses_all_and_who_rests_nothing() {
        let part = |on_cpu_ns, wanted_ns| Demand { on_cpu_ns, wanted_ns }.part_of(300, 1000);
        let estimate = |ns, least_ns, most_ns| Estimate { ns, least_ns, most_ns };
        assert_eq!(part(1000, 1200), estimate(300, 300, 300));
        assert_eq!(part(0, 0), estimate(0, 0, 0));
        assert_eq!(part(40, 50), estimate(12, 0, 50));
        assert_eq!(part(900, 900), estimate(270, 200, 300));
    }

    proptest! {
        #[test]
        fn the_estimate_is_within_its_bounds(
            stolen in 0..1_000_000u64, ran in 0..1_000_000u64, on_cpu in 0..2_000_000u64, queued in 0..1_000_000u64,
        ) {
            let demand = Demand { on_cpu_ns: on_cpu, wanted_ns: on_cpu + queued };
            let part = demand.part_of(stolen, stolen + ran);
            prop_assert!(part.least_ns <= part.ns && part.ns <= part.most_ns, "{part:?}");
            prop_assert!(part.most_ns <= stolen.max(part.ns), "{part:?}");
            prop_assert!(part.ns <= on_cpu.max(1), "{part:?} of {on_cpu}");
        }
    }
}
