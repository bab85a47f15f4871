// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files whose reading is slow: far slower than others of their kind, each time.

use super::files::{Shared, Timing, nanoseconds};
use super::watch;
use deburr_core::snapshot::SlowRead;
use std::sync::Arc;

/// A read of a page that takes longer is slow anywhere.
const SLOW_NS: u64 = 20_000_000;
/// So is one that takes so many times as long as half of all reads do not need, and more than [`NOTICED_NS`].
const SLOW_RATIO: u64 = 50;
/// Below this nobody would notice.
const NOTICED_NS: u64 = 1_000_000;
/// Part of a file that is written in one go.
const PAGE_BYTES: u64 = 4096;
/// Most files that are read again.
const MAX_AGAIN: usize = 16;
/// A file is read again so often: one that had to wait for a CPU once or twice is not slow.
const AGAIN: usize = 2;
/// Nothing of interest is larger.
const CAP_BYTES: usize = 16 << 20;

/// Whether a read was slow, beside others.
fn is_slow(timing: &Timing, median_ns: u64) -> bool {
    // Files on disks are as slow as these are; the kernel's own need no disk.
    let of_kernel = timing.path.starts_with("/proc/") || timing.path.starts_with("/sys/");
    let a_page_ns = timing.wall_ns / (timing.bytes / PAGE_BYTES).max(1);
    let limit_ns = SLOW_NS.min((SLOW_RATIO * median_ns).max(NOTICED_NS));
    of_kernel && a_page_ns > limit_ns
}

/// Time that half of the reads did not need; 0 without any.
pub(super) fn median_ns(timings: &[Timing]) -> u64 {
    let mut all: Vec<u64> = timings.iter().map(|timing| timing.wall_ns).collect();
    let middle = all.len() / 2;
    if all.is_empty() { 0 } else { *all.select_nth_unstable(middle).1 }
}

/// The files that are slow when they are read again, too, slowest first, with those whose reading did not end.
pub(super) fn find(shared: &Arc<Shared>, timings: &[Timing], median_ns: u64) -> Vec<SlowRead> {
    let mut suspects: Vec<Timing> =
        timings.iter().filter(|timing| is_slow(timing, median_ns)).cloned().collect();
    suspects.sort_by(|a, b| (b.wall_ns, &a.path).cmp(&(a.wall_ns, &b.path)));
    suspects.dedup_by(|a, b| a.path == b.path);
    suspects.truncate(MAX_AGAIN);
    let paths: Vec<String> = suspects.iter().map(|suspect| suspect.path.clone()).collect();
    let again = watch::each(shared, suspects.len(), move |index, files| {
        let path = paths.get(index)?;
        for _ in 0..AGAIN {
            // What it holds was read before.
            let _ = files.content(path, path, CAP_BYTES);
        }
        files.timings.iter().min_by_key(|timing| timing.wall_ns).cloned()
    });
    let hung = shared.hung();
    let mut slow = Vec::new();
    for (suspect, again) in suspects.into_iter().zip(again) {
        // What is there no more, or is no file, cannot be shown to be slow.
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
