// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Totals of each process, and of groups of processes with the same comm and cgroup.

use super::block::Writeback;
use super::kept::{KeptBlame, KeptUsage};
use super::longest_wait::WholeWait;
use super::{CpuTime, Series, Sleeps, View};
use crate::finding::LedgerState;
use crate::recording::{
    BlameTick, CgroupId, CpuTimeReading, Culprit, IdleTick, LongWait, NamedThreads, ProcId,
    Process, ProcessTick, RuntimeReading, SchedstatTick, SleepTick, ThreadStates, WaitHist,
};
use std::cell::OnceCell;
use std::collections::BTreeMap;

/// Maximum number of bins of a process's series: at first one per second, then merged in pairs.
const PROCESS_SERIES_BINS: u32 = 128;

/// Thread states and run-queue waits of a process, from the scheduler probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Usage {
    /// Largest number of threads in one tick.
    pub threads_max: u32,
    /// Sum over threads of the time that each existed.
    pub wall_ns: u64,
    /// Breakdown of `wall_ns` by thread state.
    pub states: ThreadStates,
    /// Run-queue waits, one for each context switch, including those of zero length and wake-up latency.
    pub waits: WaitHist,
    /// Longest wait, in nanoseconds.
    pub wait_max_ns: u64,
    /// Number of context switches to its threads.
    pub switches: u64,
    /// Part of `states.queued_ns` that no other thread caused.
    pub wakeup_latency_ns: u64,
    /// `states.queued_ns` without wake-up latency, over time.
    pub contended: Series,
    /// `states.block_io_ns` over time.
    pub block_io: Series,
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            threads_max: 0,
            wall_ns: 0,
            states: ThreadStates::default(),
            waits: WaitHist::default(),
            wait_max_ns: 0,
            switches: 0,
            wakeup_latency_ns: 0,
            contended: Series::new(1_000_000_000, PROCESS_SERIES_BINS),
            block_io: Series::new(1_000_000_000, PROCESS_SERIES_BINS),
        }
    }
}

impl Usage {
    /// Nanoseconds in each state that a ledger knows, in the order in which ledgers have them.
    #[must_use]
    pub fn by_state(&self) -> [(LedgerState, u64); 8] {
        by_state(&self.states)
    }

    pub(super) fn push(&mut self, tick: &ProcessTick) {
        let wakeup_ns = tick.wakeup_latency_ns.min(tick.states.queued_ns);
        self.threads_max = self.threads_max.max(tick.threads);
        self.wall_ns += tick.wall_ns;
        add_states(&mut self.states, &tick.states);
        self.waits.merge(&tick.waits);
        // The probe counts no wait for a thread that gets a CPU in the same nanosecond in which it is queued.
        self.waits.count[0] += tick.switches.saturating_sub(tick.waits.total_count());
        self.wait_max_ns = self.wait_max_ns.max(tick.wait_max_ns);
        self.switches += tick.switches;
        self.wakeup_latency_ns += wakeup_ns;
        self.contended.add(tick.t0_ns, tick.t1_ns, tick.states.queued_ns - wakeup_ns);
        self.block_io.add(tick.t0_ns, tick.t1_ns, tick.states.block_io_ns);
    }

    /// Adds another process. The two may have had their largest number of threads at different times: the sum of
    /// `threads_max` is an upper bound.
    fn merge(&mut self, other: &Self) {
        self.threads_max += other.threads_max;
        self.wall_ns += other.wall_ns;
        add_states(&mut self.states, &other.states);
        self.waits.merge(&other.waits);
        self.wait_max_ns = self.wait_max_ns.max(other.wait_max_ns);
        self.switches += other.switches;
        self.wakeup_latency_ns += other.wakeup_latency_ns;
        self.contended.merge(&other.contended);
        self.block_io.merge(&other.block_io);
    }

    /// Time in which its threads were runnable: on CPU, queued or throttled.
    #[must_use]
    pub fn wanted_ns(&self) -> u64 {
        self.states.on_cpu_ns + self.states.queued_ns + self.states.throttled_ns
    }

    /// What each turn of its threads on a CPU loses on average, if all lose so much; `None` without a turn.
    #[must_use]
    pub fn per_turn_ns(&self, lost_ns: u64) -> Option<u64> {
        lost_ns.checked_div(self.waits.total_count())
    }

    /// Time of its threads whose state is not known, which may be time on a CPU.
    #[must_use]
    pub fn unattributed_ns(&self) -> u64 {
        self.wall_ns.saturating_sub(self.states.total_ns())
    }

    /// Whether so much is unattributed that a share of [`Self::wanted_ns`] may be far too large: more than a tenth of it.
    #[must_use]
    pub fn is_much_unattributed(&self) -> bool {
        self.unattributed_ns() > self.wanted_ns() / 10
    }

    /// Time queued behind other threads: `queued_ns` without wake-up latency.
    #[must_use]
    pub fn contended_ns(&self) -> u64 {
        self.states.queued_ns - self.wakeup_latency_ns
    }
}

/// Nanoseconds in each state that a ledger knows, in the order in which ledgers have them.
pub(super) fn by_state(states: &ThreadStates) -> [(LedgerState, u64); 8] {
    [
        (LedgerState::OnCpu, states.on_cpu_ns),
        (LedgerState::Queued, states.queued_ns),
        (LedgerState::Throttled, states.throttled_ns),
        (LedgerState::BlockIo, states.block_io_ns),
        (LedgerState::MemStall, states.mem_stall_ns),
        (LedgerState::Uninterruptible, states.uninterruptible_ns),
        (LedgerState::Sleep, states.sleep_ns),
        (LedgerState::Stopped, states.stopped_ns),
    ]
}

fn add_states(sum: &mut ThreadStates, more: &ThreadStates) {
    sum.on_cpu_ns += more.on_cpu_ns;
    sum.queued_ns += more.queued_ns;
    sum.throttled_ns += more.throttled_ns;
    sum.block_io_ns += more.block_io_ns;
    sum.mem_stall_ns += more.mem_stall_ns;
    sum.uninterruptible_ns += more.uninterruptible_ns;
    sum.sleep_ns += more.sleep_ns;
    sum.stopped_ns += more.stopped_ns;
}

/// CPU time and run-queue delay of a process from `/proc/PID/task/*/schedstat`, the fallback for the probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    /// Largest number of threads in one tick.
    pub threads_max: u32,
    /// Sum over threads of the time between two readings.
    pub wall_ns: u64,
    /// Time on CPUs.
    pub on_cpu_ns: u64,
    /// Time runnable but not running: queued or throttled.
    pub delay_ns: u64,
    /// Number of times that a thread was switched to a CPU.
    pub slices: u64,
}

impl Delay {
    fn push(&mut self, tick: &SchedstatTick) {
        self.threads_max = self.threads_max.max(tick.threads);
        self.wall_ns += tick.wall_ns;
        self.on_cpu_ns += tick.on_cpu_ns;
        self.delay_ns += tick.delay_ns;
        self.slices += tick.slices;
    }

    fn merge(&mut self, other: &Self) {
        self.threads_max += other.threads_max;
        self.wall_ns += other.wall_ns;
        self.on_cpu_ns += other.on_cpu_ns;
        self.delay_ns += other.delay_ns;
        self.slices += other.slices;
    }

    /// Time in which its threads were runnable: on CPU, queued or throttled.
    #[must_use]
    pub fn wanted_ns(&self) -> u64 {
        self.on_cpu_ns + self.delay_ns
    }
}

/// Idle time of other CPUs during the longer run-queue waits of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Idle {
    /// Shorter waits were not examined. The largest bound of any tick.
    pub min_wait_ns: u64,
    /// Number of waits that were examined.
    pub waits: u64,
    /// Sum of their durations.
    pub waits_ns: u64,
    /// Duration of further waits of at least that length, which were not examined.
    pub skipped_ns: u64,
    /// Part of `waits_ns` in which at least one CPU that the thread's affinity allows was idle.
    pub allowed_ns: u64,
    /// Part of `waits_ns` in which no allowed CPU was idle, but one outside the thread's affinity was.
    pub forbidden_ns: u64,
    /// Part of the waits during which each CPU was idle, by CPU number and whether the affinity allows that CPU.
    pub cpus: BTreeMap<(u32, bool), u64>,
}

impl Idle {
    fn push(&mut self, tick: &IdleTick) {
        self.min_wait_ns = self.min_wait_ns.max(tick.min_wait_ns);
        self.waits += tick.waits;
        self.waits_ns += tick.waits_ns;
        self.skipped_ns += tick.skipped_ns;
        self.allowed_ns += tick.idle_allowed_ns;
        self.forbidden_ns += tick.idle_forbidden_ns;
        for cpu in &tick.cpus {
            *self.cpus.entry((cpu.cpu, cpu.allowed)).or_default() += cpu.idle_ns;
        }
    }

    fn merge(&mut self, other: &Self) {
        self.min_wait_ns = self.min_wait_ns.max(other.min_wait_ns);
        self.waits += other.waits;
        self.waits_ns += other.waits_ns;
        self.skipped_ns += other.skipped_ns;
        self.allowed_ns += other.allowed_ns;
        self.forbidden_ns += other.forbidden_ns;
        for (cpu, ns) in &other.cpus {
            *self.cpus.entry(*cpu).or_default() += ns;
        }
    }

    /// Duration of all waits of at least `min_wait_ns`, examined or not.
    #[must_use]
    pub fn whole_ns(&self) -> u64 {
        self.waits_ns + self.skipped_ns
    }

    /// Examined share of [`Self::whole_ns`], 0..1.
    #[must_use]
    pub fn looked_at(&self) -> f64 {
        self.waits_ns as f64 / self.whole_ns().max(1) as f64
    }
}

/// CPU time and run-queue delay of the threads with one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadNameTotals {
    /// Largest number of these threads at one time.
    pub threads_max: u32,
    /// Time on CPUs.
    pub on_cpu_ns: u64,
    /// Time runnable but not running: queued or throttled.
    pub delay_ns: u64,
}

impl ThreadNameTotals {
    pub(super) fn push(&mut self, tick: &NamedThreads) {
        self.threads_max = self.threads_max.max(tick.threads);
        self.on_cpu_ns += tick.on_cpu_ns;
        self.delay_ns += tick.delay_ns;
    }
}

/// Facts and totals of one process. A long recording has hundreds of thousands of them, so what few have is boxed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessView {
    /// Latest facts; `None` if the process appears in ticks only.
    pub facts: Option<Box<Process>>,
    usage: Option<KeptUsage>,
    /// CPU time and delay, from the fallback.
    pub delay: Option<Box<Delay>>,
    /// Idle CPUs during its waits, from the timeline.
    pub idle: Option<Box<Idle>>,
    /// Latest reading of its runtime: how many threads it runs in parallel.
    pub runtime: Option<Box<RuntimeReading>>,
    /// Totals of its threads by thread name. Empty = not recorded; only processes with a CPU limit and a known runtime
    /// have them.
    pub named: BTreeMap<String, ThreadNameTotals>,
    /// The longest run-queue wait that was told whole.
    pub longest_wait: Option<Box<WholeWait>>,
    /// On what its threads slept; `None` if that was not recorded.
    pub sleeps: Option<Box<Sleeps>>,
    /// Its CPU time, in the program and in the kernel; `None` if that was not read.
    pub cpu_time: Option<Box<CpuTime>>,
    blame: KeptBlame,
}

impl ProcessView {
    pub(super) fn tick(&mut self, tick: &ProcessTick) {
        self.usage.get_or_insert_default().push(tick);
    }

    pub(super) fn schedstat(&mut self, tick: &SchedstatTick) {
        self.delay.get_or_insert_default().push(tick);
    }

    pub(super) fn idle(&mut self, tick: &IdleTick) {
        self.idle.get_or_insert_default().push(tick);
    }

    pub(super) fn long_wait(&mut self, part: &LongWait) {
        WholeWait::push(&mut self.longest_wait, part);
    }

    pub(super) fn sleep(&mut self, tick: &SleepTick, has_entries: bool) {
        let runtime = self.runtime.as_ref().map(|reading| reading.kind);
        self.sleeps.get_or_insert_default().push(tick, has_entries, runtime);
    }

    pub(super) fn runtime(&mut self, reading: &RuntimeReading) {
        if let Some(sleeps) = self.sleeps.as_mut().filter(|_| self.runtime.is_none()) {
            sleeps.has_runtime(reading.kind);
        }
        self.runtime = Some(Box::new(reading.clone()));
    }

    pub(super) fn cpu_time(&mut self, reading: CpuTimeReading) {
        CpuTime::push(&mut self.cpu_time, reading);
    }

    pub(super) fn blame(&mut self, tick: &BlameTick) {
        self.blame.add(tick.culprit, tick.ns);
    }

    /// Thread states, from the scheduler probe.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.usage.as_ref().map(KeptUsage::usage)
    }

    /// Whether the scheduler probe saw it.
    #[must_use]
    pub fn has_usage(&self) -> bool {
        self.usage.is_some()
    }
}

/// Processes with the same comm and cgroup, either all in the target or none. A finding names a group as one victim
/// or one culprit.
#[derive(Clone, Debug, PartialEq)]
pub struct Group<'v> {
    /// Their comm.
    pub comm: &'v str,
    /// Their cgroup.
    pub cgroup: Option<CgroupId>,
    /// Whether they belong to the target.
    pub in_target: bool,
    /// The processes; at least one.
    pub members: Vec<(ProcId, &'v Process)>,
    /// Latest runtime reading of each member, in the same order.
    pub runtimes: Vec<Option<&'v RuntimeReading>>,
    /// Sum of their usage; `None` if the probe has data of none of them.
    pub usage: Option<Usage>,
    /// Sum of their delay; `None` if the fallback has data of none of them.
    pub delay: Option<Delay>,
    /// Sum of the idle time of CPUs during their waits; `None` if the timeline has data of none of them.
    pub idle: Option<Idle>,
}

/// What threads of a group waited behind on run queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupCulprit {
    /// The group with this index in [`Groups::list()`]. May be the victim itself.
    Group(usize),
    /// Processes too small or too short-lived to be recorded separately.
    Others,
    /// Unknown: the wait was on another run queue, before the thread was migrated.
    Migrated,
    /// Unknown: the probe did not look it up.
    NotSampled,
}

/// All groups of a view.
#[derive(Clone, Debug)]
pub struct Groups<'v> {
    view: &'v View,
    list: Vec<Group<'v>>,
    of: BTreeMap<ProcId, usize>,
    writeback: OnceCell<Writeback>,
}

impl<'v> Groups<'v> {
    pub(super) fn new(view: &'v View) -> Self {
        let described =
            || view.processes.iter().filter_map(|(&id, it)| Some((id, it.facts.as_deref()?, it)));
        let mut index = BTreeMap::new();
        let mut of = BTreeMap::new();
        for (id, facts, _) in described() {
            let key = (facts.comm.as_str(), facts.cgroup, facts.in_target, facts.observer);
            let next = index.len();
            of.insert(id, *index.entry(key).or_insert(next));
        }
        // A list that grows by doubling would take three times the memory for a moment.
        let mut list: Vec<Group<'_>> = Vec::with_capacity(index.len());
        drop(index);
        for (id, facts, process) in described() {
            let at = of[&id];
            if at == list.len() {
                list.push(Group {
                    comm: &facts.comm,
                    cgroup: facts.cgroup,
                    in_target: facts.in_target,
                    members: vec![],
                    runtimes: vec![],
                    usage: None,
                    delay: None,
                    idle: None,
                });
            }
            list[at].add(id, facts, process);
        }
        Self { view, list, of, writeback: OnceCell::new() }
    }

    /// The groups, in the order in which their first process was seen.
    #[must_use]
    pub fn list(&self) -> &[Group<'v>] {
        &self.list
    }

    /// Index of the group that a process belongs to; `None` if the recording does not describe the process.
    #[must_use]
    pub fn index_of(&self, id: ProcId) -> Option<usize> {
        self.of.get(&id).copied()
    }

    /// Who is behind writeback.
    pub(super) fn writeback(&self) -> &Writeback {
        self.writeback.get_or_init(|| Writeback::of(self.view, self))
    }

    /// Run-queue wait of a group's members by culprit, in nanoseconds.
    #[must_use]
    pub fn blame(&self, group: usize) -> BTreeMap<GroupCulprit, u64> {
        let mut sum = BTreeMap::new();
        let members = self.list.get(group).map(|group| group.members.as_slice());
        for (id, _) in members.unwrap_or_default() {
            let Some(victim) = self.view.processes.get(id) else { continue };
            for (culprit, ns) in victim.blame.rows() {
                let behind = match culprit {
                    Culprit::Process(id) => {
                        self.of.get(&id).map_or(GroupCulprit::Others, |&at| GroupCulprit::Group(at))
                    }
                    Culprit::Migrated => GroupCulprit::Migrated,
                    Culprit::NotSampled | Culprit::Throttled => GroupCulprit::NotSampled,
                };
                *sum.entry(behind).or_default() += ns;
            }
        }
        sum
    }

    /// Run-queue wait of the group `victim` behind each process of the group `culprit`, in nanoseconds, longest first.
    #[must_use]
    pub fn blamed_in(&self, victim: usize, culprit: usize) -> Vec<(ProcId, u64)> {
        let mut sum: BTreeMap<ProcId, u64> = BTreeMap::new();
        let members = self.list.get(victim).map(|group| group.members.as_slice());
        for (victim, _) in members.unwrap_or_default() {
            let Some(process) = self.view.processes.get(victim) else { continue };
            for (behind, ns) in process.blame.rows() {
                if let Culprit::Process(id) = behind
                    && self.of.get(&id) == Some(&culprit)
                {
                    *sum.entry(id).or_default() += ns;
                }
            }
        }
        let mut blamed: Vec<(ProcId, u64)> = sum.into_iter().collect();
        // The sort is stable: ties stay in the order in which the processes were first seen.
        blamed.sort_by_key(|&(_, ns)| std::cmp::Reverse(ns));
        blamed
    }
}

impl<'v> Group<'v> {
    fn add(&mut self, id: ProcId, facts: &'v Process, process: &'v ProcessView) {
        self.members.push((id, facts));
        self.runtimes.push(process.runtime.as_deref());
        if let Some(usage) = process.usage() {
            self.usage.get_or_insert_default().merge(&usage);
        }
        if let Some(delay) = &process.delay {
            self.delay.get_or_insert_default().merge(delay);
        }
        if let Some(idle) = &process.idle {
            self.idle.get_or_insert_default().merge(idle);
        }
    }

    /// The facts of its first process.
    #[must_use]
    pub fn first(&self) -> &'v Process {
        self.members[0].1
    }

    /// Whether a member stands for many short-lived processes ([`Process::many`]).
    #[must_use]
    pub fn has_many(&self) -> bool {
        self.members.iter().any(|(_, process)| process.many)
    }

    /// Whether it consists of kernel threads.
    #[must_use]
    pub fn is_kernel(&self) -> bool {
        self.first().kernel_thread == Some(true)
    }

    /// Whether it is the observer itself.
    #[must_use]
    pub fn is_observer(&self) -> bool {
        self.first().observer
    }
}
