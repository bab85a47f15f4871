// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What held threads up in block IO, and beside whom.

use super::{CgroupId, DevId, FileId, ProcId, WaitHist};
use serde::{Deserialize, Serialize};

/// What a thread was held up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StallKind {
    /// `fsync`, `fdatasync` and the like.
    Sync,
    /// A pause that the kernel made a writer take, because too much was dirty.
    DirtyThrottle,
    /// A request that somebody waits for: a read, a synchronous write, a flush of the device's cache, or those of a
    /// commit of the journal. From when it was asked for on, where that is known ([`DeviceTick::before`]).
    Request,
}

/// Hold-ups of one kind of a process's threads that ended in one second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoWaitTick {
    /// Start of the tick.
    pub t0_ns: u64,
    /// End of the tick.
    pub t1_ns: u64,
    /// Whose.
    pub proc: ProcId,
    /// By what.
    pub kind: StallKind,
    /// The device; `None` where it is not told.
    pub device: Option<DevId>,
    /// Sizes. Of those whose end is not known, the time that they lasted at least ([`Stall::latest_ns`]).
    pub waits: WaitHist,
    /// Longest.
    pub max_ns: u64,
    /// How many more there were, of which only is known that they began, and were over when it was looked next.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unmeasured: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(amount: &u64) -> bool {
    *amount == 0
}

/// One long hold-up (10 ms and more): for coincidences.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stall {
    /// It began.
    pub t0_ns: u64,
    /// It ended; where `latest_ns` is known, it was under way still.
    pub t1_ns: u64,
    /// Whose.
    pub proc: ProcId,
    /// By what.
    pub kind: StallKind,
    /// The device; `None` where it is not told.
    pub device: Option<DevId>,
    /// Where the kernel does not tell of ends, and it was looked now and then: it was over then at the latest.
    /// `None` = `t1_ns` is the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_ns: Option<u64>,
    /// The file that was synced, read or written, if one is known.
    pub file: Option<FileId>,
    /// How many more of the same process, kind and device ended in the same second, lay within the time of this one
    /// and of others that are told (to 10 ms), were no longer, and are not told each, because there were too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub within: u64,
    /// Sum of their lengths: as time of threads, it may be longer than this one is.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub within_ns: u64,
}

impl Stall {
    /// How long it was.
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        self.t1_ns.saturating_sub(self.t0_ns)
    }

    /// The time of it and of those that are told with it.
    #[must_use]
    pub fn of_all_ns(&self) -> u64 {
        self.length_ns().saturating_add(self.within_ns)
    }

    /// It and those that are told with it.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.within.saturating_add(1)
    }
}

/// Whose requests a process's own requests waited beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoCulprit {
    /// Requests that a process submitted. The victim itself: its own other requests.
    Process(ProcId),
    /// Writeback of pages that this cgroup owns.
    Writeback(Option<CgroupId>),
    /// A journal's or the metadata's requests.
    Filesystem,
    /// Nobody else's: the part of the request itself. In older recordings that of the process's other requests too.
    Device,
}

/// Nanoseconds of a process's waiting for its requests, by whose requests were in the queue or the device
/// meanwhile. Summed over culprits it is the [`StallKind::Request`] time of the same ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoBlameTick {
    /// Start of the tick.
    pub t0_ns: u64,
    /// End of the tick.
    pub t1_ns: u64,
    /// Who waited.
    pub victim: ProcId,
    /// For which device.
    pub device: DevId,
    /// Beside whom.
    pub culprit: IoCulprit,
    /// For how long.
    pub ns: u64,
}
