// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a victim's wall time went. Time is conserved: the parts sum to the wall time.

use super::{Entity, InterruptPart, MemoryPart, SleepPart, Tail};
use crate::recording::RuntimeKind;
use crate::text::Share;
use serde::{Deserialize, Serialize};

/// State that a thread spends time in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LedgerState {
    /// Running.
    OnCpu,
    /// Waiting on a run queue.
    Queued,
    /// Runnable, but its cgroup is out of CPU quota.
    Throttled,
    /// Queued or throttled: the fallback source cannot distinguish them.
    QueuedOrThrottled,
    /// Waiting for block IO.
    BlockIo,
    /// Waiting for memory.
    MemStall,
    /// Other uninterruptible sleep.
    Uninterruptible,
    /// Interruptible sleep.
    Sleep,
    /// Stopped or traced.
    Stopped,
    /// State not known.
    Unattributed,
}

/// One part of the wall time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerPart {
    /// The state.
    pub state: LedgerState,
    /// Time in that state, in nanoseconds.
    pub ns: u64,
}

/// The wall time of the threads of a group of processes, in parts that sum to `wall_ns`. For a host, only the time in
/// which its threads wanted to run: on a CPU, queued or throttled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// The process, group of processes or host.
    pub victim: Entity,
    /// It is none of the target: the victim of a finding waits for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaited: bool,
    /// Sum over its threads of the time that each existed within the window. For a host, the sum of the parts.
    pub wall_ns: u64,
    /// Sum over its processes of the largest number of threads that each had in one second.
    pub threads: u32,
    /// The parts, in the order of [`LedgerState`]; states that the source cannot see are absent.
    pub parts: Vec<LedgerPart>,
    /// Of its time on CPUs, what it spent in the kernel: system calls, page faults, and interrupts that came meanwhile.
    /// Absent if that was not read, as of all that is not the target, or if it ran for too short a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_kernel: Option<Share>,
    /// Of its time on CPUs, what interrupts took that came meanwhile, without those that its own calls asked for. It is in
    /// that in the program and in that in the kernel. Absent if interrupts were not observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<Share>,
    /// By what, over all CPUs, what took most first and sums of several last: the parts sum to the time that `interrupted` is
    /// the share of. Empty if interrupts were not observed, or none came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupted_by: Vec<InterruptPart>,
    /// For what its threads waited when memory was short, the longest first: parts of `mem_stall`, which sum to it. Empty if
    /// they did not wait for memory, or reclaim was not observed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mem_stall_by: Vec<MemoryPart>,
    /// On what its threads slept, the longest of each kind first: parts of `sleep`, `mem_stall` and `uninterruptible`, which
    /// sum to them. Empty if that was not recorded, as it is of what is not the target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asleep: Vec<SleepPart>,
    /// Runtimes of its processes whose tasks wait without a thread that sleeps for them: what they wait for is not in `asleep`.
    /// Empty if `asleep` is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks_of: Vec<RuntimeKind>,
    /// Time by which the parts exceed the lifetime of the threads, beyond the tolerance for clock differences: the
    /// observer counted it twice. `wall_ns` is then the sum of the parts. 0 = no excess.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub excess_ns: u64,
    /// Of a host: unattributed time of processes of which much is unattributed. It is in no part, although some of it may
    /// be time on a CPU. 0 = none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unseen_ns: u64,
    /// Effect of its waits on the 99th percentile of its turns on a CPU and of its requests; only reliable estimates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tails: Vec<Tail>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
pub(super) fn is_zero(ns: &u64) -> bool {
    *ns == 0
}
