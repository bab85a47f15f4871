// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether any thread but the observer is runnable. On a quiet host this shows cheaply that no thread waits.

use crate::collect::{Roots, reread};
use rustix::fs::{PROC_SUPER_MAGIC, fstatfs};
use std::fs::File;

/// The kernel's count of running and queued threads, over all CPUs.
#[derive(Debug)]
pub(super) struct Runnable {
    /// `/proc/loadavg`; `None` if it is not a file of procfs: some containers have another one in its place.
    loadavg: Option<File>,
}

impl Runnable {
    pub(super) fn open(roots: &Roots) -> Self {
        let own = |file: &File| {
            fstatfs(file).is_ok_and(|fs| i128::from(fs.f_type) == i128::from(PROC_SUPER_MAGIC))
        };
        Self { loadavg: File::open(roots.proc.join("loadavg")).ok().filter(own) }
    }

    /// Whether the calling thread is the only runnable one. The kernel sums the CPUs one after the other, so a thread
    /// that migrates meanwhile may be missed until the next look. Throttled threads are not counted, nor real-time
    /// threads that used up `sched_rt_runtime_us`.
    pub(super) fn is_this_one_only(&self) -> bool {
        let text = self.loadavg.as_ref().and_then(|file| reread::text(file).ok());
        text.and_then(|text| runnable(&text)) == Some(1)
    }
}

/// Runnable threads: the first part of the fourth field (`0.20 0.18 0.12 1/80 11206`).
fn runnable(loadavg: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(loadavg).ok()?;
    text.split_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_read_or_not_known() {
        assert_eq!(runnable(b"0.20 0.18 0.12 1/80 11206\n"), Some(1));
        assert_eq!(runnable(b"61.5 60.1 58.0 4711/9999 1\n"), Some(4711));
        for other in [&b""[..], b"0.2 0.1 0.1 x/80 1", b"0.2 0.1 0.1 1 80", b"\xff"] {
            assert_eq!(runnable(other), None);
        }
    }

    #[test]
    fn a_file_that_is_not_the_kernels_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("loadavg"), "0.0 0.0 0.0 1/80 1\n").unwrap();
        let roots =
            Roots { proc: dir.path().into(), sys: dir.path().into(), root: dir.path().into() };
        assert!(!Runnable::open(&roots).is_this_one_only());
    }
}
