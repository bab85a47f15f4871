// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a command again and again beside a block, and takes how long it takes: a request to the service that suffers.

use crate::clock::monotonic_ns;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Pause between two runs, so that the command itself is no load.
const PAUSE: Duration = Duration::from_millis(50);
/// A run that takes longer has failed.
const LONGEST: Duration = Duration::from_secs(10);
/// Most runs of a block that are kept.
const MOST: usize = 100_000;

/// What the runs of a block took.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs {
    /// Times of the runs that succeeded, in nanoseconds.
    pub(crate) took_ns: Vec<f64>,
    /// Number of runs that failed, or took longer than [`LONGEST`].
    pub(crate) failed: u64,
}

/// A command that is being run.
#[derive(Debug)]
pub(crate) struct Probe {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Runs>>,
}

impl Probe {
    /// Starts to run a shell command.
    pub(crate) fn start(command: &str) -> Self {
        let (command, stop) = (command.to_owned(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut runs = Runs::default();
            while !stopped.load(Ordering::Relaxed) {
                let begun_ns = monotonic_ns();
                let succeeded = run(&command, &stopped);
                let took_ns = monotonic_ns().saturating_sub(begun_ns);
                match succeeded {
                    Some(true) if runs.took_ns.len() < MOST => runs.took_ns.push(took_ns as f64),
                    Some(true) => {}
                    Some(false) => runs.failed += 1,
                    // It was cut off by the end of the block.
                    None => {}
                }
                thread::sleep(PAUSE);
            }
            runs
        });
        Self { stop, thread: Some(thread) }
    }

    /// Ends it, and returns what the runs took.
    pub(crate) fn finish(mut self) -> Runs {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Whether one run of a shell command succeeds.
pub(crate) fn succeeds(command: &str) -> bool {
    run(command, &AtomicBool::new(false)) == Some(true)
}

/// Whether one run succeeded; `None` if it was ended because the block ended.
fn run(command: &str, stop: &AtomicBool) -> Option<bool> {
    let child = Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    let Ok(mut child) = child else { return Some(false) };
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) if stop.load(Ordering::Relaxed) => {
                end(&mut child);
                return None;
            }
            Ok(None) if begun.elapsed() < LONGEST => thread::sleep(Duration::from_micros(500)),
            _ => {
                end(&mut child);
                return Some(false);
            }
        }
    }
}

/// Ends a run and what it started.
fn end(child: &mut Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn for_a_while(command: &str) -> Runs {
        let probe = Probe::start(command);
        thread::sleep(Duration::from_millis(700));
        probe.finish()
    }

    #[test]
    fn runs_are_timed_and_failures_are_counted() {
        let runs = for_a_while("sleep 0.05");
        assert!(runs.took_ns.iter().all(|ns| *ns >= 5e7) && runs.failed == 0, "{runs:?}");
        assert!((1..=14).contains(&runs.took_ns.len()), "{runs:?}");
        let runs = for_a_while("exit 3");
        assert!(runs.took_ns.is_empty() && runs.failed > 0, "{runs:?}");
    }

    #[test]
    fn a_run_that_hangs_ends_with_the_block_and_is_no_failure() {
        let begun = Instant::now();
        let runs = for_a_while("sleep 60 & sleep 60");
        assert!(begun.elapsed() < Duration::from_secs(30));
        assert!(runs.took_ns.is_empty() && runs.failed == 0, "{runs:?}");
    }
}
