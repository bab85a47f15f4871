// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Invariants of every recording: the order of the stream, ledgers that do not exceed wall time, references to
//! described objects, counters that do not run backwards, no records from a source without coverage.

mod amounts;
mod block;
mod cpu_check;
mod interrupts;
mod net;
mod of_target;
mod profile;
mod reclaim;
mod references;
mod syscalls;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_block;
#[cfg(test)]
mod tests_cpu_check;
#[cfg(test)]
mod tests_of_target;

pub(crate) use amounts::{fits, roughly_fits};

use super::Record;
use crate::stats::Span;
use amounts::Amounts;
use block::Block;
use cpu_check::CpuCheck;
use of_target::OfTarget;
use profile::Profiles;
use reclaim::Reclaims;
use references::References;
use std::collections::BTreeMap;
use std::fmt;

/// An invariant, as a sentence.
type Invariant = &'static str;

const META_FIRST: Invariant = "the circumstances come first, once";
const END_LAST: Invariant = "nothing comes after the end";
const FORWARD: Invariant = "a range of time does not end before it begins";
const WITHIN_WINDOW: Invariant = "nothing lies after the end of the window";
/// A collector reads shortly after the tick that ends the window.
const END_TOLERANCE_NS: u64 = 1_000_000_000;

/// Result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Number of records that were checked.
    pub records: u64,
    /// Length of the window; `None` if the recording is truncated, which is not a violation.
    pub window_ns: Option<u64>,
    /// Violated invariants, in alphabetical order.
    pub violations: Vec<Violation>,
}

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant, as a sentence.
    pub invariant: &'static str,
    /// Number of violations.
    pub count: u64,
    /// The first violation: the record's number in the stream, from 1, and what is wrong with it.
    pub first: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = if self.count == 1 { "once" } else { "times" };
        write!(f, "not so: {} (", self.invariant)?;
        if self.count > 1 {
            write!(f, "{} ", self.count)?;
        }
        write!(f, "{times}; {})", self.first)
    }
}

/// Checks a stream of records, one by one. Its memory use depends on the number of processes, cgroups, files and
/// devices, not on the length of the recording.
#[derive(Clone, Debug, Default)]
pub struct Checker {
    faults: Faults,
    begun: bool,
    window_ns: Option<u64>,
    last_ns: u64,
    amounts: Amounts,
    block: Block,
    cpu_check: CpuCheck,
    of_target: OfTarget,
    reclaims: Reclaims,
    profiles: Profiles,
    references: References,
}

impl Checker {
    /// Checks the next record.
    pub fn push(&mut self, record: &Record) {
        self.faults.records += 1;
        if matches!(record, Record::Meta(_)) == self.begun {
            self.faults.add(META_FIRST, || "out of place".into());
        }
        self.begun = true;
        if self.window_ns.is_some() {
            self.faults.add(END_LAST, || "out of place".into());
        }
        if let Record::End { window_ns } = record {
            self.window_ns = Some(*window_ns);
        }
        let Span { t0_ns, t1_ns } = record.span().unwrap_or_default();
        if t0_ns > t1_ns {
            self.faults.add(FORWARD, || format!("from {t0_ns} ns to {t1_ns} ns"));
        }
        self.last_ns = self.last_ns.max(t1_ns);
        self.amounts.push(record, &mut self.faults);
        self.of_target.push(record, &mut self.faults);
        self.reclaims.push(record, &mut self.faults);
        self.profiles.push(record, &mut self.faults);
        if let Record::Block(record) = record {
            self.block.push(record, &mut self.faults);
        }
        if let Record::CpuCheck(record) = record {
            self.cpu_check.push(record, &mut self.faults);
        }
        if let Record::Syscalls(record) = record {
            syscalls::check(record, &mut self.faults);
        }
        interrupts::check(record, &mut self.faults);
        net::check(record, &mut self.faults);
        self.references.push(record, &mut self.faults);
    }

    /// Ends the check and returns its result.
    #[must_use]
    pub fn finish(mut self) -> Checked {
        if !self.begun {
            self.faults.add(META_FIRST, || "there are none".into());
        }
        if let Some(window_ns) = self.window_ns
            && self.last_ns > window_ns.saturating_add(END_TOLERANCE_NS)
        {
            let last_ns = self.last_ns;
            self.faults
                .add(WITHIN_WINDOW, || format!("{last_ns} ns in a window of {window_ns} ns"));
        }
        self.amounts.finish(&mut self.faults);
        if self.window_ns.is_some() {
            self.block.finish(&mut self.faults);
            self.of_target.finish(&mut self.faults);
        }
        self.references.finish(self.window_ns.is_some(), &mut self.faults);
        let violations = self.faults.found.into_iter();
        Checked {
            records: self.faults.records,
            window_ns: self.window_ns,
            violations: violations
                .map(|(invariant, (count, first))| Violation { invariant, count, first })
                .collect(),
        }
    }
}

/// The violations so far.
#[derive(Clone, Debug, Default)]
struct Faults {
    records: u64,
    found: BTreeMap<Invariant, (u64, String)>,
}

impl Faults {
    fn add(&mut self, invariant: Invariant, what: impl FnOnce() -> String) {
        let records = self.records;
        let first = || format!("record {records}: {}", what());
        self.found.entry(invariant).or_insert_with(|| (0, first())).0 += 1;
    }

    fn unless(&mut self, holds: bool, invariant: Invariant, what: impl FnOnce() -> String) {
        if !holds {
            self.add(invariant, what);
        }
    }
}
