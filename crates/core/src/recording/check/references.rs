// SPDX-License-Identifier: Apache-2.0 OR MIT
//! References: who is named is described, and nothing comes from a source that saw nothing.

use super::{Faults, Invariant};
use crate::recording::{CgroupId, Culprit, ProcId, Record, Source, State, TargetSpec};
use std::collections::{BTreeMap, BTreeSet};

const PROCESSES: Invariant = "a process is described before it is referred to";
const CGROUPS: Invariant = "a cgroup is described before it is referred to";
const NO_ID: Invariant = "no process has the identity 0 or that of the many small ones";
const COVERED: Invariant = "nothing comes from a source that saw nothing";
const ALL_COVERED: Invariant = "every source says what it saw";
const TARGET_BINS: Invariant = "bins of the target are there only if the target is not the host";

/// What is remembered between records.
#[derive(Clone, Debug, Default)]
pub(super) struct References {
    processes: BTreeSet<ProcId>,
    cgroups: BTreeSet<CgroupId>,
    /// Whether each source saw anything, ever.
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
            Record::Block(_) => {}
            Record::Observer(_) => self.source(Source::Observer, faults),
            Record::Event(_) | Record::End { .. } => {}
        }
    }

    /// `ended`: whether the recording is whole. One that was cut short may lack what comes with the first beat.
    pub(super) fn finish(&self, ended: bool, faults: &mut Faults) {
        // Recordings of the first version know nothing of the sources that came later.
        for source in Source::ALL.into_iter().filter(|&source| source.since_version() == 1) {
            faults.unless(!ended || self.sources.contains_key(&source), ALL_COVERED, || {
                format!("not {}", source.label())
            });
        }
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
