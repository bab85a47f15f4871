// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers that support a finding: each with unit, source and time range.

use crate::text::Unit;
use serde::{Deserialize, Serialize};

/// One number that supports a finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// What the number measures: `run-queue wait`.
    pub name: String,
    /// The number, in `unit`.
    pub value: f64,
    /// Unit.
    pub unit: Unit,
    /// Source: a [`crate::recording::Source::label`], or the path of a file.
    pub source: String,
    /// Start of the time range that it covers, in seconds since the start of the window.
    pub from_s: f64,
    /// End of the time range that it covers, in seconds since the start of the window.
    pub to_s: f64,
    /// A remark: the whole of a share, a value for comparison, how the number was derived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What the victim loses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Nanoseconds of thread time that the victim loses per second of wall time. Summed over threads, so it can
    /// exceed 1e9.
    pub lost_ns_per_s: u64,
    /// Share of the time in which the victim wanted to run: lost / (on CPU + queued + throttled), 0..1. Sleep
    /// is left out, so that a process with many idle threads does not look healthy.
    pub share: f64,
    /// The most that `share` can be, where much of the time in which the victim may have run was not seen: then `share`
    /// is the least. Absent where `share` is exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_at_most: Option<f64>,
    /// Median of the waits: upper bound of the histogram bucket; absent with fewer than 2 waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<u64>,
    /// 99th percentile of the waits: upper bound of the histogram bucket; absent with fewer than 100 waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    /// Longest wait, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ns: Option<u64>,
    /// Effect of the waits on the victim's 99th percentile; absent where there is no reliable estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<Tail>,
}

/// The events whose 99th percentile a [`Tail`] describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TailOf {
    /// Turns on a CPU, with the run-queue waits before them.
    RunQueue,
    /// Turns on a CPU, with the throttled times caused by a CPU quota.
    Throttled,
    /// Requests to block devices, with the time that they waited because of requests of others.
    BlockIo,
}

/// Estimated 99th percentile of repeated events of the victim, with and without their waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tail {
    /// Kind of the events.
    pub of: TailOf,
    /// Number of events.
    pub events: u64,
    /// Number of events that were delayed: significantly more than one in a hundred.
    pub late: u64,
    /// Mean delay of the delayed events, in nanoseconds.
    pub late_ns: u64,
    /// Estimated 99th percentile without the waits, in nanoseconds: for turns on a CPU their mean length, for requests
    /// the 99th percentile without the time that is due to others.
    pub own_ns: u64,
    /// 99th percentile with the waits, in nanoseconds.
    pub p99_ns: u64,
}

impl Tail {
    /// Ratio of the 99th percentiles with and without the waits.
    #[must_use]
    pub fn times(&self) -> f64 {
        self.p99_ns as f64 / self.own_ns.max(1) as f64
    }

    /// Nanoseconds that the waits add to the 99th percentile.
    #[must_use]
    pub fn added_ns(&self) -> u64 {
        self.p99_ns.saturating_sub(self.own_ns)
    }
}

/// One row of the histogram of waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeClass {
    /// Lower bound of the row, inclusive, in nanoseconds.
    pub from_ns: u64,
    /// Upper bound of the row, exclusive, in nanoseconds; absent = no upper bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_ns: Option<u64>,
    /// Number of waits.
    pub count: u64,
    /// Sum of their durations, in nanoseconds.
    pub ns: u64,
}

/// Time line in equal steps: rows with the same number of values, on one time axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// Start of the first step, in seconds since the start of the window.
    pub from_s: f64,
    /// Length of a step, in seconds.
    pub step_s: f64,
    /// Length of the bins in which shares were measured, in seconds. The value of a step is its largest bin.
    pub resolution_s: f64,
    /// The rows.
    pub rows: Vec<ChartRow>,
}

/// A row of a chart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChartRow {
    /// Label of the row.
    pub name: String,
    /// Meaning of its values.
    pub kind: ChartKind,
    /// One value per step.
    pub values: Vec<f64>,
}

/// Meaning of the values of a chart's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChartKind {
    /// Shares of the time, 0..1.
    Share,
    /// 1 where an event happened, else 0.
    Marks,
}

/// What IO was for: files by path pattern, and IO that belongs to no file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileTable {
    /// Which IO: `written back`, `read and written`, ...
    pub of: String,
    /// Total number of transfers.
    pub ios: u64,
    /// Total number of bytes.
    pub bytes: u64,
    /// Rows with most transfers first; the last one may sum up the rest.
    pub rows: Vec<FileShare>,
}

/// One row of a [`FileTable`]: files whose paths match a pattern, or a class such as the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileShare {
    /// Pattern of the paths, or name of the class.
    pub name: String,
    /// Whether `name` is a pattern of paths.
    pub is_path: bool,
    /// Number of files; 0 where they are not counted.
    pub files: u64,
    /// Number of transfers. A request for several files counts once for each.
    pub ios: u64,
    /// Share of all transfers of the table, 0..1.
    pub ios_share: f64,
    /// Bytes.
    pub bytes: u64,
    /// Share of all bytes of the table, 0..1.
    pub bytes_share: f64,
}
