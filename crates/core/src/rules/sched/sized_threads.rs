// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much of a process's throttled time its runtime's thread count accounts for.
//!
//! A thread count can be to blame only if more threads than fit want to run at once, and if they are threads that it
//! sizes. So two quantities are measured:
//!
//! - Whose threads waited: by thread name ([`is_for`]), as a share of the time in which threads were runnable but not
//!   running.
//! - How many threads were throttled at once: throttled thread time divided by the length of the periods in which the
//!   quota ran out. Threads are throttled for only a part of such a period, so the quotient is a lower bound, and so is
//!   the share derived from it.
//!
//! If N threads are throttled at once and k fit, N - k of the N would not be throttled with a count that fits. A single
//! thread that wants more than the quota does not count: N is 1 then, whatever the thread count is.

use crate::recording::{RuntimeKind, RuntimeReading};
use crate::view::{CgroupView, Group, ThreadNameTotals, View};
use std::collections::BTreeMap;

/// Threads of Java's garbage collectors, by the start of their names (comm holds 15 bytes).
const COLLECTORS: [&str; 7] = [
    "GC Thread#",
    "G1 Conc#",
    "G1 Refine#",
    "G1 Main Marker",
    "ParGC Thread",
    "ZWorker",
    "Shenandoah GC",
];
/// Other Java threads that the number of processors sizes: compilers, the common pool, and pools created without a
/// size.
const COMPILERS_AND_POOLS: [&str; 3] = ["C1 CompilerThre", "C2 CompilerThre", "ForkJoinPool"];

/// Whether the threads of a group that waited are those that a runtime's number sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SizedWaiting {
    /// This share of the waiting (0..1) was by threads that the number sizes.
    Share(f64),
    /// Thread names were not recorded, but in such a process the number sizes nearly all threads.
    AllAsARule,
    /// Thread names were not recorded, or do not tell threads apart.
    Unknown,
}

/// Whether a runtime's number sizes the threads of that name (`comm`). `own`: the name of the process's main thread,
/// which threads without a name of their own inherit.
fn is_for(kind: RuntimeKind, number: &str, comm: &str, own: &str) -> bool {
    let begins = |names: &[&str]| names.iter().any(|name| comm.starts_with(name));
    match kind {
        RuntimeKind::Go | RuntimeKind::OpenMp | RuntimeKind::Rayon => comm == own,
        RuntimeKind::Jvm if number == "ParallelGCThreads" => begins(&COLLECTORS),
        RuntimeKind::Jvm => begins(&COLLECTORS) || begins(&COMPILERS_AND_POOLS),
        RuntimeKind::Tokio => begins(&["tokio-rt-worker", "tokio-runtime-w"]),
        RuntimeKind::DotNet => begins(&[".NET "]),
        // Nginx's number counts processes, so [`waited`] does not go by thread names. Node's number is not judged.
        RuntimeKind::Nginx | RuntimeKind::Node => true,
    }
}

/// How much of a group's waiting was by threads that the runtime's number sizes.
pub(super) fn waited(view: &View, group: &Group<'_>, reading: &RuntimeReading) -> SizedWaiting {
    let number = reading.parallelism.first().map_or("", |first| first.name.as_str());
    let (mut sized_ns, mut all_ns, mut told, mut all_own) = (0_u64, 0_u64, false, true);
    for (id, process) in &group.members {
        let empty = BTreeMap::new();
        let named = view.processes().get(id).map_or(&empty, |process| &process.named);
        for (comm, ThreadNameTotals { delay_ns, .. }) in named {
            told = true;
            all_own &= *comm == process.comm;
            all_ns += delay_ns;
            if is_for(reading.kind, number, comm, &process.comm) {
                sized_ns += delay_ns;
            }
        }
    }
    match reading.kind {
        RuntimeKind::Nginx => SizedWaiting::AllAsARule,
        // Old Java versions do not name their threads.
        RuntimeKind::Jvm if told && all_own => SizedWaiting::Unknown,
        _ if told && all_ns > 0 => SizedWaiting::Share(sized_ns as f64 / all_ns as f64),
        RuntimeKind::Go => SizedWaiting::AllAsARule,
        _ => SizedWaiting::Unknown,
    }
}

/// Lower bound of the threads that were throttled at once, on average over the periods in which the quota ran out.
/// `stopped_ns`: their throttled time in all. `None` if the level's counters were not read.
pub(super) fn stopped_at_once(stopped_ns: u64, level: &CgroupView) -> Option<f64> {
    // The kernel's sum over throttled queues is no bound: measured on Linux 6.18, it was half of the throttled time of
    // a single thread.
    let period_ns = level.facts.as_ref()?.period_us?.checked_mul(1000)?;
    let longest_ns = level.nr_throttled.delta()?.checked_mul(period_ns)?;
    (longest_ns > 0).then(|| stopped_ns as f64 / longest_ns as f64)
}

/// Number of threads of a process that the runtime's number does not size, but that cannot be told apart by name from
/// those that it does: in Go, the monitoring thread.
pub(super) fn watchers(kind: RuntimeKind) -> u32 {
    u32::from(kind == RuntimeKind::Go)
}

/// The share of `at_once` throttled threads, 0..1, that would not be throttled if only `fitting` threads ran.
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
