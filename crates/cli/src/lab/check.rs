// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A check of what `deburr` reported, and the verdict on several.

use super::fitness::Verdict;
use serde::Serialize;

/// An expectation, and whether it was met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    /// What was expected and what was seen, in one line.
    pub(crate) what: String,
    pub(crate) pass: bool,
    /// The topic of the report that it is about.
    pub(crate) topic: Topic,
    /// What must have happened for its failure to mean anything.
    #[serde(skip)]
    rests_on: Precondition,
}

/// Precondition of a check, in addition to a machine that is fit for the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precondition {
    /// None: it must hold in any case.
    Nothing,
    /// The victim suffered nothing without the fault.
    Control,
    /// The victim suffered with the fault, and not without it.
    Fault,
}

/// Topics that a scorecard counts separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Topic {
    /// Nothing is found where nothing is wrong.
    Silence,
    /// Which finding comes first.
    First,
    /// Which processes are blamed.
    Culprit,
    /// How much the victim lost, by its own measurement and by the report.
    Loss,
    /// Whether the fault happened, by a measurement other than the report. If not, findings about it mean nothing.
    Fault,
    /// Whether nothing happened without the fault, by such a measurement. If something did, silence cannot be
    /// expected.
    Control,
    /// Everything else.
    Other,
}

impl Check {
    pub(super) fn new(pass: bool, what: impl Into<String>) -> Self {
        Self { what: what.into(), pass, topic: Topic::Other, rests_on: Precondition::Fault }
    }

    pub(super) fn resting_on(self, rests_on: Precondition) -> Self {
        Self { rests_on, ..self }
    }

    pub(super) fn about(self, topic: Topic) -> Self {
        Self { topic, ..self }
    }
}

/// The verdict on checks. A machine that was not fit excuses every failure. A fault that did not happen excuses only
/// the checks that rest on it.
pub(super) fn verdict(checks: &[Check], machine_unfit: &[String]) -> Verdict {
    let missing = |topic| checks.iter().any(|check| !check.pass && check.topic == topic);
    let (no_fault, no_control) = (missing(Topic::Fault), missing(Topic::Control));
    let is_excused = |check: &Check| match (check.topic, check.rests_on) {
        (Topic::Fault | Topic::Control, _) => true,
        (_, Precondition::Nothing) => false,
        (_, Precondition::Control) => no_control,
        (_, Precondition::Fault) => no_fault || no_control,
    };
    let failed: Vec<&Check> = checks.iter().filter(|check| !check.pass).collect();
    match failed.is_empty() {
        true => Verdict::Passed,
        false if !machine_unfit.is_empty() || failed.into_iter().all(is_excused) => {
            Verdict::Inconclusive
        }
        false => Verdict::Failed,
    }
}
