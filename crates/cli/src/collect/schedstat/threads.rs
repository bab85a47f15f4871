// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the `schedstat` counters of the threads of one process, as threads come and go.

use deburr_core::procfs::schedstat::{self, Schedstat};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

/// The threads that are read, with their counters at the last reading.
#[derive(Debug, Default)]
pub(super) struct Threads {
    by_tid: BTreeMap<u32, Thread>,
    read_ns: u64,
}

#[derive(Debug)]
struct Thread {
    /// The file, if it is kept open.
    file: Option<File>,
    last: Schedstat,
}

/// What threads did between two readings, of those that existed at both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ThreadGains {
    pub(super) threads: u32,
    /// The time between the readings, summed over these threads.
    pub(super) wall_ns: u64,
    pub(super) on_cpu_ns: u64,
    pub(super) delay_ns: u64,
    pub(super) slices: u64,
    /// Threads that came or went.
    pub(super) churn: usize,
}

impl Threads {
    pub(super) fn len(&self) -> usize {
        self.by_tid.len()
    }

    /// Files that are kept open.
    pub(super) fn kept(&self) -> usize {
        self.by_tid.values().filter(|thread| thread.file.is_some()).count()
    }

    /// Drops all threads. Returns how many files that closed.
    pub(super) fn clear(&mut self) -> usize {
        let kept = self.kept();
        self.by_tid.clear();
        kept
    }

    /// Reads at most `room` threads of the directory `/proc/PID/task`. `now_ns` is the present time of any monotonic
    /// clock; `files_left` more files may be kept open.
    pub(super) fn read(
        &mut self,
        dir: &Path,
        now_ns: u64,
        room: usize,
        files_left: &mut usize,
    ) -> ThreadGains {
        let mut gained = ThreadGains::default();
        let wall_ns = now_ns.saturating_sub(self.read_ns);
        self.read_ns = now_ns;
        let first = self.by_tid.is_empty();
        let mut read = 0;
        self.by_tid.retain(|tid, thread| {
            let now = match &thread.file {
                _ if read == room => None,
                Some(file) => counters(file),
                None => open(dir, *tid).as_ref().and_then(counters),
            };
            let Some(now) = now else {
                *files_left += usize::from(thread.file.is_some());
                gained.churn += usize::from(read < room);
                return false;
            };
            read += 1;
            gained.add(wall_ns, thread.last, now);
            thread.last = now;
            true
        });
        // The link count of the task directory is the number of threads + 2. If it has not changed, and all known
        // threads are there, there is no new one.
        let links = fs::metadata(dir).map_or(0, |meta| meta.nlink());
        if gained.churn == 0 && links == self.by_tid.len() as u64 + 2 {
            return gained;
        }
        for tid in tids(dir) {
            if self.by_tid.len() >= room {
                break;
            }
            if self.by_tid.contains_key(&tid) {
                continue;
            }
            let Some(file) = open(dir, tid) else { continue };
            let Some(last) = counters(&file) else { continue };
            let file = (*files_left > 0).then_some(file);
            *files_left -= usize::from(file.is_some());
            gained.churn += usize::from(!first);
            self.by_tid.insert(tid, Thread { file, last });
        }
        gained
    }
}

impl ThreadGains {
    fn add(&mut self, wall_ns: u64, last: Schedstat, now: Schedstat) {
        self.threads += 1;
        self.wall_ns += wall_ns;
        self.on_cpu_ns += now.on_cpu_ns.saturating_sub(last.on_cpu_ns);
        self.delay_ns += now.delay_ns.saturating_sub(last.delay_ns);
        self.slices += now.slices.saturating_sub(last.slices);
    }
}

fn open(dir: &Path, tid: u32) -> Option<File> {
    File::open(dir.join(tid.to_string()).join("schedstat")).ok()
}

/// The current counters; `None` if the thread is gone.
fn counters(file: &File) -> Option<Schedstat> {
    // Three numbers of at most 20 digits.
    let mut text = [0; 64];
    let len = file.read_at(&mut text, 0).ok()?;
    schedstat::parse(&text[..len]).ok()
}

fn tids(dir: &Path) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}
