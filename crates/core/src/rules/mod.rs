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
pub use hosts::{HOST_RULES, HostRule, Hosts, Judged, judge_hosts};
pub use report::report;

use crate::finding::{Entity, Finding};
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

/// A rule's own limits, and those that it shares with others.
const fn joined<const OWN: usize, const SHARED: usize, const ALL: usize>(
    own: [Limit; OWN],
    shared: [Limit; SHARED],
) -> [Limit; ALL] {
    assert!(OWN + SHARED == ALL && OWN > 0, "as many as there are");
    let mut all = [own[0]; ALL];
    let mut at = 0;
    while at < ALL {
        all[at] = if at < OWN { own[at] } else { shared[at - OWN] };
        at += 1;
    }
    all
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
    /// The pathology, in words joined by `-`.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// Sources of which one is needed; the first one that is there is the best.
    pub needs: &'static [Source],
    /// Sources that make it surer or say more.
    pub helps: &'static [Source],
    /// The numbers that it decides by.
    pub limits: &'static [Limit],
    /// How settled it is.
    pub status: Status,
    /// Its page.
    pub doc: &'static str,
    /// Its source file.
    pub file: &'static str,
    /// The detector.
    pub check: fn(&View) -> Verdict,
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

/// All rules about recordings, by code. [`all`] has those about hosts too.
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

/// All rules, by code: those about recordings and those about hosts.
#[must_use]
pub fn all() -> Vec<&'static Rule> {
    let hosts = HOST_RULES.iter().map(|host| &host.rule);
    let mut all: Vec<&Rule> = RULES.iter().copied().chain(hosts).collect();
    all.sort_by_key(|rule| rule.code);
    all
}

/// The rule of that code, in any case.
#[must_use]
pub fn find(code: &str) -> Option<&'static Rule> {
    all().into_iter().find(|rule| rule.code.eq_ignore_ascii_case(code))
}

impl Rule {
    /// Looks: answers `NoData` itself if none of the sources that the rule needs was there.
    #[must_use]
    pub fn judge(&self, view: &View) -> Verdict {
        if self.needs.is_empty() || self.needs.iter().any(|&source| view.covers(source)) {
            return (self.check)(view);
        }
        let missing = self.needs.iter().map(|&source| missing(view, source)).collect();
        Verdict::NoData { missing }
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
