// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the time of each thread of the target's processes went.

use crate::collect::Emit;
use deburr_bpf::sched::{State, ThreadDelta};
use deburr_core::recording::{ProcId, Record, ThreadLedger, ThreadStates};
use deburr_core::text::name::decode;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Threads of a process that have a record of their own: those that lost most. The others are summed.
const THREADS: usize = 16;
/// Threads that have ended, of a process: beyond so many, only [`THREADS`] of them are kept.
const ENDED: usize = 64;
/// Processes whose threads are recorded: those that lost most.
const PROCESSES: usize = 64;

/// States as they are recorded.
pub(super) fn states(ns: &[u64; 8]) -> ThreadStates {
    let of = |state: State| ns[state as usize];
    ThreadStates {
        on_cpu_ns: of(State::OnCpu),
        queued_ns: of(State::Queued),
        throttled_ns: of(State::Throttled),
        block_io_ns: of(State::BlockIo),
        mem_stall_ns: of(State::MemStall),
        uninterruptible_ns: of(State::Uninterruptible),
        sleep_ns: of(State::Sleep),
        stopped_ns: of(State::Stopped),
    }
}

/// The time of one or several threads.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    wall_ns: u64,
    states_ns: [u64; 8],
}

impl Sum {
    fn add(&mut self, wall_ns: u64, states_ns: &[u64; 8]) {
        self.wall_ns += wall_ns;
        for (sum, ns) in self.states_ns.iter_mut().zip(states_ns) {
            *sum += ns;
        }
    }

    fn less(&self, other: &Self) -> Self {
        Self {
            wall_ns: self.wall_ns.saturating_sub(other.wall_ns),
            states_ns: std::array::from_fn(|at| {
                self.states_ns[at].saturating_sub(other.states_ns[at])
            }),
        }
    }

    fn lost_ns(&self) -> u64 {
        use State::{BlockIo, MemStall, Queued, Throttled, Uninterruptible};
        let lost = [Queued, Throttled, BlockIo, MemStall, Uninterruptible];
        lost.into_iter().map(|state| self.states_ns[state as usize]).sum()
    }
}

#[derive(Clone, Copy, Debug)]
struct Thread {
    tid: u32,
    comm: [u8; 16],
    sum: Sum,
}

impl Thread {
    /// Sort key: those that lost most come first, then those that ran most.
    fn rank(&self) -> (Reverse<u64>, Reverse<u64>, u32) {
        let on_cpu_ns = self.sum.states_ns[State::OnCpu as usize];
        (Reverse(self.sum.lost_ns()), Reverse(on_cpu_ns), self.tid)
    }
}

/// The threads of a process since it was met.
#[derive(Debug, Default)]
pub(super) struct ByThread {
    t0_ns: u64,
    alive: BTreeMap<u32, Thread>,
    ended: Vec<Thread>,
    /// Threads so far, and the time of all of them.
    threads: u32,
    total: Sum,
}

impl ByThread {
    /// Begins with a process that is met at that time.
    pub(super) fn begin(t0_ns: u64) -> Self {
        Self { t0_ns, ..Self::default() }
    }

    /// Adds what a thread did.
    pub(super) fn add(&mut self, delta: &ThreadDelta) {
        self.total.add(delta.wall_ns, &delta.states_ns);
        let thread = self.alive.entry(delta.tid).or_insert_with(|| {
            self.threads += 1;
            Thread { tid: delta.tid, comm: delta.comm, sum: Sum::default() }
        });
        thread.comm = delta.comm;
        thread.sum.add(delta.wall_ns, &delta.states_ns);
        if delta.dead {
            self.ended.extend(self.alive.remove(&delta.tid));
        }
        if self.ended.len() > ENDED {
            self.ended.sort_unstable_by_key(Thread::rank);
            self.ended.truncate(THREADS);
        }
    }

    /// The records of its threads, which sum to all that they did; none for a single thread.
    fn records(self, proc: ProcId, t1_ns: u64) -> Vec<ThreadLedger> {
        let Self { t0_ns, alive, ended, threads, total } = self;
        if threads < 2 {
            return Vec::new();
        }
        let mut named: Vec<Thread> = alive.into_values().chain(ended).collect();
        named.sort_unstable_by_key(Thread::rank);
        named.truncate(THREADS);
        let record = |tid, comm, threads, sum: &Sum| ThreadLedger {
            t0_ns,
            t1_ns: t1_ns.max(t0_ns),
            proc,
            tid,
            comm,
            threads,
            wall_ns: sum.wall_ns,
            states: states(&sum.states_ns),
        };
        let mut known = Sum::default();
        let mut records = Vec::new();
        for it in &named {
            known.add(it.sum.wall_ns, &it.sum.states_ns);
            records.push(record(Some(it.tid), decode(&it.comm), 1, &it.sum));
        }
        let others = threads - named.len() as u32;
        if others > 0 {
            records.push(record(None, String::new(), others, &total.less(&known)));
        }
        records
    }
}

/// What is going to be recorded of processes.
#[derive(Debug, Default)]
pub(super) struct ThreadLedgers {
    all: Vec<(u64, ProcId, Vec<ThreadLedger>)>,
}

impl ThreadLedgers {
    /// Adds a process that has ended, or whose window has.
    pub(super) fn add(&mut self, proc: ProcId, threads: ByThread, t1_ns: u64) {
        let lost_ns = threads.total.lost_ns();
        let records = threads.records(proc, t1_ns);
        if !records.is_empty() {
            self.all.push((lost_ns, proc, records));
        }
        if self.all.len() > 2 * PROCESSES {
            self.keep_the_worst();
        }
    }

    fn keep_the_worst(&mut self) {
        self.all.sort_by_key(|(lost_ns, proc, _)| (Reverse(*lost_ns), *proc));
        self.all.truncate(PROCESSES);
    }

    /// Emits the records.
    pub(super) fn emit(&mut self, emit: Emit<'_>) {
        self.keep_the_worst();
        for record in std::mem::take(&mut self.all).into_iter().flat_map(|(.., records)| records) {
            emit(Record::ThreadLedger(Box::new(record)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deburr_core::recording::WaitHist;

    fn did(tid: u32, on_cpu_ns: u64, queued_ns: u64) -> ThreadDelta {
        ThreadDelta {
            tid,
            tgid: 7,
            leader_boot_ns: 1,
            start_boot_ns: 1,
            parent: 1,
            comm: *b"worker\0\0\0\0\0\0\0\0\0\0",
            cgroup_id: 1,
            dead: false,
            wall_ns: on_cpu_ns + queued_ns,
            from_ns: 0,
            behind: false,
            states_ns: [on_cpu_ns, queued_ns, 0, 0, 0, 0, 0, 0],
            waits: WaitHist::default(),
            wait_max_ns: 0,
            waiting_ns: 0,
            switches: 0,
            slot: None,
        }
    }

    #[test]
    fn those_that_lost_most_are_named_and_all_sum_to_the_process() {
        let mut threads = ByThread::begin(5);
        for tid in 1..=1000 {
            let dead = tid % 3 != 0;
            threads.add(&did(tid, 10, u64::from(tid)));
            threads.add(&ThreadDelta { dead, ..did(tid, 1, 0) });
        }
        assert!(threads.ended.len() <= ENDED);
        let records = threads.records(ProcId(2), 100);
        assert_eq!(records.len(), THREADS + 1);
        let named: Vec<Option<u32>> = records[..THREADS].iter().map(|it| it.tid).collect();
        let worst = (1000 - THREADS as u32 + 1..=1000).rev().map(Some);
        assert_eq!(named, worst.collect::<Vec<_>>());
        assert!(records[..THREADS].iter().all(|it| it.comm == "worker" && it.threads == 1));
        let rest = &records[THREADS];
        assert_eq!((rest.tid, rest.comm.as_str(), rest.threads), (None, "", 1000 - 16));
        let sum = |of: fn(&ThreadLedger) -> u64| records.iter().map(of).sum::<u64>();
        assert_eq!(sum(|it| it.states.on_cpu_ns), 11 * 1000);
        assert_eq!(sum(|it| it.states.queued_ns), 1000 * 1001 / 2);
        assert_eq!(sum(|it| it.wall_ns), 11 * 1000 + 1000 * 1001 / 2);
        assert!(records.iter().all(|it| (it.t0_ns, it.t1_ns) == (5, 100)));
    }

    #[test]
    fn a_thread_id_that_comes_again_is_another_thread() {
        let mut threads = ByThread::begin(0);
        threads.add(&ThreadDelta { dead: true, ..did(8, 1, 20) });
        threads.add(&did(8, 1, 10));
        let records = threads.records(ProcId(2), 100);
        let queued = records.iter().map(|it| (it.tid, it.states.queued_ns));
        assert_eq!(queued.collect::<Vec<_>>(), [(Some(8), 20), (Some(8), 10)]);
    }

    #[test]
    fn single_threads_have_no_record_and_many_processes_few() {
        let mut ledgers = ThreadLedgers::default();
        for id in 1..=500 {
            let mut threads = ByThread::begin(0);
            threads.add(&did(1, 1, u64::from(id)));
            if id % 2 == 0 {
                threads.add(&did(2, 1, 0));
            }
            ledgers.add(ProcId(id), threads, 100);
        }
        let mut told = std::collections::BTreeSet::new();
        ledgers.emit(&mut |record| match record {
            Record::ThreadLedger(it) => drop(told.insert(it.proc.0)),
            other => panic!("{other:?}"),
        });
        let worst = (500 - 2 * PROCESSES as u32 + 2..=500).filter(|id| id % 2 == 0);
        assert_eq!(told.into_iter().collect::<Vec<_>>(), worst.collect::<Vec<_>>());
    }
}
