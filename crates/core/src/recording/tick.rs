// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Amounts and counters over time.

use super::{CgroupId, ProcId, WaitHist};
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
    /// Any other uninterruptible sleep: locks in the kernel, network file systems, ...
    pub uninterruptible_ns: u64,
    /// Interruptible sleep: waiting for something outside the kernel, or idle.
    pub sleep_ns: u64,
    /// Stopped by a signal or traced.
    pub stopped_ns: u64,
}

impl ThreadStates {
    /// The time in all states.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.on_cpu_ns
            + self.queued_ns
            + self.throttled_ns
            + self.block_io_ns
            + self.mem_stall_ns
            + self.uninterruptible_ns
            + self.sleep_ns
            + self.stopped_ns
    }
}

/// What the threads of a process did in one second (BPF scheduler probe).
/// `wall_ns` minus the sum of `states` is *unattributed*.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessTick {
    /// Start of the tick.
    pub t0_ns: u64,
    /// End of the tick.
    pub t1_ns: u64,
    /// Whose. [`ProcId::OTHERS`] holds what a bounded tick folded.
    pub proc: ProcId,
    /// Threads that existed at some time within it.
    pub threads: u32,
    /// Sum over those threads of the time each existed within the tick.
    pub wall_ns: u64,
    /// Where that time went.
    pub states: ThreadStates,
    /// Waits on the run queue that ended in this tick (throttled time taken out of each).
    pub waits: WaitHist,
    /// Longest such wait; 0 if none.
    pub wait_max_ns: u64,
    /// Context switches to its threads.
    pub switches: u64,
    /// Of `queued_ns`: spent while the CPU was idle or waking up, not behind anybody.
    pub wakeup_latency_ns: u64,
}

/// Behind what a thread waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Culprit {
    /// A process that ran on that CPU meanwhile (kernel threads are processes too).
    Process(ProcId),
    /// On another run queue before it was moved, and it is not known behind whom.
    Migrated,
    /// Not looked up: the probe's budget for long look-ups was spent, or its memory was full.
    NotSampled,
}

/// Nanoseconds of one process's run-queue waiting behind one culprit.
/// Summed over culprits, plus wake-up latency, this is at most `queued_ns` of the same ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlameTick {
    /// Start of the tick.
    pub t0_ns: u64,
    /// End of the tick.
    pub t1_ns: u64,
    /// Who waited.
    pub victim: ProcId,
    /// Behind whom. May be the victim itself: threads of one process queue behind each other.
    pub culprit: Culprit,
    /// For how long.
    pub ns: u64,
}

/// One CPU's idleness while a process waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleCpu {
    /// The CPU.
    pub cpu: u32,
    /// Whether the waiting thread was allowed on it.
    pub allowed: bool,
    /// Waiting time during which it idled.
    pub idle_ns: u64,
}

/// For waits of [`Self::min_wait_ns`] and more: were other CPUs idle meanwhile?
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IdleTick {
    /// Start of the tick.
    pub t0_ns: u64,
    /// End of the tick.
    pub t1_ns: u64,
    /// Who waited.
    pub victim: ProcId,
    /// Shorter waits are not looked at.
    pub min_wait_ns: u64,
    /// Waits that were looked at.
    pub waits: u64,
    /// Their time.
    pub waits_ns: u64,
    /// Time of waits of that length that were not looked at: there were too many at once, or the thread was gone. 0 in
    /// recordings made before this was counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped_ns: u64,
    /// Of `waits_ns`: time while at least one CPU that the thread was allowed on was idle.
    pub idle_allowed_ns: u64,
    /// Of `waits_ns`: time while no allowed CPU was idle, but one outside its affinity was.
    pub idle_forbidden_ns: u64,
    /// Each CPU's part, those with any.
    pub cpus: Vec<IdleCpu>,
}

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
    /// Whose.
    pub proc: ProcId,
    /// Threads seen at both ends.
    pub threads: u32,
    /// Sum over those threads of the time between the two readings.
    pub wall_ns: u64,
    /// Time on a CPU.
    pub on_cpu_ns: u64,
    /// Time runnable but not running: queueing *and* throttling; the file cannot tell them apart.
    pub delay_ns: u64,
    /// Times it got a CPU.
    pub slices: u64,
}

/// A bin of 100 ms of the host's or the target's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBin {
    /// Start of the bin.
    pub t0_ns: u64,
    /// End of the bin (readers are woken late on a busy host: bins are not exactly 100 ms).
    pub t1_ns: u64,
    /// Time on CPUs.
    pub on_cpu_ns: u64,
    /// Run-queue waiting that ended in this bin, throttling excluded.
    pub queued_ns: u64,
    /// Throttled time that ended in this bin.
    pub throttled_ns: u64,
    /// Block IO waiting that ended in this bin.
    pub block_io_ns: u64,
    /// Waits that ended in this bin.
    pub waits: u64,
    /// Context switches.
    pub switches: u64,
}

/// One CPU's line of `/proc/stat`, in nanoseconds (the file counts in ticks of 1/`USER_HZ` s), cumulative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuReading {
    /// When.
    pub t_ns: u64,
    /// Which CPU.
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
    /// steal: the hypervisor ran somebody else.
    pub steal_ns: u64,
}

/// A cgroup's CPU counters, cumulative. `None` = the file or the item does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupReading {
    /// When.
    pub t_ns: u64,
    /// Which.
    pub cgroup: CgroupId,
    /// CPU time used.
    pub usage_ns: Option<u64>,
    /// Periods in which it had work.
    pub nr_periods: Option<u64>,
    /// Periods in which it ran out of quota.
    pub nr_throttled: Option<u64>,
    /// Sum over its *per-CPU queues* of the time each was throttled. Not wall time: with work on `n` CPUs it
    /// grows by up to `n` s a second. Advances only at unthrottle, so up to one period late.
    pub throttled_ns: Option<u64>,
    /// Periods in which saved-up quota was used.
    pub nr_bursts: Option<u64>,
    /// Time run on saved-up quota.
    pub burst_ns: Option<u64>,
}

/// Which pressure.
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
    /// When.
    pub t_ns: u64,
    /// Whose; `None` = the host.
    pub cgroup: Option<CgroupId>,
    /// Of what.
    pub resource: PsiResource,
    /// Wall time in which some task was stalled.
    pub some_ns: u64,
    /// Wall time in which all tasks were stalled; `None` where the kernel does not tell.
    pub full_ns: Option<u64>,
}
