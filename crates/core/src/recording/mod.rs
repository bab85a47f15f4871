// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was seen: the stream of [`Record`]s that a live session, a recording file or a test yields.
//!
//! A record holds raw amounts with the range of time they belong to. Rates, joins and opinions are made
//! from them in [`crate::view`] and [`crate::rules`], so that old recordings profit from new rules.
//! "Not measured" is a missing record or `None`, never 0.
//!
//! Conventions, for every record:
//! - Times are nanoseconds of `CLOCK_MONOTONIC` since the start of the window ([`Meta::start_mono_ns`]).
//! - A *tick* covers `[t0_ns, t1_ns)` and holds the amounts that fell into it; a *reading* has one `t_ns`
//!   and holds the kernel's cumulative counters as they were read.
//! - Names that come from the host (comm, command line, paths) went through [`decode`](crate::text::name::decode): they may hold
//!   control characters and are escaped where they are shown, not here.

mod block;
pub mod check;
mod coverage;
mod cpu_check;
mod entity;
mod hist;
mod runtime;
mod syscalls;
mod tick;

pub use block::{
    BlockRecord, DevId, Device, DeviceBin, DeviceBins, DeviceTick, DiskCounters, DiskReading, File,
    FileId, FileState, HeldTick, IoBlameTick, IoCulprit, IoOp, IoPace, IoTick, IoWaitTick, IoWhat,
    JournalCommit, Mount, NotADevice, Setting, Stall, StallKind, WritebackPass,
};
pub use coverage::{Coverage, Event, EventKind, ObserverTick, Source, State};
pub use cpu_check::{CheckSetup, CpuCheckRecord, CpuDistance, Mix, PairRound, Run, SweepWorker};
pub use entity::{
    Cgroup, CgroupId, CgroupVersion, Container, ProcId, Process, SchedPolicy, Scheduling,
    TargetSpec,
};
pub use hist::{WAIT_BUCKETS, WaitHist, bucket_of, bucket_range_ns};
pub use runtime::{Confidence, NamedThreads, Parallelism, RuntimeKind, RuntimeReading, SeenQuota};
pub use syscalls::{
    FILE_OP_NAMES, FILE_OPS, FileClass, SyscallFile, SyscallRecord, SyscallSpan, SyscallTotal,
    call_bucket_from_ns,
};
pub use tick::{
    BlameTick, CgroupReading, CpuReading, Culprit, IdleCpu, IdleTick, LoadBin, ProcessTick,
    PsiReading, PsiResource, SchedstatTick, ThreadStates,
};

use serde::{Deserialize, Serialize};

/// One thing that was seen. A recording is a sequence of these; [`Record::Meta`] comes first and
/// [`Record::End`] last (a recording that was cut short has no `End`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// The host, the window and the target. Once, first.
    Meta(Box<Meta>),
    /// What a source could and could not see. At the start for every source, and again when it changes.
    Coverage(Coverage),
    /// A process, at first sight and again when its facts changed (exec, rename, move to another cgroup).
    Process(Box<Process>),
    /// A cgroup, at first sight and again when its limits changed.
    Cgroup(Box<Cgroup>),
    /// What a process's threads did with their wall time (BPF scheduler probe), each second.
    ProcessTick(Box<ProcessTick>),
    /// Behind whom a process waited (BPF scheduler probe), each second.
    Blame(BlameTick),
    /// Which CPUs idled while a process waited (BPF timeline), each second.
    Idle(Box<IdleTick>),
    /// CPU and run-queue delay from `/proc/PID/task/*/schedstat`: the fallback without BPF, each second.
    Schedstat(SchedstatTick),
    /// The whole host in one bin of 100 ms (BPF scheduler probe).
    HostBin(LoadBin),
    /// The target in one bin of 100 ms (BPF scheduler probe). Absent when the target is the host.
    TargetBin(LoadBin),
    /// A CPU's line of `/proc/stat`, cumulative, each second.
    Cpu(CpuReading),
    /// A cgroup's `cpu.stat`, cumulative, each second, for cgroups that have a quota or hold the target.
    CgroupCpu(CgroupReading),
    /// A pressure-stall file, cumulative, each second.
    Psi(PsiReading),
    /// Block IO: devices, files, transfers, writeback, hold-ups.
    Block(Box<BlockRecord>),
    /// How many threads a runtime lets run at a time, when it was found out and again when it changed.
    Runtime(Box<RuntimeReading>),
    /// What the threads of one name did of a process with a limit and a runtime.
    NamedThreads(Box<NamedThreads>),
    /// What `deburr cpu-check` measured.
    CpuCheck(Box<CpuCheckRecord>),
    /// What system calls cost, where that was asked for.
    Syscalls(Box<SyscallRecord>),
    /// What the observer cost and lost, each second.
    Observer(ObserverTick),
    /// Something that happened to the session itself.
    Event(Event),
    /// The window ended in an orderly way after this many nanoseconds.
    End {
        /// Length of the window.
        window_ns: u64,
    },
}

/// The circumstances of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// Version of the tool that recorded.
    pub tool_version: String,
    /// `uname -n`.
    pub host_name: String,
    /// `uname -r`.
    pub kernel: String,
    /// Online CPUs at the start, in ascending order.
    pub cpus_online: Vec<u32>,
    /// `v1`, `v2`, `mixed` or `none`: how the cgroup trees are mounted.
    pub cgroup_layout: String,
    /// Which tree holds the cpu controller, if any.
    pub cpu_controller: Option<CgroupVersion>,
    /// Start of the window, nanoseconds since the Unix epoch (`CLOCK_REALTIME`).
    pub start_unix_ns: i64,
    /// Start of the window on `CLOCK_MONOTONIC`.
    pub start_mono_ns: u64,
    /// The length asked for; `None` = until the command ends or a signal.
    pub asked_ns: Option<u64>,
    /// What was looked at.
    pub target: TargetSpec,
    /// Whether the observer ran with effective uid 0.
    pub root: bool,
}
