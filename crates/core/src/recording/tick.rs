// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scheduler amounts and counters over time: thread states, run-queue waits and their culprits, CPU readings, pressure.

use super::observed::observed;
use super::{CgroupId, ProcId, Source, WaitHist};
use serde::{Deserialize, Serialize};

/// Nanoseconds of thread time in each state of the wall-time ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadStates {
    /// Running.
    pub on_cpu_ns: u64,
    /// Runnable and waiting on a run queue, throttling excluded. Includes wake-up latency of idle CPUs.
    pub queued_ns: u64,
    /// Runnable, but its cgroup (or one above) had used up its CPU quota.
    pub throttled_ns: u64,
    /// Uninterruptible sleep for block IO (`in_iowait`).
    pub block_io_ns: u64,
    /// Uninterruptible sleep for memory (`in_memstall`: reclaim, thrashing, compaction).
    pub mem_stall_ns: u64,
    /// Any other uninterruptible sleep: kernel locks, network filesystems, ...
    pub uninterruptible_ns: u64,
    /// Interruptible sleep: waiting for something outside the kernel, or idle.
    pub sleep_ns: u64,
    /// Stopped by a signal or traced.
    pub stopped_ns: u64,
}

impl ThreadStates {
    /// Nanoseconds in each state, in the order of the fields.
    #[must_use]
    pub fn all_ns(&self) -> [u64; 8] {
        let Self { on_cpu_ns, queued_ns, throttled_ns, block_io_ns, .. } = *self;
        let Self { mem_stall_ns, uninterruptible_ns, sleep_ns, stopped_ns, .. } = *self;
        [
            on_cpu_ns,
            queued_ns,
            throttled_ns,
            block_io_ns,
            mem_stall_ns,
            uninterruptible_ns,
            sleep_ns,
            stopped_ns,
        ]
    }

    /// Sum over all states.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.all_ns().into_iter().sum()
    }
}

/// Thread states and run-queue waits of a process in one second (BPF scheduler probe).
/// `wall_ns` minus the sum of `states` is *unattributed*.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessTick {
    /// Start of the tick.
    pub t0_ns: u64,
    /// End of the tick.
    pub t1_ns: u64,
    /// The process. [`ProcId::OTHERS`] holds what a bounded tick merged.
    pub proc: ProcId,
    /// Number of threads that existed at some time within the tick.
    pub threads: u32,
    /// Sum over those threads of the time that each existed within the tick.
    pub wall_ns: u64,
    /// Breakdown of `wall_ns` by thread state.
    pub states: ThreadStates,
    /// Run-queue waits that ended in this tick, each without its throttled time.
    pub waits: WaitHist,
    /// Longest such wait; 0 if none.
    pub wait_max_ns: u64,
    /// Context switches to its threads.
    pub switches: u64,
    /// Part of `queued_ns` in which the CPU was idle or waking up, so that no other thread was ahead.
    pub wakeup_latency_ns: u64,
}

observed! { it: ProcessTick over t0_ns..t1_ns, from Source::Sched; to [it.proc] }

/// What a thread on a run queue waited behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Culprit {
    /// A process that ran on that CPU during the wait (kernel threads are processes too).
    Process(ProcId),
    /// Unknown: the wait was on another run queue, before the thread was migrated.
    Migrated,
    /// Unknown: the probe's budget for long look-ups was spent, or its memory was full.
    NotSampled,
    /// Nothing: the thread was stopped by a quota. Only a part of a [`super::LongWait`].
    Throttled,
}

impl Culprit {
    pub(super) fn process(self) -> Option<ProcId> {
        match self {
            Self::Process(id) => Some(id),
            Self::Migrated | Self::NotSampled | Self::Throttled => None,
        }
    }
}

/// Run-queue wait of one process behind one culprit.
/// Summed over culprits, plus wake-up latency, this is at most `queued_ns` of the same ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlameTick {
    /// Start of the tick.
    pub t0_ns: u64,
    /// End of the tick.
    pub t1_ns: u64,
    /// The process that waited.
    pub victim: ProcId,
    /// What it waited behind. May be the victim itself: threads of one process queue behind each other.
    pub culprit: Culprit,
    /// Wait, in nanoseconds.
    pub ns: u64,
}

observed! { it: BlameTick over t0_ns..t1_ns, from Source::Sched; to [it.victim], it.culprit.process() }

/// Idle time of one CPU while a process waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleCpu {
    /// CPU number.
    pub cpu: u32,
    /// Whether the affinity of the waiting thread allowed this CPU.
    pub allowed: bool,
    /// Part of the waits during which this CPU was idle, in nanoseconds.
    pub idle_ns: u64,
}

/// Whether other CPUs were idle during run-queue waits of [`Self::min_wait_ns`] or longer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IdleTick {
    /// Start of the tick.
    pub t0_ns: u64,
    /// End of the tick.
    pub t1_ns: u64,
    /// The process that waited.
    pub victim: ProcId,
    /// Shorter waits are not examined.
    pub min_wait_ns: u64,
    /// Number of waits that were examined.
    pub waits: u64,
    /// Sum of their durations.
    pub waits_ns: u64,
    /// Time of waits of that length that were not looked at: there were too many at once, or the thread was gone. 0 in
    /// recordings made before this was counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped_ns: u64,
    /// Part of `waits_ns` in which at least one CPU that the thread's affinity allows was idle.
    pub idle_allowed_ns: u64,
    /// Part of `waits_ns` in which no allowed CPU was idle, but one outside the thread's affinity was.
    pub idle_forbidden_ns: u64,
    /// Idle time of each CPU; CPUs without any are left out.
    pub cpus: Vec<IdleCpu>,
}

observed! { it: IdleTick over t0_ns..t1_ns, from Source::Timeline; to [it.victim] }

fn is_zero(ns: &u64) -> bool {
    *ns == 0
}

/// The fallback without BPF: one second of `/proc/PID/task/*/schedstat`, summed over threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedstatTick {
    /// Start of the tick.
    pub t0_ns: u64,
    /// End of the tick.
    pub t1_ns: u64,
    /// The process.
    pub proc: ProcId,
    /// Number of threads that were read at both ends of the tick.
    pub threads: u32,
    /// Sum over those threads of the time between the two readings.
    pub wall_ns: u64,
    /// Time on a CPU.
    pub on_cpu_ns: u64,
    /// Time runnable but not running: queued *or* throttled; the file does not distinguish them.
    pub delay_ns: u64,
    /// Number of times that a thread was switched to a CPU.
    pub slices: u64,
}

observed! { it: SchedstatTick over t0_ns..t1_ns, from Source::Schedstat; to [it.proc] }

/// Load of the host or the target in a bin of 100 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBin {
    /// Start of the bin.
    pub t0_ns: u64,
    /// End of the bin (readers are woken late on a busy host: bins are not exactly 100 ms).
    pub t1_ns: u64,
    /// Time on CPUs.
    pub on_cpu_ns: u64,
    /// Time on run queues in this bin, throttling excluded. Includes waits in progress, except in older recordings and
    /// on kernels without the BPF task iterator: there a wait counts as a whole in the bin in which it ended.
    pub queued_ns: u64,
    /// Throttled time in this bin; waits in progress as for `queued_ns`.
    pub throttled_ns: u64,
    /// Wait for block IO. A host bin has the waits that ended in it, a target bin also waits in progress.
    pub block_io_ns: u64,
    /// Number of run-queue waits that ended in this bin.
    pub waits: u64,
    /// Context switches.
    pub switches: u64,
}

observed! { it: LoadBin over t0_ns..t1_ns, from Source::Sched }

/// One CPU's line of `/proc/stat`, in nanoseconds (the file counts in ticks of 1/`USER_HZ` s), cumulative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuReading {
    /// Timestamp.
    pub t_ns: u64,
    /// CPU number.
    pub cpu: u32,
    /// user + nice.
    pub user_ns: u64,
    /// system.
    pub system_ns: u64,
    /// idle.
    pub idle_ns: u64,
    /// iowait (idle with block IO outstanding; unreliable per CPU).
    pub iowait_ns: u64,
    /// irq + softirq.
    pub irq_ns: u64,
    /// steal: the hypervisor ran something else on the physical CPU.
    pub steal_ns: u64,
}

observed! { it: CpuReading at t_ns, from Source::ProcStat }

/// A cgroup's CPU counters, cumulative. `None` = the file or the item does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupReading {
    /// Timestamp.
    pub t_ns: u64,
    /// The cgroup.
    pub cgroup: CgroupId,
    /// CPU time used.
    pub usage_ns: Option<u64>,
    /// Number of periods in which the cgroup was active.
    pub nr_periods: Option<u64>,
    /// Number of periods in which it ran out of quota.
    pub nr_throttled: Option<u64>,
    /// Sum over its *per-CPU run queues* of the time that each was throttled. Not wall time: with work on `n` CPUs it
    /// grows by up to `n` s per second. It advances only at unthrottle, so up to one period late.
    pub throttled_ns: Option<u64>,
    /// Number of periods in which accumulated quota was used.
    pub nr_bursts: Option<u64>,
    /// CPU time used from accumulated quota.
    pub burst_ns: Option<u64>,
}

observed! { it: CgroupReading at t_ns, from Source::CgroupCpu; to [it.cgroup] }

/// Resource of a pressure-stall file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PsiResource {
    /// `/proc/pressure/cpu`
    Cpu,
    /// `/proc/pressure/io`
    Io,
    /// `/proc/pressure/memory`
    Memory,
}

/// Totals of a pressure-stall file, cumulative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PsiReading {
    /// Timestamp.
    pub t_ns: u64,
    /// The cgroup; `None` = the host.
    pub cgroup: Option<CgroupId>,
    /// The resource.
    pub resource: PsiResource,
    /// Wall time in which some task was stalled.
    pub some_ns: u64,
    /// Wall time in which all tasks were stalled; `None` where the kernel does not report it.
    pub full_ns: Option<u64>,
}

observed! { it: PsiReading at t_ns, from Source::Psi; to it.cgroup }
