// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process that is stopped for a part of every second: never longer than 900 ms at a time.

use super::{Step, threads};
use crate::failure::Failure;
use crate::host::task::Process;
use anyhow::{Context as _, Result};
use deburr_core::prove::knob::{Knob, Values};
use rustix::process::{Signal, pidfd_send_signal};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A process is stopped and goes on once in this time.
const CYCLE: Duration = Duration::from_secs(1);

pub(super) fn resolve(knob: &Knob) -> Result<Vec<Step>> {
    let process = threads::process(knob)?;
    let refused = |why: &str| Failure::bad_input(format!("`{knob}`: {why}"));
    let stat = process.stat()?;
    if stat.kernel_thread || process.pid == 1 {
        return Err(refused("the kernel and the first process must not be stopped"));
    }
    if "Tt".contains(stat.state) {
        return Err(refused("it is stopped already, and would have to stay so afterwards"));
    }
    let mut pid = i32::try_from(std::process::id())?;
    while pid > 1 {
        if pid == process.pid {
            return Err(refused("it is this experiment itself, or what it was started from"));
        }
        pid = Process::of(pid).and_then(|it| it.stat()).map_or(0, |stat| stat.ppid.cast_signed());
    }
    let percent = Values::percent(knob.value()).context("a percentage")?;
    Ok(vec![Step::Pause { process, percent }])
}

/// A process that is stopped again and again until this is dropped. Should this process end instead, the janitor lets it
/// go on.
#[derive(Debug)]
pub(in crate::prove) struct Pause {
    process: Process,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Pause {
    /// Begins to stop a process for so many percent of each second.
    pub(in crate::prove) fn begin(process: Process, percent: u32) -> Result<Self> {
        let handle = process.handle().with_context(|| format!("cannot stop {process}"))?;
        let stopped = CYCLE * percent / 100;
        let (stop, told) = channel::<()>();
        let is_over =
            move |wait| !matches!(told.recv_timeout(wait), Err(RecvTimeoutError::Timeout));
        let run = move || {
            // When the process has ended, there is nothing to stop any more.
            while pidfd_send_signal(&handle, Signal::STOP).is_ok() {
                let over = is_over(stopped);
                let _ = pidfd_send_signal(&handle, Signal::CONT);
                if over || is_over(CYCLE - stopped) {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("pause".into()).spawn(run);
        let thread = thread.context("cannot start a thread")?;
        Ok(Self { process, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // If this fails, the janitor tries again.
        let _ = self.process.go_on();
    }
}
