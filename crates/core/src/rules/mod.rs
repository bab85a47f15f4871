// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is wrong: one detector a file; each answers `Fired`, `Quiet` or `NoData`.
//!
//! A rule is a static [`Rule`] in `AREA/NAME.rs` with its prose in `AREA/NAME.md`, and a line in [`RULES`].
//! The engine asks for its sources before it calls `check`, so a rule need not say what it lacks.

mod block;
mod confidence;
mod cpu;
mod explain;
mod host;
mod hosts;
mod ledger;
mod memory;
mod observer;
mod remedy;
mod report;
mod sched;
mod severity;
mod syscalls;
mod tail;
#[cfg(test)]
mod tests;
mod words;

pub use explain::explain;
pub use hosts::{Hosts, diff};
pub use report::report;

use crate::finding::{Area, Cost, Entity, EntityKind, Finding, Severity};
use crate::recording::{Source, State};
use crate::view::View;
use std::cmp::Ordering;

/// A number that a rule decides by.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Its name.
    pub name: &'static str,
    /// Its value, in `unit`.
    pub value: f64,
    /// Unit, as a sentence part that follows the number.
    pub unit: &'static str,
    /// Why this value.
    pub why: &'static str,
}

/// How settled a rule is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// New in that version: its limits may still move.
    Preview(&'static str),
    /// Settled since that version.
    Stable(&'static str),
}

/// One detector.
#[derive(Debug)]
pub struct Rule {
    /// Area prefix and number, never used again for another rule.
    pub code: &'static str,
    /// What it is about: the folder that it is in.
    pub area: Area,
    /// The pathology, in words joined by `-`.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// Sources of which one is needed; the first one that is there is the best. Empty = none is needed.
    pub any_of: &'static [Source],
    /// Sources that make it surer or say more.
    pub helps: &'static [Source],
    /// The numbers that it decides by: its own, and lists that it shares with other rules.
    pub limits: &'static [&'static [Limit]],
    /// How settled it is.
    pub status: Status,
    /// Its page.
    pub doc: &'static str,
    /// Its source file.
    pub file: &'static str,
    /// The detector.
    pub check: Check,
}

/// A detector, by what it looks at.
#[derive(Clone, Copy, Debug)]
pub enum Check {
    /// A recording.
    Recording(fn(&View) -> Verdict),
    /// Snapshots of hosts, and how they differ.
    Hosts(fn(&Hosts<'_>) -> Verdict),
}

/// What a rule says.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It is so.
    Fired(Vec<Finding>),
    /// It was looked for and is not so.
    Quiet {
        /// How near it came, with numbers.
        closest: String,
    },
    /// It could not be looked for.
    NoData {
        /// What was missing and why.
        missing: Vec<String>,
    },
}

/// All rules, by code.
pub const RULES: &[&Rule] = &[
    &block::writeback_bursts::RULE,
    &block::writeback_cohort::RULE,
    &block::device_saturated::RULE,
    &block::io_neighbour::RULE,
    &block::journal_stall::RULE,
    &block::dirty_throttled_writer::RULE,
    &block::io_limit::RULE,
    &cpu::hypervisor_steal::RULE,
    &cpu::shared_core::RULE,
    &cpu::frequency_capped::RULE,
    &cpu::deep_idle_states::RULE,
    &host::host_drift::RULE,
    &memory::memory_stall::RULE,
    &observer::events_lost::RULE,
    &observer::window_too_short::RULE,
    &observer::observer_overhead::RULE,
    &sched::run_queue_contention::RULE,
    &sched::quota_throttle::RULE,
    &sched::idle_while_waiting::RULE,
    &sched::runtime_oversubscribed::RULE,
    &syscalls::slow_kernel_file::RULE,
    &syscalls::syscall_storm::RULE,
];

/// Those that look at recordings.
pub(crate) fn of_recordings() -> impl Iterator<Item = &'static Rule> {
    RULES.iter().copied().filter(|rule| matches!(rule.check, Check::Recording(_)))
}

/// The rule of that code, in any case.
#[must_use]
pub fn find(code: &str) -> Option<&'static Rule> {
    RULES.iter().copied().find(|rule| rule.code.eq_ignore_ascii_case(code))
}

impl Rule {
    /// Looks at a recording: answers `NoData` itself if none of the sources that it needs was there, or if it looks at
    /// hosts.
    #[must_use]
    pub fn judge(&self, view: &View) -> Verdict {
        let Check::Recording(check) = self.check else {
            let missing = vec!["a snapshot: `deburr snapshot`, `deburr diff`".into()];
            return Verdict::NoData { missing };
        };
        if self.any_of.is_empty() || self.any_of.iter().any(|&source| view.covers(source)) {
            return check(view);
        }
        let missing = self.any_of.iter().map(|&source| missing(view, source)).collect();
        Verdict::NoData { missing }
    }

    /// A finding of this rule that says nothing yet: what a rule has nothing to say about stays empty.
    fn finding(&self, severity: Severity, confidence: f64) -> Finding {
        Finding {
            code: self.code.into(),
            area: self.area,
            name: self.name.into(),
            severity,
            confidence,
            title: String::new(),
            device: None,
            victim: Entity::new(EntityKind::Unknown),
            cost: Cost::default(),
            causes: vec![],
            evidence: vec![],
            sizes: vec![],
            files: None,
            chart: None,
            fix: vec![],
            confirm: None,
        }
    }

    /// Its limits, in their order.
    pub fn limits(&self) -> impl Iterator<Item = &'static Limit> {
        self.limits.iter().copied().flatten()
    }
}

/// Why a source saw nothing, and what one would gain by it.
fn missing(view: &View, source: Source) -> String {
    let label = source.label();
    match view.coverage(source) {
        Some(State::Missing { reason, gain }) if gain.is_empty() => format!("{label}: {reason}"),
        Some(State::Missing { reason, gain }) => format!("{label}: {reason}; {gain}"),
        Some(State::Active | State::Partial { .. }) => format!("{label}: saw nothing"),
        None if source == Source::CpuCheck => format!(
            "{label}: not run here; it loads the CPUs, and then knows whether they share cores"
        ),
        None if source == Source::Syscalls => {
            format!(
                "{label}: not counted here; `--syscalls` counts them, which costs everybody some time"
            )
        }
        None => format!("{label}: not observed"),
    }
}

/// The order of findings: worst first. By severity, then the victim's time lost, then confidence; ties by code
/// and victim, so that the order never depends on chance.
fn worse_first(a: &Finding, b: &Finding) -> Ordering {
    let key = |entity: &Entity| {
        (entity.kind, entity.pid, entity.comm.clone(), entity.cgroup.clone(), entity.key.clone())
    };
    b.severity
        .cmp(&a.severity)
        .then_with(|| b.cost.lost_ns_per_s.cmp(&a.cost.lost_ns_per_s))
        .then_with(|| b.confidence.total_cmp(&a.confidence))
        .then_with(|| a.code.cmp(&b.code))
        .then_with(|| key(&a.victim).cmp(&key(&b.victim)))
}
