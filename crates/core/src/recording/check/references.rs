// SPDX-License-Identifier: Apache-2.0 OR MIT
//! References: processes, cgroups, devices and files are described before records refer to them, and no record comes
//! from a source without coverage.

use super::{Faults, Invariant};
use crate::recording::observed::Reference;
use crate::recording::{
    BlockRecord, CgroupId, DevId, FileId, LoadBin, ProcId, Record, Source, State, TargetSpec,
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
const OF_TARGET: Invariant =
    "bins and threads of the target are there only if the target is not the host";

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
        if let Some(observed) = record.observed() {
            for reference in observed.references() {
                self.check(reference, faults);
            }
            if let Some(source) = observed.source() {
                let sees = self.sources.get(&source).copied().unwrap_or(false);
                faults.unless(sees, COVERED, || source.label().into());
            }
        }
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
            Record::Cgroup(cgroup) => drop(self.cgroups.insert(cgroup.id)),
            Record::TargetBin(LoadBin { t0_ns, .. }) => self.of_target(*t0_ns, faults),
            Record::WaitBin(bin) => self.of_target(bin.t0_ns, faults),
            Record::ThreadLedger(it) => self.of_target(it.t0_ns, faults),
            Record::Block(record) => self.describe(record, faults),
            _ => {}
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

    fn of_target(&self, t0_ns: u64, faults: &mut Faults) {
        faults.unless(!self.target_is_host, OF_TARGET, || format!("at {t0_ns} ns"));
    }

    fn describe(&mut self, record: &BlockRecord, faults: &mut Faults) {
        match record {
            BlockRecord::Device(device) => drop(self.devices.insert(device.dev)),
            BlockRecord::Mount(mount) => drop(self.filesystems.insert(mount.fs)),
            BlockRecord::File(file) => {
                let id = file.id;
                faults.unless(id.0 != 0 && id != FileId::OTHERS, NO_FILE_ID, || {
                    format!("inode {}", file.ino)
                });
                self.files.insert(id);
            }
            _ => {}
        }
    }

    fn check(&self, reference: Reference, faults: &mut Faults) {
        match reference {
            Reference::Process(id) => {
                let known = id == ProcId::OTHERS || self.processes.contains(&id);
                faults.unless(known, PROCESSES, || format!("process {}", id.0));
            }
            Reference::Cgroup(id) => {
                faults.unless(self.cgroups.contains(&id), CGROUPS, || format!("cgroup {}", id.0));
            }
            Reference::Filesystem(fs) if self.filesystems.contains(&fs) => {}
            Reference::Device(device) | Reference::Filesystem(device) => {
                let known = self.devices.contains(&device);
                faults.unless(known, DEVICES, || format!("device {device}"));
            }
            Reference::File(id) => {
                let known = id == FileId::OTHERS || self.files.contains(&id);
                faults.unless(known, FILES, || format!("file {}", id.0));
            }
        }
    }
}
