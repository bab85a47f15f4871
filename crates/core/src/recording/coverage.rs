// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Coverage of each source and the reasons for gaps, lost data, and the overhead of the observer.

use super::observed::observed;
use crate::text::Unit;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where records come from. Collectors, rules and the lab share these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// BPF scheduler probe: ledger, waits, blame.
    Sched,
    /// BPF timeline of every CPU: which thread ran when, to find CPUs that were idle while threads waited.
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
    /// BPF writeback probe: the flusher's passes, dirtied inodes, journal commits, syncs, throttled writers.
    Writeback,
    /// `/proc/diskstats`.
    Diskstats,
    /// The kernel's settings for block IO and writeback, and the mounts.
    Settings,
    /// Executables, memory and environment of processes: how many threads their runtimes run in parallel.
    Runtime,
    /// `deburr cpu-check`: workers that only compute.
    CpuCheck,
    /// BPF system call probe: calls, and the files that they operate on.
    Syscalls,
    /// BPF reclaim probe: threads that free memory before they get some, and whose limit makes them.
    Reclaim,
    /// BPF network probe: what connections of TCP had to send again.
    Tcp,
    /// BPF network probe over the files of the target: by what connections are held up that have something to send.
    Connections,
    /// BPF network probe over the files of the target: what connections have received that nobody fetches, and which wait to be
    /// accepted.
    Unread,
    /// `/proc/PID/net`: what sockets of UDP and listening sockets dropped.
    Sockets,
    /// BPF probe of interrupts: what they took, on which CPU, from whom.
    Interrupts,
    /// BPF profile probe: in what functions CPUs are found.
    Profile,
    /// The observer's own overhead.
    Observer,
}

impl Source {
    /// All sources, in the order of reports.
    pub const ALL: [Self; 21] = [
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
        Self::Reclaim,
        Self::Tcp,
        Self::Connections,
        Self::Unread,
        Self::Sockets,
        Self::Interrupts,
        Self::Profile,
        Self::Observer,
    ];

    /// First version of the recording's schema in which every recording has coverage of this source. A source that was
    /// added to a schema version later has a number above that version.
    #[must_use]
    pub fn since_version(self) -> u32 {
        match self {
            Self::Block | Self::Writeback | Self::Diskstats | Self::Settings => 2,
            Self::Runtime => 3,
            // An ordinary observation has no coverage of these.
            Self::CpuCheck | Self::Syscalls | Self::Profile => 4,
            Self::Reclaim | Self::Tcp | Self::Connections | Self::Unread | Self::Sockets => 5,
            Self::Interrupts => 5,
            _ => 1,
        }
    }

    /// Whether the source is active only on request. Other recordings have no coverage of it.
    #[must_use]
    pub fn is_asked_for(self) -> bool {
        matches!(self, Self::CpuCheck | Self::Syscalls | Self::Profile)
    }

    /// Name in evidence lines: `bpf:sched`, `/proc/stat`, ...
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
            Self::Reclaim => "bpf:reclaim",
            Self::Tcp => "bpf:tcp",
            Self::Connections => "bpf:connections",
            Self::Unread => "bpf:unread",
            Self::Sockets => "/proc/PID/net",
            Self::Interrupts => "bpf:irq",
            Self::Profile => "bpf:profile",
            Self::Observer => "observer",
        }
    }
}

/// How much of a source was available.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// Fully available.
    Active,
    /// Partly available.
    Partial {
        /// What is missing, as part of a sentence: `no throttle split: the kernel has no CFS bandwidth control`.
        reason: String,
    },
    /// Not available.
    Missing {
        /// Why: `BPF programs need root or CAP_BPF and CAP_PERFMON`.
        reason: String,
        /// What the user would gain: `run as root to see behind whom processes wait`.
        gain: String,
    },
}

/// State of one source from `t_ns` on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Start of that state.
    pub t_ns: u64,
    /// The source.
    pub source: Source,
    /// How much of it is available.
    #[serde(flatten)]
    pub state: State,
}

observed! { it: Coverage at t_ns }

/// Overhead and lost data of the observer in one second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObserverTick {
    /// Start of the tick.
    pub t0_ns: u64,
    /// End of the tick.
    pub t1_ns: u64,
    /// CPU time of the observer's process.
    pub cpu_ns: u64,
    /// Number of runs of its BPF programs.
    pub bpf_runs: u64,
    /// Time in its BPF programs: number of runs times the cost of a run, which is measured by sampling
    /// (`BPF_ENABLE_STATS` is enabled for a short time); `None` where that is not possible.
    pub bpf_run_ns: Option<u64>,
    /// Resident set size.
    pub rss_bytes: u64,
    /// Kernel memory of its BPF maps.
    pub bpf_map_bytes: u64,
    /// Losses by name: `thread_table_full`, `exit_unread`, `torn_read`, `timeline_overrun`, ...
    /// Only those that are not 0, each in its unit ([`ObserverTick::unit_of`]).
    pub lost: BTreeMap<String, u64>,
}

observed! { it: ObserverTick over t0_ns..t1_ns, from Source::Observer }

impl ObserverTick {
    /// Name of the count of beats that were missed in [`ObserverTick::lost`]: the observer was stopped, or had no CPU.
    /// Nothing is lost by them but resolution: what belongs to them is in the next beat.
    pub const BEATS_MISSED: &str = "beats_missed";
    /// Time between two beats, in nanoseconds.
    pub const BEAT_NS: u64 = 100_000_000;

    /// Unit of the loss of that name.
    #[must_use]
    pub fn unit_of(name: &str) -> Unit {
        if name.ends_with("_ns") { Unit::Ns } else { Unit::Count }
    }
}

/// An event of the session itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Timestamp.
    pub t_ns: u64,
    /// Kind of the event.
    #[serde(flatten)]
    pub kind: EventKind,
}

observed! { it: Event at t_ns }

/// Kind of a session event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// The wall clock was set: it advanced by this much more than the monotonic clock.
    ClockJump {
        /// Signed size of the jump.
        by_ns: i64,
    },
    /// The machine was suspended: the boot clock advanced by this much more than the monotonic clock.
    Suspend {
        /// Duration of the suspension.
        for_ns: u64,
    },
    /// The observer itself got a CPU too late.
    LateTick {
        /// Delay.
        by_ns: u64,
    },
    /// The last process of the target has exited.
    TargetGone,
    /// A signal ended the window early.
    Interrupted {
        /// `SIGINT`, `SIGTERM`, ...
        signal: String,
    },
    /// Writing the recording failed.
    StoreFailed {
        /// Reason.
        reason: String,
    },
}
