// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows as records of block IO: the inverse of `encode`.

use super::encode::{op_name, stall_name, state_name, what_name};
use super::pace;
use crate::store::decode::{Cells, Result, maybe_waits, waits};
use crate::store::schema::Kind;
use deburr_core::recording::{
    BlockRecord, DevId, Device, DeviceBin, DeviceBins, DeviceTick, DiskCounters, DiskReading, File,
    FileId, FileState, HeldTick, IoBlameTick, IoCulprit, IoOp, IoPace, IoTick, IoWaitTick, IoWhat,
    JournalCommit, Mount, ProcId, Setting, Stall, StallKind, WritebackPass,
};

const STATES: [FileState; 4] =
    [FileState::Linked, FileState::Deleted, FileState::InFilesystem, FileState::Nameless];
/// All that is no file's data.
const WHATS: [IoWhat; 7] = [
    IoWhat::Metadata,
    IoWhat::Journal,
    IoWhat::Flush,
    IoWhat::Discard,
    IoWhat::Swap,
    IoWhat::RawDevice,
    IoWhat::Unknown,
];
const OPS: [IoOp; 3] = [IoOp::Read, IoOp::Write, IoOp::Other];
const STALLS: [StallKind; 3] = [StallKind::Sync, StallKind::DirtyThrottle, StallKind::Request];

/// A damaged number must not make the reader ask for all memory. A second has 100 bins.
const MOST_BINS: u64 = 65_536;

impl Cells<'_> {
    fn maybe_dev(&mut self) -> Result<Option<DevId>> {
        let Some(text) = self.maybe_text()? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| self.damage("expected a device as `major:minor`"))
    }

    fn dev(&mut self) -> Result<DevId> {
        self.maybe_dev()?.ok_or_else(|| self.damage("expected a device, found NULL"))
    }

    fn maybe_file_id(&mut self) -> Result<Option<FileId>> {
        Ok(self.maybe_u32()?.map(FileId))
    }
}

/// The record in a row of a table of block IO.
///
/// # Panics
///
/// On a `kind` that is none of block IO, which is a fault of the caller.
pub(in crate::store) fn record(kind: Kind, c: &mut Cells<'_>) -> Result<BlockRecord> {
    Ok(match kind {
        Kind::Device => BlockRecord::Device(device(c)?),
        Kind::Mount => BlockRecord::Mount(mount(c)?),
        Kind::Setting => BlockRecord::Setting(setting(c)?),
        Kind::File => BlockRecord::File(file(c)?),
        Kind::Io => BlockRecord::Io(io(c)?),
        Kind::DeviceTick => BlockRecord::DeviceTick(device_tick(c)?),
        Kind::Bins => BlockRecord::Bins(bins(c)?),
        Kind::Disk => BlockRecord::Disk(disk(c)?),
        Kind::Pass => BlockRecord::Pass(pass(c)?),
        Kind::Commit => BlockRecord::Commit(commit(c)?),
        Kind::Wait => BlockRecord::Wait(wait(c)?),
        Kind::Stall => BlockRecord::Stall(stall(c)?),
        Kind::IoBlame => BlockRecord::Blame(blame(c)?),
        Kind::Held => BlockRecord::Held(held(c)?),
        Kind::Pace => BlockRecord::Pace(io_pace(c)?),
        kind => unreachable!("{kind:?} is no table of block IO"),
    })
}

fn device(c: &mut Cells<'_>) -> Result<Device> {
    Ok(Device {
        dev: c.dev()?,
        name: c.text()?,
        disk: c.maybe_dev()?,
        start_sector: c.maybe_u64()?,
        sectors: c.maybe_u64()?,
        backing: c.maybe_text()?,
        gone: c.bool()?,
    })
}

fn mount(c: &mut Cells<'_>) -> Result<Mount> {
    Ok(Mount {
        fs: c.dev()?,
        fstype: c.text()?,
        source: c.text()?,
        point: c.text()?,
        options: c.text()?,
    })
}

fn setting(c: &mut Cells<'_>) -> Result<Setting> {
    Ok(Setting { t_ns: c.u64()?, path: c.text()?, value: c.maybe_text()? })
}

fn file(c: &mut Cells<'_>) -> Result<File> {
    Ok(File {
        id: FileId(c.u32()?),
        fs: c.dev()?,
        ino: c.u64()?,
        generation: c.u32()?,
        path: c.text()?,
        state: c.one_of(&STATES, state_name)?,
        dirtied_by: c.maybe_u32()?.map(ProcId),
    })
}

fn what(c: &mut Cells<'_>) -> Result<IoWhat> {
    let word = c.text()?;
    let file = c.maybe_file_id()?;
    let other = WHATS.into_iter().find(|&what| what_name(what) == word);
    match (file, other) {
        (Some(id), None) if word == "file" => Ok(IoWhat::File(id)),
        (None, Some(other)) => Ok(other),
        _ => Err(c.damage("expected a file with `file`, or another known word alone")),
    }
}

fn io(c: &mut Cells<'_>) -> Result<IoTick> {
    Ok(IoTick {
        t0_ns: c.u64()?,
        t1_ns: c.u64()?,
        device: c.dev()?,
        what: what(c)?,
        op: c.one_of(&OPS, op_name)?,
        submitter: c.maybe_u32()?.map(ProcId),
        owner: c.maybe_cgroup_id()?,
        reason: c.maybe_text()?,
        ios: c.u64()?,
        bytes: c.u64()?,
        total_ns: c.u64()?,
        max_ns: c.u64()?,
    })
}

fn device_tick(c: &mut Cells<'_>) -> Result<DeviceTick> {
    Ok(DeviceTick {
        t0_ns: c.u64()?,
        t1_ns: c.u64()?,
        device: c.dev()?,
        op: c.one_of(&OPS, op_name)?,
        total: waits(c)?,
        queue: waits(c)?,
        device_time: waits(c)?,
        max_ns: c.u64()?,
        sampled_one_in: c.u32()?,
        before: maybe_waits(c)?,
    })
}

fn held(c: &mut Cells<'_>) -> Result<HeldTick> {
    Ok(HeldTick {
        t0_ns: c.u64()?,
        t1_ns: c.u64()?,
        device: c.dev()?,
        op: c.one_of(&OPS, op_name)?,
        cgroup: c.maybe_text()?,
        ios: c.u64()?,
        bytes: c.u64()?,
        service_ns: c.maybe_u64()?,
        members: c.maybe_json()?.unwrap_or_default(),
    })
}

fn bins(c: &mut Cells<'_>) -> Result<DeviceBins> {
    let (t0_ns, t1_ns, device) = (c.u64()?, c.u64()?, c.dev()?);
    let count = c.u64()?;
    if count > MOST_BINS {
        return Err(c.damage("more bins than there can be"));
    }
    let mut bins = vec![DeviceBin::default(); count as usize];
    for [at, busy_ns, depth_ns, ios, bytes] in c.maybe_list()?.unwrap_or_default() {
        let bin = usize::try_from(at).ok().and_then(|at| bins.get_mut(at));
        let Some(bin) = bin else { return Err(c.damage("a bin that does not exist")) };
        let Ok(ios) = ios.try_into() else { return Err(c.damage("expected a 32-bit number")) };
        *bin = DeviceBin { busy_ns, depth_ns, ios, bytes };
    }
    Ok(DeviceBins { t0_ns, t1_ns, device, bins })
}

fn disk(c: &mut Cells<'_>) -> Result<DiskReading> {
    Ok(DiskReading {
        t_ns: c.u64()?,
        device: c.dev()?,
        counters: DiskCounters {
            reads: c.u64()?,
            read_bytes: c.u64()?,
            read_ns: c.u64()?,
            writes: c.u64()?,
            write_bytes: c.u64()?,
            write_ns: c.u64()?,
            discard_bytes: c.u64()?,
            flushes: c.u64()?,
            busy_ns: c.u64()?,
            depth_ns: c.u64()?,
            in_flight: c.u64()?,
        },
    })
}

fn pass(c: &mut Cells<'_>) -> Result<WritebackPass> {
    Ok(WritebackPass {
        t0_ns: c.u64()?,
        t1_ns: c.u64()?,
        device: c.dev()?,
        reason: c.text()?,
        inodes: c.u64()?,
        bytes: c.u64()?,
        ios: c.u64()?,
        ages: c.maybe_json()?.unwrap_or_default(),
        since_last: c.maybe_json()?.unwrap_or_default(),
        dirtied_by: c.maybe_json()?.unwrap_or_default(),
        asked_by: c.maybe_json()?.unwrap_or_default(),
    })
}

fn commit(c: &mut Cells<'_>) -> Result<JournalCommit> {
    Ok(JournalCommit {
        t0_ns: c.u64()?,
        t1_ns: c.u64()?,
        device: c.dev()?,
        kind: c.text()?,
        blocks: c.maybe_u64()?,
    })
}

fn wait(c: &mut Cells<'_>) -> Result<IoWaitTick> {
    Ok(IoWaitTick {
        t0_ns: c.u64()?,
        t1_ns: c.u64()?,
        proc: c.proc_id()?,
        kind: c.one_of(&STALLS, stall_name)?,
        device: c.maybe_dev()?,
        waits: waits(c)?,
        max_ns: c.u64()?,
        // A recorder that did not know of such had none.
        unmeasured: c.maybe_u64()?.unwrap_or(0),
    })
}

fn stall(c: &mut Cells<'_>) -> Result<Stall> {
    Ok(Stall {
        t0_ns: c.u64()?,
        t1_ns: c.u64()?,
        proc: c.proc_id()?,
        kind: c.one_of(&STALLS, stall_name)?,
        device: c.maybe_dev()?,
        file: c.maybe_file_id()?,
        latest_ns: c.maybe_u64()?,
        // A recorder that did not know of such told each, or none.
        within: c.maybe_u64()?.unwrap_or(0),
        within_ns: c.maybe_u64()?.unwrap_or(0),
    })
}

fn blame(c: &mut Cells<'_>) -> Result<IoBlameTick> {
    Ok(IoBlameTick {
        t0_ns: c.u64()?,
        t1_ns: c.u64()?,
        victim: c.proc_id()?,
        device: c.dev()?,
        culprit: culprit(c)?,
        ns: c.u64()?,
    })
}

fn io_pace(c: &mut Cells<'_>) -> Result<IoPace> {
    Ok(IoPace {
        t0_ns: c.u64()?,
        t1_ns: c.u64()?,
        device: c.dev()?,
        sectors: {
            let blob = c.blob()?;
            pace::read(&blob).ok_or_else(|| c.damage("expected the bins of an `io_pace`"))?
        },
    })
}

fn culprit(c: &mut Cells<'_>) -> Result<IoCulprit> {
    let word = c.text()?;
    let proc = c.maybe_u32()?.map(ProcId);
    let cgroup = c.maybe_cgroup_id()?;
    match (word.as_str(), proc, cgroup) {
        ("process", Some(id), None) => Ok(IoCulprit::Process(id)),
        ("writeback", None, owner) => Ok(IoCulprit::Writeback(owner)),
        ("filesystem", None, None) => Ok(IoCulprit::Filesystem),
        ("device", None, None) => Ok(IoCulprit::Device),
        _ => Err(c.damage("expected a culprit with what belongs to it")),
    }
}
