// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stalls of threads in block IO, and whose requests caused them.

use super::{CgroupId, DevId, FileId, ProcId, Reference, Source, WaitHist, observed};
use crate::stats::Span;
use serde::{Deserialize, Serialize};

/// What stalled a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StallKind {
    /// `fsync`, `fdatasync` and the like.
    Sync,
    /// The kernel paused a writer because too many pages were dirty.
    DirtyThrottle,
    /// A request that a thread waits for: a read, a synchronous write, a flush of the device's cache, or the requests
    /// of a journal commit. The wait starts when the bio was queued, where that is known
    /// ([`DeviceTick::before`](super::DeviceTick::before)), otherwise at the creation of the request.
    Request,
}

impl StallKind {
    fn source(self) -> Source {
        match self {
            Self::Sync | Self::DirtyThrottle => Source::Writeback,
            Self::Request => Source::Block,
        }
    }
}

/// Stalls of one kind of a process's threads that ended in one second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoWaitTick {
    /// Start of the tick.
    pub t0_ns: u64,
    /// End of the tick.
    pub t1_ns: u64,
    /// The process.
    pub proc: ProcId,
    /// Kind of the stalls.
    pub kind: StallKind,
    /// The device; `None` where it is not known.
    pub device: Option<DevId>,
    /// Histogram of durations. A stall whose end is not known counts with its minimum duration ([`Stall::latest_ns`]).
    pub waits: WaitHist,
    /// Longest stall.
    pub max_ns: u64,
    /// Number of further stalls of unknown duration: their start was seen, and they had ended by the next poll.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unmeasured: u64,
}

observed! { it: IoWaitTick over t0_ns..t1_ns, from it.kind.source(); to [it.proc], it.device }

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(amount: &u64) -> bool {
    *amount == 0
}

/// A single long stall (10 ms or longer), for tests of coincidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stall {
    /// Start.
    pub t0_ns: u64,
    /// End. If `latest_ns` is set, the last time at which the stall was seen in progress.
    pub t1_ns: u64,
    /// The process.
    pub proc: ProcId,
    /// Kind of the stall.
    pub kind: StallKind,
    /// The device; `None` where it is not known.
    pub device: Option<DevId>,
    /// Latest possible end, where the kernel does not report ends and the thread is polled instead.
    /// `None` = `t1_ns` is the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_ns: Option<u64>,
    /// The file that was synced, read or written, if one is known.
    pub file: Option<FileId>,
    /// Number of stalls that this record also stands for, because there were too many in one second to record each.
    /// They have the same process, kind and device, ended in the same second, are no longer than this one, and lie
    /// within the time of the recorded stalls (up to 10 ms).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub within: u64,
    /// Sum of the durations of those stalls. It is thread time, so it may exceed the duration of this one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub within_ns: u64,
}

observed! { it: Stall over t0_ns..t1_ns, from it.kind.source(); to [it.proc], it.device, it.file }

impl Stall {
    /// From when to when. A clock may let it end before it starts; it is a moment then.
    #[must_use]
    pub fn span(&self) -> Span {
        Span::new(self.t0_ns, self.t1_ns.max(self.t0_ns))
    }

    /// Duration of this stall.
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        self.t1_ns.saturating_sub(self.t0_ns)
    }

    /// Sum of the durations of this stall and of those that it also stands for.
    #[must_use]
    pub fn of_all_ns(&self) -> u64 {
        self.length_ns().saturating_add(self.within_ns)
    }

    /// Number of stalls that this record stands for, itself included.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.within.saturating_add(1)
    }
}

/// Whose requests were queued or in the device while a process waited for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoCulprit {
    /// Requests that a process submitted. If it is the victim: its own other requests.
    Process(ProcId),
    /// Writeback of pages that this cgroup owns.
    Writeback(Option<CgroupId>),
    /// Requests of a journal, or for metadata.
    Filesystem,
    /// No other requests: the service time of the request itself. In older recordings also that of the process's other
    /// requests.
    Device,
}

impl IoCulprit {
    pub(super) fn reference(self) -> Option<Reference> {
        match self {
            Self::Process(id) => Some(id.into()),
            Self::Writeback(owner) => owner.map(Reference::from),
            Self::Filesystem | Self::Device => None,
        }
    }
}

/// Time that a process waited for its requests, by whose requests were queued or in the device during the wait.
/// Summed over culprits it is the [`StallKind::Request`] time of the same ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoBlameTick {
    /// Start of the tick.
    pub t0_ns: u64,
    /// End of the tick.
    pub t1_ns: u64,
    /// The process that waited.
    pub victim: ProcId,
    /// The device that it waited for.
    pub device: DevId,
    /// Whose requests it waited for.
    pub culprit: IoCulprit,
    /// Wait, in nanoseconds.
    pub ns: u64,
}

observed! { it: IoBlameTick over t0_ns..t1_ns, from Source::Block; to [it.victim], [it.device], it.culprit.reference() }
