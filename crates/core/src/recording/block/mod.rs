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
};
pub use writeback::{JournalCommit, WritebackPass};

use super::{CgroupId, ProcId, WaitHist};
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
    /// Time range of the record, `(start_ns, end_ns)`; `None` for devices, mounts and files.
    #[must_use]
    pub fn span(&self) -> Option<(u64, u64)> {
        match self {
            Self::Device(_) | Self::Mount(_) | Self::File(_) => None,
            Self::Setting(setting) => Some((setting.t_ns, setting.t_ns)),
            Self::Io(tick) => Some((tick.t0_ns, tick.t1_ns)),
            Self::DeviceTick(tick) => Some((tick.t0_ns, tick.t1_ns)),
            Self::Bins(bins) => Some((bins.t0_ns, bins.t1_ns)),
            Self::Disk(reading) => Some((reading.t_ns, reading.t_ns)),
            Self::Pass(pass) => Some((pass.t0_ns, pass.t1_ns)),
            Self::Commit(commit) => Some((commit.t0_ns, commit.t1_ns)),
            Self::Wait(tick) => Some((tick.t0_ns, tick.t1_ns)),
            Self::Stall(stall) => Some((stall.t0_ns, stall.t1_ns)),
            Self::Blame(tick) => Some((tick.t0_ns, tick.t1_ns)),
            Self::Pace(pace) => Some((pace.t0_ns, pace.t1_ns)),
            Self::Held(tick) => Some((tick.t0_ns, tick.t1_ns)),
        }
    }
}
