// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Observations: the stream of [`Record`]s that a live session, a recording file or a test yields.
//!
//! A record holds raw amounts with the time range that they belong to. Rates, joins and conclusions are derived
//! from them in [`crate::view`] and [`crate::rules`], so that old recordings profit from new rules.
//! "Not measured" is a missing record or `None`, never 0.
//!
//! Conventions for all records:
//! - Times are nanoseconds of `CLOCK_MONOTONIC` since the start of the window ([`Meta::start_mono_ns`]). While a machine
//!   falls asleep and wakes up that clock stands still; the run queues' clock runs on, and these tenths of a second count.
//! - A *tick* covers `[t0_ns, t1_ns)` and holds the amounts of that time range; a *reading* has one timestamp `t_ns`
//!   and holds the kernel's cumulative counters as they were read.
//! - Names that come from the host (comm, command line, paths) went through [`decode`](crate::text::name::decode): they
//!   may hold control characters, and are escaped when they are shown, not here.

mod block;
pub mod check;
mod coverage;
mod cpu_check;
mod cpu_time;
mod entity;
mod entry;
mod hist;
mod host_facts;
mod interrupts;
mod long_wait;
mod net;
mod observed;
pub mod packed;
mod profile;
mod reclaim;
mod runtime;
mod sleep;
mod sums;
mod syscalls;
mod thread_ledger;
mod tick;
mod wait_bin;

pub use block::{
    BlockRecord, DevId, Device, DeviceBin, DeviceBins, DeviceTick, DiskCounters, DiskReading, File,
    FileId, FileState, HeldTick, IoBlameTick, IoCulprit, IoOp, IoPace, IoPurpose, IoTick,
    IoWaitTick, JournalCommit, Mount, NotADevice, RequestBin, Setting, Stall, StallKind,
    WritebackPass,
};
pub use coverage::{Coverage, Event, EventKind, ObserverTick, Source, State};
pub use cpu_check::{CheckSetup, CpuCheckRecord, CpuDistance, Mix, PairRound, Run, SweepWorker};
pub use cpu_time::CpuTimeReading;
pub use entity::{
    Cgroup, CgroupId, CgroupVersion, Container, ProcId, Process, SchedPolicy, Scheduling,
    TargetSpec,
};
pub use entry::{ANY_END, Entry};
pub use hist::{WAIT_BUCKETS, WaitHist, bucket_of, bucket_range_ns};
pub use host_facts::{HostFacts, MOST_FACT_BYTES};
pub use interrupts::{InterruptContext, InterruptKind, InterruptTick};
pub use long_wait::LongWait;
pub use net::{
    AcceptQueueTick, DatagramTick, HeldBackTick, ListenerTick, NetnsTick, ResentTick, SendingTick,
    UnreadTick,
};
pub use profile::{FRAME_END, KERNEL_MARK, ProfileRecord, ProfileSpan, ProfileStack, SleepStack};
pub use reclaim::{MemoryBound, MemoryHeld, MemoryReading, ReclaimKind, ReclaimTick};
pub use runtime::{Confidence, NamedThreads, Parallelism, RuntimeKind, RuntimeReading, SeenQuota};
pub use sleep::{
    Awaited, CHAIN, Did, EVENT_CALLS, FutexUser, FutexWait, KernelLock, SleepState, SleepTick,
    Slept, SleptOn, WokenBy, changes_address_space,
};
pub use sums::Sums;
pub use syscalls::{
    FILE_OP_NAMES, FILE_OPS, FileClass, SyscallFile, SyscallRecord, SyscallSpan, SyscallTotal,
    call_bucket_from_ns,
};
pub use thread_ledger::ThreadLedger;
pub use tick::{
    BlameTick, CgroupReading, CpuReading, Culprit, IdleCpu, IdleTick, LoadBin, ProcessTick,
    PsiReading, PsiResource, SchedstatTick, ThreadStates,
};
pub use wait_bin::WaitBin;

use crate::stats::Span;
use observed::{Observed, observed};
use serde::{Deserialize, Serialize};

/// One observation. A recording is a sequence of these; [`Record::Meta`] comes first and
/// [`Record::End`] last (a truncated recording has no `End`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// The host, the window and the target. Once, first.
    Meta(Box<Meta>),
    /// What the host was and how it was configured, before the window began. Once, if a file is written.
    HostFacts(Box<HostFacts>),
    /// Coverage of a source: at the start for every source, and again when it changes.
    Coverage(Coverage),
    /// A process: when it is first seen, and again when its facts change (exec, rename, move to another cgroup).
    Process(Box<Process>),
    /// A cgroup: when it is first seen, and again when its limits change.
    Cgroup(Box<Cgroup>),
    /// Where the wall time of a process's threads went (BPF scheduler probe), each second.
    ProcessTick(Box<ProcessTick>),
    /// Which process a process waited behind on a run queue (BPF scheduler probe), each second.
    Blame(BlameTick),
    /// A part of the longest run-queue wait of a process (BPF timeline), each second.
    LongWait(LongWait),
    /// Which CPUs were idle while a process waited (BPF timeline), each second.
    Idle(Box<IdleTick>),
    /// CPU and run-queue delay from `/proc/PID/task/*/schedstat`: the fallback without BPF, each second.
    Schedstat(SchedstatTick),
    /// Load of the whole host in one bin of 100 ms (BPF scheduler probe).
    HostBin(LoadBin),
    /// Load of the target in one bin of 100 ms (BPF scheduler probe). Absent when the target is the host.
    TargetBin(LoadBin),
    /// How long a process of the target waited in one bin of 100 ms (BPF scheduler probe). Absent when the target is the
    /// host.
    WaitBin(Box<WaitBin>),
    /// Where the wall time of a thread of the target went (BPF scheduler probe), at the end. Absent when the target is the
    /// host.
    ThreadLedger(Box<ThreadLedger>),
    /// On what threads of the target slept (BPF scheduler probe), each second; if that is the host, threads of those that lose most.
    Sleep(Box<SleepTick>),
    /// CPU time of a process of the target, in the program and in the kernel, cumulative, each second. Absent when the target
    /// is the host.
    CpuTime(CpuTimeReading),
    /// How long threads of a process freed memory before they got some (BPF reclaim probe), each second.
    Reclaim(Box<ReclaimTick>),
    /// The kernel's counters of memory, of the host and of cgroups at their limit, cumulative, each second.
    Memory(MemoryReading),
    /// What processes hold of a host's memory that is short of it, each second or less often.
    Held(MemoryHeld),
    /// Interrupts of one kind on one CPU, while a process held it (BPF probe of interrupts), each second.
    Interrupts(Box<InterruptTick>),
    /// What a connection of TCP had to send again (BPF network probe), each second.
    Resent(Box<ResentTick>),
    /// By what a connection of TCP of the target was held up that had something to send (BPF network probe), each second or
    /// less often. Absent when the target is the host.
    Sending(Box<SendingTick>),
    /// What connections of a process of the target had received while nobody fetched it, each second. Absent when there was
    /// nothing of that, or the target is the host.
    Unread(Box<UnreadTick>),
    /// Connections that waited to be accepted at a listening socket of the target, each second. Absent when there were none, or the
    /// target is the host.
    AcceptQueue(Box<AcceptQueueTick>),
    /// What a connection of the target held back.
    HeldBack(Box<HeldBackTick>),
    /// What a socket of UDP dropped, each second.
    Datagrams(Box<DatagramTick>),
    /// Requests for connections in a network namespace, each second.
    Netns(Box<NetnsTick>),
    /// A listening socket that dropped requests, each second.
    Listener(Box<ListenerTick>),
    /// A CPU's line of `/proc/stat`, cumulative, each second.
    Cpu(CpuReading),
    /// A cgroup's `cpu.stat`, cumulative, each second, for cgroups that have a quota or hold the target.
    CgroupCpu(CgroupReading),
    /// A pressure-stall file, cumulative, each second.
    Psi(PsiReading),
    /// Block IO: devices, files, transfers, writeback, hold-ups.
    Block(Box<BlockRecord>),
    /// How many threads a language runtime runs in parallel: when it is first known, and again when it changes.
    Runtime(Box<RuntimeReading>),
    /// CPU time and run-queue delay of threads by name, for processes with a CPU limit and a known runtime.
    NamedThreads(Box<NamedThreads>),
    /// A measurement of `deburr cpu-check`.
    CpuCheck(Box<CpuCheckRecord>),
    /// Cost of system calls, where it was requested.
    Syscalls(Box<SyscallRecord>),
    /// In what functions CPUs were found, where it was requested.
    Profile(Box<ProfileRecord>),
    /// Overhead and lost data of the observer, each second.
    Observer(ObserverTick),
    /// An event of the session itself.
    Event(Event),
    /// Regular end of the window.
    End {
        /// Length of the window.
        window_ns: u64,
    },
}

impl Record {
    /// The time range that it belongs to; `None` for facts and the end of the window.
    #[must_use]
    pub fn span(&self) -> Option<Span> {
        self.observed()?.range()
    }

    /// What the record tells of itself; nothing for the end of the window.
    fn observed(&self) -> Option<&dyn Observed> {
        Some(match self {
            Self::Meta(it) => &**it,
            Self::HostFacts(it) => &**it,
            Self::Coverage(it) => it,
            Self::Process(it) => &**it,
            Self::Cgroup(it) => &**it,
            Self::ProcessTick(it) => &**it,
            Self::Blame(it) => it,
            Self::LongWait(it) => it,
            Self::Idle(it) => &**it,
            Self::Schedstat(it) => it,
            Self::HostBin(it) | Self::TargetBin(it) => it,
            Self::WaitBin(it) => &**it,
            Self::ThreadLedger(it) => &**it,
            Self::Sleep(it) => &**it,
            Self::CpuTime(it) => it,
            Self::Reclaim(it) => &**it,
            Self::Memory(it) => it,
            Self::Held(it) => it,
            Self::Interrupts(it) => &**it,
            Self::Resent(it) => &**it,
            Self::Sending(it) => &**it,
            Self::Unread(it) => &**it,
            Self::AcceptQueue(it) => &**it,
            Self::HeldBack(it) => &**it,
            Self::Datagrams(it) => &**it,
            Self::Netns(it) => &**it,
            Self::Listener(it) => &**it,
            Self::Cpu(it) => it,
            Self::CgroupCpu(it) => it,
            Self::Psi(it) => it,
            Self::Block(it) => it.observed(),
            Self::Runtime(it) => &**it,
            Self::NamedThreads(it) => &**it,
            Self::CpuCheck(it) => it.observed(),
            Self::Syscalls(it) => it.observed(),
            Self::Profile(it) => it.observed(),
            Self::Observer(it) => it,
            Self::Event(it) => it,
            Self::End { .. } => return None,
        })
    }
}

/// Metadata of a recording: host, window and target.
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
    /// Requested length of the window; `None` = until the command ends or a signal arrives.
    pub asked_ns: Option<u64>,
    /// The observed target.
    pub target: TargetSpec,
    /// Which of its threads serve requests, as the user said; empty if nothing was said, and in older recordings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<Entry>,
    /// Whether the observer ran with effective uid 0.
    pub root: bool,
    /// `/proc/sys/kernel/random/boot_id`, which changes with every boot; `None` in older recordings, and if it could not
    /// be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
}

observed! { it: Meta }
