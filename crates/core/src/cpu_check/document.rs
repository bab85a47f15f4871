// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a check says, as data: the document `deburr.cpu-check/1` (`docs/cpu-check.md`). Field names are stable;
//! additions only.

use super::pairs::Pair;
use super::sweep::Step;
use crate::finding::{Host, Report, Tool, Window};
use serde::{Deserialize, Serialize};

/// Identifier of the document's schema.
pub const SCHEMA: &str = "deburr.cpu-check/1";

/// A check, and where and when it was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// Who says it.
    pub tool: Tool,
    /// About which host.
    pub host: Host,
    /// About which time, and what happened in it.
    pub window: Window,
    /// What it says.
    #[serde(flatten)]
    pub check: CpuCheck,
}

impl Document {
    /// The document of a check; the circumstances are those of the report on the same recording.
    #[must_use]
    pub fn new(check: CpuCheck, report: &Report) -> Self {
        Self {
            schema: SCHEMA.into(),
            tool: report.tool.clone(),
            host: report.host.clone(),
            window: report.window.clone(),
            check,
        }
    }
}

/// Everything that a check says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuCheck {
    /// The machine's CPUs.
    pub cpus: Cpus,
    /// What came of it.
    pub verdict: Verdict,
    /// Groups of two and more CPUs that share something for good.
    pub groups: Vec<Group>,
    /// The steps of the sweep, by number of workers.
    pub sweep: Vec<Step>,
    /// The pairs that were tested, by their CPUs.
    pub pairs: Vec<Pair>,
    /// How many pairs there are.
    pub pairs_in_all: u64,
}

/// The CPUs that were looked at, and what is known of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cpus {
    /// Online CPUs of the machine.
    pub online: u32,
    /// Those that the check could use.
    pub used: Vec<u32>,
    /// CPUs that are plugged in, but not online.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offline: Vec<u32>,
    /// What keeps the check from the other online CPUs; absent if it could use all, or if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_by: Option<KeptBy>,
    /// The CPU limit of the check's own cgroup or of one above it, where that is less than the CPUs that it could use;
    /// absent without one, or if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<OwnLimit>,
    /// Cores that the kernel says these are; absent if it does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores_told: Option<u32>,
    /// Whether they are virtual; absent if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<bool>,
    /// Whether the workers of the pair test had precedence over ordinary tasks.
    pub realtime: bool,
    /// Share of the time in which CPUs wanted to run that `/proc/stat` says was stolen; absent if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal: Option<f64>,
    /// CPUs' worth of time that other tasks used meanwhile; absent if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<f64>,
    /// Highest frequency that a setting allows beside the highest that the processor has, of the CPU where that is
    /// least; absent if the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency_allowed: Option<f64>,
}

/// What keeps a process from CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptBy {
    /// The CPUs of its cpuset.
    Cpuset,
    /// Its affinity mask.
    Affinity,
}

/// A CPU limit that holds for the check itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnLimit {
    /// CPUs' worth of time.
    pub cpus: f64,
    /// Path of the cgroup that has it.
    pub cgroup: String,
}

/// What kind of machine it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The same work takes the same time.
    Even,
    /// CPUs share cores, and the kernel knows which.
    SharedAsTold,
    /// CPUs share cores, and the kernel does not know.
    SharedCore,
    /// CPUs are run in turns on fewer of the host's.
    TimeSliced,
    /// Something outside of this machine holds CPUs up at times.
    Foreign,
    /// CPUs differ in speed, or get slower when more of them compute.
    Clock,
    /// It cannot be told.
    Inconclusive,
}

/// What came of a check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Its kind.
    pub class: Class,
    /// Cores that there are for work; absent if it cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usable_cores: Option<u32>,
    /// Up to so many workers at once all ran at the same full speed; absent without a sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub even_workers: Option<u32>,
    /// Speed that a worker keeps where it is held up, 0..1; absent where nobody is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_up_speed: Option<f64>,
    /// Share of the time in which somebody is held up when two compute, 0..1.
    pub held_up_share: f64,
    /// How sure, 0..1.
    pub confidence: f64,
    /// One sentence.
    pub summary: String,
    /// What to do about it.
    pub advice: Vec<String>,
    /// Why it is not surer.
    pub doubts: Vec<String>,
}

/// CPUs that share something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The CPUs.
    pub cpus: Vec<u32>,
    /// Whether they are run in turns by the hypervisor (else they are siblings of a core).
    pub time_sliced: bool,
    /// Whether the kernel is told.
    pub told: bool,
    /// Median of the speed that each keeps beside another one, 0..1.
    pub ratio: f64,
}
