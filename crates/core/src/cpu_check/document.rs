// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Results of a check as data: the document `deburr.cpu-check/1` (`docs/cpu-check.md`). Fields may be added, but not
//! renamed or removed.

use super::pairs::Pair;
use super::sweep::Step;
use crate::finding::{Host, Report, Tool, Window};
use serde::{Deserialize, Serialize};

/// Identifier of the document's schema.
pub const SCHEMA: &str = "deburr.cpu-check/1";

/// Results of a check, with its host and time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// The program that made the check.
    pub tool: Tool,
    /// The host.
    pub host: Host,
    /// Time range of the check, and events in it.
    pub window: Window,
    /// Results of the check.
    #[serde(flatten)]
    pub check: CpuCheck,
}

impl Document {
    /// Builds the document of a check. Tool, host and window are those of the report on the same recording.
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

/// Results of a check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuCheck {
    /// CPUs of the machine, and circumstances of the check.
    pub cpus: Cpus,
    /// Verdict.
    pub verdict: Verdict,
    /// Groups of two or more CPUs that permanently share a core or a CPU of the host.
    pub groups: Vec<Group>,
    /// The steps of the sweep, by number of workers.
    pub sweep: Vec<Step>,
    /// The pairs that were tested, ordered by CPU numbers.
    pub pairs: Vec<Pair>,
    /// Number of all pairs.
    pub pairs_in_all: u64,
}

/// The CPUs of a check, and its circumstances.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cpus {
    /// Number of online CPUs of the machine.
    pub online: u32,
    /// CPUs that the check could use.
    pub used: Vec<u32>,
    /// CPUs that are present, but not online.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offline: Vec<u32>,
    /// What prevents the check from using the other online CPUs; absent if it could use all, or if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_by: Option<AffinityLimit>,
    /// CPU limit of the check's own cgroup or of an ancestor, if it is lower than the number of CPUs that it could use;
    /// absent without such a limit, or if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<OwnLimit>,
    /// Number of cores that these CPUs have according to the kernel; absent if the kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores_told: Option<u32>,
    /// Whether the CPUs are virtual; absent if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<bool>,
    /// Whether the workers of the pair test ran before ordinary tasks (`SCHED_FIFO`).
    pub realtime: bool,
    /// Share of steal in the time in which CPUs had something to run, from `/proc/stat`; absent if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal: Option<f64>,
    /// CPU time that other tasks used during the check, in CPUs; absent if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<f64>,
    /// Ratio of the highest frequency that a setting allows to the highest one of the processor, for the CPU where it
    /// is lowest; absent if the kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency_allowed: Option<f64>,
}

/// What prevents a process from using CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AffinityLimit {
    /// Its cpuset.
    Cpuset,
    /// Its affinity mask.
    Affinity,
}

/// A CPU limit of the check itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnLimit {
    /// Limit in CPUs.
    pub cpus: f64,
    /// Path of the cgroup with the limit.
    pub cgroup: String,
}

/// Class of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The same work always takes the same time.
    Even,
    /// CPUs share cores, and the kernel knows which ones.
    SharedAsTold,
    /// CPUs share cores, and the kernel does not know it.
    SharedCore,
    /// CPUs run in turns on a smaller number of CPUs of the host.
    TimeSliced,
    /// Something outside this machine slows CPUs down at times.
    Foreign,
    /// CPUs differ in speed, or become slower when more of them are busy.
    Clock,
    /// The class could not be determined.
    Inconclusive,
}

/// Verdict of a check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Class of the machine.
    pub class: Class,
    /// Number of cores that are available for work; absent if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usable_cores: Option<u32>,
    /// Number of concurrent workers up to which all ran at the same full speed; absent without a sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub even_workers: Option<u32>,
    /// Ratio of its undisturbed speed that a worker keeps when it is slowed down, 0..1; absent if none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_up_speed: Option<f64>,
    /// Share of the time in which a worker is slowed down while two of them compute, 0..1.
    pub held_up_share: f64,
    /// Confidence, 0..1.
    pub confidence: f64,
    /// Summary in one sentence.
    pub summary: String,
    /// Recommended actions.
    pub advice: Vec<String>,
    /// What limits the confidence.
    pub doubts: Vec<String>,
}

/// CPUs that permanently share a core or a CPU of the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The CPUs.
    pub cpus: Vec<u32>,
    /// Whether the hypervisor runs them in turns; otherwise they are siblings of a core.
    pub time_sliced: bool,
    /// Whether the kernel knows that they share a core.
    pub told: bool,
    /// Median ratio of its speed that each CPU keeps while another CPU of the group computes, 0..1.
    pub ratio: f64,
}
