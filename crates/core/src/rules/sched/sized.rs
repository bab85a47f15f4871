// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which part of its process's stopping a runtime's number of threads accounts for.
//!
//! A number of threads can only be to blame while more threads than fit want to run at once, and if they are threads that it
//! is for. So two things are asked of what was measured:
//!
//! - Whose threads waited: by their names ([`is_for`]), as shares of the time that threads were runnable without running.
//! - How many were stopped at once: the time for which threads were stopped, divided by the length of the periods in which
//!   the quota ran out. They were stopped for a part of those, so the quotient is a lower bound, and so is the part that
//!   follows.
//!
//! If N threads are stopped at once and k fit, N - k of N would not be with the number that fits. What one thread that wants
//! more than the quota suffers is none of it: N is 1 then, whatever the number is.

use crate::recording::{RuntimeKind, RuntimeReading};
use crate::view::{CgroupView, Group, Named, View};
use std::collections::BTreeMap;

/// Threads of Java's garbage collectors, by the beginnings of their names (comm holds 15 bytes).
const COLLECTORS: [&str; 7] = [
    "GC Thread#",
    "G1 Conc#",
    "G1 Refine#",
    "G1 Main Marker",
    "ParGC Thread",
    "ZWorker",
    "Shenandoah GC",
];
/// What else the number of processors sizes: compilers, the common pool and the pools that are made without a number.
const COMPILERS_AND_POOLS: [&str; 3] = ["C1 CompilerThre", "C2 CompilerThre", "ForkJoinPool"];

/// What the threads of a group did, by whether a number is for them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Waited {
    /// This part of the waiting was that of threads that it is for.
    Share(f64),
    /// Names were not told, and all threads of such a process are as a rule.
    AllAsARule,
    /// Names were not told, or tell nothing.
    Unknown,
}

/// Whether a number of a runtime is for threads of that name. `own`: the name of the process's first thread, which threads
/// without a name of their own have too.
fn is_for(kind: RuntimeKind, number: &str, comm: &str, own: &str) -> bool {
    let begins = |names: &[&str]| names.iter().any(|name| comm.starts_with(name));
    match kind {
        RuntimeKind::Go | RuntimeKind::OpenMp | RuntimeKind::Rayon => comm == own,
        RuntimeKind::Jvm if number == "ParallelGCThreads" => begins(&COLLECTORS),
        RuntimeKind::Jvm => begins(&COLLECTORS) || begins(&COMPILERS_AND_POOLS),
        RuntimeKind::Tokio => begins(&["tokio-rt-worker", "tokio-runtime-w"]),
        RuntimeKind::DotNet => begins(&[".NET "]),
        // Its number is one of processes, and is not judged.
        RuntimeKind::Nginx | RuntimeKind::Node => true,
    }
}

/// Whose threads waited in the processes of a group.
pub(super) fn waited(view: &View, group: &Group<'_>, reading: &RuntimeReading) -> Waited {
    let number = reading.parallelism.first().map_or("", |first| first.name.as_str());
    let (mut sized_ns, mut all_ns, mut told, mut all_own) = (0_u64, 0_u64, false, true);
    for (id, process) in &group.members {
        let empty = BTreeMap::new();
        let named = view.processes().get(id).map_or(&empty, |process| &process.named);
        for (comm, Named { delay_ns, .. }) in named {
            told = true;
            all_own &= *comm == process.comm;
            all_ns += delay_ns;
            if is_for(reading.kind, number, comm, &process.comm) {
                sized_ns += delay_ns;
            }
        }
    }
    match reading.kind {
        RuntimeKind::Nginx => Waited::AllAsARule,
        // An old Java gives its threads no names.
        RuntimeKind::Jvm if told && all_own => Waited::Unknown,
        _ if told && all_ns > 0 => Waited::Share(sized_ns as f64 / all_ns as f64),
        RuntimeKind::Go => Waited::AllAsARule,
        _ => Waited::Unknown,
    }
}

/// Threads that were stopped at once, at least, on average over the periods in which the quota ran out: `stopped_ns` of
/// them in all. `None` if the level's counters were not read.
pub(super) fn stopped_at_once(stopped_ns: u64, level: &CgroupView) -> Option<f64> {
    // The sum over throttled queues that the kernel counts is no bound: measured on 6.18, it was half of what one thread
    // alone was stopped.
    let period_ns = level.facts.as_ref()?.period_us?.checked_mul(1000)?;
    let longest_ns = level.nr_throttled.delta()?.checked_mul(period_ns)?;
    (longest_ns > 0).then(|| stopped_ns as f64 / longest_ns as f64)
}

/// Threads of a process that run beside those that the number is for and cannot be told from them by name: the one by which
/// Go watches over the others.
pub(super) fn watchers(kind: RuntimeKind) -> u32 {
    u32::from(kind == RuntimeKind::Go)
}

/// Of threads of which so many want to run at once, the part that would not with so many that fit.
pub(super) fn excess(at_once: f64, fitting: f64) -> f64 {
    (1.0 - fitting / at_once.max(fitting)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_alone_is_no_excess() {
        for at_once in [0.0, 0.3, 1.0] {
            assert!(excess(at_once, 1.0).abs() < 1e-9, "{at_once}");
        }
        assert!((excess(4.0, 1.0) - 0.75).abs() < 1e-9);
        assert!((excess(4.0, 4.0)).abs() < 1e-9);
    }

    #[test]
    fn names_tell_whom_a_number_is_for() {
        let jvm = |comm| is_for(RuntimeKind::Jvm, "processors", comm, "java");
        assert!(["GC Thread#", "C2 CompilerThre", "ForkJoinPool.co"].into_iter().all(jvm));
        assert!(!["java", "Thread-", "pool-1-thread-", "http-nio-8080-e", ""].into_iter().any(jvm));
        assert!(!is_for(RuntimeKind::Jvm, "ParallelGCThreads", "C2 CompilerThre", "java"));
        assert!(is_for(RuntimeKind::Go, "GOMAXPROCS", "orders", "orders"));
        assert!(!is_for(RuntimeKind::Go, "GOMAXPROCS", "rocksdb:low", "orders"));
        assert!(is_for(RuntimeKind::Tokio, "TOKIO_WORKER_THREADS", "tokio-rt-worker", "x"));
        assert!(!is_for(RuntimeKind::Tokio, "TOKIO_WORKER_THREADS", "x", "x"));
    }
}
