// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What could be seen, what could not and why, what was lost, and what the observing cost.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where records come from: the vocabulary that collectors, rules and the lab share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// BPF scheduler probe: ledger, waits, blame.
    Sched,
    /// BPF timeline of every CPU: who ran when, for idle-while-waiting.
    Timeline,
    /// `/proc/PID/task/*/schedstat`, the fallback for [`Source::Sched`].
    Schedstat,
    /// cgroup CPU limits and `cpu.stat`.
    CgroupCpu,
    /// `/proc/stat`.
    ProcStat,
    /// Pressure-stall information.
    Psi,
    /// BPF block probe: requests, their times, files and submitters.
    Block,
    /// BPF writeback probe: the flusher's passes, dirtied inodes, journal commits, syncs, pauses of writers.
    Writeback,
    /// `/proc/diskstats`.
    Diskstats,
    /// The kernel's settings for block IO and writeback, and the mounts.
    Settings,
    /// Programs, memory and environment of processes: how many threads their runtimes let run.
    Runtime,
    /// `deburr cpu-check`: workers that only compute.
    CpuCheck,
    /// BPF system call probe: calls and the files that they are about.
    Syscalls,
    /// The observer's own cost.
    Observer,
}

impl Source {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 14] = [
        Self::Sched,
        Self::Timeline,
        Self::Schedstat,
        Self::CgroupCpu,
        Self::ProcStat,
        Self::Psi,
        Self::Block,
        Self::Writeback,
        Self::Diskstats,
        Self::Settings,
        Self::Runtime,
        Self::CpuCheck,
        Self::Syscalls,
        Self::Observer,
    ];

    /// Version of the recording's schema from which on every recording says something of it; one more than that
    /// version for what was added to it later.
    #[must_use]
    pub fn since_version(self) -> u32 {
        match self {
            Self::Block | Self::Writeback | Self::Diskstats | Self::Settings => 2,
            Self::Runtime => 3,
            // Observing says nothing of it.
            Self::CpuCheck | Self::Syscalls => 4,
            _ => 1,
        }
    }

    /// Whether it sees something only where that is asked for: observing says nothing of it otherwise.
    #[must_use]
    pub fn is_asked_for(self) -> bool {
        matches!(self, Self::CpuCheck | Self::Syscalls)
    }

    /// The name in evidence lines: `bpf:sched`, `/proc/stat`, ...
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Sched => "bpf:sched",
            Self::Timeline => "bpf:timeline",
            Self::Schedstat => "/proc/PID/schedstat",
            Self::CgroupCpu => "cgroup cpu.stat",
            Self::ProcStat => "/proc/stat",
            Self::Psi => "/proc/pressure",
            Self::Block => "bpf:block",
            Self::Writeback => "bpf:writeback",
            Self::Diskstats => "/proc/diskstats",
            Self::Settings => "/proc/sys/vm and /sys/block",
            Self::Runtime => "/proc/PID/exe and mem",
            Self::CpuCheck => "deburr cpu-check",
            Self::Syscalls => "bpf:syscalls",
            Self::Observer => "observer",
        }
    }
}

/// How much of a source there was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// All of it.
    Active,
    /// Some of it.
    Partial {
        /// What is missing, as a sentence part: `no throttle split: the kernel has no CFS bandwidth control`.
        reason: String,
    },
    /// Nothing.
    Missing {
        /// Why: `BPF programs need root or CAP_BPF and CAP_PERFMON`.
        reason: String,
        /// What one would gain: `run as root to see behind whom processes wait`.
        gain: String,
    },
}

/// State of one source from `t_ns` on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// From when on.
    pub t_ns: u64,
    /// Which source.
    pub source: Source,
    /// How much of it.
    #[serde(flatten)]
    pub state: State,
}

/// What the observer cost and lost in one second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObserverTick {
    /// Start of the tick.
    pub t0_ns: u64,
    /// End of the tick.
    pub t1_ns: u64,
    /// CPU time of the observer's process.
    pub cpu_ns: u64,
    /// Runs of its BPF programs.
    pub bpf_runs: u64,
    /// Time in its BPF programs: runs times the cost of a run, which is measured by sampling
    /// (`BPF_ENABLE_STATS` held for a moment); `None` where that is not possible.
    pub bpf_run_ns: Option<u64>,
    /// Resident memory.
    pub rss_bytes: u64,
    /// Kernel memory of its BPF maps.
    pub bpf_map_bytes: u64,
    /// What was lost, by name: `thread_table_full`, `exit_unread`, `torn_read`, `timeline_overrun`, ...
    /// Only what is not 0. Names that end in `_ns` are nanoseconds, all others are counts.
    pub lost: BTreeMap<String, u64>,
}

/// Something that happened to the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub t_ns: u64,
    /// What.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// The wall clock was set: it moved by this much more than the monotonic clock.
    ClockJump {
        /// Signed size of the jump.
        by_ns: i64,
    },
    /// The machine slept: the boot clock moved by this much more than the monotonic clock.
    Suspend {
        /// Length of the sleep.
        for_ns: u64,
    },
    /// The observer itself was not run in time.
    LateTick {
        /// How late.
        by_ns: u64,
    },
    /// The last process of the target is gone.
    TargetGone,
    /// A signal ended the window early.
    Interrupted {
        /// `SIGINT`, `SIGTERM`, ...
        signal: String,
    },
    /// The recording could not be written further.
    StoreFailed {
        /// Why.
        reason: String,
    },
}
