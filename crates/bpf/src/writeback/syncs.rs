// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Syncs of which the kernel tells the beginning only: at each beat it is looked whether the thread is in there still.
//!
//! So the end of one lies between the last look that found it and the first that did not. What a look misses is made
//! up for by the requests that the thread submitted while it was surely in there: it waits for them.

use crate::block::Requester;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Threads that are followed.
const MOST: usize = 4096;
/// Requests of a thread that are kept.
const REQUESTS: usize = 64;
/// So often in a row a thread may run while it is looked at, and be taken to be in there still.
const RUNNING: u8 = 2;
/// So often a thread is looked at that goes to sleep while it is.
const TRIES: u32 = 3;
/// What the kernel's functions are called in which a thread is.
const FUNCTIONS: [&[u8]; 2] = [b"xfs_file_fsync", b"btrfs_sync_file"];

/// Where a thread is found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// In the sync.
    Inside,
    /// Somewhere else, or it is gone.
    Outside,
    /// It runs, and where cannot be seen.
    Running,
}

/// Looks at a thread's stack in the kernel; `proc` = where `/proc` is.
#[must_use]
pub fn find(proc: &Path, tid: u32) -> Found {
    let dir = proc.join(tid.to_string());
    for _ in 0..TRIES {
        let Ok(stack) = fs::read(dir.join("stack")) else { return Found::Outside };
        let has = |name: &[u8]| stack.windows(name.len()).any(|text| text == name);
        if FUNCTIONS.into_iter().any(has) {
            return Found::Inside;
        }
        // The stack of a thread that runs is empty. If it sleeps by now, it does so in or out of the sync.
        if !stack.is_empty() {
            return Found::Outside;
        }
        match fs::read(dir.join("syscall")) {
            Ok(text) if text.starts_with(b"running") => return Found::Running,
            Ok(_) => {}
            Err(_) => return Found::Outside,
        }
    }
    Found::Running
}

/// A sync of a file, as the caller knows it, that is over. Times are `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Over<F> {
    /// Whose.
    pub by: Requester,
    /// Of which file.
    pub file: F,
    /// It began.
    pub begin_ns: u64,
    /// It was under way then still; `begin_ns` = it was never seen.
    pub seen_ns: u64,
    /// It was over then.
    pub latest_ns: u64,
}

#[derive(Debug)]
struct Begun<F> {
    over: Over<F>,
    /// Of the look before the one of `seen_ns`.
    before_ns: u64,
    running: u8,
    requests: Vec<(u64, u64)>,
}

/// The syncs under way.
#[derive(Debug)]
pub struct Syncs<F> {
    begun: BTreeMap<u32, Begun<F>>,
    /// The last look took until then.
    looked_ns: u64,
    /// Syncs that were not followed: too many at once.
    pub lost: u64,
}

impl<F> Default for Syncs<F> {
    fn default() -> Self {
        Self { begun: BTreeMap::new(), looked_ns: 0, lost: 0 }
    }
}

impl<F: Clone> Syncs<F> {
    /// A thread begins one; returns the one before, if it was not known to be over.
    pub fn began(&mut self, t_ns: u64, by: &Requester, file: F) -> Option<Over<F>> {
        let before = self.begun.remove(&by.tid).map(|mut begun| {
            // It may be the new one that the look found the thread in.
            if t_ns <= self.looked_ns {
                begun.over.seen_ns = begun.before_ns;
            }
            begun.end(t_ns)
        });
        if self.begun.len() >= MOST {
            self.lost += 1;
        } else {
            let over = Over { by: *by, file, begin_ns: t_ns, seen_ns: t_ns, latest_ns: t_ns };
            let begun = Begun { over, before_ns: t_ns, running: 0, requests: Vec::new() };
            self.begun.insert(by.tid, begun);
        }
        before
    }

    /// A request was done that the thread had submitted.
    pub fn request_done(&mut self, tid: u32, start_ns: u64, done_ns: u64) {
        let Some(begun) = self.begun.get_mut(&tid) else { return };
        if start_ns >= begun.over.begin_ns && begun.requests.len() < REQUESTS {
            begun.requests.push((start_ns, done_ns));
        }
    }

    /// Looks at the threads; returns the syncs that are over. What began after `told_ns` is not known yet; `clock` is
    /// later.
    pub fn look(
        &mut self,
        told_ns: u64,
        clock: impl Fn() -> u64,
        mut find: impl FnMut(u32) -> Found,
    ) -> Vec<Over<F>> {
        let mut over = Vec::new();
        self.begun.retain(|&tid, begun| {
            match find(tid) {
                Found::Inside => {
                    begun.before_ns = begun.over.seen_ns;
                    begun.over.seen_ns = told_ns.max(begun.over.begin_ns);
                    begun.running = 0;
                    begun.requests.retain(|request| request.1 > told_ns);
                    return true;
                }
                Found::Running if begun.running < RUNNING => {
                    begun.running += 1;
                    return true;
                }
                Found::Running | Found::Outside => {}
            }
            over.push(begun.end(clock()));
            false
        });
        self.looked_ns = clock();
        over
    }
}

impl<F: Clone> Begun<F> {
    fn end(&mut self, latest_ns: u64) -> Over<F> {
        let over = &mut self.over;
        over.latest_ns = latest_ns.max(over.begin_ns);
        // Whatever it submitted while it was in there it waits for, and so on.
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

    fn look(syncs: &mut Syncs<char>, ms: u64, found: impl FnMut(u32) -> Found) -> Vec<Over<char>> {
        syncs.look(ms * MS, || ms * MS, found)
    }

    fn times(over: &Over<char>) -> (u64, u64, u64) {
        (over.begin_ns / MS, over.seen_ns / MS, over.latest_ns / MS)
    }

    #[test]
    fn the_end_lies_between_two_looks() {
        let mut syncs = Syncs::default();
        assert_eq!(syncs.began(130 * MS, &by(5), FILE), None);
        assert_eq!(look(&mut syncs, 200, |_| Found::Inside), []);
        assert_eq!(look(&mut syncs, 300, |_| Found::Inside), []);
        let over = look(&mut syncs, 400, |_| Found::Outside);
        assert_eq!(times(&over[0]), (130, 300, 400));
        assert_eq!(look(&mut syncs, 500, |_| Found::Inside), []);
    }

    #[test]
    fn one_that_no_look_found_was_never_seen() {
        let mut syncs = Syncs::default();
        syncs.began(130 * MS, &by(5), FILE);
        syncs.request_done(5, 131 * MS, 140 * MS);
        assert_eq!(times(&look(&mut syncs, 200, |_| Found::Outside)[0]), (130, 130, 200));
    }

    #[test]
    fn the_next_sync_of_a_thread_ends_the_one_before() {
        let mut syncs = Syncs::default();
        syncs.began(130 * MS, &by(5), FILE);
        look(&mut syncs, 200, |_| Found::Inside);
        assert_eq!(times(&syncs.began(250 * MS, &by(5), FILE).unwrap()), (130, 200, 250));
        look(&mut syncs, 300, |_| Found::Inside);
        // The next one begins while the look is at it, after the log was read.
        syncs.look(400 * MS, || 402 * MS, |_| Found::Inside);
        assert_eq!(times(&syncs.began(401 * MS, &by(5), FILE).unwrap()), (250, 300, 401));
    }

    #[test]
    fn it_lasts_for_as_long_as_the_requests_that_it_waits_for() {
        let mut syncs = Syncs::default();
        syncs.began(130 * MS, &by(5), FILE);
        look(&mut syncs, 200, |_| Found::Inside);
        syncs.request_done(5, 180 * MS, 240 * MS);
        syncs.request_done(5, 239 * MS, 270 * MS);
        // Submitted when it may have been over.
        syncs.request_done(5, 280 * MS, 290 * MS);
        assert_eq!(times(&look(&mut syncs, 300, |_| Found::Outside)[0]), (130, 270, 300));
    }

    #[test]
    fn a_thread_that_runs_may_be_in_there_for_a_while() {
        let mut syncs = Syncs::default();
        syncs.began(130 * MS, &by(5), FILE);
        for beat in 2..4 {
            assert_eq!(look(&mut syncs, beat * 100, |_| Found::Running), []);
        }
        assert_eq!(times(&look(&mut syncs, 400, |_| Found::Running)[0]), (130, 130, 400));
    }
}
