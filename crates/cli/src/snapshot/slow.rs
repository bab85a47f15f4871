// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds files that are slow to read: far slower than other files, and each time.

use super::files::{SharedState, Timing, nanoseconds};
use super::watch;
use deburr_core::snapshot::SlowRead;
use std::sync::Arc;

/// A read that takes longer than this per page is slow on any host.
const SLOW_NS: u64 = 20_000_000;
/// So is one that takes more than this many times the median of all reads, and more than [`NOTICED_NS`].
const SLOW_RATIO: u64 = 50;
/// Below this a read is never slow: it would not be noticed.
const NOTICED_NS: u64 = 1_000_000;
/// Part of a file that the kernel generates at a time.
const PAGE_BYTES: u64 = 4096;
/// Maximum number of files that are read again.
const MAX_AGAIN: usize = 16;
/// How often such a file is read again: one whose reader had to wait for a CPU once or twice is not slow.
const AGAIN: usize = 2;
/// Largest file that is read again.
const CAP_BYTES: usize = 16 << 20;

/// Whether a read was slow in comparison with the others.
fn is_slow(timing: &Timing, median_ns: u64) -> bool {
    // Files on a disk are as slow as the disk; those of the kernel need no disk.
    let of_kernel = timing.path.starts_with("/proc/") || timing.path.starts_with("/sys/");
    let a_page_ns = timing.wall_ns / (timing.bytes / PAGE_BYTES).max(1);
    let limit_ns = SLOW_NS.min((SLOW_RATIO * median_ns).max(NOTICED_NS));
    of_kernel && a_page_ns > limit_ns
}

/// Median time of the reads; 0 if there are none.
pub(super) fn median_ns(timings: &[Timing]) -> u64 {
    let mut all: Vec<u64> = timings.iter().map(|timing| timing.wall_ns).collect();
    let middle = all.len() / 2;
    if all.is_empty() { 0 } else { *all.select_nth_unstable(middle).1 }
}

/// The files that are slow also when they are read again, and those whose reading did not end, slowest first.
pub(super) fn find(shared: &Arc<SharedState>, timings: &[Timing], median_ns: u64) -> Vec<SlowRead> {
    let mut suspects: Vec<Timing> =
        timings.iter().filter(|timing| is_slow(timing, median_ns)).cloned().collect();
    suspects.sort_by(|a, b| (b.wall_ns, &a.path).cmp(&(a.wall_ns, &b.path)));
    suspects.dedup_by(|a, b| a.path == b.path);
    suspects.truncate(MAX_AGAIN);
    let paths: Vec<String> = suspects.iter().map(|suspect| suspect.path.clone()).collect();
    let again = watch::each(shared, suspects.len(), move |index, files| {
        let path = paths.get(index)?;
        for _ in 0..AGAIN {
            // Only the time matters: the content was read before.
            let _ = files.content(path, path, CAP_BYTES);
        }
        files.timings.iter().min_by_key(|timing| timing.wall_ns).cloned()
    });
    let hung = shared.hung();
    let mut slow = Vec::new();
    for (suspect, again) in suspects.into_iter().zip(again) {
        // A path that does not exist any more, or is not a file, cannot be shown to be slow.
        let Some(again) = again.flatten() else { continue };
        if hung.contains(&suspect.path) || !is_slow(&again, median_ns) {
            continue;
        }
        slow.push(SlowRead {
            path: suspect.path,
            key: suspect.key,
            wall_ns: suspect.wall_ns,
            cpu_ns: Some(suspect.cpu_ns),
            again_ns: Some(again.wall_ns),
        });
    }
    let wall_ns = nanoseconds(shared.limits.file);
    for path in hung {
        slow.push(SlowRead { key: path.clone(), path, wall_ns, cpu_ns: None, again_ns: None });
    }
    slow.sort_by(|a, b| (b.wall_ns, &a.path).cmp(&(a.wall_ns, &b.path)));
    slow
}
