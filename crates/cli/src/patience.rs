// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads about processes that may never end: they are made by a thread that can be given up.
//!
//! The kernel lets a reader of a command line, an environment or a memory wait while the process changes its memory map,
//! and a reader of a program file while its disk or server does not answer. No signal that has a handler ends such a
//! wait.

use deburr_core::procfs::pid;
use rustix::thread::gettid;
use std::collections::HashSet;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// How long a read may take. A page of a program file that is read from a slow disk takes less.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);
/// How long it may take if the reading thread has no CPU.
const STARVED_PATIENCE: Duration = Duration::from_secs(3);
/// Interval at which it is checked whether the thread has a CPU.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Maximum number of threads that are given up. Each of them has delayed the caller.
const MOST_GIVEN_UP: usize = 8;

/// Makes reads about processes.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    reader: Option<Reader>,
    /// Processes about which a read did not end: they are not asked about again.
    stuck: HashSet<u32>,
}

type Job = Box<dyn FnOnce() + Send>;

#[derive(Debug)]
struct Reader {
    jobs: Sender<Job>,
    tid: u32,
}

impl Patience {
    /// The result of `read`, which is about the process `pid`; `None` if it does not end.
    pub(crate) fn ask<T: Send + 'static>(
        &mut self,
        pid: u32,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if self.stuck.contains(&pid) || self.stuck.len() >= MOST_GIVEN_UP {
            return None;
        }
        let (send, result) = mpsc::sync_channel(1);
        // Nobody listens any more once it was given up.
        let job = Box::new(move || drop(send.send(read())));
        let result = self.reader().and_then(|reader| {
            reader.jobs.send(job).ok()?;
            reader.wait(&result)
        });
        if result.is_none() {
            self.reader = None;
            self.stuck.insert(pid);
        }
        result
    }

    /// Whether a read did not end.
    pub(crate) fn some_are_stuck(&self) -> bool {
        !self.stuck.is_empty()
    }

    fn reader(&mut self) -> Option<&Reader> {
        if self.reader.is_none() {
            self.reader = Reader::start();
        }
        self.reader.as_ref()
    }
}

impl Reader {
    fn start() -> Option<Self> {
        let (jobs, to_do) = mpsc::channel::<Job>();
        let (send_tid, tid) = mpsc::sync_channel(1);
        let work = move || {
            let tid = gettid().as_raw_nonzero().get().cast_unsigned();
            if send_tid.send(tid).is_ok() {
                to_do.into_iter().for_each(|job| job());
            }
        };
        thread::Builder::new().name("deburr-read".into()).spawn(work).ok()?;
        Some(Self { jobs, tid: tid.recv().ok()? })
    }

    /// The result, unless the thread waits for something else than a CPU for too long.
    fn wait<T>(&self, result: &Receiver<T>) -> Option<T> {
        let end = Instant::now() + STARVED_PATIENCE;
        let mut timeout = PATIENCE;
        loop {
            match result.recv_timeout(timeout) {
                Ok(result) => return Some(result),
                Err(RecvTimeoutError::Timeout) if self.is_runnable() && Instant::now() < end => {
                    timeout = LOOK_EVERY;
                }
                Err(_) => return None,
            }
        }
    }

    fn is_runnable(&self) -> bool {
        let stat = std::fs::read(format!("/proc/self/task/{}/stat", self.tid));
        stat.is_ok_and(|text| pid::stat(&text).is_ok_and(|stat| stat.state == 'R'))
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST_GIVEN_UP, Patience};
    use std::sync::mpsc;

    #[test]
    fn a_read_that_does_not_end_is_given_up_and_not_tried_again() {
        let mut patience = Patience::default();
        assert_eq!(patience.ask(1, || 1), Some(1));
        let (keep, never) = mpsc::channel::<()>();
        assert_eq!(patience.ask(2, move || never.recv().is_ok()), None);
        assert_eq!(patience.ask(2, || ()), None, "it is not asked about again");
        assert_eq!(patience.ask(3, || 3), Some(3), "others are");
        drop(keep);
    }

    #[test]
    fn a_read_that_computes_is_waited_for() {
        let begin = std::time::Instant::now();
        let busy = move || while begin.elapsed() < super::PATIENCE * 2 {};
        assert_eq!(Patience::default().ask(1, busy), Some(()));
    }

    #[test]
    fn no_more_threads_than_that_are_given_up() {
        let mut patience = Patience::default();
        for pid in 1..=MOST_GIVEN_UP as u32 {
            assert_eq!(patience.ask(pid, || panic!("as a thread that is gone")), None::<()>);
        }
        assert_eq!(patience.ask(99, || ()), None);
    }
}
