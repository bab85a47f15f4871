// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges whether a runtime runs more threads in parallel than the CPU limit of its process allows, why it does, and
//! how to fix it.
//!
//! Sources of the rules of each runtime: Go's `runtime/proc.go` and `internal/runtime/cgroup` (1.25 and later),
//! `go.uber.org/automaxprocs`, HotSpot's `CgroupSubsystem`. Go and automaxprocs read the process's own cgroup only.

use super::effective::{Effective, LimitSource, QuotaLevel, fitting_threads, tolerated_threads};
use super::go::GoBuild;
use super::visible_properties::DOTNET_POOL;
use crate::finding::Fix;
use crate::recording::{Confidence, Parallelism, RuntimeKind, RuntimeReading, SeenQuota};
use crate::text::ticked;
use crate::text::units;

/// Names of Java's numbers: processors that it assumes, and threads for garbage collection.
const PROCESSORS: &str = "processors";
const COLLECTORS: &str = "ParallelGCThreads";

/// CPU limit of a process, as compared with its runtime.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// The effective limit.
    pub effective: Effective,
    /// The level with the tightest quota; `None` without any quota.
    pub level: Option<&'a QuotaLevel>,
    /// Whether `level` is the process's own cgroup.
    pub own_level: bool,
}

/// Whether a number of threads fits the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadFit {
    /// No more threads than tolerated.
    Fits,
    /// More threads than tolerated.
    Above,
    /// Possibly more threads than tolerated; the number is only a bound.
    MayBeAbove,
}

/// Why a runtime has its number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadCountReason {
    /// It took the limit into account.
    KnowsLimit,
    /// A variable or flag set the number.
    Set,
    /// Its version does not support quotas.
    OldVersion,
    /// Its version supports quotas, but the program was built with the language version of an older one.
    OldLanguage,
    /// A setting turned off the support of quotas.
    TurnedOff,
    /// The quota is that of an ancestor of its own cgroup, which the runtime does not read.
    LevelAbove,
    /// It reads the wrong directory, because of a bug in its version.
    MountRoot,
    /// No cgroup files are visible to it.
    NoMount,
    /// The program or a library changed the number.
    Program,
    /// Not known.
    Unknown,
}

impl ThreadCountReason {
    /// Identifier in JSON.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::KnowsLimit => "knows_limit",
            Self::Set => "set",
            Self::OldVersion => "old_version",
            Self::OldLanguage => "old_language",
            Self::TurnedOff => "turned_off",
            Self::LevelAbove => "level_above",
            Self::MountRoot => "mount_root",
            Self::NoMount => "no_mount",
            Self::Program => "program",
            Self::Unknown => "unknown",
        }
    }
}

/// Judgement of a runtime's number of threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Belief {
    /// The decisive number of threads.
    pub threads: Parallelism,
    /// Number of threads that fits the limit. It is reported and used in the fixes.
    pub fitting: u32,
    /// Largest number of threads that is not reported as too many.
    pub tolerated: u32,
    /// Whether the number of threads fits.
    pub fit: ThreadFit,
    /// Why the runtime has this number of threads.
    pub why: ThreadCountReason,
    /// `why` as part of a sentence: `Go 1.24 counts CPUs and does not look at quotas`.
    pub because: String,
    /// Changes that make the number fit; empty if it fits already.
    pub fixes: Vec<Fix>,
    /// The environment variable, and its value, with which a program started anew has the number that fits; `None` if
    /// there is no such variable.
    pub variable: Option<(&'static str, String)>,
}

/// Judges a runtime's number of threads; `None` if there is no number that should depend on the CPU limit.
#[must_use]
pub fn belief(reading: &RuntimeReading, given: Circumstances<'_>) -> Option<Belief> {
    let threads = reading.parallelism.first().filter(|first| match reading.kind {
        // Node's pool is for blocking work: it does not show how many threads compute.
        RuntimeKind::Node => false,
        // The same holds for Java's compiler threads and .NET's pool, if nothing else is known.
        RuntimeKind::Jvm => matches!(first.name.as_str(), PROCESSORS | COLLECTORS),
        RuntimeKind::DotNet => first.name != DOTNET_POOL,
        _ => true,
    });
    let threads = threads?.clone();
    // A quota above the number of allowed CPUs has no effect.
    let binding = given.level.filter(|_| given.effective.bound == LimitSource::Quota);
    let given = Circumstances { level: binding, ..given };
    let fitting = fitting_threads(given.effective.cpus);
    let tolerated = tolerated_threads(given.effective.cpus);
    let fit = match (threads.value > tolerated, threads.confidence) {
        (false, _) => ThreadFit::Fits,
        (true, Confidence::Bound) => ThreadFit::MayBeAbove,
        (true, _) => ThreadFit::Above,
    };
    let (why, because) = match reading.kind {
        RuntimeKind::Go => go(reading, &threads, given),
        RuntimeKind::Jvm => jvm(reading, &threads, given),
        _ => other(reading, &threads),
    };
    let fixes = match fit {
        ThreadFit::Fits => vec![],
        _ => fixes(reading, why, fitting, given),
    };
    let variable = variable(reading).map(|name| match reading.kind {
        RuntimeKind::Jvm => (name, format!("-XX:ActiveProcessorCount={fitting}")),
        _ => (name, fitting.to_string()),
    });
    Some(Belief { threads, fitting, tolerated, fit, why, because, fixes, variable })
}

fn go(
    reading: &RuntimeReading,
    threads: &Parallelism,
    given: Circumstances<'_>,
) -> (ThreadCountReason, String) {
    let build = build_of(reading);
    let value = threads.value;
    let set = reading.settings.get("GOMAXPROCS");
    if set.and_then(|text| text.parse::<u32>().ok()) == Some(value) {
        return (ThreadCountReason::Set, format!("`GOMAXPROCS={value}` is in its environment"));
    }
    let version = short_version(&build);
    let unaware = why_unaware(reading, &build);
    let leaf = leaf_cpus(reading);
    if let Some(library) = reading.settings.get("automaxprocs")
        && leaf.is_some_and(|cpus| cpus.floor().max(1.0) as u32 == value)
    {
        return (
            ThreadCountReason::KnowsLimit,
            format!("automaxprocs {library} took it from its cgroup"),
        );
    }
    let counted = value == given.effective.allowed;
    if let Some(unaware) = unaware {
        return if counted { unaware } else { changed(reading, given) };
    }
    match reading.seen {
        SeenQuota::Leaf { part: true, .. } if build.release() == Some((1, 25)) && counted => {
            let because = format!(
                "{version} does not find its cgroup's files where only a part of the tree is mounted \
                 (golang/go#76390, mended in 1.26)"
            );
            (ThreadCountReason::MountRoot, because)
        }
        SeenQuota::NoMount if counted => (
            ThreadCountReason::NoMount,
            format!("{version} finds no cgroup files where the process lives"),
        ),
        _ if leaf
            .is_some_and(|cpus| tolerated_threads(cpus).min(given.effective.allowed) == value) =>
        {
            match (given.own_level, given.level) {
                (false, Some(level)) => above(&version, level),
                _ => (
                    ThreadCountReason::KnowsLimit,
                    format!("{version} took it from its cgroup's quota"),
                ),
            }
        }
        SeenQuota::Leaf { quota_us: None, .. } if counted => match (given.own_level, given.level) {
            (false, Some(level)) => above(&version, level),
            _ => (
                ThreadCountReason::KnowsLimit,
                format!("{version} counts the CPUs that it may run on"),
            ),
        },
        _ => changed(reading, given),
    }
}

fn above(version: &str, level: &QuotaLevel) -> (ThreadCountReason, String) {
    let because = format!(
        "{version} looks at its own cgroup only, and the quota is that of {} above it (golang/go#81180)",
        ticked(&level.path)
    );
    (ThreadCountReason::LevelAbove, because)
}

/// Why a Go program does not read quotas; `None` if it does.
fn why_unaware(reading: &RuntimeReading, build: &GoBuild) -> Option<(ThreadCountReason, String)> {
    let version = short_version(build);
    match build.release() {
        Some(release) if release < (1, 25) => {
            let because =
                format!("{version} counts the CPUs that it may run on and does not look at quotas");
            return Some((ThreadCountReason::OldVersion, because));
        }
        // A development version is newer than all versions that do not support quotas.
        _ => {}
    }
    let setting = |name: &str| godebug(reading.settings.get(name)?, "containermaxprocs");
    match setting("GODEBUG") {
        Some("0") => {
            let because =
                "`GODEBUG=containermaxprocs=0` in its environment turns looking at quotas off";
            Some((ThreadCountReason::TurnedOff, because.into()))
        }
        None if setting("DefaultGODEBUG") == Some("0") => {
            let because = format!(
                "{version} built it, but its `go.mod` names a Go before 1.25: such programs do not look at quotas \
                 (`DefaultGODEBUG=containermaxprocs=0`)"
            );
            Some((ThreadCountReason::OldLanguage, because))
        }
        _ => None,
    }
}

/// Value of a key in `key=value,key=value`; the last one counts.
fn godebug<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.split(',').rev().find_map(|part| part.strip_prefix(key)?.strip_prefix('='))
}

fn changed(reading: &RuntimeReading, given: Circumstances<'_>) -> (ThreadCountReason, String) {
    match reading.settings.get("automaxprocs") {
        Some(version) if !given.own_level && given.level.is_some() => {
            let because = format!(
                "automaxprocs {version} looks at its own cgroup only, and the quota is above it"
            );
            (ThreadCountReason::LevelAbove, because)
        }
        Some(version) => (
            ThreadCountReason::Program,
            format!("the program set it, perhaps by automaxprocs {version}"),
        ),
        None => {
            let because = "the program set it (`runtime.GOMAXPROCS`), or its CPUs or its quota changed since it started";
            (ThreadCountReason::Program, because.into())
        }
    }
}

fn jvm(
    reading: &RuntimeReading,
    threads: &Parallelism,
    given: Circumstances<'_>,
) -> (ThreadCountReason, String) {
    let flag = |name: &str| reading.settings.get(name).map(String::as_str);
    if let Some(processors) = flag("ActiveProcessorCount").filter(|text| *text != "-1") {
        return (
            ThreadCountReason::Set,
            format!("`-XX:ActiveProcessorCount={processors}` is among its flags"),
        );
    }
    if flag("UseContainerSupport") == Some("false") {
        return (
            ThreadCountReason::TurnedOff,
            "`-XX:-UseContainerSupport` turns looking at quotas off".into(),
        );
    }
    if threads.name == COLLECTORS {
        return (
            ThreadCountReason::Set,
            format!("`-XX:{COLLECTORS}={}` is among its flags", threads.value),
        );
    }
    let leaf = leaf_cpus(reading).map(fitting_threads);
    let first = Some(threads.value);
    match (given.own_level, given.level) {
        (false, Some(level)) if threads.value <= fitting_threads(level.cpus()) => {
            let because =
                format!("Java took it from the quota of {} above it", ticked(&level.path));
            (ThreadCountReason::KnowsLimit, because)
        }
        (false, Some(level)) if threads.value == given.effective.allowed || first == leaf => {
            let because = format!(
                "the quota is that of {} above its own cgroup, where this Java does not look (JDK-8322420)",
                ticked(&level.path)
            );
            (ThreadCountReason::LevelAbove, because)
        }
        _ if leaf.is_some() && first <= leaf => {
            (ThreadCountReason::KnowsLimit, "Java took it from its cgroup's quota".into())
        }
        (_, None) => {
            (ThreadCountReason::KnowsLimit, "Java counts the CPUs that it may run on".into())
        }
        _ => (
            ThreadCountReason::Unknown,
            "the quota was set after it started, or this Java does not know it".into(),
        ),
    }
}

fn other(reading: &RuntimeReading, threads: &Parallelism) -> (ThreadCountReason, String) {
    if reading.settings.contains_key(&threads.name) {
        return (
            ThreadCountReason::Set,
            format!("`{}={}` is in its environment", threads.name, threads.value),
        );
    }
    let because = match reading.kind {
        RuntimeKind::Nginx => {
            "`worker_processes`; `auto` is the number of CPUs, whatever its quota"
        }
        _ => "counted threads",
    };
    (ThreadCountReason::Unknown, because.into())
}

/// The environment variable that sets the decisive number of threads; `None` if none does.
fn variable(reading: &RuntimeReading) -> Option<&'static str> {
    Some(match reading.kind {
        RuntimeKind::Go => "GOMAXPROCS",
        RuntimeKind::Jvm if reading.parallelism.first().is_some_and(|it| it.name == COLLECTORS) => {
            return None;
        }
        RuntimeKind::Jvm => "JAVA_TOOL_OPTIONS",
        RuntimeKind::OpenMp => "OMP_NUM_THREADS",
        RuntimeKind::Tokio => "TOKIO_WORKER_THREADS",
        RuntimeKind::Rayon => "RAYON_NUM_THREADS",
        RuntimeKind::DotNet => "DOTNET_PROCESSOR_COUNT",
        _ => return None,
    })
}

/// Changes that make the number of threads fit, quickest first.
fn fixes(
    reading: &RuntimeReading,
    why: ThreadCountReason,
    wanted: u32,
    given: Circumstances<'_>,
) -> Vec<Fix> {
    let fix = |action: String, risk: &str| Fix {
        action,
        command: None,
        risk: Some(risk.into()),
        expect: None,
    };
    let mut all = Vec::new();
    match reading.kind {
        RuntimeKind::Go => {
            all.push(fix(
                format!("start it with `GOMAXPROCS={wanted}`"),
                "it has to be changed with the limit; threads that block in C code or system calls are not counted by \
                 it, Go has further ones for them",
            ));
            all.extend(go_upgrade(reading, why).map(|action| {
                fix(action, "from then on GOMAXPROCS follows the quota of the program's own cgroup, not of those above")
            }));
        }
        RuntimeKind::Jvm if reading.parallelism.first().is_some_and(|n| n.name == COLLECTORS) => {
            all.push(fix(
                format!("start it with `-XX:{COLLECTORS}={wanted}`, or without that flag"),
                "garbage collection of a large heap takes longer with fewer threads, if there is CPU time for more",
            ));
        }
        RuntimeKind::Jvm => all.push(fix(
            format!("start it with `-XX:ActiveProcessorCount={wanted}`"),
            "pools for garbage collection, compilation and `ForkJoinPool` get that size; it has to be changed with \
             the limit",
        )),
        RuntimeKind::Nginx => all.push(fix(
            format!("set `worker_processes {wanted};`"),
            "it has to be changed with the limit",
        )),
        _ => {
            let Some(name) = variable(reading) else { return all };
            let risk = "it has to be changed with the limit; a number that the program sets itself wins";
            all.push(fix(format!("start it with `{name}={wanted}`"), risk));
        }
    }
    if (reading.kind, why) == (RuntimeKind::Jvm, ThreadCountReason::LevelAbove) {
        all.push(fix(
            "run it on Java 25 or later, which looks at the levels above too".into(),
            "pools that were sized for all CPUs become smaller: look at the rate that it sustains",
        ));
    }
    if let (ThreadCountReason::LevelAbove, Some(level)) = (why, given.level) {
        all.push(fix(
            format!(
                "give its own cgroup the quota too ({}), where its runtime looks",
                units::cpus(level.cpus())
            ),
            "in Kubernetes: a CPU limit for the container, not only for the pod",
        ));
    }
    all
}

/// The change with which Go detects the limit by itself; `None` if there is none.
fn go_upgrade(reading: &RuntimeReading, why: ThreadCountReason) -> Option<String> {
    let wanted = match reading.seen {
        SeenQuota::Leaf { part: true, .. } => "1.26",
        _ => "1.25",
    };
    Some(match why {
        ThreadCountReason::OldVersion => format!(
            "build it with Go {wanted} or later, and have `go.mod` say `go {wanted}` or later: the language version \
             there turns it on"
        ),
        ThreadCountReason::OldLanguage => "have `go.mod` say `go 1.25` or later (`go mod edit -go=1.25`) and build it again, or start \
                             it with `GODEBUG=containermaxprocs=1`"
            .into(),
        ThreadCountReason::TurnedOff => "take `containermaxprocs=0` out of `GODEBUG`".into(),
        ThreadCountReason::MountRoot => "build it with Go 1.26 or later".into(),
        ThreadCountReason::Set if why_unaware(reading, &build_of(reading)).is_none() && leaf_cpus(reading).is_some() => {
            "take `GOMAXPROCS` out of its environment: this Go takes the quota of its cgroup by itself".into()
        }
        _ => return None,
    })
}

/// Limit in CPUs from the visible files of the process's own cgroup; `None` without a quota there.
fn leaf_cpus(reading: &RuntimeReading) -> Option<f64> {
    match reading.seen {
        SeenQuota::Leaf { quota_us: Some(quota_us), period_us: Some(period_us), .. }
            if period_us > 0 =>
        {
            Some(quota_us as f64 / period_us as f64)
        }
        _ => None,
    }
}

fn build_of(reading: &RuntimeReading) -> GoBuild {
    GoBuild { version: reading.version.clone().unwrap_or_default(), ..GoBuild::default() }
}

/// `Go 1.24`; `this Go` if the version is not known.
fn short_version(build: &GoBuild) -> String {
    match build.release() {
        Some((major, minor)) => format!("Go {major}.{minor}"),
        None => "this Go".into(),
    }
}

/// Source of a limit, as part of a sentence.
#[must_use]
pub fn origin(given: Circumstances<'_>) -> String {
    match (given.effective.bound, given.level) {
        (LimitSource::Quota, Some(level)) if given.own_level => {
            format!("quota of its cgroup {}", ticked(&level.path))
        }
        (LimitSource::Quota, Some(level)) => format!("quota of {} above it", ticked(&level.path)),
        (LimitSource::Quota, None) => "quota".into(),
        (LimitSource::Cpuset, _) => "CPUs of its cpuset".into(),
        (LimitSource::Affinity, _) => "its affinity mask".into(),
        (LimitSource::Online, _) => "all CPUs of the host".into(),
    }
}

#[cfg(test)]
mod tests;
