// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A load sweep: one service under several rates of requests, in several variants of one setting, each
//! combination several times. Runs go in; points, knees and a verdict in words come out: the document
//! `deburr.sweep/1` (`docs/sweep.md`).

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

/// Name of the document.
pub const SCHEMA: &str = "deburr.sweep/1";

/// A whole sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// [`SCHEMA`].
    pub schema: String,
    /// What was done.
    #[serde(flatten)]
    pub setup: Setup,
    /// Whether it was ended before all runs were made.
    pub interrupted: bool,
    /// Every run, in the order in which they were made.
    pub runs: Vec<Run>,
    /// The repetitions of each combination together, by rate and variant.
    pub points: Vec<Point>,
    /// Up to which rate each variant keeps up; empty for a command.
    pub knees: Vec<Knee>,
    /// What follows, in sentences.
    pub verdict: Vec<String>,
    /// What limits that.
    pub notes: Vec<String>,
}

/// What was to be done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Who did it.
    pub tool: Tool,
    /// Where.
    pub host: Host,
    /// When it began, RFC 3339.
    pub start: String,
    /// The command that was started, word by word.
    pub command: Vec<String>,
    /// What was measured.
    pub driven: Driven,
    /// CPU limit of each run's cgroup, in CPUs. Absent = none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_cpus: Option<f64>,
    /// Length of each measured window, in seconds; 0 for a command.
    pub seconds: f64,
    /// Load before each window, in seconds.
    pub warmup_s: f64,
    /// How often each combination was to be run.
    pub repetitions: u32,
    /// Rates asked for, ascending, in requests per second; empty for a command.
    pub rates_per_s: Vec<f64>,
    /// The variants, in the order of the command line.
    pub variants: Vec<Variant>,
    /// The 99th percentile that the user accepts. Absent = judged by the best one that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_p99_ns: Option<u64>,
    /// At most so many requests were under way at a time; absent for a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_connections: Option<u32>,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Driven {
    /// HTTP/1.1 `GET` requests.
    Http {
        /// Of what.
        url: String,
    },
    /// A line to a TCP service, and the same bytes back.
    Tcp {
        /// Where.
        address: String,
    },
    /// The command itself, from start to end.
    Command,
}

/// One way to run the command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variant {
    /// What it is called in tables: `GOMAXPROCS=4`.
    pub name: String,
    /// Environment variables that differ from the caller's; `null` = unset.
    pub env: BTreeMap<String, Option<String>>,
}

/// One run: the service started anew, warmed up, and measured over a window. Amounts are of that window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Index of the variant.
    pub variant: usize,
    /// Rate asked for; absent for a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// Which repetition, from 0.
    pub repetition: u32,
    /// Start of the window since the start of the sweep, in seconds.
    pub start_s: f64,
    /// Length of the window in nanoseconds; of a command, its wall time.
    pub window_ns: u64,
    /// The requests; absent for a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Requests>,
    /// How long they took; absent if none was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// CPU time of the run's cgroup.
    pub cpu_ns: u64,
    /// Greatest sum of the resident sets of its processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Greatest number of threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u64>,
    /// Periods of the limit; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttling: Option<Throttling>,
    /// Context switches of its threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switches: Option<Switches>,
}

/// Requests of one window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// Due in the window.
    pub due: u64,
    /// Answered in the window, whenever they were due.
    pub answered_in_window: u64,
    /// Of those due: answered, also after the end of the window.
    pub answered: u64,
    /// Of those due: refused, broken off, or answered with an error.
    pub failed: u64,
    /// Of those due: neither when waiting for them ended.
    pub unanswered: u64,
    /// What the failures were, with their numbers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<String, u64>,
    /// 99th percentile of the time from when a request was due to when the generator turned to it.
    pub generator_late_p99_ns: u64,
    /// Time in the window in which the generator ran or waited for a CPU; absent if not known. As long as the window, or
    /// longer: it had none to spare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator_busy_ns: Option<u64>,
    /// Connections that were open at a time, at most.
    pub connections: u32,
    /// Whether requests waited because no more connections were allowed.
    pub connections_exhausted: bool,
}

/// Periods of a CPU limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttling {
    /// In which something ran.
    pub periods: u64,
    /// In which the limit stopped it.
    pub throttled: u64,
    /// For how long, summed over CPUs.
    pub throttled_ns: u64,
}

/// Context switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switches {
    /// A thread went to sleep.
    pub voluntary: u64,
    /// A thread was taken off its CPU.
    pub involuntary: u64,
}

impl Sweep {
    /// Judges runs.
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
    /// Whether it is about a command's own time.
    #[must_use]
    pub fn is_of_command(&self) -> bool {
        self.driven == Driven::Command
    }
}

impl Run {
    /// Length of the window in seconds.
    #[must_use]
    pub fn window_s(&self) -> f64 {
        self.window_ns as f64 / 1e9
    }
}
