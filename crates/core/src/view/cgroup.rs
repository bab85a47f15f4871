// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cgroups: CPU limits, and the increase of the CPU counters within the window.

use crate::recording::{Cgroup, CgroupReading};

/// First and last reading of a cumulative counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    first: Option<u64>,
    last: Option<u64>,
    readings: u32,
    reset: bool,
}

impl Counter {
    /// Adds a reading; `None` (the kernel has no such item) is ignored.
    pub fn push(&mut self, reading: Option<u64>) {
        let Some(value) = reading else { return };
        self.reset |= self.last.is_some_and(|last| value < last);
        self.first.get_or_insert(value);
        self.last = Some(value);
        self.readings = self.readings.saturating_add(1);
    }

    /// Increase from the first to the last reading. `None` with fewer than two readings, or if the counter ever
    /// decreased: it was reset, or belongs to a different object by now.
    #[must_use]
    pub fn delta(&self) -> Option<u64> {
        if self.reset || self.readings < 2 {
            return None;
        }
        Some(self.last? - self.first?)
    }
}

/// A cgroup with its limits and counters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CgroupView {
    /// Latest path and limits; `None` if only readings were recorded.
    pub facts: Option<Cgroup>,
    /// Whether its limits changed within the window.
    pub limits_changed: bool,
    /// Timestamp of the first reading.
    pub from_ns: u64,
    /// Timestamp of the last reading.
    pub to_ns: u64,
    /// CPU time used.
    pub usage_ns: Counter,
    /// Number of periods in which the cgroup was active.
    pub nr_periods: Counter,
    /// Number of periods in which it ran out of quota.
    pub nr_throttled: Counter,
    /// Sum over per-CPU run queues of the time that each was throttled; not wall time.
    pub throttled_ns: Counter,
    /// Number of periods in which accumulated quota was used.
    pub nr_bursts: Counter,
    seen: bool,
}

impl CgroupView {
    pub(super) fn facts(&mut self, cgroup: &Cgroup) {
        let limits = |cgroup: &Cgroup| (cgroup.quota_us, cgroup.period_us, cgroup.burst_us);
        self.limits_changed |=
            self.facts.as_ref().is_some_and(|before| limits(before) != limits(cgroup));
        self.facts = Some(cgroup.clone());
    }

    pub(super) fn reading(&mut self, reading: &CgroupReading) {
        if !self.seen {
            self.seen = true;
            self.from_ns = reading.t_ns;
        }
        self.to_ns = reading.t_ns;
        self.usage_ns.push(reading.usage_ns);
        self.nr_periods.push(reading.nr_periods);
        self.nr_throttled.push(reading.nr_throttled);
        self.throttled_ns.push(reading.throttled_ns);
        self.nr_bursts.push(reading.nr_bursts);
    }

    /// CPU limit of this level's own quota, in CPUs (quota / period); `None` without a quota.
    #[must_use]
    pub fn limit_cpus(&self) -> Option<f64> {
        let facts = self.facts.as_ref()?;
        match (facts.quota_us?, facts.period_us?) {
            (_, 0) => None,
            (quota_us, period_us) => Some(quota_us as f64 / period_us as f64),
        }
    }

    /// Share of the active periods in which the quota ran out; `None` if no period was counted.
    #[must_use]
    pub fn throttled_share(&self) -> Option<f64> {
        match self.nr_periods.delta()? {
            0 => None,
            periods => Some(self.nr_throttled.delta()? as f64 / periods as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Counter;

    #[test]
    fn a_counter_that_was_reset_says_nothing() {
        let delta = |readings: &[Option<u64>]| {
            let mut counter = Counter::default();
            readings.iter().for_each(|&reading| counter.push(reading));
            counter.delta()
        };
        assert_eq!(delta(&[]), None);
        assert_eq!(delta(&[Some(5)]), None, "one reading is no difference");
        assert_eq!(delta(&[Some(5), None, Some(9)]), Some(4));
        assert_eq!(delta(&[Some(5), Some(2), Some(9)]), None);
        assert_eq!(delta(&[None, None]), None);
    }
}
