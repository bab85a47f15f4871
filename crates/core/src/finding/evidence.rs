// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers that a finding rests on: each with unit, source and time range.

use crate::text::Unit;
use serde::{Deserialize, Serialize};

/// One number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// What it is: `run-queue wait`.
    pub name: String,
    /// The number, in `unit`.
    pub value: f64,
    /// Unit.
    pub unit: Unit,
    /// Where it comes from: a [`crate::recording::Source::label`], or a file's path.
    pub source: String,
    /// Start of the time it covers, seconds into the window.
    pub from_s: f64,
    /// End of the time it covers.
    pub to_s: f64,
    /// A remark: what it is a share of, what it is compared with, how it was derived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What the victim loses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Nanoseconds of the victim's thread time lost in each second of wall time. Threads add up, so this can
    /// exceed 1e9.
    pub lost_ns_per_s: u64,
    /// Share of the time in which the victim wanted to run: lost / (on CPU + queued + throttled), 0..1. Sleep
    /// is left out, so that a process of many idle threads does not look healthy.
    pub share: f64,
    /// Median of the waits, upper bound of its bucket; absent with fewer than 2 waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<u64>,
    /// 99th percentile likewise; absent with fewer than 100 waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    /// Longest wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ns: Option<u64>,
    /// What the waits do to its 99th percentile; absent where nothing sure can be said of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<Tail>,
}

/// What a tail is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TailOf {
    /// Turns on a CPU, and the waits on run queues before them.
    RunQueue,
    /// Turns on a CPU, and the stops by a CPU quota.
    Throttled,
    /// Requests to block devices, and the part of them beside those of others.
    BlockIo,
}

/// The 99th percentile of what somebody does again and again, with its waits and without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tail {
    /// What was counted.
    pub of: TailOf,
    /// How many there were.
    pub events: u64,
    /// How many of them were late: more than one in a hundred, and that is no chance.
    pub late: u64,
    /// How late those were, on average.
    pub late_ns: u64,
    /// 99th percentile without the waits: the mean length of one.
    pub own_ns: u64,
    /// 99th percentile with them.
    pub p99_ns: u64,
}

impl Tail {
    /// How many times as long the 99th percentile is with the waits.
    #[must_use]
    pub fn times(&self) -> f64 {
        self.p99_ns as f64 / self.own_ns.max(1) as f64
    }

    /// How much the waits add to the 99th percentile.
    #[must_use]
    pub fn added_ns(&self) -> u64 {
        self.p99_ns.saturating_sub(self.own_ns)
    }
}

/// One row of the table of wait sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeClass {
    /// Waits from this long...
    pub from_ns: u64,
    /// ... to less than this; absent = no upper bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_ns: Option<u64>,
    /// How many.
    pub count: u64,
    /// Their time.
    pub ns: u64,
}

/// What happened when, in equal steps of time: rows of as many values each, on one axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// Start of the first step, seconds into the window.
    pub from_s: f64,
    /// Length of a step, seconds.
    pub step_s: f64,
    /// Of a share, the largest within a step is given, over parts of this length in seconds.
    pub resolution_s: f64,
    /// The rows.
    pub rows: Vec<ChartRow>,
}

/// A row of a chart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChartRow {
    /// What it is about.
    pub name: String,
    /// What its values are.
    pub kind: ChartKind,
    /// One for each step.
    pub values: Vec<f64>,
}

/// What the values of a row are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChartKind {
    /// Shares of the time, 0..1.
    Share,
    /// 1 where something happened, else 0.
    Marks,
}

/// What IO was for: files by pattern, and what is no file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileTable {
    /// Which IO: `written back`, `read and written`, ...
    pub of: String,
    /// All of it: transfers.
    pub ios: u64,
    /// All of it: bytes.
    pub bytes: u64,
    /// Most transfers first; the last one may sum up the rest.
    pub rows: Vec<FileShare>,
}

/// One row: files whose paths differ in a component that varies, or a class such as the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileShare {
    /// The pattern of their paths, or what they are.
    pub name: String,
    /// Whether `name` is a pattern of paths.
    pub is_path: bool,
    /// How many files; 0 where they are not counted.
    pub files: u64,
    /// Transfers. A request for several files counts for each.
    pub ios: u64,
    /// Share of all transfers of the table, 0..1.
    pub ios_share: f64,
    /// Bytes.
    pub bytes: u64,
    /// Share of all bytes of the table, 0..1.
    pub bytes_share: f64,
}
