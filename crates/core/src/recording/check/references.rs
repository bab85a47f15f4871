// SPDX-License-Identifier: Apache-2.0 OR MIT
//! References: processes, cgroups, devices and files are described before records refer to them, and no record comes
//! from a source without coverage.

use super::{Faults, Invariant};
use crate::recording::{
    BlockRecord, CgroupId, Culprit, DevId, FileId, IoCulprit, IoPurpose, IoTick, ProcId, Record,
    Source, StallKind, State, TargetSpec, WritebackPass,
};
use std::collections::{BTreeMap, BTreeSet};

const PROCESSES: Invariant = "a process is described before it is referred to";
const CGROUPS: Invariant = "a cgroup is described before it is referred to";
const NO_ID: Invariant = "no process has the identity 0 or that of the many small ones";
const DEVICES: Invariant = "a device is described before it is referred to";
const FILES: Invariant = "a file is described before it is referred to";
const NO_FILE_ID: Invariant = "no file has the identity 0 or that of the many others";
const COVERED: Invariant = "nothing comes from a source that saw nothing";
const ALL_COVERED: Invariant = "every source says what it saw";
const TARGET_BINS: Invariant = "bins of the target are there only if the target is not the host";

/// State between records.
#[derive(Clone, Debug, Default)]
pub(super) struct References {
    processes: BTreeSet<ProcId>,
    cgroups: BTreeSet<CgroupId>,
    devices: BTreeSet<DevId>,
    /// Filesystems: a pass of the flusher may be on one that has no device.
    filesystems: BTreeSet<DevId>,
    files: BTreeSet<FileId>,
    /// Whether each source was available at any time.
    sources: BTreeMap<Source, bool>,
    target_is_host: bool,
}

impl References {
    pub(super) fn push(&mut self, record: &Record, faults: &mut Faults) {
        match record {
            Record::Meta(meta) => self.target_is_host = meta.target == TargetSpec::Host,
            Record::Coverage(coverage) => {
                let sees = !matches!(coverage.state, State::Missing { .. });
                *self.sources.entry(coverage.source).or_default() |= sees;
            }
            Record::Process(process) => {
                let id = process.id;
                faults.unless(id.0 != 0 && id != ProcId::OTHERS, NO_ID, || {
                    format!("pid {}", process.pid)
                });
                self.processes.insert(id);
            }
            Record::Cgroup(cgroup) => {
                if let Some(parent) = cgroup.parent {
                    self.cgroup(parent, faults);
                }
                self.cgroups.insert(cgroup.id);
            }
            Record::ProcessTick(tick) => {
                self.process(tick.proc, faults);
                self.source(Source::Sched, faults);
            }
            Record::Blame(tick) => {
                self.process(tick.victim, faults);
                if let Culprit::Process(culprit) = tick.culprit {
                    self.process(culprit, faults);
                }
                self.source(Source::Sched, faults);
            }
            Record::Idle(tick) => {
                self.process(tick.victim, faults);
                self.source(Source::Timeline, faults);
            }
            Record::Schedstat(tick) => {
                self.process(tick.proc, faults);
                self.source(Source::Schedstat, faults);
            }
            Record::HostBin(_) => self.source(Source::Sched, faults),
            Record::TargetBin(bin) => {
                faults.unless(!self.target_is_host, TARGET_BINS, || format!("at {} ns", bin.t0_ns));
                self.source(Source::Sched, faults);
            }
            Record::Cpu(_) => self.source(Source::ProcStat, faults),
            Record::CgroupCpu(reading) => {
                self.cgroup(reading.cgroup, faults);
                self.source(Source::CgroupCpu, faults);
            }
            Record::Psi(reading) => {
                if let Some(cgroup) = reading.cgroup {
                    self.cgroup(cgroup, faults);
                }
                self.source(Source::Psi, faults);
            }
            Record::Block(record) => self.block(record, faults),
            Record::Runtime(reading) => {
                self.process(reading.proc, faults);
                self.source(Source::Runtime, faults);
            }
            Record::NamedThreads(tick) => {
                self.process(tick.proc, faults);
                self.source(Source::Runtime, faults);
            }
            Record::CpuCheck(_) => self.source(Source::CpuCheck, faults),
            Record::Syscalls(record) => {
                if let Some(process) = record.process() {
                    self.process(process, faults);
                }
                self.source(Source::Syscalls, faults);
            }
            Record::Observer(_) => self.source(Source::Observer, faults),
            Record::Event(_) | Record::End { .. } => {}
        }
    }

    /// `ended`: whether the recording is complete. A truncated one may lack the coverage that comes with the first
    /// tick.
    pub(super) fn finish(&self, ended: bool, faults: &mut Faults) {
        // The version is not known here: it is taken as the highest version of a source with a coverage record.
        let version = self.sources.keys().map(|source| source.since_version()).max().unwrap_or(1);
        for source in
            Source::ALL.into_iter().filter(|it| !it.is_asked_for() && it.since_version() <= version)
        {
            faults.unless(!ended || self.sources.contains_key(&source), ALL_COVERED, || {
                format!("not {}", source.label())
            });
        }
    }

    fn block(&mut self, record: &BlockRecord, faults: &mut Faults) {
        match record {
            BlockRecord::Device(device) => {
                if let Some(disk) = device.disk {
                    self.device(disk, faults);
                }
                self.devices.insert(device.dev);
            }
            BlockRecord::Mount(mount) => {
                self.filesystems.insert(mount.fs);
                self.source(Source::Settings, faults);
            }
            BlockRecord::Setting(_) => self.source(Source::Settings, faults),
            BlockRecord::File(file) => {
                let id = file.id;
                faults.unless(id.0 != 0 && id != FileId::OTHERS, NO_FILE_ID, || {
                    format!("inode {}", file.ino)
                });
                self.files.insert(id);
                if let Some(process) = file.dirtied_by {
                    self.process(process, faults);
                }
            }
            BlockRecord::Io(tick) => self.io(tick, faults),
            BlockRecord::DeviceTick(tick) => self.of_probe(tick.device, Source::Block, faults),
            BlockRecord::Bins(bins) => self.of_probe(bins.device, Source::Block, faults),
            BlockRecord::Disk(reading) => self.of_probe(reading.device, Source::Diskstats, faults),
            BlockRecord::Pass(pass) => self.pass(pass, faults),
            BlockRecord::Commit(commit) => self.of_probe(commit.device, Source::Writeback, faults),
            BlockRecord::Wait(tick) => self.held_up(tick.proc, tick.kind, tick.device, faults),
            BlockRecord::Stall(stall) => {
                self.held_up(stall.proc, stall.kind, stall.device, faults);
                if let Some(file) = stall.file {
                    self.file(file, faults);
                }
            }
            BlockRecord::Blame(tick) => {
                self.process(tick.victim, faults);
                self.culprit(tick.culprit, faults);
                self.of_probe(tick.device, Source::Block, faults);
            }
            BlockRecord::Pace(pace) => {
                pace.sectors.keys().for_each(|&by| self.culprit(by, faults));
                self.of_probe(pace.device, Source::Block, faults);
            }
            BlockRecord::Held(tick) => {
                tick.members.iter().for_each(|&member| self.process(member, faults));
                self.of_probe(tick.device, Source::Block, faults);
            }
        }
    }

    fn culprit(&self, culprit: IoCulprit, faults: &mut Faults) {
        match culprit {
            IoCulprit::Process(id) => self.process(id, faults),
            IoCulprit::Writeback(Some(owner)) => self.cgroup(owner, faults),
            IoCulprit::Writeback(None) | IoCulprit::Filesystem | IoCulprit::Device => {}
        }
    }

    fn io(&self, tick: &IoTick, faults: &mut Faults) {
        if let IoPurpose::File(file) = tick.what {
            self.file(file, faults);
        }
        if let Some(submitter) = tick.submitter {
            self.process(submitter, faults);
        }
        if let Some(owner) = tick.owner {
            self.cgroup(owner, faults);
        }
        self.of_probe(tick.device, Source::Block, faults);
    }

    fn pass(&self, pass: &WritebackPass, faults: &mut Faults) {
        for (proc, _) in pass.dirtied_by.iter().chain(&pass.asked_by) {
            self.process(*proc, faults);
        }
        if !self.filesystems.contains(&pass.device) {
            self.device(pass.device, faults);
        }
        self.source(Source::Writeback, faults);
    }

    fn held_up(&self, id: ProcId, kind: StallKind, device: Option<DevId>, faults: &mut Faults) {
        self.process(id, faults);
        if let Some(device) = device {
            self.device(device, faults);
        }
        let source = match kind {
            StallKind::Sync | StallKind::DirtyThrottle => Source::Writeback,
            StallKind::Request => Source::Block,
        };
        self.source(source, faults);
    }

    fn of_probe(&self, device: DevId, source: Source, faults: &mut Faults) {
        self.device(device, faults);
        self.source(source, faults);
    }

    fn device(&self, device: DevId, faults: &mut Faults) {
        faults.unless(self.devices.contains(&device), DEVICES, || format!("device {device}"));
    }

    fn file(&self, id: FileId, faults: &mut Faults) {
        let known = id == FileId::OTHERS || self.files.contains(&id);
        faults.unless(known, FILES, || format!("file {}", id.0));
    }

    fn process(&self, id: ProcId, faults: &mut Faults) {
        let known = id == ProcId::OTHERS || self.processes.contains(&id);
        faults.unless(known, PROCESSES, || format!("process {}", id.0));
    }

    fn cgroup(&self, id: CgroupId, faults: &mut Faults) {
        faults.unless(self.cgroups.contains(&id), CGROUPS, || format!("cgroup {}", id.0));
    }

    fn source(&self, source: Source, faults: &mut Faults) {
        let sees = self.sources.get(&source).copied().unwrap_or(false);
        faults.unless(sees, COVERED, || source.label().into());
    }
}
