// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of block IO as rows.

use super::pace;
use crate::store::encode::{Cell, Row, cells, json, list, waits};
use crate::store::schema::Kind;
use deburr_core::recording::{
    BlockRecord, DevId, Device, DeviceBin, DeviceBins, DeviceTick, DiskReading, File, FileState,
    HeldTick, IoBlameTick, IoCulprit, IoOp, IoPace, IoTick, IoWaitTick, IoWhat, JournalCommit,
    Mount, Setting, Stall, StallKind, WritebackPass,
};

/// The row of a record.
pub(in crate::store) fn row(record: &BlockRecord) -> Row<'_> {
    let plain = |kind, cells| Row { kind, tick: None, cells };
    let over = |kind, t0_ns, t1_ns, cells| Row { kind, tick: Some((t0_ns, t1_ns)), cells };
    match record {
        BlockRecord::Device(d) => plain(Kind::Device, device(d)),
        BlockRecord::Mount(m) => plain(Kind::Mount, mount(m)),
        BlockRecord::Setting(s) => plain(Kind::Setting, setting(s)),
        BlockRecord::File(f) => plain(Kind::File, file(f)),
        BlockRecord::Io(t) => over(Kind::Io, t.t0_ns, t.t1_ns, io(t)),
        BlockRecord::DeviceTick(t) => over(Kind::DeviceTick, t.t0_ns, t.t1_ns, device_tick(t)),
        BlockRecord::Bins(b) => over(Kind::Bins, b.t0_ns, b.t1_ns, bins(b)),
        BlockRecord::Disk(r) => plain(Kind::Disk, disk(r)),
        BlockRecord::Pass(p) => plain(Kind::Pass, pass(p)),
        BlockRecord::Commit(c) => plain(Kind::Commit, commit(c)),
        BlockRecord::Wait(t) => over(Kind::Wait, t.t0_ns, t.t1_ns, wait(t)),
        BlockRecord::Stall(s) => plain(Kind::Stall, stall(s)),
        BlockRecord::Blame(t) => over(Kind::IoBlame, t.t0_ns, t.t1_ns, blame(t)),
        BlockRecord::Held(t) => over(Kind::Held, t.t0_ns, t.t1_ns, held(t)),
        BlockRecord::Pace(p) => over(Kind::Pace, p.t0_ns, p.t1_ns, io_pace(p)),
    }
}

fn dev(device: DevId) -> String {
    device.to_string()
}

fn device(d: &Device) -> Vec<Cell<'_>> {
    cells![
        dev(d.dev),
        &d.name,
        d.disk.map(dev),
        d.start_sector,
        d.sectors,
        d.backing.as_ref(),
        d.gone
    ]
}

fn mount(m: &Mount) -> Vec<Cell<'_>> {
    cells![dev(m.fs), &m.fstype, &m.source, &m.point, &m.options]
}

fn setting(s: &Setting) -> Vec<Cell<'_>> {
    cells![s.t_ns, &s.path, s.value.as_ref()]
}

fn file(f: &File) -> Vec<Cell<'_>> {
    cells![
        f.id.0,
        dev(f.fs),
        f.ino,
        f.generation,
        &f.path,
        state_name(f.state),
        f.dirtied_by.map(|id| id.0)
    ]
}

fn io(t: &IoTick) -> Vec<Cell<'_>> {
    let file = match t.what {
        IoWhat::File(id) => Some(id.0),
        _ => None,
    };
    cells![
        dev(t.device),
        what_name(t.what),
        file,
        op_name(t.op),
        t.submitter.map(|id| id.0),
        t.owner.map(|id| id.0),
        t.reason.as_ref(),
        t.ios,
        t.bytes,
        t.total_ns,
        t.max_ns,
    ]
}

fn device_tick(t: &DeviceTick) -> Vec<Cell<'_>> {
    cells![
        dev(t.device),
        op_name(t.op),
        waits(&t.total),
        waits(&t.queue),
        waits(&t.device_time),
        t.max_ns,
        t.sampled_one_in,
        // An empty list says that it was looked for.
        t.before.as_ref().map(|before| waits(before).unwrap_or_default()),
    ]
}

fn held(t: &HeldTick) -> Vec<Cell<'_>> {
    cells![
        dev(t.device),
        op_name(t.op),
        t.cgroup.as_ref(),
        t.ios,
        t.bytes,
        t.service_ns,
        json_list(&t.members),
    ]
}

/// `[[bin, busy_ns, depth_ns, ios, bytes], ...]` of the bins with any activity: most devices rest most of
/// the time.
fn bins(b: &DeviceBins) -> Vec<Cell<'_>> {
    let active = b.bins.iter().enumerate().filter(|(_, bin)| **bin != DeviceBin::default());
    let active =
        active.map(|(i, bin)| [i as u64, bin.busy_ns, bin.depth_ns, bin.ios.into(), bin.bytes]);
    cells![dev(b.device), b.bins.len() as u64, list(active)]
}

fn disk(r: &DiskReading) -> Vec<Cell<'_>> {
    let c = &r.counters;
    cells![
        r.t_ns,
        dev(r.device),
        c.reads,
        c.read_bytes,
        c.read_ns,
        c.writes,
        c.write_bytes,
        c.write_ns,
        c.discard_bytes,
        c.flushes,
        c.busy_ns,
        c.depth_ns,
        c.in_flight,
    ]
}

fn pass(p: &WritebackPass) -> Vec<Cell<'_>> {
    cells![
        p.t0_ns,
        p.t1_ns,
        dev(p.device),
        &p.reason,
        p.inodes,
        p.bytes,
        p.ios,
        json_list(&p.ages),
        json_list(&p.since_last),
        json_list(&p.dirtied_by),
        json_list(&p.asked_by),
    ]
}

fn commit(c: &JournalCommit) -> Vec<Cell<'_>> {
    cells![c.t0_ns, c.t1_ns, dev(c.device), &c.kind, c.blocks]
}

fn wait(t: &IoWaitTick) -> Vec<Cell<'_>> {
    cells![t.proc.0, stall_name(t.kind), t.device.map(dev), waits(&t.waits), t.max_ns, t.unmeasured]
}

fn stall(s: &Stall) -> Vec<Cell<'_>> {
    let file = s.file.map(|id| id.0);
    cells![
        s.t0_ns,
        s.t1_ns,
        s.proc.0,
        stall_name(s.kind),
        s.device.map(dev),
        file,
        s.latest_ns,
        s.within,
        s.within_ns,
    ]
}

fn blame(t: &IoBlameTick) -> Vec<Cell<'_>> {
    let (culprit, proc, cgroup) = match t.culprit {
        IoCulprit::Process(id) => ("process", Some(id.0), None),
        IoCulprit::Writeback(owner) => ("writeback", None, owner.map(|id| id.0)),
        IoCulprit::Filesystem => ("filesystem", None, None),
        IoCulprit::Device => ("device", None, None),
    };
    cells![t.victim.0, dev(t.device), culprit, proc, cgroup, t.ns]
}

fn io_pace(p: &IoPace) -> Vec<Cell<'_>> {
    cells![dev(p.device), pace::blob(&p.sectors)]
}

/// JSON of a list; `None` of an empty one.
fn json_list<T: serde::Serialize>(items: &[T]) -> Option<String> {
    (!items.is_empty()).then(|| json(&items))
}

pub(super) fn state_name(state: FileState) -> &'static str {
    match state {
        FileState::Linked => "linked",
        FileState::Deleted => "deleted",
        FileState::InFilesystem => "in_filesystem",
        FileState::Nameless => "nameless",
    }
}

/// Names of all kinds but the file's identity, which has a column of its own.
pub(super) fn what_name(what: IoWhat) -> &'static str {
    match what {
        IoWhat::File(_) => "file",
        IoWhat::Metadata => "metadata",
        IoWhat::Journal => "journal",
        IoWhat::Flush => "flush",
        IoWhat::Discard => "discard",
        IoWhat::Swap => "swap",
        IoWhat::RawDevice => "raw_device",
        IoWhat::Unknown => "unknown",
    }
}

pub(super) fn op_name(op: IoOp) -> &'static str {
    match op {
        IoOp::Read => "read",
        IoOp::Write => "write",
        IoOp::Other => "other",
    }
}

pub(super) fn stall_name(kind: StallKind) -> &'static str {
    match kind {
        StallKind::Sync => "sync",
        StallKind::DirtyThrottle => "dirty_throttle",
        StallKind::Request => "request",
    }
}
