// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which process of a group has the most threads for its limit, and by which number they are set.

use crate::limits::belief::{Belief, ThreadFit};
use crate::limits::effective::LimitSource;
use crate::recording::RuntimeReading;
use crate::rules::Limit;
use crate::text::units;
use crate::view::{Group, ProcessLimit, View};

pub(super) const TOO_MANY: Limit = Limit {
    name: "too_many",
    value: 1.5,
    unit: "times as many threads as fit: the limit in CPUs rounded up, at least two",
    why: "a few more are used by none: measured, two threads on a quarter of a CPU cost a tenth, eight cost 40 %",
};

/// The process of a group whose runtime has the most threads for its limit.
pub(super) struct OversizedProcess<'v> {
    pub(super) at: usize,
    pub(super) group: &'v Group<'v>,
    pub(super) reading: &'v RuntimeReading,
    pub(super) limit: ProcessLimit,
    pub(super) belief: Belief,
}

impl OversizedProcess<'_> {
    /// The number of threads relative to the number that is tolerated.
    pub(super) fn ratio(&self) -> f64 {
        f64::from(self.belief.threads.value) / f64::from(self.belief.tolerated)
    }

    pub(super) fn counts(&self) -> bool {
        self.belief.fit == ThreadFit::Above && self.ratio() >= TOO_MANY.value
    }

    /// Part of a sentence about one process: `lets 96 threads run at a time and may use 4 CPUs`.
    pub(super) fn numbers(&self) -> String {
        self.numbers_with("counts", "lets")
    }

    pub(super) fn numbers_with(&self, counts: &str, lets: &str) -> String {
        let threads = &self.belief.threads;
        let cpus = units::cpus(self.limit.effective.cpus);
        let (name, value) = (&threads.name, u64::from(threads.value));
        match name.as_str() {
            "processors" => {
                format!(
                    "{counts} on {} and may use {cpus}",
                    units::counted(value, "processor", "processors")
                )
            }
            _ => format!(
                "{lets} {} run at a time and may use {cpus}",
                units::counted(value, "thread", "threads")
            ),
        }
    }
}

/// The process of a group with the most threads for its limit; `None` if no process has a known number.
pub(super) fn case<'v>(
    view: &View,
    at: usize,
    group: &'v Group<'v>,
) -> Option<OversizedProcess<'v>> {
    let cases = group.members.iter().zip(&group.runtimes).filter_map(|((_, process), reading)| {
        let reading = (*reading)?;
        let limit = view.limit_of(process)?;
        let belief = limit.belief(reading)?;
        Some(OversizedProcess { at, group, reading, limit, belief })
    });
    cases.max_by(|a, b| a.ratio().total_cmp(&b.ratio()))
}

/// What an experiment changes to find out whether the number of threads is the cause.
pub(in crate::rules) struct NumberThatFits {
    /// The environment variable and its value.
    pub(in crate::rules) variable: (&'static str, String),
    /// The present number, as part of a sentence: `lets 96 threads run at a time and may use 4 CPUs`.
    pub(in crate::rules) now: String,
    /// Whether the limit is a quota, which stops threads, and not a set of CPUs, on which they wait for each other.
    pub(in crate::rules) by_quota: bool,
}

/// The number that fits the group at `at` of the list; `None` if its number fits, or no variable sets it.
pub(in crate::rules) fn number_that_fits(
    view: &View,
    at: usize,
    group: &Group<'_>,
) -> Option<NumberThatFits> {
    let case = case(view, at, group).filter(OversizedProcess::counts)?;
    let by_quota = case.limit.effective.bound == LimitSource::Quota;
    let now = case.numbers();
    Some(NumberThatFits { variable: case.belief.variable?, now, by_quota })
}
