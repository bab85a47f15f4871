// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Activity of the block devices: latency, and transfers by process, cgroup, pattern, directory and file. These tables
//! do not depend on any finding.

use super::{Cause, Entity};
use serde::{Deserialize, Serialize};

/// The block IO of the window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlockIo {
    /// Whole disks, most bytes first; at most 8.
    pub devices: Vec<DeviceIo>,
    /// Sum of all further disks; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<OmittedDevices>,
}

/// Sum of several disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OmittedDevices {
    /// Number of disks.
    pub devices: u64,
    /// Number of their transfers.
    pub ios: u64,
    /// Number of their bytes, without discards.
    pub bytes: u64,
}

/// Activity of a disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceIo {
    /// Device name.
    pub device: String,
    /// Device number, `major:minor`.
    pub number: String,
    /// Number of transfers. A request for several files counts once for each.
    pub ios: u64,
    /// Bytes transferred, without discards.
    pub bytes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Bytes that were discarded, or zeroed without data; not part of any table. Absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discarded_bytes: Option<u64>,
    /// Share of the time with at least one request queued or in the device, 0..1; absent where not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_share: Option<f64>,
    /// Mean number of requests queued or in the device while it was busy; absent where not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<f64>,
    /// Latency of requests, by direction.
    pub latency: Vec<IoLatency>,
    /// Processes that first dirtied the inodes that the flusher wrote, most first, at most 4. Shares are of the inodes
    /// whose dirtier is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dirtied_by: Vec<Cause>,
    /// The same transfers, broken down in several ways. In each table the rows sum to `ios` and `bytes`.
    pub tables: Vec<IoTable>,
    /// The table that best explains the findings about the device; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explained_by: Option<IoRowsBy>,
}

/// Latency of a device's requests in one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IoLatency {
    /// `read`, `write` or `other` (flush, discard).
    pub op: String,
    /// Number of requests that were measured.
    pub requests: u64,
    /// Sampling rate: one in this many requests was measured. The lowest rate of the window; 1 = all.
    pub sampled_one_in: u32,
    /// Mean latency from creation to completion, in nanoseconds.
    pub mean_ns: u64,
    /// Share of the latency that was spent before the device, in the IO scheduler or in the driver's queue, 0..1.
    pub queue_share: f64,
    /// Median latency: upper bound of the histogram bucket; absent with fewer than 2 requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<u64>,
    /// 99th percentile of the latency: upper bound of the histogram bucket; absent with fewer than 100 requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    /// 99th percentile of the part before the device; as `p99_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_p99_ns: Option<u64>,
    /// 99th percentile of the part in the device; as `p99_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_p99_ns: Option<u64>,
    /// Longest latency from creation to completion, in nanoseconds.
    pub max_ns: u64,
}

/// What the rows of a table of transfers stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IoRowsBy {
    /// Submitting processes; those with the same comm and cgroup are one row.
    Process,
    /// Cgroups that own the pages.
    Cgroup,
    /// Files whose paths match a pattern: they differ in a component that varies.
    Pattern,
    /// Directories, without their subdirectories.
    Directory,
    /// Files.
    File,
}

/// A table of transfers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IoTable {
    /// What its rows stand for.
    pub by: IoRowsBy,
    /// Most bytes first: the 16 rows with most bytes, up to 8 more with most transfers, and one row for the rest.
    pub rows: Vec<IoRow>,
}

/// What a row of a table of transfers stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowKind {
    /// A file, directory or pattern of paths, in `name`.
    Path,
    /// Transfers without a path (journal, metadata, flushes, ...), or of unknown origin; `name` says which.
    Class,
    /// A process or processes, in `entity`.
    Process,
    /// A cgroup, in `entity`.
    Cgroup,
    /// Sum of everything that has no row of its own.
    Rest,
}

/// A row of a table of transfers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IoRow {
    /// What the row stands for.
    pub kind: RowKind,
    /// A path, or the name of a class; absent for processes and cgroups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The process or cgroup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entity: Option<Entity>,
    /// Number of files; for [`RowKind::Rest`] the number of rows. 0 where they are not counted.
    pub count: u64,
    /// Number of transfers.
    pub ios: u64,
    /// Share of the device's transfers, 0..1.
    pub ios_share: f64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Share of the device's bytes, 0..1.
    pub bytes_share: f64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Processes that submitted most of the transfers, at most 2, with shares of the row's transfers; absent for
    /// rows of processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub submitted_by: Vec<Cause>,
    /// Processes that first dirtied the files that were written back, where known; at most 2, with shares of the row's
    /// transfers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dirtied_by: Vec<Cause>,
    /// The kernel's reasons for writeback, most transfers first; empty if none of the transfers was writeback.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writeback: Vec<Writeback>,
}

/// A reason for writeback.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Writeback {
    /// The kernel's name of the reason: `periodic`, `background`, `sync`, ...
    pub reason: String,
    /// Share of the row's transfers, 0..1.
    pub share: f64,
}
