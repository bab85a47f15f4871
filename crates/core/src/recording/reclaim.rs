// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that threads free before they get some, and the kernel's counters of memory.

use super::observed::observed;
use super::{CgroupId, ProcId, Source};
use serde::{Deserialize, Serialize};

/// Why a thread frees memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReclaimKind {
    /// A memory cgroup is at its limit.
    Limit,
    /// The host is short of memory (direct reclaim).
    Direct,
    /// It wants a large page, and free memory is in small pieces: the kernel moves pages.
    Compaction,
}

/// Which limit of a memory cgroup binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryBound {
    /// `memory.max`, or `memory.limit_in_bytes` (v1).
    Max,
    /// `memory.high`.
    High,
}

/// Time in which threads of a process freed memory before they got some (BPF reclaim probe), in one second, by kind and
/// by the cgroup whose limit binds. Counted when it ends; in the last tick also what is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReclaimTick {
    /// Start.
    pub t0_ns: u64,
    /// End.
    pub t1_ns: u64,
    /// The process.
    pub proc: ProcId,
    /// Whether that is the kernel: a thread of its own, which nobody waits for.
    pub kernel: bool,
    /// Why.
    pub kind: ReclaimKind,
    /// Cgroup whose limit binds; `None` = there is none, or it is not known.
    pub cgroup: Option<CgroupId>,
    /// Which limit of it.
    pub bound: Option<MemoryBound>,
    /// That limit, when the last of these began.
    pub limit_bytes: Option<u64>,
    /// Usage of that cgroup at the same time.
    pub usage_bytes: Option<u64>,
    /// Time from begin to end, on a CPU or not.
    pub ns: u64,
    /// The part of `ns` of which the next two are known.
    pub known_ns: u64,
    /// The part of it that is `mem_stall_ns` in the ledger.
    pub memory_ns: u64,
    /// The part of it that is not time on a CPU, with `memory_ns`.
    pub off_cpu_ns: u64,
    /// How often.
    pub count: u64,
    /// The longest.
    pub longest_ns: u64,
    /// Pages that were freed; compaction frees none.
    pub pages: u64,
}

observed! { it: ReclaimTick over t0_ns..t1_ns, from Source::Reclaim; to [it.proc], it.cgroup }

/// The kernel's counters of memory, cumulative: of the host, or of a cgroup whose limit made threads reclaim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryReading {
    /// When.
    pub t_ns: u64,
    /// The cgroup, those below it included; `None` = the host.
    pub cgroup: Option<CgroupId>,
    /// File pages that were dropped a short while ago and came back.
    pub refaults_file: Option<u64>,
    /// The same for pages that were swapped out.
    pub refaults_anon: Option<u64>,
    /// File pages that came back so soon that the kernel takes them for needed, in bytes.
    pub activated_bytes: Option<u64>,
    /// Those of them that were in use for longer before, in bytes: waiting for them is waiting for memory to the kernel.
    pub restored_bytes: Option<u64>,
    /// Free memory of the host at that time.
    pub free_bytes: Option<u64>,
    /// Free memory below which the kernel begins to reclaim in the background: the sum of its zones' `low` watermarks.
    pub low_bytes: Option<u64>,
}

observed! { it: MemoryReading at t_ns, from Source::Reclaim; to it.cgroup }

/// What a process holds of the host's memory for itself, while the kernel looks for memory that it can free for the host: of
/// those that hold most, and of those that hold most more than at the start of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryHeld {
    /// When.
    pub t_ns: u64,
    /// The process.
    pub proc: ProcId,
    /// Its anonymous memory that is resident: what no file stands behind, so that it can only be swapped out. Pages that a fork
    /// left to several processes count for each.
    pub anon_bytes: u64,
    /// What of its memory is swapped out; `None` = not known.
    pub swapped_bytes: Option<u64>,
    /// Increase of `anon_bytes` since the start of the window; `None` = it has started since, and it is not known which of its
    /// pages are new.
    pub grown_bytes: Option<u64>,
}

observed! { it: MemoryHeld at t_ns, from Source::Reclaim; to [it.proc] }
