// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes, cgroups, containers, and the target of the session.

use super::observed::observed;
use serde::{Deserialize, Serialize};

/// Identity of a process within one recording. A pid does not identify a process, because pids are reused. The
/// recorder assigns a number to every (pid, start time) pair, counting from 1; 0 is never used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProcId(pub u32);

impl ProcId {
    /// Stands for the many small processes that a bounded tick merged into one, other than those that are recorded by
    /// comm and cgroup ([`Process::many`]).
    pub const OTHERS: Self = Self(u32::MAX);
}

/// A cgroup's kernfs id: the inode number of its directory. Each cgroup tree numbers its directories independently; a
/// recording holds ids of the tree that has the cpu controller (v2 if none has).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CgroupId(pub u64);

/// A process (thread group), or a kernel thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Identity in this recording.
    pub id: ProcId,
    /// Thread-group id in the observer's pid namespace.
    pub pid: u32,
    /// Start time, nanoseconds of the boot clock (`/proc/PID/stat` field 22, or `task->start_boottime`);
    /// 0 where it could not be read.
    pub start_ns: u64,
    /// The main thread's comm, decoded.
    pub comm: String,
    /// Command line with NULs as spaces, decoded, truncated to 256 bytes (4096 for processes that are inspected because
    /// they are blamed or lose much); empty for kernel threads and for processes that have exited.
    pub cmdline: String,
    /// Whether it is a kernel thread; `None` if it exited before that could be read.
    pub kernel_thread: Option<bool>,
    /// Its cgroup in the tree of the cpu controller.
    pub cgroup: Option<CgroupId>,
    /// Path of its cgroup in the memory controller's tree, decoded, if that is a different tree (v1); else `None`.
    pub memory_cgroup: Option<String>,
    /// CPUs that the affinity masks of its threads allow, as a list (`0-3,8`).
    pub cpus_allowed: Option<String>,
    /// Effective CPUs of its cpuset, as a list; `None` without a cpuset controller.
    pub cpuset_cpus: Option<String>,
    /// Nice value of the main thread.
    pub nice: Option<i32>,
    /// Whether it belongs to the target (always true when the target is the host).
    pub in_target: bool,
    /// Whether it is the observer itself.
    pub observer: bool,
    /// How its threads are scheduled, as of the last inspection. Only processes that are blamed or lose much are
    /// inspected; empty for all others, and in older recordings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scheduling: Vec<Scheduling>,
    /// Whether it stands for all short-lived processes of its comm and cgroup that did too little to get an identity
    /// of their own. `pid` and `start_ns` are those of one of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub many: bool,
}

observed! { it: Process }

/// Threads of one process with the same scheduling policy, priority and nice value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduling {
    /// Scheduling policy.
    pub policy: SchedPolicy,
    /// Real-time priority, 1..99; 0 = not a real-time policy.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: u32,
    /// Nice value; without effect on real-time threads.
    #[serde(default)]
    pub nice: i32,
    /// Number of threads.
    pub threads: u32,
    /// Thread id of the thread that ran most.
    pub tid: u32,
    /// CPU time of the threads since the first inspection of the process, in nanoseconds. The resolution is the
    /// kernel's tick of 10 ms.
    pub ran_ns: u64,
}

impl Scheduling {
    /// The usual notation: `SCHED_FIFO priority 50`, `nice 19`. `None` for the default, `SCHED_OTHER` with nice 0.
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
    /// `SCHED_FIFO`: runs before all other policies until it sleeps.
    Fifo,
    /// `SCHED_RR`: like `Fifo`, round-robin among threads of the same priority.
    Rr,
    /// `SCHED_BATCH`: like `Other`, but does not preempt the running thread.
    Batch,
    /// `SCHED_IDLE`: the lowest weight.
    Idle,
    /// `SCHED_DEADLINE`: runs before all other policies, up to a budget in each period.
    Deadline,
    /// `SCHED_EXT`: scheduled by a loaded BPF scheduler.
    Ext,
}

impl SchedPolicy {
    /// The policy with that number in the kernel's interface (`include/uapi/linux/sched.h`).
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

    /// Whether its threads run before all threads of the fair policies, which have a nice value.
    #[must_use]
    pub fn is_real_time(self) -> bool {
        matches!(self, Self::Fifo | Self::Rr | Self::Deadline)
    }

    /// Name of the policy, as used by `chrt` and systemd.
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

/// Version of a cgroup directory's interface.
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
    /// Parent directory; `None` at the root of the mount.
    pub parent: Option<CgroupId>,
    /// Path below the root of the tree, `/` for the root itself, decoded.
    pub path: String,
    /// Version of the interface.
    pub version: CgroupVersion,
    /// CPU time allowed in each period, in microseconds; `None` = no limit at this level.
    pub quota_us: Option<u64>,
    /// Length of a period in microseconds; `None` where the file does not exist.
    pub period_us: Option<u64>,
    /// Unused quota that may be accumulated, in microseconds.
    pub burst_us: Option<u64>,
    /// Relative weight: v2 `cpu.weight` (1..10000, default 100) or v1 `cpu.shares` (default 1024).
    pub weight: Option<u64>,
    /// The container or unit that this directory belongs to, if a known runtime created it.
    pub container: Option<Container>,
}

observed! { it: Cgroup; to it.parent }

/// The container or unit of a cgroup, as known from the naming schemes and files of container runtimes and systemd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// `docker`, `containerd`, `cri-o`, `podman`, `systemd`, `kubernetes`, `lxc`, ...
    pub runtime: String,
    /// The runtime's id (64 hex digits for most), or the unit's name for systemd.
    pub id: String,
    /// Name that a user gave the container, if the runtime's files contain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Kubernetes pod name, or its uid where the name is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Kubernetes namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl Container {
    /// [`Container::runtime`] of units.
    pub const SYSTEMD: &str = "systemd";

    /// Whether this is a unit of systemd and no container.
    #[must_use]
    pub fn is_unit(&self) -> bool {
        self.runtime == Self::SYSTEMD
    }
}

/// The target that the user selected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TargetSpec {
    /// The whole host.
    #[default]
    Host,
    /// One process and its threads.
    Process {
        /// Process id.
        pid: u32,
        /// Comm at the start.
        comm: String,
    },
    /// All processes with that comm.
    Comm {
        /// The comm.
        comm: String,
    },
    /// All processes in a cgroup and below it.
    Cgroup {
        /// Path in the cgroup tree.
        path: String,
    },
    /// All processes of a container.
    Container {
        /// The container that the id or name was resolved to.
        container: Container,
        /// Path of its cgroup.
        path: String,
    },
    /// A command that deburr started, and its descendants.
    Command {
        /// Command line.
        command: String,
        /// Process id.
        pid: u32,
    },
}

impl TargetSpec {
    /// Its kind, name and pid, as documents tell them.
    #[must_use]
    pub fn told(&self) -> (&'static str, Option<String>, Option<u32>) {
        match self {
            Self::Host => ("host", None, None),
            Self::Process { pid, comm } => ("process", Some(comm.clone()), Some(*pid)),
            Self::Comm { comm } => ("comm", Some(comm.clone()), None),
            Self::Cgroup { path } => ("cgroup", Some(path.clone()), None),
            Self::Container { container, .. } => {
                ("container", Some(container.name.clone().unwrap_or(container.id.clone())), None)
            }
            Self::Command { command, pid } => ("command", Some(command.clone()), Some(*pid)),
        }
    }
}
