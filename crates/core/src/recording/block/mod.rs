// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block IO: devices, filesystems and files, what was asked of the devices, for whom and why, and what waited
//! for it.

mod facts;
mod held;
mod hold_ups;
mod transfers;
mod writeback;

pub use facts::{DevId, Device, File, FileId, FileState, Mount, NotADevice, Setting};
pub use held::HeldTick;
pub use hold_ups::{IoBlameTick, IoCulprit, IoWaitTick, Stall, StallKind};
pub use transfers::{
    DeviceBin, DeviceBins, DeviceTick, DiskCounters, DiskReading, IoOp, IoPace, IoTick, IoWhat,
};
pub use writeback::{JournalCommit, WritebackPass};

use super::{CgroupId, ProcId, WaitHist};
use serde::{Deserialize, Serialize};

/// A record of block IO.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "always in the box of `Record::Block`")]
pub enum BlockRecord {
    /// A device, at first sight and when it goes.
    Device(Device),
    /// A filesystem, at first sight.
    Mount(Mount),
    /// A setting, at the start and when it changed.
    Setting(Setting),
    /// A file, at first sight and when its name is known better.
    File(File),
    /// Transfers of one kind (BPF block probe), each second.
    Io(IoTick),
    /// How long requests took (BPF block probe), each second.
    DeviceTick(DeviceTick),
    /// Activity in bins of 10 ms (BPF block probe), each second, for devices that did anything.
    Bins(DeviceBins),
    /// `/proc/diskstats`, cumulative, ten times a second.
    Disk(DiskReading),
    /// A pass of the flusher (BPF writeback probe), when it is over.
    Pass(WritebackPass),
    /// A journal's commit (BPF writeback probe).
    Commit(JournalCommit),
    /// Hold-ups (BPF), each second.
    Wait(IoWaitTick),
    /// A long hold-up (BPF).
    Stall(Stall),
    /// Beside whom requests waited (BPF block probe), each second.
    Blame(IoBlameTick),
    /// When the busiest ones asked a device for something (BPF block probe), each second.
    Pace(IoPace),
    /// What a limit held back (BPF block probe), each second.
    Held(HeldTick),
}

impl BlockRecord {
    /// The time that it belongs to; `None` for facts, which belong to none.
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
