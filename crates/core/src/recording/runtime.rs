// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many threads a language runtime or a server lets run at a time, read from outside of the process.

use super::ProcId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What decides by itself how many threads run at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeKind {
    /// Go.
    Go,
    /// A Java virtual machine (HotSpot).
    Jvm,
    /// Node.js.
    Node,
    /// OpenMP and the libraries of linear algebra that follow it (OpenBLAS, MKL), in Python or elsewhere.
    OpenMp,
    /// Rust's tokio.
    Tokio,
    /// Rust's rayon.
    Rayon,
    /// nginx.
    Nginx,
    /// .NET.
    DotNet,
}

impl RuntimeKind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Go,
        Self::Jvm,
        Self::Node,
        Self::OpenMp,
        Self::Tokio,
        Self::Rayon,
        Self::Nginx,
        Self::DotNet,
    ];

    /// As it is written in recordings and JSON.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Go => "go",
            Self::Jvm => "jvm",
            Self::Node => "node",
            Self::OpenMp => "openmp",
            Self::Tokio => "tokio",
            Self::Rayon => "rayon",
            Self::Nginx => "nginx",
            Self::DotNet => "dotnet",
        }
    }

    /// As people call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Go => "Go",
            Self::Jvm => "Java",
            Self::Node => "Node.js",
            Self::OpenMp => "OpenMP",
            Self::Tokio => "tokio",
            Self::Rayon => "rayon",
            Self::Nginx => "nginx",
            Self::DotNet => ".NET",
        }
    }
}

/// What a number of threads is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// Read from the runtime itself: it is so at that moment.
    Exact,
    /// What it was started with; the program may have changed it since.
    Start,
    /// Threads that were counted: more than they may be in the pool, or fewer than will be.
    Bound,
}

impl Confidence {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Exact, Self::Start, Self::Bound];

    /// As it is written.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Start => "start",
            Self::Bound => "bound",
        }
    }
}

/// A number of threads that may run at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parallelism {
    /// What it is called: `GOMAXPROCS`, `ParallelGCThreads`, ...
    pub name: String,
    /// The number.
    pub value: u32,
    /// What it is worth.
    pub confidence: Confidence,
    /// Where it was found: `memory`, `environment`, `threads`, ...
    pub source: String,
}

/// Which CPU quota the cgroup files that a process sees would tell it, where they are looked at as its runtime does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "files")]
pub enum SeenQuota {
    /// The files of its own cgroup can be read and name this quota, or none at all.
    Leaf {
        /// Microseconds in a period; absent = no limit at that level.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        quota_us: Option<u64>,
        /// Length of a period; absent where there is no limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        period_us: Option<u64>,
        /// Whether its mount shows only a part of the tree, while its paths begin at the tree's root: a runtime that
        /// does not take the mount's root off looks for a directory that is not there.
        part: bool,
    },
    /// No cgroup tree with its cgroup is mounted where it lives.
    NoMount,
    /// That could not be found out.
    Unknown,
}

/// What the threads of one name did that a process with a limit and a runtime has, in a range of time. From
/// `/proc/PID/task/*/{comm,schedstat}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedThreads {
    /// Start of the range.
    pub t0_ns: u64,
    /// End of the range.
    pub t1_ns: u64,
    /// Whose.
    pub proc: ProcId,
    /// Their comm, without the number at its end if it is not the process's own; empty = threads of all other names.
    pub comm: String,
    /// How many there were at the end.
    pub threads: u32,
    /// Time on CPUs.
    pub on_cpu_ns: u64,
    /// Time runnable but not running, queued or throttled; it grows when a thread gets a CPU.
    pub delay_ns: u64,
}

/// What was found out of a process's runtime at one moment. Said again when it changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeReading {
    /// When.
    pub t_ns: u64,
    /// Whose.
    pub proc: ProcId,
    /// Which.
    pub kind: RuntimeKind,
    /// Its version, where it tells: `go1.24.3`.
    pub version: Option<String>,
    /// Threads of the process at that moment.
    pub threads: u32,
    /// Numbers of threads, the one that counts first. Empty if none could be read, with the reason in `unread`.
    pub parallelism: Vec<Parallelism>,
    /// Why no number could be read.
    pub unread: Option<String>,
    /// What has a bearing on the numbers, as it was set: variables of the environment, `DefaultGODEBUG`, the
    /// version of `automaxprocs`, flags.
    pub settings: BTreeMap<String, String>,
    /// What its cgroup files tell it.
    pub seen: SeenQuota,
}
