// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block IO: devices, filesystems and files; transfers with their submitters and reasons; and the threads that waited
//! for them.

mod facts;
mod held;
mod hold_ups;
mod transfers;
mod writeback;

pub use facts::{DevId, Device, File, FileId, FileState, Mount, NotADevice, Setting};
pub use held::HeldTick;
pub use hold_ups::{IoBlameTick, IoCulprit, IoWaitTick, Stall, StallKind};
pub use transfers::{
    DeviceBin, DeviceBins, DeviceTick, DiskCounters, DiskReading, IoOp, IoPace, IoPurpose, IoTick,
    RequestBin,
};
pub use writeback::{JournalCommit, WritebackPass};

use super::observed::{Observed, Reference, observed};
use super::{CgroupId, ProcId, Source, WaitHist};
use serde::{Deserialize, Serialize};

/// A record of block IO.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "always in the box of `Record::Block`")]
pub enum BlockRecord {
    /// A device: when it is first seen, and when it is removed.
    Device(Device),
    /// A filesystem: when it is first seen.
    Mount(Mount),
    /// A setting: at the start, and when it changes.
    Setting(Setting),
    /// A file: when it is first seen, and when more is known of its name.
    File(File),
    /// Transfers of one kind (BPF block probe), each second.
    Io(IoTick),
    /// Latency of requests (BPF block probe), each second.
    DeviceTick(DeviceTick),
    /// Latency of requests in bins of 100 ms (BPF block probe), for bins in which any completed.
    Requests(RequestBin),
    /// Activity in bins of 10 ms (BPF block probe), each second, for devices with any activity.
    Bins(DeviceBins),
    /// `/proc/diskstats`, cumulative, ten times a second.
    Disk(DiskReading),
    /// A pass of the flusher (BPF writeback probe), when it has ended.
    Pass(WritebackPass),
    /// A commit of a journal (BPF writeback probe).
    Commit(JournalCommit),
    /// Stalls of a process (BPF), each second.
    Wait(IoWaitTick),
    /// A single long stall (BPF).
    Stall(Stall),
    /// Whose requests a process waited for (BPF block probe), each second.
    Blame(IoBlameTick),
    /// Request rate of the busiest originators over time (BPF block probe), each second.
    Pace(IoPace),
    /// Transfers that an IO limit delayed (BPF block probe), each second.
    Held(HeldTick),
}

impl BlockRecord {
    /// What the record tells of itself.
    pub(super) fn observed(&self) -> &dyn Observed {
        match self {
            Self::Device(it) => it,
            Self::Mount(it) => it,
            Self::Setting(it) => it,
            Self::File(it) => it,
            Self::Io(it) => it,
            Self::DeviceTick(it) => it,
            Self::Requests(it) => it,
            Self::Bins(it) => it,
            Self::Disk(it) => it,
            Self::Pass(it) => it,
            Self::Commit(it) => it,
            Self::Wait(it) => it,
            Self::Stall(it) => it,
            Self::Blame(it) => it,
            Self::Pace(it) => it,
            Self::Held(it) => it,
        }
    }
}
