// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fallback without BPF: `/proc/PID/task/TID/schedstat` of the target's threads, once a second.
//!
//! It shows how long threads ran and how long they waited in a run queue, but not what ran instead. The cost of
//! reading is bounded: a file that is kept open is read in some 0.6 us, and at most [`MAX_THREADS`] threads are read
//! per second. Where there are more, those of the busiest processes come first, and coverage says so.

mod threads;

use super::{Beat, BeatTime, Collector, Context, Emit, ObservedProcess, read_stat, reread};
use crate::clock::{self, Clocks};
use crate::facts;
use deburr_core::procfs::{schedstat, stat};
use deburr_core::recording::{Coverage, ProcId, Record, SchedstatTick, Source, State, TargetSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use threads::Threads;

/// Threads that are read per second: with half of their files kept open, some 4 ms.
const MAX_THREADS: usize = 1200;
/// Files that are kept open, if the limit on open files allows; the others are opened at each reading.
const MAX_KEPT_FILES: usize = 640;
/// Looks at processes (their comm, start and CPU time) at the start of the window, and in each second of it: at some
/// 10 us each, 2.5 ms per second.
const LOOKS_AT_START: usize = 4096;
const LOOKS_PER_SECOND: usize = 256;
/// Number of threads that may come or go in a second before coverage says that their time is not counted.
const CHURN_TOLD: usize = 50;

#[derive(Debug)]
pub(crate) struct SchedstatCollector {
    processes: BTreeMap<u32, WatchedProcess>,
    /// The end of the last tick, in nanoseconds since the start of the window.
    read_to_ns: u64,
    /// The pid that was looked at last; processes are looked at in turn.
    last_looked: u32,
    max_kept: usize,
    user_hz: u64,
    /// What is missing, as emitted in the coverage.
    reported_gaps: BTreeSet<IncompleteReason>,
}

/// A process that is watched.
#[derive(Debug)]
struct WatchedProcess {
    proc: ProcId,
    start_ns: u64,
    in_target: bool,
    /// Time of the last look, on the boot clock.
    looked_boot_ns: u64,
    cpu_ticks: u64,
    thread_count: usize,
    /// Ticks of CPU time per second, averaged: each older look counts half as much as the next, so that the choice of
    /// the busiest processes does not jump.
    busy: f64,
    threads: Threads,
}

/// Why the readings are incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum IncompleteReason {
    Hidden,
    TooMany { read: usize, of: usize },
    Churn,
}

impl SchedstatCollector {
    /// Checks whether this kernel counts run-queue delay; keeps no file open yet.
    pub(crate) fn open(cx: &Context) -> Result<Self, State> {
        let missing = |reason: String| State::Missing {
            reason,
            gain: "without BPF, a kernel with CONFIG_SCHED_INFO is needed to see waiting at all"
                .into(),
        };
        let own = File::open(cx.roots.proc.join("self/schedstat"))
            .and_then(|file| reread::text(&file))
            .map_err(|error| missing(format!("`/proc/self/schedstat`: {error}")))?;
        // This thread has run, so zeros mean that the kernel does not count.
        let counts = schedstat::parse(&own).is_ok_and(|own| own.slices > 0);
        if !counts {
            return Err(missing("this kernel does not count run-queue delay".into()));
        }
        let open_files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let allowed = open_files.map_or(usize::MAX, |limit| limit as usize / 2);
        Ok(Self {
            processes: BTreeMap::new(),
            read_to_ns: 0,
            last_looked: 0,
            max_kept: MAX_KEPT_FILES.min(allowed),
            user_hz: rustix::param::clock_ticks_per_second(),
            reported_gaps: BTreeSet::new(),
        })
    }

    /// Drops processes that are gone, looks at new ones and, as far as looks are left, again at the others.
    fn look_around(&mut self, cx: &mut Context, mut looks: usize, emit: Emit<'_>) {
        let pids = pids(cx);
        self.processes.retain(|pid, _| pids.contains(pid));
        let new = pids.iter().filter(|pid| !self.processes.contains_key(pid));
        let again = pids.range(self.last_looked.saturating_add(1)..).chain(&pids);
        let again = again.filter(|pid| self.processes.contains_key(pid)).take(self.processes.len());
        let turn: Vec<(u32, bool)> =
            new.map(|&pid| (pid, false)).chain(again.map(|&pid| (pid, true))).collect();
        for (pid, known) in turn {
            if looks == 0 {
                break;
            }
            looks -= 1;
            if known {
                self.last_looked = pid;
            }
            self.look(cx, pid, &mut *emit);
        }
    }

    fn look(&mut self, cx: &mut Context, pid: u32, emit: Emit<'_>) {
        let Some(seen) = read_stat(&cx.roots, pid) else {
            self.processes.remove(&pid);
            return;
        };
        let start_ns = stat::ticks_ns(seen.start_ticks, self.user_hz);
        let Context { roots, cgroups, target, processes, .. } = cx;
        let comm = Some(seen.comm.as_bytes());
        let sighting =
            ObservedProcess { pid, start_ns: Some(start_ns), comm, ..ObservedProcess::default() };
        let proc = processes.intern(roots, cgroups, target, sighting, emit);
        let mut watched = match self.processes.remove(&pid) {
            Some(same) if same.start_ns == start_ns => same,
            _ => WatchedProcess::new(proc, start_ns),
        };
        watched.in_target = processes.in_target(proc);
        watched.looked(seen.cpu_ticks, seen.threads as usize, Clocks::now().boot_ns);
        self.processes.insert(pid, watched);
    }

    /// Reads the threads of the target and emits what they did since the last reading.
    fn read(&mut self, cx: &Context, t_ns: u64, emit: Emit<'_>) -> BTreeSet<IncompleteReason> {
        let mut turn: Vec<(u32, &mut WatchedProcess)> = self
            .processes
            .iter_mut()
            .filter(|(_, watched)| watched.in_target)
            .map(|(pid, watched)| (*pid, watched))
            .collect();
        let of: usize = turn.iter().map(|(_, watched)| watched.thread_count).sum();
        if of > MAX_THREADS {
            turn.sort_by(|a, b| b.1.busy.total_cmp(&a.1.busy));
        }
        let kept: usize = turn.iter().map(|(_, watched)| watched.threads.kept()).sum();
        let mut files_left = self.max_kept.saturating_sub(kept);
        let (mut room, mut churn) = (MAX_THREADS, 0);
        for (pid, watched) in turn {
            if room == 0 {
                files_left += watched.threads.clear();
                continue;
            }
            let dir = cx.roots.proc.join(pid.to_string()).join("task");
            let gained = watched.threads.read(&dir, clock::monotonic_ns(), room, &mut files_left);
            room -= watched.threads.len().min(room);
            churn += gained.churn;
            if gained.threads > 0 {
                emit(Record::Schedstat(SchedstatTick {
                    t0_ns: self.read_to_ns,
                    t1_ns: t_ns,
                    proc: watched.proc,
                    threads: gained.threads,
                    wall_ns: gained.wall_ns,
                    on_cpu_ns: gained.on_cpu_ns,
                    delay_ns: gained.delay_ns,
                    slices: gained.slices,
                }));
            }
        }
        self.read_to_ns = t_ns;
        let mut lacks = BTreeSet::new();
        if of > MAX_THREADS {
            lacks.insert(IncompleteReason::TooMany { read: MAX_THREADS - room, of });
        } else if churn > CHURN_TOLD {
            lacks.insert(IncompleteReason::Churn);
        }
        lacks
    }

    /// Emits what is missing, if it is of a kind that was not emitted before.
    fn say(&mut self, now: BeatTime, lacks: BTreeSet<IncompleteReason>, emit: Emit<'_>) {
        let kind = |lack: &IncompleteReason| std::mem::discriminant(lack);
        let known = |lack: &IncompleteReason| {
            self.reported_gaps.iter().any(|reported_gaps| kind(reported_gaps) == kind(lack))
        };
        if now.beat != Beat::Start && lacks.iter().all(known) {
            return;
        }
        let new: Vec<IncompleteReason> = lacks.into_iter().filter(|lack| !known(lack)).collect();
        self.reported_gaps.extend(new);
        let reasons: Vec<String> = self.reported_gaps.iter().map(|lack| lack.reason()).collect();
        let state = match reasons.is_empty() {
            true => State::Active,
            false => State::Partial { reason: reasons.join("; ") },
        };
        emit(Record::Coverage(Coverage { t_ns: now.t_ns, source: Source::Schedstat, state }));
    }
}

impl Collector for SchedstatCollector {
    fn beat(&mut self, cx: &mut Context, now: BeatTime, emit: Emit<'_>) -> anyhow::Result<()> {
        if !now.beat.is_second() && now.beat != Beat::Start {
            return Ok(());
        }
        let start = now.beat == Beat::Start;
        let looks = if start { LOOKS_AT_START } else { LOOKS_PER_SECOND };
        self.look_around(cx, looks, &mut *emit);
        let mut lacks = self.read(cx, now.t_ns, &mut *emit);
        if start && facts::others_are_hidden(&cx.roots) {
            lacks.insert(IncompleteReason::Hidden);
        }
        self.say(now, lacks, emit);
        Ok(())
    }
}

impl WatchedProcess {
    fn new(proc: ProcId, start_ns: u64) -> Self {
        Self {
            proc,
            start_ns,
            in_target: false,
            looked_boot_ns: start_ns,
            cpu_ticks: 0,
            thread_count: 0,
            busy: 0.0,
            threads: Threads::default(),
        }
    }

    fn looked(&mut self, cpu_ticks: u64, thread_count: usize, boot_ns: u64) {
        let elapsed_ns = boot_ns.saturating_sub(self.looked_boot_ns).max(1);
        let busy = cpu_ticks.saturating_sub(self.cpu_ticks) as f64 * 1e9 / elapsed_ns as f64;
        let first = self.looked_boot_ns == self.start_ns;
        self.busy = if first { busy } else { (self.busy + busy) / 2.0 };
        (self.looked_boot_ns, self.cpu_ticks) = (boot_ns, cpu_ticks);
        self.thread_count = thread_count;
    }
}

impl IncompleteReason {
    fn reason(self) -> String {
        match self {
            Self::Hidden => {
                "`/proc` hides the processes of other users (`hidepid`): run as root to see them"
                    .into()
            }
            Self::TooMany { read, of } => format!(
                "{read} of {of} threads are read each second, those of the busiest processes: one that waits \
                 much and runs little may be missed"
            ),
            Self::Churn => {
                "threads come and go: what one does in its first and last second is not \
                            counted"
                    .into()
            }
        }
    }
}

/// Pids of the processes that may belong to the target.
fn pids(cx: &Context) -> BTreeSet<u32> {
    if let TargetSpec::Process { pid, .. } = cx.target {
        return BTreeSet::from([pid]);
    }
    let entries = fs::read_dir(&cx.roots.proc).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests;
