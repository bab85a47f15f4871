// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A load sweep: one service under several request rates, in several variants of one setting, each combination several
//! times. From the runs this module computes points, knees and a verdict in sentences: the document `deburr.sweep/1`
//! (`docs/sweep.md`).

mod knee;
mod latency;
mod points;
mod verdict;

#[cfg(test)]
mod tests;

pub use knee::{Knee, KneeReason};
pub use latency::{Latency, Sample};
pub use points::Point;
pub(crate) use verdict::rate_text;

use crate::finding::{Host, Tool};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Identifier of the document's schema.
pub const SCHEMA: &str = "deburr.sweep/1";

/// A load sweep with its results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// [`SCHEMA`].
    pub schema: String,
    /// Parameters of the sweep.
    #[serde(flatten)]
    pub setup: Setup,
    /// Whether the sweep ended before all runs were complete.
    pub interrupted: bool,
    /// All runs, in order of time.
    pub runs: Vec<Run>,
    /// The repetitions of each combination combined, by rate and variant.
    pub points: Vec<Point>,
    /// Highest rate that each variant sustains; empty for a command.
    pub knees: Vec<Knee>,
    /// Conclusions, in sentences.
    pub verdict: Vec<String>,
    /// Limitations of the conclusions.
    pub notes: Vec<String>,
}

/// Parameters of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// The program that measured.
    pub tool: Tool,
    /// The host.
    pub host: Host,
    /// Start time, RFC 3339.
    pub start: String,
    /// Words of the command that was started.
    pub command: Vec<String>,
    /// What was driven and measured.
    pub driven: Workload,
    /// CPU limit of each run's cgroup, in CPUs. Absent = no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_cpus: Option<f64>,
    /// Length of each measured window, in seconds; 0 for a command.
    pub seconds: f64,
    /// Duration of load before each window, in seconds.
    pub warmup_s: f64,
    /// Requested number of repetitions of each combination.
    pub repetitions: u32,
    /// Requested rates, ascending, in requests per second; empty for a command.
    pub rates_per_s: Vec<f64>,
    /// The variants, in the order of the command line.
    pub variants: Vec<Variant>,
    /// Highest 99th percentile of latency that the user accepts. Absent = derived from the lowest one that was
    /// measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_p99_ns: Option<u64>,
    /// Maximum number of requests in flight; absent for a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_connections: Option<u32>,
}

/// What was driven and measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Workload {
    /// HTTP/1.1 `GET` requests.
    Http {
        /// URL of the requests.
        url: String,
    },
    /// Lines to a TCP service that echoes the same bytes.
    Tcp {
        /// Address of the service.
        address: String,
    },
    /// The command itself, from start to exit.
    Command,
}

/// A variant of the environment in which the command runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variant {
    /// Name in tables: `GOMAXPROCS=4`.
    pub name: String,
    /// Environment variables that differ from those of the caller; `null` = unset.
    pub env: BTreeMap<String, Option<String>>,
}

/// One run: the service was started anew, warmed up, and measured over a window. Amounts refer to the window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Index of the variant.
    pub variant: usize,
    /// Requested rate; absent for a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// Index of the repetition, from 0.
    pub repetition: u32,
    /// Start of the window since the start of the sweep, in seconds.
    pub start_s: f64,
    /// Length of the window in nanoseconds; for a command, its wall time.
    pub window_ns: u64,
    /// The requests; absent for a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Requests>,
    /// Latency of the requests; absent if none was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// CPU time of the run's cgroup.
    pub cpu_ns: u64,
    /// Largest sum of the resident set sizes of its processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Largest number of threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u64>,
    /// Periods of the CPU limit; absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttling: Option<Throttling>,
    /// Context switches of its threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switches: Option<Switches>,
}

/// Requests of one window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// Number of requests due in the window.
    pub due: u64,
    /// Number of requests answered in the window, regardless of when they were due.
    pub answered_in_window: u64,
    /// Number of requests due in the window that were answered, in the window or after it.
    pub answered: u64,
    /// Number of requests due in the window that were refused, aborted, or answered with an error.
    pub failed: u64,
    /// Number of requests due in the window that were neither answered nor failed when the wait for them ended.
    pub unanswered: u64,
    /// Number of failures by kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<String, u64>,
    /// 99th percentile of the generator's delay: from the time at which a request was due to the time at which the
    /// generator handled it.
    pub generator_late_p99_ns: u64,
    /// Time in the window in which the generator ran or waited for a CPU; absent if not known. If it is about as long
    /// as the window or longer, the generator had no time to spare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator_busy_ns: Option<u64>,
    /// Largest number of connections open at the same time.
    pub connections: u32,
    /// Whether requests had to wait because the maximum number of connections was reached.
    pub connections_exhausted: bool,
}

/// Periods of a CPU limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttling {
    /// Number of periods in which the cgroup was active.
    pub periods: u64,
    /// Number of periods in which the limit throttled it.
    pub throttled: u64,
    /// Throttled time, summed over CPUs.
    pub throttled_ns: u64,
}

/// Context switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switches {
    /// Number of switches in which a thread went to sleep.
    pub voluntary: u64,
    /// Number of switches in which a thread was preempted.
    pub involuntary: u64,
}

impl Sweep {
    /// Evaluates runs.
    #[must_use]
    pub fn new(setup: Setup, runs: Vec<Run>, interrupted: bool) -> Self {
        let points = points::points(&setup, &runs);
        let knees = knee::knees(&setup, &points);
        let verdict = verdict::verdict(&setup, &runs, &points, &knees);
        let notes = verdict::notes(&setup, &runs, &points, interrupted);
        let schema = SCHEMA.to_owned();
        Self { schema, setup, interrupted, runs, points, knees, verdict, notes }
    }
}

impl Setup {
    /// Whether the sweep measures the run time of the command itself.
    #[must_use]
    pub fn is_of_command(&self) -> bool {
        self.driven == Workload::Command
    }
}

impl Run {
    /// Length of the window in seconds.
    #[must_use]
    pub fn window_s(&self) -> f64 {
        self.window_ns as f64 / 1e9
    }
}
