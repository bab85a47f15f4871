// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transfers of devices with their purpose, submitter and reason, the latency of requests, and device activity.

use super::{CgroupId, DevId, FileId, IoCulprit, ProcId, Source, WaitHist, observed};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a transfer was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoPurpose {
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
    /// Not known.
    Unknown,
}

impl IoPurpose {
    fn file(self) -> Option<FileId> {
        if let Self::File(id) = self { Some(id) } else { None }
    }
}

/// Direction of a transfer.
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

impl IoOp {
    /// Its name in documents.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Other => "other",
        }
    }
}

/// Transfers of one kind in one second. A request for several files counts as one transfer for each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoTick {
    /// Start of the tick.
    pub t0_ns: u64,
    /// End of the tick.
    pub t1_ns: u64,
    /// The whole disk.
    pub device: DevId,
    /// What the transfers were for.
    pub what: IoPurpose,
    /// Direction.
    pub op: IoOp,
    /// The process that submitted it; a kernel thread for writeback.
    pub submitter: Option<ProcId>,
    /// The cgroup that owns the pages, or the submitter's where pages are not accounted.
    pub owner: Option<CgroupId>,
    /// The kernel's reason for writeback (`periodic`, `background`, `sync`, ...); `None` = no writeback.
    pub reason: Option<String>,
    /// Number of transfers that completed in the tick. Where the probe samples, scaled up to all transfers.
    pub ios: u64,
    /// Bytes of these transfers. Where the probe samples, scaled up so that they sum to what the disk counted.
    pub bytes: u64,
    /// Sum of the latencies of their requests, from creation to completion; scaled up as `ios`.
    pub total_ns: u64,
    /// Longest measured latency.
    pub max_ns: u64,
}

observed! {
    it: IoTick over t0_ns..t1_ns, from Source::Block;
    to [it.device], it.what.file(), it.submitter, it.owner
}

/// Latency of the requests of a device in one direction, in one second.
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
    /// Latency of completed requests, from creation to completion.
    pub total: WaitHist,
    /// Part from creation to issue: in the IO scheduler, or in the queue of a driver.
    pub queue: WaitHist,
    /// Part from issue to completion: in the driver and the device.
    pub device_time: WaitHist,
    /// Longest latency from creation to completion.
    pub max_ns: u64,
    /// Time from the queueing of the bio to the creation of its request, spent waiting for a tag or on writeback
    /// throttling. Holds those of the requests above that waited [`DeviceTick::BEFORE_NS`] or longer. `None` = not
    /// measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<WaitHist>,
    /// Sampling rate: one in this many requests was measured; 1 = all. The histograms hold only measured requests.
    pub sampled_one_in: u32,
}

observed! { it: DeviceTick over t0_ns..t1_ns, from Source::Block; to [it.device] }

impl DeviceTick {
    /// Shorter times before the creation of a request do not count as a wait: the code path itself takes that long.
    pub const BEFORE_NS: u64 = 4096;
}

/// Latency of the requests of a device in one direction that completed in a bin of 100 ms. They are in the
/// [`DeviceTick`] of the second too. Several records may be about the same bin: their amounts add up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestBin {
    /// Start of the bin.
    pub t0_ns: u64,
    /// End of the bin.
    pub t1_ns: u64,
    /// The whole disk.
    pub device: DevId,
    /// Direction.
    pub op: IoOp,
    /// Latency of completed requests, from creation to completion; of those that were measured.
    pub total: WaitHist,
}

observed! { it: RequestBin over t0_ns..t1_ns, from Source::Block; to [it.device] }

impl RequestBin {
    /// Length of a bin.
    pub const BIN_NS: u64 = 100_000_000;
}

/// Activity of a device in a short bin of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceBin {
    /// Time with at least one request queued or in the device.
    pub busy_ns: u64,
    /// Integral over time of the number of requests queued or in the device.
    pub depth_ns: u64,
    /// Number of requests that completed.
    pub ios: u32,
    /// Bytes of these requests.
    pub bytes: u64,
}

/// Activity of a device in bins of 10 ms, to show bursts that an average over a second hides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceBins {
    /// Start of the first bin.
    pub t0_ns: u64,
    /// End of the last bin.
    pub t1_ns: u64,
    /// The whole disk.
    pub device: DevId,
    /// Bins of equal length from `t0_ns` to `t1_ns`, including those without activity.
    pub bins: Vec<DeviceBin>,
}

observed! { it: DeviceBins over t0_ns..t1_ns, from Source::Block; to [it.device] }

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
    /// Cache flushes completed; 0 before Linux 5.5.
    pub flushes: u64,
    /// Time with a request in flight. Counted in jiffies, and too high on fast devices.
    pub busy_ns: u64,
    /// Integral over time of the number of requests in flight.
    pub depth_ns: u64,
    /// Number of requests in flight at the time of the reading.
    pub in_flight: u64,
}

/// The counters of a device at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskReading {
    /// Timestamp.
    pub t_ns: u64,
    /// Disk or partition.
    pub device: DevId,
    /// Counters of the device.
    pub counters: DiskCounters,
}

observed! { it: DiskReading at t_ns, from Source::Diskstats; to [it.device] }

/// Requests to a device over time, by originator ([`IoCulprit`]) and by the timestamp of their creation.
///
/// The busiest originators of each second have their own rows; all others are summed as [`ProcId::OTHERS`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoPace {
    /// Start of the first bin.
    pub t0_ns: u64,
    /// End of the last bin.
    pub t1_ns: u64,
    /// The whole disk.
    pub device: DevId,
    /// For each originator, the length of its requests in each bin of [`IoPace::BIN_NS`] from `t0_ns` on, in units of
    /// 512 bytes, rounded up for each request. The last bin of the window may be shorter.
    pub sectors: BTreeMap<IoCulprit, Vec<u64>>,
}

observed! {
    it: IoPace over t0_ns..t1_ns, from Source::Block;
    to [it.device], it.sectors.keys().filter_map(|by| by.reference())
}

impl IoPace {
    /// Length of a bin.
    pub const BIN_NS: u64 = 100_000_000;
}
