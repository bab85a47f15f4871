// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the machine itself was like during a run, and whether a failed check means anything. Pure.
//!
//! The lab causes one incident and checks what is reported about it. A hypervisor that takes CPU time, or other load
//! on the machine, is a second incident. If everything expected is found nevertheless, the run counts. If not, the
//! limits here decide whether the machine may be the reason.

use deburr_core::text::units::tenths_of_ms;
use serde::Serialize;
use std::collections::BTreeMap;

/// Maximum share of the wanted CPU time that may be stolen. On virtual machines without problems, 0.1 to 2 % were
/// measured.
const STEAL_SHARE: f64 = 0.05;
/// Maximum share of all CPU time that processes outside of the lab may use. At a tenth, every scenario passes because
/// of the weight of the lab's cgroup. At a third, the lab's disk and its victims have to wait for CPUs.
const OUTSIDE_SHARE: f64 = 0.15;
/// Maximum 99th percentile of timer lateness, in nanoseconds. It is measured by a real-time thread, which only
/// interrupts and the hypervisor can delay. On virtual machines without problems, 0.1 to 0.5 ms were measured.
const LATE_NS: u64 = 2_000_000;

/// What was measured of the machine during a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Machine {
    /// Share of the CPU time that was wanted (used or stolen) that the hypervisor took.
    pub(crate) steal_share: f64,
    /// Share of the time of all CPUs that processes outside of the lab used. Kernel threads do not count, because
    /// they also work for the lab.
    pub(crate) outside_share: f64,
    /// 99th percentile of the lateness of timers. Absent if no thread may have real-time priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) late_p99_ns: Option<u64>,
    /// Upper bound of the time stolen from each CPU in the recording's window: the counter's value plus its error.
    pub(crate) stolen_ns: BTreeMap<u32, u64>,
}

impl Machine {
    /// Why the machine was not fit for an experiment, in words. Empty = it was fit.
    pub(crate) fn unfit(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        let percent = |share: f64| share * 100.0;
        if self.steal_share > STEAL_SHARE {
            reasons.push(format!(
                "the hypervisor took {:.1} % of what the CPUs wanted (limit {:.0} %)",
                percent(self.steal_share),
                percent(STEAL_SHARE)
            ));
        }
        if self.outside_share > OUTSIDE_SHARE {
            reasons.push(format!(
                "processes outside of the lab took {:.1} % of all CPUs (limit {:.0} %)",
                percent(self.outside_share),
                percent(OUTSIDE_SHARE)
            ));
        }
        if let Some(late_ns) = self.late_p99_ns.filter(|&late_ns| late_ns > LATE_NS) {
            reasons.push(format!(
                "one in a hundred timers was late by {} ms and more (limit {})",
                tenths_of_ms(late_ns as f64),
                tenths_of_ms(LATE_NS as f64)
            ));
        }
        reasons
    }

    /// Upper bound of the time that was stolen from a process that ran on these CPUs.
    pub(crate) fn stolen_from_ns(&self, cpus: &[usize]) -> u64 {
        let is_one = |cpu: u32| cpus.contains(&(cpu as usize));
        self.stolen_ns.iter().filter(|(cpu, _)| is_one(**cpu)).map(|(_, ns)| ns).sum()
    }

    /// All measurements in one line.
    pub(crate) fn describe(&self) -> String {
        let late = self.late_p99_ns.map_or("lateness of timers unknown".into(), |ns| {
            format!("1 in 100 timers late by {} ms", tenths_of_ms(ns as f64))
        });
        format!(
            "{:.1} % stolen, {:.1} % for others, {late}",
            self.steal_share * 100.0,
            self.outside_share * 100.0
        )
    }
}

/// The verdict on a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// All expectations were met.
    Passed,
    /// An expectation was not met, on a machine that was fit for the experiment.
    Failed,
    /// An expectation was not met, and the machine may be the reason.
    Inconclusive,
}

impl Verdict {
    /// The verdict on checks, given the reasons why the machine was not fit.
    pub(crate) fn of(all_pass: bool, unfit: &[String]) -> Self {
        match (all_pass, unfit.is_empty()) {
            (true, _) => Self::Passed,
            (false, true) => Self::Failed,
            (false, false) => Self::Inconclusive,
        }
    }

    /// The verdict on several runs: any failure is a failure, otherwise any inconclusive run makes all inconclusive.
    pub(crate) fn worst(all: impl IntoIterator<Item = Self>) -> Self {
        all.into_iter().fold(Self::Passed, |worst, next| match (worst, next) {
            (Self::Failed, _) | (_, Self::Failed) => Self::Failed,
            (Self::Inconclusive, _) | (_, Self::Inconclusive) => Self::Inconclusive,
            _ => Self::Passed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine at its limits, which is still fit.
    fn fit() -> Machine {
        Machine {
            steal_share: STEAL_SHARE,
            outside_share: OUTSIDE_SHARE,
            late_p99_ns: Some(LATE_NS),
            stolen_ns: BTreeMap::from([(0, 10_000_000), (1, 30_000_000)]),
        }
    }

    #[test]
    fn each_limit_makes_a_machine_unfit_and_is_named() {
        assert_eq!(fit().unfit(), Vec::<String>::new());
        assert_eq!(Machine { late_p99_ns: None, ..fit() }.unfit(), Vec::<String>::new());
        for (machine, named) in [
            (Machine { steal_share: 0.051, ..fit() }, "the hypervisor took 5.1 %"),
            (Machine { outside_share: 0.151, ..fit() }, "outside of the lab took 15.1 %"),
            (Machine { late_p99_ns: Some(LATE_NS + 100_000), ..fit() }, "late by 2.1 ms"),
        ] {
            let reasons = machine.unfit();
            assert!(reasons.len() == 1 && reasons[0].contains(named), "{reasons:?}");
        }
    }

    #[test]
    fn a_failure_on_a_fit_machine_is_a_failure_whatever_others_did() {
        let unfit = Machine { steal_share: 0.3, ..fit() }.unfit();
        assert_eq!(Verdict::of(false, &fit().unfit()), Verdict::Failed);
        assert_eq!(Verdict::of(false, &unfit), Verdict::Inconclusive);
        assert_eq!(Verdict::of(true, &unfit), Verdict::Passed);
    }

    #[test]
    fn one_failure_among_several_is_a_failure() {
        use Verdict::{Failed, Inconclusive, Passed};
        assert_eq!(Verdict::worst([Passed, Inconclusive, Failed, Passed]), Failed);
        assert_eq!(Verdict::worst([Passed, Inconclusive, Passed]), Inconclusive);
        assert_eq!(Verdict::worst([Passed]), Passed);
    }

    #[test]
    fn only_the_cpus_somebody_ran_on_can_have_been_stolen_from_him() {
        assert_eq!(fit().stolen_from_ns(&[0]), 10_000_000);
        assert_eq!(fit().stolen_from_ns(&[0, 1, 7]), 40_000_000);
        assert_eq!(fit().stolen_from_ns(&[]), 0);
    }
}
