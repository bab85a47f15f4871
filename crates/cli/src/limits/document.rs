// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The answers as data: the document `deburr.limits/1`, which `docs/limits.md` describes.

use deburr_core::finding::{Fix, Tool};
use deburr_core::limits::effective::{AncestorVisibility, LimitSource, QuotaLevel};
use deburr_core::recording::{Container, Parallelism, RuntimeKind, SeenQuota};
use serde::Serialize;
use std::collections::BTreeMap;

pub(crate) const SCHEMA: &str = "deburr.limits/1";

#[derive(Debug, Serialize)]
pub(crate) struct Document {
    pub(crate) schema: &'static str,
    pub(crate) tool: Tool,
    pub(crate) host: Host,
    /// The processes that were asked for; else those that have a limit or a known runtime.
    pub(crate) processes: Vec<Row>,
    /// All other processes; absent where processes were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) others: Option<Unlisted>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Host {
    pub(crate) name: String,
    /// As a list: `0-3,8`.
    pub(crate) cpus_online: String,
    pub(crate) cpus: u32,
    /// `v1`, `v2`, `mixed` or `none`.
    pub(crate) cgroup: &'static str,
}

/// How many processes are not listed, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Unlisted {
    /// No limit but the host's CPUs, and no known runtime.
    pub(crate) unlimited: u32,
    pub(crate) kernel_threads: u32,
    /// Ended before they could be looked at, or zombies.
    pub(crate) ended: u32,
    /// This user may not look at their runtimes. They are listed if they have a limit.
    pub(crate) forbidden: u32,
    /// Reading about their runtimes did not end, or was not tried. They are listed if they have a limit.
    pub(crate) not_read: u32,
    /// Not looked at: looking at others took too long.
    pub(crate) too_many: u32,
    /// What was given up, and on whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) given_up: Option<String>,
}

/// Whether the threads of a runtime fit the CPU limit of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Fits,
    Above,
    MayBeAbove,
    /// There is no number to compare.
    Unknown,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) pid: u32,
    pub(crate) comm: String,
    pub(crate) threads: u32,
    pub(crate) kernel_thread: bool,
    /// Path in the tree of the cpu controller, as seen from deburr's cgroup namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cgroup: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) container: Option<Container>,
    /// Its CPU limit; absent if not even its CPUs are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<LimitRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) runtime: Option<RuntimeRow>,
    pub(crate) verdict: Verdict,
    /// Why something is missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}

/// The CPU limit of a process.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LimitRow {
    /// CPU time that it may use, in CPUs.
    pub(crate) cpus: f64,
    pub(crate) bound_by: LimitSource,
    /// Where the limit comes from, in words.
    pub(crate) origin: String,
    /// How much of the levels above it was visible. If not all, `cpus` is an upper bound.
    #[serde(flatten)]
    pub(crate) sight: AncestorVisibility,
    /// Levels that have a quota, its own cgroup first.
    pub(crate) quotas: Vec<QuotaRow>,
    /// Number of CPUs that it may run on; `affinity` and `cpuset` say which.
    pub(crate) allowed: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) affinity: Option<String>,
    /// Affinities of its threads and their number, if they differ (only for processes that were asked for).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) affinity_of_threads: BTreeMap<String, u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpuset: Option<String>,
}

/// A level with a quota.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct QuotaRow {
    pub(crate) cpus: f64,
    /// Whether it is the process's own cgroup.
    pub(crate) own: bool,
    /// Whether it is the effective limit.
    pub(crate) binds: bool,
    #[serde(flatten)]
    pub(crate) level: QuotaLevel,
    /// Periods with runnable threads, and periods that were throttled, since the cgroup was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nr_periods: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nr_throttled: Option<u64>,
}

/// What the runtime of a process believes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RuntimeRow {
    pub(crate) kind: RuntimeKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// Its numbers of threads, the one that counts first.
    pub(crate) parallelism: Vec<Parallelism>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unread: Option<String>,
    pub(crate) settings: BTreeMap<String, String>,
    /// The quota that its cgroup files show it.
    pub(crate) seen: SeenQuota,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) belief: Option<BeliefRow>,
}

/// The judgement on its number of threads.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BeliefRow {
    /// Number of running threads that fits the limit.
    pub(crate) fitting: u32,
    pub(crate) why: &'static str,
    /// The reason in words.
    pub(crate) because: String,
    pub(crate) fix: Vec<Fix>,
}
