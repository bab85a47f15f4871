// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an experiment says, as data.

use super::effect::Effect;
use serde::{Deserialize, Serialize};

/// What the numbers so far say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Verdict {
    /// The change has an effect, and it is as large as the hypothesis says.
    Confirmed,
    /// The change has no effect, or a smaller one than the hypothesis says.
    Refuted,
    /// More blocks are needed.
    Undecided {
        /// About how many more, if the numbers go on as they are. Absent: cannot be said, as if the effect is just as
        /// large as the minimal one, or nothing at all can be seen.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blocks_more: Option<u32>,
    },
    /// The experiment has ended, and says nothing.
    Inconclusive {
        /// Why.
        reason: Reason,
    },
}

impl Verdict {
    /// Whether the experiment goes on.
    #[must_use]
    pub fn is_undecided(self) -> bool {
        matches!(self, Self::Undecided { .. })
    }
}

/// Why an experiment says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Reason {
    /// In the blocks without the change the symptom was not there, from the start.
    SymptomAbsent,
    /// In the blocks without the change the symptom was there, and later was not: the load ended, or the effect of the
    /// change stayed after it was undone.
    SymptomGone {
        /// Groups in which it was there.
        after_groups: u32,
    },
    /// More than a quarter of the blocks of an arm have no number.
    NumbersMissing,
    /// All blocks were measured, and they do not suffice.
    BlocksUsedUp {
        /// About how many more would. Absent: cannot be said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blocks_more: Option<u32>,
    },
}

/// A test at a look.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Test {
    /// p-value, 0..1, corrected for the looks so far.
    pub p: f64,
    /// The largest p-value that rejects at this look.
    pub limit: f64,
    /// Whether it was rejected, at this look or before.
    pub rejected: bool,
}

/// What was seen after a group.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// Number of complete groups.
    pub groups: u32,
    /// The test of "the change has no effect": if rejected, there is one.
    pub no_effect: Test,
    /// The test of "the effect is at least the minimal one": if rejected, it is smaller.
    pub minimal_effect: Test,
    /// Estimated effect, as in [`Effect`]. Absent: no group has numbers of both arms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<f64>,
}

/// The result of the numbers so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// What they say.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Number of groups that it is from: complete ones, up to the one that decided.
    pub groups: u32,
    /// Median of the blocks as the host was, in the unit of the measure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<f64>,
    /// Median of the blocks with the change, in the unit of the measure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<f64>,
    /// The effect. Absent: no group has numbers of both arms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// Blocks as the host was that have no number.
    pub before_missing: u32,
    /// Blocks with the change that have no number.
    pub changed_missing: u32,
    /// The looks, in order of time.
    pub looks: Vec<Look>,
}
