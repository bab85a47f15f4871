// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who there is: processes, cgroups, containers, and the target of the session.

use serde::{Deserialize, Serialize};

/// Identity of a process within one recording. A pid alone is none: pids are reused. The recorder gives
/// every (pid, start time) pair a number of its own, from 1; 0 is never given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProcId(pub u32);

impl ProcId {
    /// Stands for the many small processes that a bounded tick folded into one, beyond those that are told by their
    /// kind ([`Process::many`]).
    pub const OTHERS: Self = Self(u32::MAX);
}

/// A cgroup's kernfs id: the inode number of its directory. Unique among the trees of one boot except that
/// trees number independently; a recording holds ids of the tree that has the cpu controller (v2 if none has).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CgroupId(pub u64);

/// A process (thread group), or a kernel thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its identity in this recording.
    pub id: ProcId,
    /// Thread-group id, as the observer's pid namespace shows it.
    pub pid: u32,
    /// Start time, nanoseconds of the boot clock (`/proc/PID/stat` field 22, or `task->start_boottime`);
    /// 0 where it could not be read.
    pub start_ns: u64,
    /// The main thread's comm, decoded.
    pub comm: String,
    /// Command line with NULs as spaces, decoded, cut to 256 bytes (4096 of whom was looked
    /// at closely); empty for kernel threads and the dead.
    pub cmdline: String,
    /// Whether it is a kernel thread; `None` if it was gone before that could be read.
    pub kernel_thread: Option<bool>,
    /// Its cgroup in the tree of the cpu controller.
    pub cgroup: Option<CgroupId>,
    /// Path of its cgroup in the memory controller's tree, decoded, where that is another tree (v1); else `None`.
    pub memory_cgroup: Option<String>,
    /// CPUs the main thread may use, as a list (`0-3,8`).
    pub cpus_allowed: Option<String>,
    /// Effective CPUs of its cpuset, as a list; `None` without a cpuset controller.
    pub cpuset_cpus: Option<String>,
    /// Nice value of the main thread.
    pub nice: Option<i32>,
    /// Whether it belongs to the target (always true when the target is the host).
    pub in_target: bool,
    /// Whether it is the observer itself.
    pub observer: bool,
    /// How its threads are scheduled, as it was when it was last looked at closely: whoever is blamed or loses much
    /// is. Empty of everybody else, and in older recordings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scheduling: Vec<Scheduling>,
    /// Whether it stands for all the short-lived processes of its comm and cgroup that did too little for an identity of
    /// their own: `pid` and `start_ns` are those of one of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub many: bool,
}

/// Threads of one process that are scheduled alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduling {
    /// By which policy.
    pub policy: SchedPolicy,
    /// Priority among real-time threads, 1..99; 0 = they are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: u32,
    /// Nice value; without effect on real-time threads.
    #[serde(default)]
    pub nice: i32,
    /// How many threads.
    pub threads: u32,
    /// The one of them that ran most.
    pub tid: u32,
    /// CPU time of them since the process was first looked at closely, in the kernel's ticks of 10 ms.
    pub ran_ns: u64,
}

impl Scheduling {
    /// As people write it: `SCHED_FIFO priority 50`, `nice 19`. `None` for what most threads are.
    #[must_use]
    pub fn shown(&self) -> Option<String> {
        let label = self.policy.label();
        match self.policy {
            SchedPolicy::Fifo | SchedPolicy::Rr => {
                Some(format!("{label} priority {}", self.priority))
            }
            SchedPolicy::Deadline | SchedPolicy::Ext | SchedPolicy::Idle => Some(label.into()),
            SchedPolicy::Other => (self.nice != 0).then(|| format!("nice {}", self.nice)),
            SchedPolicy::Batch => Some(match self.nice {
                0 => label.into(),
                nice => format!("{label} nice {nice}"),
            }),
        }
    }
}

fn is_zero(priority: &u32) -> bool {
    *priority == 0
}

/// Scheduling policies of the kernel.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum SchedPolicy {
    /// `SCHED_OTHER`: shares by weight and nice value.
    #[default]
    Other,
    /// `SCHED_FIFO`: before all others until it sleeps.
    Fifo,
    /// `SCHED_RR`: likewise, in turn with those of its priority.
    Rr,
    /// `SCHED_BATCH`: as `Other`, without preempting who runs.
    Batch,
    /// `SCHED_IDLE`: the least weight.
    Idle,
    /// `SCHED_DEADLINE`: before all others, for a budget in each period.
    Deadline,
    /// `SCHED_EXT`: as a loaded BPF scheduler decides.
    Ext,
}

impl SchedPolicy {
    /// The policy of that number in the kernel's interface.
    #[must_use]
    pub fn of_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Other,
            1 => Self::Fifo,
            2 => Self::Rr,
            3 => Self::Batch,
            5 => Self::Idle,
            6 => Self::Deadline,
            7 => Self::Ext,
            _ => return None,
        })
    }

    /// Whether its threads run before all that have a nice value.
    #[must_use]
    pub fn is_real_time(self) -> bool {
        matches!(self, Self::Fifo | Self::Rr | Self::Deadline)
    }

    /// Its name as `chrt` and systemd have it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Other => "SCHED_OTHER",
            Self::Fifo => "SCHED_FIFO",
            Self::Rr => "SCHED_RR",
            Self::Batch => "SCHED_BATCH",
            Self::Idle => "SCHED_IDLE",
            Self::Deadline => "SCHED_DEADLINE",
            Self::Ext => "SCHED_EXT",
        }
    }
}

/// Which cgroup interface a directory speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupVersion {
    /// `cpu.cfs_quota_us`, `cpu.cfs_period_us`, `throttled_time` in ns.
    V1,
    /// `cpu.max`, `throttled_usec`.
    V2,
}

/// One directory of the cgroup tree and its CPU limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cgroup {
    /// Identity.
    pub id: CgroupId,
    /// The directory above; `None` at the root of the mount.
    pub parent: Option<CgroupId>,
    /// Path below the root of the tree, `/` for the root itself, decoded.
    pub path: String,
    /// Interface.
    pub version: CgroupVersion,
    /// CPU time allowed in each period, in microseconds; `None` = no limit at this level.
    pub quota_us: Option<u64>,
    /// Length of a period in microseconds; `None` where the file does not exist.
    pub period_us: Option<u64>,
    /// Unused quota that may be saved up, in microseconds.
    pub burst_us: Option<u64>,
    /// Relative weight: v2 `cpu.weight` (1..10000, default 100) or v1 `cpu.shares` (default 1024).
    pub weight: Option<u64>,
    /// The container or unit that this directory belongs to, if a known runtime made it.
    pub container: Option<Container>,
}

/// What a container runtime's or systemd's naming and files tell about a cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// `docker`, `containerd`, `cri-o`, `podman`, `systemd`, `kubernetes`, `lxc`, ...
    pub runtime: String,
    /// The runtime's id (64 hex digits for most), or the unit's name for systemd.
    pub id: String,
    /// The name people gave it, where the runtime's files tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Kubernetes pod name, or its uid where the name is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Kubernetes namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// What the user asked to look at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TargetSpec {
    /// Everything.
    #[default]
    Host,
    /// One process and its threads.
    Process {
        /// Its pid.
        pid: u32,
        /// Its comm at the start.
        comm: String,
    },
    /// All processes of that comm.
    Comm {
        /// The comm.
        comm: String,
    },
    /// All processes in a cgroup and below it.
    Cgroup {
        /// Path in the tree.
        path: String,
    },
    /// All processes of a container.
    Container {
        /// Id or name as resolved.
        container: Container,
        /// Its cgroup.
        path: String,
    },
    /// A command that deburr started, and its descendants.
    Command {
        /// The command line.
        command: String,
        /// Its pid.
        pid: u32,
    },
}
