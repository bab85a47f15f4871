// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many threads the language runtimes of processes let run, looked at once per process and again at the end.
//!
//! A look costs some 0.1 ms, and the first look at a program up to some milliseconds more, so looks have a budget.
//! Processes with a CPU limit come first: they are the ones that may have too many threads for it. For those that
//! also have a runtime, what the threads did is recorded by thread name once a second.

mod thread_names;

use super::{
    Beat, BeatTime, Collector, Context, Emit, cpus_online, has_ended, living_thread, read_stat,
};
use crate::clock;
use crate::limits::{HiddenReason, Prober};
use crate::reader::Reader;
use deburr_core::procfs::cpu_list;
use deburr_core::recording::{
    Coverage, ProcId, Process, Record, RuntimeKind, RuntimeReading, Source, State,
};
use deburr_core::text::units;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;
use thread_names::ThreadNames;

/// CPU time that looks may take in the first second, and in each later one: 0.1 % of a CPU.
const FIRST_SECOND: Duration = Duration::from_millis(20);
const EACH_SECOND: Duration = Duration::from_millis(1);
/// Unused budget is saved up for at most this many seconds.
const SAVED_SECONDS: u32 = 20;
/// Runtimes that are looked at again at the end.
const MAX_AGAIN: usize = 256;
/// How often what is known of processes that ended is removed, in seconds.
const FORGET_EVERY_S: u32 = 15;

#[derive(Debug)]
pub(crate) struct RuntimeCollector {
    prober: Prober,
    online: usize,
    /// The latest process that was known a second ago. A newer one may not have begun to run its program.
    known_to: ProcId,
    looked_at: BTreeSet<ProcId>,
    /// Processes that had one thread when they were looked at, and may have more by the end.
    alone: BTreeSet<ProcId>,
    /// Pid, and what was emitted last.
    found: BTreeMap<ProcId, (u32, RuntimeReading)>,
    named: ThreadNames,
    budget: Duration,
    /// What looks took beyond the budget, which later seconds pay: one look may take long.
    debt: Duration,
    forbidden: u32,
    not_read: u32,
    /// Seconds until processes that ended are forgotten.
    forget_in_s: u32,
}

impl RuntimeCollector {
    /// A collector that has looked at nothing yet.
    pub(crate) fn open(cx: &Context) -> Self {
        Self {
            prober: Prober::new(cx.processes.reader().clone()),
            online: cpus_online(&cx.roots).len(),
            known_to: ProcId(0),
            looked_at: BTreeSet::new(),
            alone: BTreeSet::new(),
            found: BTreeMap::new(),
            named: ThreadNames::default(),
            budget: FIRST_SECOND,
            debt: Duration::ZERO,
            forbidden: 0,
            not_read: 0,
            forget_in_s: FORGET_EVERY_S,
        }
    }

    /// The processes to look at: those not looked at yet, limited ones first; then, at the end, those that had one
    /// thread.
    fn candidates(&self, cx: &Context, is_end: bool) -> Vec<(ProcId, u32)> {
        let mut candidates: Vec<(bool, bool, ProcId, u32)> = Vec::new();
        // Most processes of a storm of short-lived ones drop out at the first two conditions.
        let programs = |process: &&Process| {
            process.kernel_thread == Some(false) && (is_end || process.id <= self.known_to)
        };
        for process in cx.processes.of_target().filter(programs) {
            let again = self.looked_at.contains(&process.id);
            let wanted = !again || is_end && self.alone.contains(&process.id);
            if wanted && !process.observer {
                let unlimited = !again && !self.is_limited(cx, process);
                candidates.push((again, unlimited, process.id, process.pid));
            }
        }
        candidates.sort_unstable();
        candidates.into_iter().map(|(.., id, pid)| (id, pid)).collect()
    }

    fn is_limited(&self, cx: &Context, process: &Process) -> bool {
        let fewer = |list: &Option<String>| {
            let cpus = list.as_ref().and_then(|list| cpu_list::parse(list.as_bytes()).ok());
            cpus.is_some_and(|cpus| !cpus.is_empty() && cpus.len() < self.online)
        };
        process.cgroup.is_some_and(|id| cx.cgroups.has_quota_above(id))
            || fewer(&process.cpus_allowed)
            || fewer(&process.cpuset_cpus)
    }

    /// Looks at one process, and emits its reading if it is new or changed.
    fn look(&mut self, cx: &mut Context, (id, pid): (ProcId, u32), now: BeatTime, emit: Emit<'_>) {
        // The present number of threads; a process that has ended has none.
        let Some(stat) = read_stat(&cx.roots, pid).filter(|stat| !has_ended(stat)) else {
            return;
        };
        // A process with one thread runs no more than that, whatever its runtime. nginx uses processes instead.
        if stat.threads == 1 && stat.comm != "nginx" {
            self.alone.insert(id);
            return;
        }
        let tid = living_thread(&cx.roots, &stat);
        let reading = match self.prober.look(&cx.roots, &mut cx.cgroups, tid, stat.threads) {
            Ok(Some(reading)) => RuntimeReading { t_ns: now.t_ns, proc: id, ..reading },
            Ok(None) | Err(HiddenReason::Gone) => return,
            Err(HiddenReason::Forbidden) => {
                self.forbidden += 1;
                return;
            }
            Err(HiddenReason::NotRead(_)) => {
                self.not_read += 1;
                return;
            }
        };
        let same = |before: &RuntimeReading| {
            // The number of threads varies, and means little.
            let undated = |reading: &RuntimeReading| RuntimeReading {
                t_ns: 0,
                threads: 0,
                ..reading.clone()
            };
            undated(before) == undated(&reading)
        };
        if self.found.get(&id).is_none_or(|(_, before)| !same(before)) {
            self.found.insert(id, (pid, reading.clone()));
            emit(Record::Runtime(Box::new(reading)));
        }
    }

    fn second(&mut self, cx: &mut Context, now: BeatTime, emit: Emit<'_>) {
        let is_end = now.beat == Beat::End;
        let reader = cx.processes.reader().clone();
        let cpu_time_ns = || clock::cpu_time_ns() + reader.cpu_ns();
        let begin_ns = cpu_time_ns();
        let spent = || Duration::from_nanos(cpu_time_ns().saturating_sub(begin_ns));
        let mut left = 0_u64;
        for (id, pid) in self.candidates(cx, is_end) {
            if spent() >= self.budget {
                left += u64::from(!self.looked_at.contains(&id));
                continue;
            }
            self.looked_at.insert(id);
            self.look(cx, (id, pid), now, &mut *emit);
        }
        self.names(cx, now, &mut *emit);
        if is_end {
            self.again(cx, now, &mut *emit);
            self.say_what_is_missing(left, &reader, now, emit);
        }
        self.known_to = cx.processes.latest();
        self.forget_ended(cx);
        let paid = self.debt + spent();
        self.debt = paid.saturating_sub(self.budget + EACH_SECOND);
        self.budget =
            (self.budget + EACH_SECOND).saturating_sub(paid).min(EACH_SECOND * SAVED_SECONDS);
    }

    /// Keeps what is known of the processes that are still there.
    fn forget_ended(&mut self, cx: &Context) {
        self.forget_in_s -= 1;
        if self.forget_in_s > 0 {
            return;
        }
        self.forget_in_s = FORGET_EVERY_S;
        let known: HashSet<ProcId> = cx.processes.of_target().map(|process| process.id).collect();
        self.looked_at.retain(|id| known.contains(id));
        self.alone.retain(|id| known.contains(id));
        self.found.retain(|id, _| known.contains(id));
        self.named.retain(&known);
    }

    /// Emits what the threads did, by name, of processes that have a limit and a runtime.
    fn names(&mut self, cx: &Context, now: BeatTime, emit: Emit<'_>) {
        if now.beat != Beat::End && !self.named.is_due(now.t_ns) {
            return;
        }
        let begin_ns = clock::cpu_time_ns();
        let judged = |process: &&Process| {
            self.found.get(&process.id).is_some_and(|(_, reading)| {
                // Node's number is not judged, and that of nginx counts processes.
                !reading.parallelism.is_empty()
                    && !matches!(reading.kind, RuntimeKind::Node | RuntimeKind::Nginx)
            })
        };
        let limited: Vec<(ProcId, u32)> = cx
            .processes
            .of_target()
            .filter(judged)
            .filter(|process| self.is_limited(cx, process))
            .map(|process| (process.id, process.pid))
            .collect();
        for process in limited {
            self.named.look(&cx.roots, process, now.t_ns, &mut *emit);
        }
        let spent_ns = clock::cpu_time_ns().saturating_sub(begin_ns);
        self.named.next_after(now.t_ns, Duration::from_nanos(spent_ns));
    }

    /// Looks again at processes that have a runtime: newer runtimes follow a change of the limit.
    fn again(&mut self, cx: &mut Context, now: BeatTime, emit: Emit<'_>) {
        let known: Vec<(ProcId, u32)> =
            self.found.iter().map(|(id, (pid, _))| (*id, *pid)).take(MAX_AGAIN).collect();
        // A pid may have been reused by now: only processes that are still known by it are looked at.
        let alive: BTreeSet<(ProcId, u32)> =
            cx.processes.of_target().map(|process| (process.id, process.pid)).collect();
        for one in known.into_iter().filter(|one| alive.contains(one)) {
            self.look(cx, one, now, &mut *emit);
        }
    }

    fn say_what_is_missing(&self, left: u64, reader: &Reader, now: BeatTime, emit: Emit<'_>) {
        let mut gaps = Vec::new();
        if left > 0 {
            gaps.push(format!(
                "{} not looked at, to save CPU time: those without a limit of their own come last",
                units::counted(left, "process was", "processes were")
            ));
        }
        if self.forbidden > 0 {
            gaps.push(format!(
                "{} not be looked at by this user",
                units::counted(self.forbidden.into(), "process may", "processes may")
            ));
        }
        if self.not_read > 0 {
            let why = reader.given_up().map_or(String::new(), |given_up| format!(": {given_up}"));
            gaps.push(format!(
                "{} not be looked at{why}",
                units::counted(self.not_read.into(), "process could", "processes could")
            ));
        }
        if !gaps.is_empty() {
            let state = State::Partial { reason: gaps.join("; ") };
            emit(Record::Coverage(Coverage { t_ns: now.t_ns, source: Source::Runtime, state }));
        }
    }
}

impl Collector for RuntimeCollector {
    fn beat(&mut self, cx: &mut Context, now: BeatTime, emit: Emit<'_>) -> anyhow::Result<()> {
        if now.beat == Beat::Start {
            let state = match rustix::process::geteuid().is_root() {
                true => State::Active,
                false => State::Partial {
                    reason: "only runtimes of this user's own processes can be looked at; run as root for all".into(),
                },
            };
            emit(Record::Coverage(Coverage { t_ns: 0, source: Source::Runtime, state }));
        } else if now.beat.is_second() {
            self.second(cx, now, emit);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::ObservedProcess;
    use crate::collect::fixture::{Host, beat, stat};
    use std::os::unix::fs::symlink;

    /// A process that runs Node with a pool of that size.
    fn node(host: &Host, pid: u32, threads: u32, pool: &str) {
        host.process(pid, "node");
        host.write(&format!("proc/{pid}/stat"), stat(pid, "node", threads, 0));
        host.write(&format!("proc/{pid}/environ"), format!("UV_THREADPOOL_SIZE={pool}\0"));
        host.write("bin/node", "no program at all");
        let _ = symlink(host.path("bin/node"), host.path(&format!("proc/{pid}/exe")));
    }

    fn meet(cx: &mut Context, pid: u32) -> ProcId {
        let Context { roots, cgroups, target, processes, .. } = cx;
        let sighting = ObservedProcess { pid, ..ObservedProcess::default() };
        processes.intern(roots, cgroups, target, sighting, &mut |_| {})
    }

    /// The processes whose runtime was emitted, with its number of threads.
    fn emitted(records: &[Record]) -> Vec<(ProcId, u32)> {
        let reading = |record: &Record| match record {
            Record::Runtime(reading) => Some((reading.proc, reading.parallelism[0].value)),
            _ => None,
        };
        records.iter().filter_map(reading).collect()
    }

    #[test]
    fn a_runtime_is_told_once_and_again_when_it_changed() {
        let host = Host::empty();
        node(&host, 50, 7, "9");
        node(&host, 51, 1, "5");
        let mut cx = host.context();
        let mut collector = RuntimeCollector::open(&cx);
        let start = beat(&mut collector, &mut cx, Beat::Start);
        assert!(matches!(start[..], [Record::Coverage(_)]), "{start:?}");
        let (many, alone) = (meet(&mut cx, 50), meet(&mut cx, 51));
        // A process that was met just now may not run its program yet.
        assert_eq!(emitted(&beat(&mut collector, &mut cx, Beat::Second)), []);
        assert_eq!(emitted(&beat(&mut collector, &mut cx, Beat::Bin)), []);
        assert_eq!(emitted(&beat(&mut collector, &mut cx, Beat::Second)), [(many, 9)]);
        assert_eq!(emitted(&beat(&mut collector, &mut cx, Beat::Second)), []);
        // By the end one process has another number, one has more than one thread, and one is new.
        node(&host, 50, 8, "12");
        node(&host, 51, 6, "5");
        node(&host, 52, 6, "3");
        let late = meet(&mut cx, 52);
        let mut end = emitted(&beat(&mut collector, &mut cx, Beat::End));
        end.sort_unstable();
        assert_eq!(end, [(many, 12), (alone, 5), (late, 3)]);
    }

    #[test]
    fn nothing_is_kept_of_processes_that_are_known_no_longer() {
        let host = Host::empty();
        node(&host, 50, 7, "9");
        let mut cx = host.context();
        let mut collector = RuntimeCollector::open(&cx);
        let lives = meet(&mut cx, 50);
        for round in 0..10 {
            for pid in 100..130 {
                node(&host, pid, 1 + round % 2 * 5, "5");
                host.write(&format!("proc/{pid}/task/{pid}/schedstat"), "1 1 1\n");
                meet(&mut cx, pid);
            }
            collector.budget = FIRST_SECOND;
            for _ in 0..2 {
                beat(&mut collector, &mut cx, Beat::Second);
            }
            assert!(collector.looked_at.len() > 1, "{:?}", collector.looked_at);
            for pid in 100..130 {
                std::fs::remove_dir_all(host.path(&format!("proc/{pid}"))).unwrap();
            }
            for _ in 0..30 {
                cx.forget_ended();
            }
            for _ in 0..FORGET_EVERY_S {
                beat(&mut collector, &mut cx, Beat::Second);
            }
            let left = BTreeSet::from([lives]);
            assert!(collector.looked_at.is_subset(&left) && collector.alone.is_subset(&left));
            assert!(collector.found.keys().all(|id| left.contains(id)));
        }
    }

    #[test]
    fn a_process_that_is_gone_is_no_loss() {
        let host = Host::empty();
        node(&host, 50, 7, "9");
        let mut cx = host.context();
        let mut collector = RuntimeCollector::open(&cx);
        meet(&mut cx, 50);
        std::fs::remove_dir_all(host.path("proc/50")).unwrap();
        assert_eq!(beat(&mut collector, &mut cx, Beat::End), []);
    }
}
