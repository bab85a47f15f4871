// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collects the CPU limits and the runtimes of all or some processes.

use super::document::{
    BeliefRow, Document, Host, LimitRow, QuotaRow, Row, RuntimeRow, SCHEMA, Unlisted, Verdict,
};
use super::runtime::{HiddenReason, Prober};
use super::text::forbidden;
use crate::collect::{
    Cgroups, Roots, affinity, cpus_online, has_ended, living_thread, masks_of_threads, read_stat,
    shown_path,
};
use crate::reader::{NotRead, Reader};
use deburr_core::finding::Tool;
use deburr_core::limits::belief::{Belief, Circumstances, ThreadFit, belief, origin};
use deburr_core::limits::effective::{
    AncestorVisibility, Effective, LimitInputs, LimitSource, QuotaLevel, effective,
};
use deburr_core::procfs::pid::{self, PidStat};
use deburr_core::procfs::{cgroup_cpu, container, cpu_list};
use deburr_core::recording::{CgroupId, RuntimeReading};
use deburr_core::text::name;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Threads whose affinities are read per process.
const MAX_THREADS: usize = 4096;
/// How often a process is looked at if it changes meanwhile.
const MAX_LOOKS: u32 = 5;

/// What the user asks.
#[derive(Debug)]
pub(crate) struct SurveyRequest<'a> {
    /// Processes to show in depth; empty = all processes that have a limit or a known runtime.
    pub(crate) pids: &'a [u32],
}

/// How long processes are looked at if none was asked for; a thousand take a quarter of a second.
const MOST_TIME: Duration = Duration::from_secs(30);

pub(crate) fn look(question: &SurveyRequest<'_>, roots: &Roots) -> Document {
    let online = cpus_online(roots);
    let reader = Reader::default();
    let mut survey = Survey {
        roots,
        cgroups: Cgroups::open(roots),
        prober: Prober::new(reader.clone()),
        levels: BTreeMap::new(),
        online,
        in_depth: !question.pids.is_empty(),
    };
    let mut others = Unlisted::default();
    let mut processes = Vec::new();
    if question.pids.is_empty() {
        let begin = Instant::now();
        for pid in pids(roots) {
            match begin.elapsed() < MOST_TIME {
                true => processes.extend(survey.worth_a_look(pid, &mut others)),
                false => others.too_many += 1,
            }
        }
        others.given_up = reader.given_up();
    } else {
        processes.extend(
            question.pids.iter().filter_map(|&pid| {
                survey.row(pid, read_stat(roots, pid)?, &mut Unlisted::default())
            }),
        );
    }
    processes.sort_by_cached_key(|row| (rank(row), row.pid));
    Document {
        schema: SCHEMA,
        tool: Tool { version: env!("CARGO_PKG_VERSION").into() },
        host: Host {
            name: name::decode(rustix::system::uname().nodename().to_bytes()),
            cpus_online: cpu_list::format(&survey.online),
            cpus: survey.online.len() as u32,
            cgroup: survey.cgroups.layout(),
        },
        processes,
        others: question.pids.is_empty().then_some(others),
    }
}

/// Sort key of a row: the worst come first.
fn rank(row: &Row) -> u8 {
    match (row.verdict, &row.runtime) {
        (Verdict::Above, _) => 0,
        (Verdict::MayBeAbove, _) => 1,
        (_, Some(_)) => 2,
        _ => 3,
    }
}

/// Pids of all processes, ascending.
fn pids(roots: &Roots) -> Vec<u32> {
    let entries = fs::read_dir(&roots.proc).into_iter().flatten().flatten();
    let mut pids: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

struct Survey<'r> {
    roots: &'r Roots,
    cgroups: Cgroups,
    prober: Prober,
    /// The levels with a quota from each cgroup upwards, as far as they were read.
    levels: BTreeMap<CgroupId, Vec<(CgroupId, QuotaLevel)>>,
    online: Vec<u32>,
    in_depth: bool,
}

impl Survey<'_> {
    fn worth_a_look(&mut self, pid: u32, others: &mut Unlisted) -> Option<Row> {
        let stat = read_stat(self.roots, pid).filter(|stat| !has_ended(stat));
        let Some(stat) = stat else {
            others.ended += 1;
            return None;
        };
        if stat.kernel_thread {
            others.kernel_threads += 1;
            return None;
        }
        let row = self.row(pid, stat, others)?;
        let limited =
            row.limit.as_ref().is_none_or(|limit| limit.cpus < f64::from(self.online.len() as u32));
        if !limited && row.runtime.is_none() {
            others.unlimited += 1;
            return None;
        }
        Some(row)
    }

    /// The row of a process that was the same program under the same limits from the beginning to the end of the look;
    /// `None` if it has ended.
    fn row(&mut self, pid: u32, mut stat: PidStat, others: &mut Unlisted) -> Option<Row> {
        let mut standing = Standing::of(self.roots, pid);
        for _ in 0..MAX_LOOKS {
            let mut counted = others.clone();
            let row = self.look(pid, &stat, &mut counted);
            let after = Standing::of(self.roots, pid);
            if after == standing {
                *others = counted;
                return Some(row);
            }
            let Some(now) = read_stat(self.roots, pid).filter(|now| !has_ended(now)) else {
                others.ended += 1;
                return None;
            };
            (stat, standing) = (now, after);
        }
        let mut row = self.look(pid, &stat, others);
        row.notes
            .push("it changed while it was looked at: not all of this was true at once".into());
        Some(row)
    }

    fn look(&mut self, pid: u32, stat: &PidStat, others: &mut Unlisted) -> Row {
        let tid = living_thread(self.roots, stat);
        let status =
            fs::read(self.roots.proc.join(tid.to_string()).join("status")).unwrap_or_default();
        let place = self.cgroups.place_of(tid);
        let located = self.cgroups.locate(tid);
        let own = located.as_ref().and_then(|located| located.cgroup);
        let levels = own.map(|id| self.levels_of(id)).unwrap_or_default();
        let all: Vec<QuotaLevel> = levels.iter().map(|(_, level)| level.clone()).collect();
        let cpuset =
            place.cpuset_cpus.as_ref().and_then(|text| cpu_list::parse(text.as_bytes()).ok());
        let within = cpuset.as_deref().unwrap_or(&self.online);
        let affinity = affinity(self.roots, pid, pid::status(&status).cpus_allowed, within);
        let given = LimitInputs {
            levels: &all,
            online: Some(self.online.as_slice()).filter(|online| !online.is_empty()),
            affinity: affinity.as_deref(),
            cpuset: cpuset.as_deref(),
        };
        let effective = effective(given);
        let mut notes = Vec::new();
        if tid != pid {
            notes.push("its first thread has ended, others run".into());
        }
        let reading = self.reading(tid, stat, others, &mut notes);
        let sight = located.as_ref().map_or_else(
            || AncestorVisibility::None("its cgroup could not be read".into()),
            |located| located.sight.clone(),
        );
        let level = effective.and_then(|effective| levels.get(effective.level?));
        let given = effective.map(|effective| Circumstances {
            effective,
            level: level.map(|(_, level)| level),
            own_level: level.is_some_and(|(id, _)| Some(*id) == own),
        });
        let belief =
            reading.as_ref().zip(given).and_then(|(reading, given)| belief(reading, given));
        let path = located.and_then(|located| located.path).map(|path| shown_path(&path));
        Row {
            pid,
            comm: stat.comm.clone(),
            threads: stat.threads,
            kernel_thread: stat.kernel_thread,
            container: path.as_deref().and_then(container::of_path),
            cgroup: path,
            limit: given.map(|given| {
                let affinity_of_threads =
                    if self.in_depth { affinities(self.roots, pid) } else { BTreeMap::new() };
                LimitRow {
                    affinity: affinity.as_deref().map(cpu_list::format),
                    affinity_of_threads,
                    cpuset: place.cpuset_cpus,
                    ..self.limit(given, own, &levels, sight)
                }
            }),
            verdict: verdict(belief.as_ref()),
            runtime: reading.map(|reading| runtime(reading, belief)),
            notes,
        }
    }

    /// What the runtime of a process has read, or a note that says why that is not known.
    fn reading(
        &mut self,
        tid: u32,
        stat: &PidStat,
        others: &mut Unlisted,
        notes: &mut Vec<String>,
    ) -> Option<RuntimeReading> {
        if stat.kernel_thread {
            notes.push("a kernel thread: quotas do not hold for it, and it has no runtime".into());
            return None;
        }
        match self.prober.look(self.roots, &mut self.cgroups, tid, stat.threads) {
            Ok(reading) => reading,
            Err(hidden) => {
                notes.push(match hidden {
                    HiddenReason::Gone => {
                        others.ended += 1;
                        "it ended while it was looked at".into()
                    }
                    HiddenReason::Forbidden => {
                        others.forbidden += 1;
                        format!("its runtime may not be looked at: {}", forbidden())
                    }
                    HiddenReason::NotRead(why) => {
                        others.not_read += 1;
                        not_read(why).into()
                    }
                });
                None
            }
        }
    }

    fn levels_of(&mut self, id: CgroupId) -> Vec<(CgroupId, QuotaLevel)> {
        self.levels.entry(id).or_insert_with(|| self.cgroups.levels(id)).clone()
    }

    fn limit(
        &self,
        given: Circumstances<'_>,
        own: Option<CgroupId>,
        levels: &[(CgroupId, QuotaLevel)],
        sight: AncestorVisibility,
    ) -> LimitRow {
        let Effective { cpus, bound, level, allowed } = given.effective;
        let quotas = levels.iter().enumerate().map(|(index, (id, of))| {
            let text = self.cgroups.dir_of(*id).filter(|_| self.in_depth);
            let text = text.and_then(|dir| fs::read(dir.join("cpu.stat")).ok()).unwrap_or_default();
            let stat = cgroup_cpu::cpu_stat(&text);
            QuotaRow {
                cpus: of.cpus(),
                own: Some(*id) == own,
                binds: bound == LimitSource::Quota && level == Some(index),
                level: of.clone(),
                nr_periods: stat.nr_periods,
                nr_throttled: stat.nr_throttled,
            }
        });
        LimitRow {
            cpus,
            bound_by: bound,
            origin: origin(given),
            sight,
            quotas: quotas.collect(),
            allowed,
            affinity: None,
            affinity_of_threads: BTreeMap::new(),
            cpuset: None,
        }
    }
}

/// By what a process is told from what it was before: another program, another cgroup or other CPUs.
#[derive(Debug, PartialEq, Eq)]
struct Standing {
    program: Option<PathBuf>,
    comm: Option<String>,
    cgroup: Vec<u8>,
    cpus_allowed: Option<Vec<u32>>,
}

impl Standing {
    fn of(roots: &Roots, pid: u32) -> Self {
        let dir = roots.proc.join(pid.to_string());
        let read = |name| fs::read(dir.join(name)).unwrap_or_default();
        Self {
            program: fs::read_link(dir.join("exe")).ok(),
            comm: read_stat(roots, pid).map(|stat| stat.comm),
            cgroup: read("cgroup"),
            cpus_allowed: pid::status(&read("status")).cpus_allowed,
        }
    }
}

/// Affinity -> number of threads of the process with that affinity; empty if all threads have the same.
fn affinities(roots: &Roots, pid: u32) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    for cpus in masks_of_threads(roots, pid).take(MAX_THREADS) {
        *found.entry(cpu_list::format(&cpus)).or_default() += 1;
    }
    if found.len() == 1 {
        found.clear();
    }
    found
}

/// Why the runtime of a process was not looked at, as a note.
fn not_read(why: NotRead) -> &'static str {
    match why {
        NotRead::Stuck => {
            "its runtime could not be looked at: reading its program, environment or memory did not end"
        }
        NotRead::Failed => {
            "its runtime could not be looked at: the process that reads its program, environment and memory failed"
        }
        NotRead::NotStarted => {
            "its runtime could not be looked at: the process that reads programs, environments and memory could not be started"
        }
        NotRead::NotTried => {
            "its runtime was not looked at: reading about other processes of its user did not end or took too long"
        }
    }
}

fn verdict(belief: Option<&Belief>) -> Verdict {
    match belief.map(|belief| belief.fit) {
        Some(ThreadFit::Fits) => Verdict::Fits,
        Some(ThreadFit::Above) => Verdict::Above,
        Some(ThreadFit::MayBeAbove) => Verdict::MayBeAbove,
        None => Verdict::Unknown,
    }
}

fn runtime(reading: RuntimeReading, belief: Option<Belief>) -> RuntimeRow {
    let RuntimeReading { kind, version, parallelism, unread, settings, seen, .. } = reading;
    let belief = belief.map(|belief| BeliefRow {
        fitting: belief.fitting,
        why: belief.why.code(),
        because: belief.because,
        fix: belief.fixes,
    });
    RuntimeRow { kind, version, parallelism, unread, settings, seen, belief }
}
