// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many threads a language runtime or a server runs in parallel, read from outside of the process.

use super::observed::observed;
use super::{ProcId, Source};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A language runtime, library or server that determines by itself how many threads run in parallel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeKind {
    /// Go.
    Go,
    /// A Java virtual machine (HotSpot).
    Jvm,
    /// Node.js.
    Node,
    /// OpenMP and linear-algebra libraries that follow its settings (OpenBLAS, MKL), in Python or elsewhere.
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

/// Beginnings of the names of HotSpot's own threads, 15 letters at most: those of collectors, compilers, and helpers.
const JVM_THREADS: &[&str] = &[
    "VM Thread",
    "VM Periodic Tas",
    "GC Thread#",
    "GC task thread#",
    "G1 ",
    "Gang worker#",
    "ParGC Thread",
    "Concurrent Mark",
    "ZDirector",
    "ZDriver",
    "ZStat",
    "ZUncommitter",
    "ZUnmapper",
    "ZWorker",
    "XDirector",
    "XDriver",
    "XWorker",
    "Shenandoah ",
    "C1 CompilerThre",
    "C2 CompilerThre",
    "Sweeper thread",
    "Common-Cleaner",
    "Finalizer",
    "Monitor Deflati",
    "Notification Th",
    "Reference Handl",
    "Service Thread",
    "Signal Dispatch",
];

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

    /// Identifier in recordings and JSON.
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

    /// Display name.
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

    /// Whether its tasks (goroutines, promises, ...) wait without a thread that sleeps for them: a thread that has none to go
    /// on with sleeps as one that has no work.
    ///
    /// Java's virtual threads do so, too, but few of its programs have them, and nothing that is read tells which.
    #[must_use]
    pub fn has_tasks(self) -> bool {
        match self {
            Self::Go | Self::Node | Self::Tokio | Self::DotNet => true,
            Self::Jvm | Self::OpenMp | Self::Rayon | Self::Nginx => false,
        }
    }

    /// Whether a thread is one that the runtime has for itself, to collect garbage, compile, and the like: it rests until the
    /// runtime has something to do. Known of Java, by the thread's name.
    #[must_use]
    pub fn is_own_thread(self, name: &str) -> bool {
        self == Self::Jvm && JVM_THREADS.iter().any(|own| name.starts_with(own))
    }
}

/// How reliable a number of threads is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// Read from the runtime itself: valid at the time of the reading.
    Exact,
    /// Value at the start of the process; the program may have changed it since.
    Start,
    /// Derived from a count of existing threads: the pool may be smaller or larger.
    Bound,
}

impl Confidence {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Exact, Self::Start, Self::Bound];

    /// Identifier in recordings and JSON.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Start => "start",
            Self::Bound => "bound",
        }
    }
}

/// A number of threads that may run in parallel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parallelism {
    /// Name of the setting or pool: `GOMAXPROCS`, `ParallelGCThreads`, ...
    pub name: String,
    /// Number of threads.
    pub value: u32,
    /// Reliability of the number.
    pub confidence: Confidence,
    /// Source of the number: `memory`, `environment`, `threads`, ...
    pub source: String,
}

/// The CPU quota in the cgroup files that are visible to a process, looked up as its runtime does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "files")]
pub enum SeenQuota {
    /// The files of its own cgroup are visible, with this quota or without any.
    Leaf {
        /// Quota per period, in microseconds; absent = no limit at that level.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        quota_us: Option<u64>,
        /// Length of a period, in microseconds; absent where there is no limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        period_us: Option<u64>,
        /// Whether its cgroup mount shows only a part of the tree, while the paths in `/proc/PID/cgroup` start at the
        /// root of the tree. A runtime that does not strip the mount's root from the path looks in a directory that
        /// does not exist.
        part: bool,
    },
    /// Its mount namespace has no mount of a cgroup tree that contains its cgroup.
    NoMount,
    /// Could not be determined.
    Unknown,
}

/// CPU time and run-queue delay of the threads with one name in a time range, for a process with a CPU limit and a
/// known runtime. From `/proc/PID/task/*/{comm,schedstat}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedThreads {
    /// Start of the range.
    pub t0_ns: u64,
    /// End of the range.
    pub t1_ns: u64,
    /// The process.
    pub proc: ProcId,
    /// Comm of the threads, without its trailing number unless it is the process's own comm; empty = threads with all
    /// other names.
    pub comm: String,
    /// Number of threads at the end of the range.
    pub threads: u32,
    /// Time on CPUs.
    pub on_cpu_ns: u64,
    /// Time runnable but not running, queued or throttled. The kernel adds a wait when the thread gets a CPU.
    pub delay_ns: u64,
}

observed! { it: NamedThreads over t0_ns..t1_ns, from Source::Runtime; to [it.proc] }

/// State of a process's runtime at one time. Recorded again when it changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeReading {
    /// Timestamp.
    pub t_ns: u64,
    /// The process.
    pub proc: ProcId,
    /// The runtime.
    pub kind: RuntimeKind,
    /// Version of the runtime, if known: `go1.24.3`.
    pub version: Option<String>,
    /// Number of threads of the process.
    pub threads: u32,
    /// Numbers of threads, the decisive one first. Empty if none could be read, with the reason in `unread`.
    pub parallelism: Vec<Parallelism>,
    /// Why no number could be read.
    pub unread: Option<String>,
    /// Settings that affect the numbers: environment variables, `DefaultGODEBUG`, the version of `automaxprocs`,
    /// flags.
    pub settings: BTreeMap<String, String>,
    /// CPU quota in the cgroup files that are visible to the process.
    pub seen: SeenQuota,
}

observed! { it: RuntimeReading at t_ns, from Source::Runtime; to [it.proc] }
