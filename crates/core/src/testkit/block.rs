// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block IO in a [`Scene`]: disks, files, transfers and waits.
//!
//! Amounts belong to the time range that they are given with, usually `0..S`, `S..2 * S` and so on.

use super::{MS, S, Scene, hist};
use crate::recording::{
    BlockRecord, DevId, Device, DeviceBin, DeviceBins, DeviceTick, DiskCounters, DiskReading, File,
    FileId, FileState, HeldTick, IoBlameTick, IoCulprit, IoOp, IoPace, IoPurpose, IoTick,
    IoWaitTick, JournalCommit, Mount, ProcId, Record, Setting, Stall, StallKind, WaitHist,
    WritebackPass,
};
use std::collections::BTreeMap;
use std::ops::Range;

/// Transfers of one kind, for [`Scene::io`]: by an unknown process and for an unknown reason, all of the same duration.
/// Timestamps are filled in there.
#[must_use]
pub fn transfers(
    device: DevId,
    what: IoPurpose,
    op: IoOp,
    ios: u64,
    bytes: u64,
    each_ns: u64,
) -> IoTick {
    IoTick {
        t0_ns: 0,
        t1_ns: 0,
        device,
        what,
        op,
        submitter: None,
        owner: None,
        reason: None,
        ios,
        bytes,
        total_ns: ios * each_ns,
        max_ns: if ios == 0 { 0 } else { each_ns },
    }
}

/// A pass of the flusher, for [`Scene::pass`], without details about its inodes. Timestamps are filled in there.
#[must_use]
pub fn pass(device: DevId, reason: &str, inodes: u64, ios: u64, bytes: u64) -> WritebackPass {
    WritebackPass {
        t0_ns: 0,
        t1_ns: 0,
        device,
        reason: reason.into(),
        inodes,
        bytes,
        ios,
        ages: vec![],
        since_last: vec![],
        dirtied_by: vec![],
        asked_by: vec![],
    }
}

impl Scene {
    /// Adds a record of block IO.
    pub fn block(&mut self, record: BlockRecord) -> &mut Self {
        self.push(Record::Block(Box::new(record)))
    }

    /// Adds a whole disk of 1 TiB.
    pub fn disk(&mut self, name: &str) -> DevId {
        let disks = self.count_block(|r| matches!(r, BlockRecord::Device(d) if d.disk.is_none()));
        let dev = DevId { major: 8, minor: 16 * disks as u32 };
        self.block(BlockRecord::Device(Device {
            dev,
            name: name.into(),
            disk: None,
            start_sector: None,
            sectors: Some(1 << 31),
            backing: None,
            gone: false,
        }));
        dev
    }

    /// Adds a partition of a disk.
    pub fn partition(&mut self, disk: DevId, name: &str, start_sector: u64) -> DevId {
        let of_disk = |d: &Device| d.disk == Some(disk);
        let others = self.count_block(|r| matches!(r, BlockRecord::Device(d) if of_disk(d)));
        let dev = DevId { minor: disk.minor + 1 + others as u32, ..disk };
        self.block(BlockRecord::Device(Device {
            dev,
            name: name.into(),
            disk: Some(disk),
            start_sector: Some(start_sector),
            sectors: Some(1 << 20),
            backing: None,
            gone: false,
        }));
        dev
    }

    /// Adds a filesystem on a device.
    pub fn mount(&mut self, fs: DevId, fstype: &str, point: &str, options: &str) -> &mut Self {
        self.block(BlockRecord::Mount(Mount {
            fs,
            fstype: fstype.into(),
            source: format!("/dev/block/{fs}"),
            point: point.into(),
            options: options.into(),
        }))
    }

    /// Adds a setting as of the start of the window.
    pub fn setting(&mut self, path: &str, value: &str) -> &mut Self {
        self.setting_at(0, path, value)
    }

    /// Adds a setting as of a given time.
    pub fn setting_at(&mut self, t_ns: u64, path: &str, value: &str) -> &mut Self {
        let value = Some(value.into());
        self.block(BlockRecord::Setting(Setting { t_ns, path: path.into(), value }))
    }

    /// Adds a file with a known name.
    pub fn file(&mut self, fs: DevId, path: &str) -> FileId {
        self.file_dirtied_by(fs, path, None)
    }

    /// Adds a file that a process was seen to dirty.
    pub fn file_dirtied_by(&mut self, fs: DevId, path: &str, dirtied_by: Option<ProcId>) -> FileId {
        let files = self.count_block(|r| matches!(r, BlockRecord::File(_)));
        let id = FileId(1 + files as u32);
        self.block(BlockRecord::File(File {
            id,
            fs,
            ino: 100 + files,
            generation: 1,
            path: path.into(),
            state: FileState::Linked,
            dirtied_by,
        }));
        id
    }

    /// Adds transfers of one kind, as made by [`transfers`].
    pub fn io(&mut self, at: Range<u64>, tick: IoTick) -> &mut Self {
        self.block(BlockRecord::Io(IoTick { t0_ns: at.start, t1_ns: at.end, ..tick }))
    }

    /// Adds requests of a device as (number, time of each in the queue, time of each in the device), in nanoseconds.
    pub fn requests(
        &mut self,
        at: Range<u64>,
        device: DevId,
        op: IoOp,
        requests: &[(u64, u64, u64)],
    ) -> &mut Self {
        let sizes = |of: fn(u64, u64) -> u64| -> WaitHist {
            hist(
                &requests
                    .iter()
                    .map(|&(n, queue, device)| (n, of(queue, device)))
                    .collect::<Vec<_>>(),
            )
        };
        let longest = requests.iter().map(|&(_, queue, device)| queue + device).max();
        self.block(BlockRecord::DeviceTick(DeviceTick {
            t0_ns: at.start,
            t1_ns: at.end,
            device,
            op,
            total: sizes(|queue, device| queue + device),
            queue: sizes(|queue, _| queue),
            device_time: sizes(|_, device| device),
            max_ns: longest.unwrap_or(0),
            before: None,
            sampled_one_in: 1,
        }))
    }

    /// The same, with the waits before the requests as (number, length in nanoseconds).
    pub fn waited_before(
        &mut self,
        at: Range<u64>,
        device: DevId,
        op: IoOp,
        requests: &[(u64, u64, u64)],
        before: &[(u64, u64)],
    ) -> &mut Self {
        self.requests(at, device, op, requests);
        if let Some(Record::Block(record)) = self.records.last_mut()
            && let BlockRecord::DeviceTick(tick) = record.as_mut()
        {
            tick.before = Some(hist(before));
        }
        self
    }

    /// Adds throttled transfers of 4 kB each; once submitted, each took a millisecond.
    pub fn held(
        &mut self,
        at: Range<u64>,
        device: DevId,
        op: IoOp,
        cgroup: &str,
        ios: u64,
        members: &[ProcId],
    ) -> &mut Self {
        self.block(BlockRecord::Held(HeldTick {
            t0_ns: at.start,
            t1_ns: at.end,
            device,
            op,
            cgroup: Some(cgroup.into()),
            ios,
            bytes: ios * 4096,
            service_ns: Some(MS),
            members: members.to_vec(),
        }))
    }

    /// Adds a device's activity in bins of 10 ms over the window; `bin` gets the start of each bin. A second without
    /// activity has no record.
    pub fn bins(&mut self, device: DevId, bin: impl Fn(u64) -> DeviceBin) -> &mut Self {
        for t0_ns in (0..self.window_ns).step_by(S as usize) {
            let t1_ns = self.window_ns.min(t0_ns + S);
            let count = (t1_ns - t0_ns) / (10 * MS);
            let bins: Vec<DeviceBin> = (0..count).map(|i| bin(t0_ns + i * 10 * MS)).collect();
            if bins.iter().any(|bin| *bin != DeviceBin::default()) {
                let t1_ns = t0_ns + count * 10 * MS;
                self.block(BlockRecord::Bins(DeviceBins { t0_ns, t1_ns, device, bins }));
            }
        }
        self
    }

    /// Adds a device's line of `/proc/diskstats`, ten times a second; `counters` gets the time of each reading.
    pub fn diskstats(
        &mut self,
        device: DevId,
        counters: impl Fn(u64) -> DiskCounters,
    ) -> &mut Self {
        for t_ns in (0..=self.window_ns).step_by(100 * MS as usize) {
            let counters = counters(t_ns);
            self.block(BlockRecord::Disk(DiskReading { t_ns, device, counters }));
        }
        self
    }

    /// Adds a pass of the flusher, as made by [`pass`].
    pub fn pass(&mut self, at: Range<u64>, pass: WritebackPass) -> &mut Self {
        self.block(BlockRecord::Pass(WritebackPass { t0_ns: at.start, t1_ns: at.end, ..pass }))
    }

    /// Adds a commit of a journal.
    pub fn commit(&mut self, at: Range<u64>, device: DevId, kind: &str) -> &mut Self {
        self.block(BlockRecord::Commit(JournalCommit {
            t0_ns: at.start,
            t1_ns: at.end,
            device,
            kind: kind.into(),
            blocks: None,
        }))
    }

    /// Adds waits of a process as (number, length in nanoseconds).
    pub fn io_wait(
        &mut self,
        at: Range<u64>,
        proc: ProcId,
        kind: StallKind,
        device: Option<DevId>,
        waits: &[(u64, u64)],
    ) -> &mut Self {
        self.block(BlockRecord::Wait(IoWaitTick {
            t0_ns: at.start,
            t1_ns: at.end,
            proc,
            kind,
            device,
            waits: hist(waits),
            max_ns: waits.iter().map(|&(_, ns)| ns).max().unwrap_or(0),
            unmeasured: 0,
        }))
    }

    /// Adds a single long wait.
    pub fn stall(
        &mut self,
        at: Range<u64>,
        proc: ProcId,
        kind: StallKind,
        device: Option<DevId>,
        file: Option<FileId>,
    ) -> &mut Self {
        let (t0_ns, t1_ns) = (at.start, at.end);
        self.block(BlockRecord::Stall(Stall {
            t0_ns,
            t1_ns,
            proc,
            kind,
            device,
            file,
            latest_ns: None,
            within: 0,
            within_ns: 0,
        }))
    }

    /// Adds time that a process waited for its own requests while those of a culprit were in flight.
    pub fn io_blame(
        &mut self,
        at: Range<u64>,
        victim: ProcId,
        device: DevId,
        culprit: IoCulprit,
        ns: u64,
    ) -> &mut Self {
        let (t0_ns, t1_ns) = (at.start, at.end);
        self.block(BlockRecord::Blame(IoBlameTick { t0_ns, t1_ns, victim, device, culprit, ns }))
    }

    /// Adds when and by which processes a device was asked for how much: `sectors` gets the process and the start of
    /// each bin of 100 ms of the window. A second without requests has no record.
    pub fn pace(
        &mut self,
        device: DevId,
        by: &[IoCulprit],
        sectors: impl Fn(IoCulprit, u64) -> u64,
    ) -> &mut Self {
        for t0_ns in (0..self.window_ns).step_by(S as usize) {
            let t1_ns = self.window_ns.min(t0_ns + S);
            let bins = |by| {
                let starts = (t0_ns..t1_ns).step_by(IoPace::BIN_NS as usize);
                starts.map(|t_ns| sectors(by, t_ns)).collect::<Vec<u64>>()
            };
            let some = |(_, bins): &(_, Vec<u64>)| bins.iter().any(|&sectors| sectors > 0);
            let sectors: BTreeMap<_, _> =
                by.iter().map(|&by| (by, bins(by))).filter(some).collect();
            if !sectors.is_empty() {
                self.block(BlockRecord::Pace(IoPace { t0_ns, t1_ns, device, sectors }));
            }
        }
        self
    }

    fn count_block(&self, kind: impl Fn(&BlockRecord) -> bool) -> u64 {
        self.count(|record| matches!(record, Record::Block(block) if kind(block)))
    }
}
