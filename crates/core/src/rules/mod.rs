// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The detectors: one per file, each of which answers `Fired`, `Quiet` or `NoData`.
//!
//! A rule is a static [`Rule`] in `AREA/NAME.rs`, with its documentation in `AREA/NAME.md` and an entry in its area's
//! `RULES`, which [`RULES`] joins.
//! [`Rule::judge`] checks that one of its sources has data before it calls the detector, so a detector does not need to
//! report missing sources.

mod asleep;
mod block;
mod candidates;
mod confidence;
mod cpu;
mod cpu_split;
mod experiments;
mod explain;
mod host;
mod hosts;
mod interrupts;
mod ledger;
mod memory;
mod network;
mod observer;
mod profile;
mod questions;
mod remedy;
mod report;
mod sched;
mod severity;
mod sleep_stacks;
mod syscalls;
mod tail;
#[cfg(test)]
mod tests;
mod waiting;
mod words;

pub use experiments::{experiment_starts_command, experiments, with_experiments};
pub use explain::{TOPICS, explain};
pub use hosts::{Hosts, diff};
pub use report::report;

use crate::finding::{Area, Cost, Entity, EntityKind, Finding, Question, Severity};
use crate::recording::{Source, State};
use crate::view::View;
use std::cmp::Ordering;

/// A threshold of a rule.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Its name in the documentation.
    pub name: &'static str,
    /// Its value, in `unit`.
    pub value: f64,
    /// Unit, as the part of a sentence that follows the number.
    pub unit: &'static str,
    /// Why it has this value.
    pub why: &'static str,
}

/// Maturity of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// New in that version; its limits may still change.
    Preview(&'static str),
    /// Stable since that version.
    Stable(&'static str),
}

/// A rule: a detector and its documentation.
#[derive(Debug)]
pub struct Rule {
    /// Area prefix and number (`SCH001`). A code is never reused for another rule.
    pub code: &'static str,
    /// Its area, which is also the folder of its source file.
    pub area: Area,
    /// The question that it helps to answer.
    pub question: Question,
    /// Name of the pathology, words joined by `-`.
    pub name: &'static str,
    /// Summary, one sentence without capital and period.
    pub summary: &'static str,
    /// Sources of which at least one is needed, best first. Empty if it needs none.
    pub any_of: &'static [Source],
    /// Optional sources that raise the confidence or add detail.
    pub helps: &'static [Source],
    /// Its thresholds: its own, and lists that it shares with other rules.
    pub limits: &'static [&'static [Limit]],
    /// Its maturity.
    pub status: Status,
    /// Its documentation, in Markdown.
    pub doc: &'static str,
    /// Path of its source file.
    pub file: &'static str,
    /// The detector.
    pub check: Check,
}

/// A detector, by the kind of input that it judges.
#[derive(Clone, Copy, Debug)]
pub enum Check {
    /// Judges a recording.
    Recording(fn(&View) -> Verdict),
    /// Judges host snapshots and how they differ.
    Hosts(fn(&Hosts<'_>) -> Verdict),
}

/// Outcome of a rule.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The pathology was found.
    Fired(Vec<Finding>),
    /// The pathology was looked for and not found.
    Quiet {
        /// The nearest case, with numbers.
        closest: String,
    },
    /// There was no data to decide by.
    NoData {
        /// The missing sources, and why they are missing.
        missing: Vec<String>,
    },
}

/// The rules of each area; areas in the order of their prefixes, rules by code.
const AREAS: [&[&Rule]; 10] = [
    block::RULES,
    cpu::RULES,
    host::RULES,
    interrupts::RULES,
    memory::RULES,
    network::RULES,
    observer::RULES,
    waiting::RULES,
    sched::RULES,
    syscalls::RULES,
];

/// All rules, sorted by code.
pub const RULES: &[&Rule] = &joined();

const COUNT: usize = {
    let (mut count, mut area) = (0, 0);
    while area < AREAS.len() {
        count += AREAS[area].len();
        area += 1;
    }
    count
};

const fn joined() -> [&'static Rule; COUNT] {
    let mut all = [AREAS[0][0]; COUNT];
    let (mut at, mut area) = (0, 0);
    while area < AREAS.len() {
        let mut rule = 0;
        while rule < AREAS[area].len() {
            all[at] = AREAS[area][rule];
            (at, rule) = (at + 1, rule + 1);
        }
        area += 1;
    }
    all
}

/// The rules that judge recordings.
pub(crate) fn of_recordings() -> impl Iterator<Item = &'static Rule> {
    RULES.iter().copied().filter(|rule| matches!(rule.check, Check::Recording(_)))
}

/// The rule with that code, ignoring case.
#[must_use]
pub fn find(code: &str) -> Option<&'static Rule> {
    RULES.iter().copied().find(|rule| rule.code.eq_ignore_ascii_case(code))
}

impl Rule {
    /// Judges a recording. Answers `NoData` itself if none of the sources in `any_of` has data, or if the rule judges
    /// host snapshots.
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

    /// An empty finding of this rule, for struct update syntax: fields that a rule does not set stay empty.
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
            longest: None,
            rhythm_ns: None,
            chart: None,
            fix: vec![],
            confirm: None,
            prove: None,
        }
    }

    /// All of its limits, in the order of the lists.
    pub fn limits(&self) -> impl Iterator<Item = &'static Limit> {
        self.limits.iter().copied().flatten()
    }
}

/// Why a source has no data, and what it would add.
fn missing(view: &View, source: Source) -> String {
    let label = source.label();
    match view.coverage(source) {
        Some(State::Missing { reason, gain }) if gain.is_empty() => format!("{label}: {reason}"),
        Some(State::Missing { reason, gain }) => format!("{label}: {reason}; {gain}"),
        Some(State::Active | State::Partial { .. }) => format!("{label}: saw nothing"),
        None if source == Source::CpuCheck => {
            format!("{label}: not run here; it loads the CPUs to find out whether they share cores")
        }
        None if source == Source::Syscalls => {
            format!(
                "{label}: not counted here; `--syscalls` counts them, which makes each call a little slower"
            )
        }
        None if source == Source::Profile => format!("{label}: not sampled here; `--profile` does"),
        None => format!("{label}: not observed"),
    }
}

/// Order of findings, worst first: by severity, then by the victim's lost time, then by confidence. Ties are broken by
/// code and victim, so the order is deterministic.
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
