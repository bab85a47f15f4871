// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was asked of devices, for whom and why, and how long it took.

use super::{CgroupId, DevId, FileId, IoCulprit, ProcId, WaitHist};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a transfer was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoWhat {
    /// Data of a file.
    File(FileId),
    /// A filesystem's own structures: inode tables, bitmaps, trees.
    Metadata,
    /// A filesystem's journal or log.
    Journal,
    /// A cache flush without data.
    Flush,
    /// A discard, or zeroes without data.
    Discard,
    /// Swapping.
    Swap,
    /// The device itself, without a filesystem.
    RawDevice,
    /// None of these could be told.
    Unknown,
}

/// Direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoOp {
    /// From the device.
    Read,
    /// To the device.
    Write,
    /// Neither: flush, discard, zone and driver commands.
    Other,
}

/// Transfers of one kind in one second. A request of several files counts as one transfer for each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoTick {
    /// Start of the tick.
    pub t0_ns: u64,
    /// End of the tick.
    pub t1_ns: u64,
    /// The whole disk.
    pub device: DevId,
    /// For what.
    pub what: IoWhat,
    /// Direction.
    pub op: IoOp,
    /// The process that submitted it; a kernel thread for writeback.
    pub submitter: Option<ProcId>,
    /// The cgroup that owns the pages, or the submitter's where pages are not accounted.
    pub owner: Option<CgroupId>,
    /// Why the kernel wrote back, by its own word (`periodic`, `background`, `sync`, ...); `None` = no writeback.
    pub reason: Option<String>,
    /// Transfers that ended in the tick. Where the probe sampled, scaled up to all.
    pub ios: u64,
    /// Their bytes, likewise, so that they sum to what the disk counted.
    pub bytes: u64,
    /// Sum of the time from creation to completion of their requests, likewise.
    pub total_ns: u64,
    /// Longest seen.
    pub max_ns: u64,
}

/// How long the requests of a device took, in one second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceTick {
    /// Start of the tick.
    pub t0_ns: u64,
    /// End of the tick.
    pub t1_ns: u64,
    /// The whole disk.
    pub device: DevId,
    /// Direction.
    pub op: IoOp,
    /// Requests that ended, from creation to completion.
    pub total: WaitHist,
    /// The part from creation to issue: in the scheduler, or in the queue of a driver.
    pub queue: WaitHist,
    /// The part from issue to completion: in the driver and the device.
    pub device_time: WaitHist,
    /// Longest from creation to completion.
    pub max_ns: u64,
    /// The time before creation, for a tag or because of writeback throttling, of those of the requests above that
    /// waited [`DeviceTick::BEFORE_NS`] and more. `None` = it was not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<WaitHist>,
    /// One in so many requests was looked at; 1 = all. The histograms hold those that were looked at.
    pub sampled_one_in: u32,
}

impl DeviceTick {
    /// A transfer that has its request sooner than that did not wait for it: the way there takes as long.
    pub const BEFORE_NS: u64 = 4096;
}

/// A short piece of a device's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceBin {
    /// Time with at least one request in the queue or the device.
    pub busy_ns: u64,
    /// Integral over time of the number of requests in the queue or the device.
    pub depth_ns: u64,
    /// Requests that ended.
    pub ios: u32,
    /// Their bytes.
    pub bytes: u64,
}

/// A device's activity in bins of 10 ms, for bursts that an average over a second hides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceBins {
    /// Start of the first bin.
    pub t0_ns: u64,
    /// End of the last one.
    pub t1_ns: u64,
    /// The whole disk.
    pub device: DevId,
    /// Bins of equal length from `t0_ns` to `t1_ns`. All of them, also those without activity.
    pub bins: Vec<DeviceBin>,
}

/// A line of `/proc/diskstats`, cumulative, ten times a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskCounters {
    /// Reads completed.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Time of reads, summed over requests.
    pub read_ns: u64,
    /// Writes completed.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Time of writes, summed over requests.
    pub write_ns: u64,
    /// Bytes discarded.
    pub discard_bytes: u64,
    /// Cache flushes completed; 0 before 5.5.
    pub flushes: u64,
    /// Time with a request in flight; jiffies, and too long on fast devices.
    pub busy_ns: u64,
    /// Integral over time of the requests in flight.
    pub depth_ns: u64,
    /// Requests in flight at that moment.
    pub in_flight: u64,
}

/// The counters of a device at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskReading {
    /// When.
    pub t_ns: u64,
    /// Disk or partition.
    pub device: DevId,
    /// Its counters.
    pub counters: DiskCounters,
}

/// When a device was asked for something, and by whom: requests by the moment at which they were created.
///
/// Of the busiest ones of each second; the others are told together, as [`ProcId::OTHERS`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoPace {
    /// Start of the first bin.
    pub t0_ns: u64,
    /// End of the last one.
    pub t1_ns: u64,
    /// The whole disk.
    pub device: DevId,
    /// On whose account the requests are, and their length in units of 512 bytes, each rounded up, in each bin of
    /// [`IoPace::BIN_NS`] from `t0_ns` on. Where the window ends, the last one is shorter.
    pub sectors: BTreeMap<IoCulprit, Vec<u64>>,
}

impl IoPace {
    /// Length of a bin.
    pub const BIN_NS: u64 = 100_000_000;
}
