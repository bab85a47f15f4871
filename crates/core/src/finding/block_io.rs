// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the block devices did, for whom and for what: tables, whatever was found.

use super::{Cause, Entity};
use serde::{Deserialize, Serialize};

/// The block IO of the window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlockIo {
    /// Whole disks, most bytes first; at most 8.
    pub devices: Vec<DeviceIo>,
    /// Disks beyond these, summed up; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<MoreDevices>,
}

/// Disks that are summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoreDevices {
    /// How many.
    pub devices: u64,
    /// Their transfers.
    pub ios: u64,
    /// Their bytes, without discards.
    pub bytes: u64,
}

/// A disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceIo {
    /// Its name.
    pub device: String,
    /// Its number, `major:minor`.
    pub number: String,
    /// Transfers; a request for several files counts for each.
    pub ios: u64,
    /// Bytes of all of them but discards.
    pub bytes: u64,
    /// Of these: read.
    pub read_bytes: u64,
    /// Of these: written.
    pub write_bytes: u64,
    /// Bytes that were discarded or zeroed without data, in none of the tables; absent if none were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discarded_bytes: Option<u64>,
    /// Share of the time with a request in the queue or the device; absent where not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_share: Option<f64>,
    /// Requests in the queue or the device on average while it was busy; absent where not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<f64>,
    /// How long requests took, by direction.
    pub latency: Vec<IoLatency>,
    /// Who first dirtied what the flusher wrote, with shares of the inodes whose dirtier is known, most first; at most 4.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dirtied_by: Vec<Cause>,
    /// The same transfers by several things. In each table the rows sum to `ios` and `bytes`.
    pub tables: Vec<IoTable>,
    /// Which table says most about what was found on the device; absent if nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explained_by: Option<IoBy>,
}

/// How long a device's requests of one direction took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IoLatency {
    /// `read`, `write` or `other` (flush, discard).
    pub op: String,
    /// Requests that were looked at.
    pub requests: u64,
    /// One in so many was looked at, at worst.
    pub sampled_one_in: u32,
    /// Mean from creation to completion.
    pub mean_ns: u64,
    /// Share of the time from creation on that lies before the device: in the scheduler, or in the driver's queue.
    pub queue_share: f64,
    /// Median, upper bound of its bucket; absent with fewer than 2 requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<u64>,
    /// 99th percentile likewise; absent with fewer than 100 requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    /// Of the part before the device likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_p99_ns: Option<u64>,
    /// Of the part in the device likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_p99_ns: Option<u64>,
    /// Longest.
    pub max_ns: u64,
}

/// By what a table of transfers is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IoBy {
    /// Who submitted them; processes of the same comm and cgroup together.
    Process,
    /// Who owns the pages.
    Cgroup,
    /// Files whose paths differ in a component that varies.
    Pattern,
    /// Directories, without those below.
    Directory,
    /// Files.
    File,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IoTable {
    /// By what it is made.
    pub by: IoBy,
    /// Most bytes first: the 16 with most bytes, up to 8 more with most transfers, and what is left as one row.
    pub rows: Vec<IoRow>,
}

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowKind {
    /// `name` is a path, a directory or a pattern of paths.
    Path,
    /// What has no path: a journal, metadata, flushes, ... or what is not known; `name` says it.
    Class,
    /// `entity` is the process or processes.
    Process,
    /// `entity` is the cgroup.
    Cgroup,
    /// All that has no row of its own.
    Rest,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IoRow {
    /// What it is about.
    pub kind: RowKind,
    /// A path or what it is; absent for processes and cgroups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The process or cgroup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entity: Option<Entity>,
    /// How many files, or for the rest rows; 0 where they are not counted.
    pub count: u64,
    /// Transfers.
    pub ios: u64,
    /// Share of the device's transfers.
    pub ios_share: f64,
    /// Bytes.
    pub bytes: u64,
    /// Share of the device's bytes.
    pub bytes_share: f64,
    /// Of the bytes: read.
    pub read_bytes: u64,
    /// Of the bytes: written.
    pub write_bytes: u64,
    /// Who submitted most of it, at most 2, with shares of the row's transfers; for processes absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub submitted_by: Vec<Cause>,
    /// Who first dirtied the files of what was written back, as far as that was seen; at most 2, with shares of the
    /// row's transfers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dirtied_by: Vec<Cause>,
    /// Why the kernel wrote it back, by its own words, most first; empty if it was no writeback.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writeback: Vec<Writeback>,
}

/// A reason of writeback.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Writeback {
    /// `periodic`, `background`, `sync`, ...
    pub reason: String,
    /// Share of the row's transfers.
    pub share: f64,
}
