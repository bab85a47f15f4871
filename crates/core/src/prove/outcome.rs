// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An experiment and its result as data: the document `deburr.prove/1` (`docs/prove.md`). Field names are stable; fields are
//! only added.

use super::design::Arm;
use super::experiment::Experiment;
use super::judge::Question;
use super::period::PeriodJudgement;
use super::verdict::{Judgement, Verdict};
use crate::finding::{Host, Target, Tool};
use serde::{Deserialize, Serialize};

/// Identifier of the document's schema.
pub const SCHEMA: &str = "deburr.prove/1";

/// What was planned, done, and found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version of deburr that made the experiment.
    pub tool: Tool,
    /// The host.
    pub host: Host,
    /// When it began, in RFC 3339 with UTC.
    pub start: String,
    /// Whose measure was taken.
    pub target: Target,
    /// What was fixed before the first block.
    pub plan: Plan,
    /// The blocks, in the order of time.
    pub blocks: Vec<Block>,
    /// The result; absent for a plan that was not carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Outcomes>,
    /// What is not as it was, and other remarks, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What is fixed before the first block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The hypothesis and its test.
    pub experiment: Experiment,
    /// What the order of the blocks follows from.
    pub seed: u64,
    /// The measure before the experiment, and the least fall that counts; absent where a period is to follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Question>,
    /// The command that is started anew for each block; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts: Option<Starts>,
    /// The changes, with the values of now.
    pub changes: Vec<Change>,
    /// Number of blocks at least and at most.
    pub blocks: [u32; 2],
    /// Time at least and at most, in seconds.
    pub seconds: [f64; 2],
}

/// A command that an experiment starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Starts {
    /// Its words.
    pub command: Vec<String>,
    /// The cgroup in which it is started; absent = that of deburr.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
}

/// A setting that is changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The setting, as for `--set`.
    pub setting: String,
    /// Its value now.
    pub from: String,
    /// What it becomes; several where each block has another.
    pub to: Vec<String>,
    /// What changing it may cost, as a sentence without a period.
    pub risk: String,
}

/// A block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// Start of the observation, in seconds since the first.
    pub at_seconds: f64,
    /// Length of the observation, in seconds.
    pub seconds: f64,
    /// Whether the host was as it was, or changed; absent where each block has a value of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<Arm>,
    /// The value of the setting in this block, where each has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_to: Option<u64>,
    /// What the measure is predicted to be, in nanoseconds, where each block has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_ns: Option<f64>,
    /// The distances of the bursts, in nanoseconds, where they are held against what is predicted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distances_ns: Vec<f64>,
    /// The measure, in its unit; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Why there is no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcomes {
    /// The result.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The result in one sentence, without a period.
    pub sentence: String,
    /// What the test of a fall says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fall: Option<Judgement>,
    /// What the test of a period says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<PeriodJudgement>,
}
