// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Syncs of which the kernel reports the beginning only: at each beat the threads are
//! polled whether they are still in the sync.
//!
//! So its end lies between the last look that found the thread in it and the first that did not. The lower bound is
//! raised by the requests that the thread submitted while it was certainly in the sync: it waits for them.

use crate::block::Requester;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Maximum number of threads that are followed.
const MOST: usize = 4096;
/// Maximum number of requests that are kept per thread.
const REQUESTS: usize = 64;
/// Consecutive looks at which a thread may be running and is still assumed to be in the sync.
const RUNNING: u8 = 2;
/// Attempts to find a thread that goes to sleep during the look.
const TRIES: u32 = 3;
/// Kernel functions that are on the stack of a thread in a sync.
const FUNCTIONS: [&[u8]; 2] = [b"xfs_file_fsync", b"btrfs_sync_file"];

/// Where a look found a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadPosition {
    /// In the sync.
    Inside,
    /// Outside the sync, or ended.
    Outside,
    /// Running, so that its stack cannot be seen.
    Running,
}

/// Reads a thread's kernel stack; `proc` = path of `/proc`.
#[must_use]
pub fn find(proc: &Path, tid: u32) -> ThreadPosition {
    let dir = proc.join(tid.to_string());
    for _ in 0..TRIES {
        let Ok(stack) = fs::read(dir.join("stack")) else { return ThreadPosition::Outside };
        let has = |name: &[u8]| stack.windows(name.len()).any(|text| text == name);
        if FUNCTIONS.into_iter().any(has) {
            return ThreadPosition::Inside;
        }
        // The stack of a running thread is empty. If the thread sleeps by now, its stack shows where: try again.
        if !stack.is_empty() {
            return ThreadPosition::Outside;
        }
        match fs::read(dir.join("syscall")) {
            Ok(text) if text.starts_with(b"running") => return ThreadPosition::Running,
            Ok(_) => {}
            Err(_) => return ThreadPosition::Outside,
        }
    }
    ThreadPosition::Running
}

/// A sync of a file that has ended; `F` identifies the file. Times are nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedSync<F> {
    /// The thread that synced.
    pub by: Requester,
    /// The file.
    pub file: F,
    /// When it began.
    pub begin_ns: u64,
    /// When it was last known to be in progress: lower bound of its end. `begin_ns` = no look found it.
    pub seen_ns: u64,
    /// When it was known to be over: upper bound of its end.
    pub latest_ns: u64,
}

#[derive(Debug)]
struct OpenSync<F> {
    over: EndedSync<F>,
    /// `seen_ns` as of the look before the last one that found it.
    before_ns: u64,
    running: u8,
    requests: Vec<(u64, u64)>,
}

/// The syncs in progress.
#[derive(Debug)]
pub struct Syncs<F> {
    begun: BTreeMap<u32, OpenSync<F>>,
    /// When the last look ended.
    looked_ns: u64,
    /// Syncs that were not followed because there were too many at once.
    pub lost: u64,
}

impl<F> Default for Syncs<F> {
    fn default() -> Self {
        Self { begun: BTreeMap::new(), looked_ns: 0, lost: 0 }
    }
}

impl<F: Clone> Syncs<F> {
    /// A thread begins a sync. Returns its previous one, if that was not known to be over.
    pub fn began(&mut self, t_ns: u64, by: &Requester, file: F) -> Option<EndedSync<F>> {
        let before = self.begun.remove(&by.tid).map(|mut begun| {
            // The last look may have found the thread in the new one.
            if t_ns <= self.looked_ns {
                begun.over.seen_ns = begun.before_ns;
            }
            begun.end(t_ns)
        });
        if self.begun.len() >= MOST {
            self.lost += 1;
        } else {
            let over = EndedSync { by: *by, file, begin_ns: t_ns, seen_ns: t_ns, latest_ns: t_ns };
            let begun = OpenSync { over, before_ns: t_ns, running: 0, requests: Vec::new() };
            self.begun.insert(by.tid, begun);
        }
        before
    }

    /// A request that the thread had submitted was completed.
    pub fn request_done(&mut self, tid: u32, start_ns: u64, done_ns: u64) {
        let Some(begun) = self.begun.get_mut(&tid) else { return };
        if start_ns >= begun.over.begin_ns && begun.requests.len() < REQUESTS {
            begun.requests.push((start_ns, done_ns));
        }
    }

    /// Polls the threads with `find`; returns the syncs that are over. Syncs that began after `reported_until_ns` are not known
    /// yet; `clock` returns the current time, which is later.
    pub fn look(
        &mut self,
        reported_until_ns: u64,
        clock: impl Fn() -> u64,
        mut find: impl FnMut(u32) -> ThreadPosition,
    ) -> Vec<EndedSync<F>> {
        let mut over = Vec::new();
        self.begun.retain(|&tid, begun| {
            match find(tid) {
                ThreadPosition::Inside => {
                    begun.before_ns = begun.over.seen_ns;
                    begun.over.seen_ns = reported_until_ns.max(begun.over.begin_ns);
                    begun.running = 0;
                    begun.requests.retain(|request| request.1 > reported_until_ns);
                    return true;
                }
                ThreadPosition::Running if begun.running < RUNNING => {
                    begun.running += 1;
                    return true;
                }
                ThreadPosition::Running | ThreadPosition::Outside => {}
            }
            over.push(begun.end(clock()));
            false
        });
        self.looked_ns = clock();
        over
    }
}

impl<F: Clone> OpenSync<F> {
    fn end(&mut self, latest_ns: u64) -> EndedSync<F> {
        let over = &mut self.over;
        over.latest_ns = latest_ns.max(over.begin_ns);
        // The thread waits for what it submitted during the sync, and so is in the sync until then, and so on.
        self.requests.sort_unstable();
        for &(start_ns, done_ns) in &self.requests {
            if start_ns <= over.seen_ns && over.seen_ns > over.begin_ns {
                over.seen_ns = over.seen_ns.max(done_ns);
            }
        }
        over.seen_ns = over.seen_ns.min(over.latest_ns);
        over.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const FILE: char = 'a';

    fn by(tid: u32) -> Requester {
        Requester { tid, ..Requester::default() }
    }

    fn look(
        syncs: &mut Syncs<char>,
        ms: u64,
        found: impl FnMut(u32) -> ThreadPosition,
    ) -> Vec<EndedSync<char>> {
        syncs.look(ms * MS, || ms * MS, found)
    }

    fn times(over: &EndedSync<char>) -> (u64, u64, u64) {
        (over.begin_ns / MS, over.seen_ns / MS, over.latest_ns / MS)
    }

    #[test]
    fn the_end_lies_between_two_looks() {
        let mut syncs = Syncs::default();
        assert_eq!(syncs.began(130 * MS, &by(5), FILE), None);
        assert_eq!(look(&mut syncs, 200, |_| ThreadPosition::Inside), []);
        assert_eq!(look(&mut syncs, 300, |_| ThreadPosition::Inside), []);
        let over = look(&mut syncs, 400, |_| ThreadPosition::Outside);
        assert_eq!(times(&over[0]), (130, 300, 400));
        assert_eq!(look(&mut syncs, 500, |_| ThreadPosition::Inside), []);
    }

    #[test]
    fn one_that_no_look_found_was_never_seen() {
        let mut syncs = Syncs::default();
        syncs.began(130 * MS, &by(5), FILE);
        syncs.request_done(5, 131 * MS, 140 * MS);
        assert_eq!(times(&look(&mut syncs, 200, |_| ThreadPosition::Outside)[0]), (130, 130, 200));
    }

    #[test]
    fn the_next_sync_of_a_thread_ends_the_one_before() {
        let mut syncs = Syncs::default();
        syncs.began(130 * MS, &by(5), FILE);
        look(&mut syncs, 200, |_| ThreadPosition::Inside);
        assert_eq!(times(&syncs.began(250 * MS, &by(5), FILE).unwrap()), (130, 200, 250));
        look(&mut syncs, 300, |_| ThreadPosition::Inside);
        // The next sync begins during the look, after the log was read.
        syncs.look(400 * MS, || 402 * MS, |_| ThreadPosition::Inside);
        assert_eq!(times(&syncs.began(401 * MS, &by(5), FILE).unwrap()), (250, 300, 401));
    }

    #[test]
    fn it_lasts_for_as_long_as_the_requests_that_it_waits_for() {
        let mut syncs = Syncs::default();
        syncs.began(130 * MS, &by(5), FILE);
        look(&mut syncs, 200, |_| ThreadPosition::Inside);
        syncs.request_done(5, 180 * MS, 240 * MS);
        syncs.request_done(5, 239 * MS, 270 * MS);
        // Submitted when the sync may have been over.
        syncs.request_done(5, 280 * MS, 290 * MS);
        assert_eq!(times(&look(&mut syncs, 300, |_| ThreadPosition::Outside)[0]), (130, 270, 300));
    }

    #[test]
    fn a_thread_that_runs_may_be_in_there_for_a_while() {
        let mut syncs = Syncs::default();
        syncs.began(130 * MS, &by(5), FILE);
        for beat in 2..4 {
            assert_eq!(look(&mut syncs, beat * 100, |_| ThreadPosition::Running), []);
        }
        assert_eq!(times(&look(&mut syncs, 400, |_| ThreadPosition::Running)[0]), (130, 130, 400));
    }
}
