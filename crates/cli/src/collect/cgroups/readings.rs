// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads `cpu.stat` once a second, for the cgroups that have a quota, those that hold the target, and their ancestors.

use super::{Cgroups, WalkExtent};
use crate::collect::{Beat, BeatTime, Collector, Context, Emit};
use deburr_core::procfs::cgroup_cpu;
use deburr_core::recording::{CgroupId, CgroupReading, Coverage, Record, Source, State};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Cgroups that are read per second, at some 2 us each with a file that is kept open.
const MAX_WATCHED: usize = 1024;
/// Files that are kept open; the others are opened each time.
const MAX_KEPT_FILES: usize = 192;

#[derive(Debug, Default)]
pub(crate) struct CgroupCollector {
    watched: BTreeMap<CgroupId, Files>,
    kept: usize,
    walk: WalkExtent,
    /// What is missing, as emitted in the coverage.
    lacks: Vec<String>,
    /// Whether coverage says that not the counters of all cgroups are read (`cut_said`), and that not the cgroups of
    /// all processes are (`unread_said`).
    cut_said: bool,
    unread_said: bool,
}

/// A cgroup's files, if they are kept open.
#[derive(Debug, Default)]
struct Files {
    stat: Option<File>,
    /// `cpuacct.usage`: v1 counts CPU time in a controller of its own, which is often mounted together with cpu.
    usage: Option<File>,
}

impl Collector for CgroupCollector {
    fn beat(&mut self, cx: &mut Context, now: BeatTime, emit: Emit<'_>) -> anyhow::Result<()> {
        if now.beat == Beat::Start {
            let state = self.state(&cx.cgroups);
            if let State::Partial { reason } = &state {
                self.lacks.push(reason.clone());
            }
            emit(Record::Coverage(Coverage { t_ns: 0, source: Source::CgroupCpu, state }));
        } else if !now.beat.is_second() {
            return Ok(());
        } else {
            cx.cgroups.refresh(&mut *emit);
        }
        if cx.cgroups.cpu_controller().is_none() {
            return Ok(());
        }
        let (chosen, cut) = choose(&cx.cgroups, cx.processes.target_cgroups());
        if cut && !self.cut_said {
            self.cut_said = true;
            let reason = format!("counters of only {MAX_WATCHED} of the cgroups are read");
            self.say(now.t_ns, reason, &mut *emit);
        }
        if cx.processes.take_facts_skipped() > 0 && !self.unread_said {
            self.unread_said = true;
            let reason = "processes come and go faster than facts of each are read: some are known without \
                          their command line or cgroup";
            self.say(now.t_ns, reason.into(), &mut *emit);
        }
        if now.beat == Beat::End
            && let Some(given_up) = cx.processes.reader().given_up()
        {
            self.say(now.t_ns, given_up, &mut *emit);
        }
        self.watch(&cx.cgroups, &chosen);
        for id in chosen {
            cx.cgroups.sight(id, &mut *emit);
            if let Some(reading) = self.read(&cx.cgroups, id, now.t_ns) {
                emit(Record::CgroupCpu(reading));
            }
        }
        Ok(())
    }
}

impl CgroupCollector {
    /// Walks the tree, so that every quota is known before anything else is opened.
    pub(crate) fn open(cx: &mut Context) -> Self {
        Self { walk: cx.cgroups.walk(), ..Self::default() }
    }

    fn state(&self, cgroups: &Cgroups) -> State {
        if cgroups.cpu_controller().is_none() {
            let (reason, gain) = match cgroups.layout() {
                "none" => ("no cgroup tree is mounted", "mount one"),
                _ => ("no mounted cgroup tree has the cpu controller", "enable it"),
            };
            return State::Missing {
                reason: reason.into(),
                gain: format!("{gain} to tell waiting from throttling by a quota"),
            };
        }
        if self.walk.cut {
            let reason = format!(
                "{} directories of the tree were looked through, and it has more: a quota in the others is seen \
                 only if the target is in it",
                self.walk.dirs
            );
            return State::Partial { reason };
        }
        if !cgroups.is_whole() {
            let reason = "only a part of the cgroup tree is in sight (a container): limits above it and \
                          counters of other cgroups are unknown";
            return State::Partial { reason: reason.into() };
        }
        State::Active
    }

    /// Emits what else is missing.
    fn say(&mut self, t_ns: u64, lack: String, emit: Emit<'_>) {
        self.lacks.push(lack);
        let state = State::Partial { reason: self.lacks.join("; ") };
        emit(Record::Coverage(Coverage { t_ns, source: Source::CgroupCpu, state }));
    }

    /// Keeps the files of the chosen cgroups open, as many as allowed.
    fn watch(&mut self, cgroups: &Cgroups, chosen: &BTreeSet<CgroupId>) {
        self.watched.retain(|id, _| chosen.contains(id));
        self.kept = self.watched.values().map(Files::count).sum();
        for id in chosen {
            if self.kept < MAX_KEPT_FILES
                && !self.watched.contains_key(id)
                && let Some(dir) = cgroups.dir_of(*id)
            {
                let files = Files::open(dir);
                self.kept += files.count();
                self.watched.insert(*id, files);
            }
        }
    }

    /// One reading; `None` if the cgroup is gone or has no counters.
    fn read(&self, cgroups: &Cgroups, id: CgroupId, t_ns: u64) -> Option<CgroupReading> {
        let fresh;
        let files = match self.watched.get(&id) {
            Some(kept) => kept,
            None => {
                fresh = Files::open(cgroups.dir_of(id)?);
                &fresh
            }
        };
        let stat = cgroup_cpu::cpu_stat(&text(files.stat.as_ref())?);
        let usage = text(files.usage.as_ref());
        let usage_ns = usage
            .and_then(|usage| cgroup_cpu::single("cpuacct.usage", &usage).ok())
            .or(stat.usage_ns);
        Some(CgroupReading {
            t_ns,
            cgroup: id,
            usage_ns,
            nr_periods: stat.nr_periods,
            nr_throttled: stat.nr_throttled,
            throttled_ns: stat.throttled_ns,
            nr_bursts: stat.nr_bursts,
            burst_ns: stat.burst_ns,
        })
    }
}

impl Files {
    fn open(dir: &Path) -> Self {
        Self {
            stat: File::open(dir.join("cpu.stat")).ok(),
            usage: File::open(dir.join("cpuacct.usage")).ok(),
        }
    }

    fn count(&self) -> usize {
        usize::from(self.stat.is_some()) + usize::from(self.usage.is_some())
    }
}

/// The current text of a file that is kept open. `cpu.stat` is much smaller than a page.
fn text(file: Option<&File>) -> Option<Vec<u8>> {
    let mut buffer = [0; 4096];
    let len = file?.read_at(&mut buffer, 0).ok()?;
    Some(buffer[..len].to_vec())
}

/// Which cgroups are read: first those that hold the target, then those that have a quota, each with its ancestors;
/// and whether there were too many.
fn choose(cgroups: &Cgroups, target: BTreeSet<CgroupId>) -> (BTreeSet<CgroupId>, bool) {
    let mut chosen = BTreeSet::new();
    let mut cut = false;
    for id in target.into_iter().chain(cgroups.with_quota()) {
        let lineage: Vec<CgroupId> =
            std::iter::successors(Some(id), |id| cgroups.get(*id)?.parent).collect();
        let new = lineage.iter().filter(|id| !chosen.contains(*id)).count();
        if chosen.len() + new > MAX_WATCHED {
            cut = true;
        } else {
            chosen.extend(lineage);
        }
    }
    (chosen, cut)
}
