// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the command that is measured. It has the caller's input, output, terminal and user, and is never ended early:
//! signals that only this program gets are passed on to it.

use super::Meter;
use crate::clock::monotonic_ns;
use crate::signals::Signals;
use deburr_sys::child::{self, ExitedChild};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use rustix::time::Timespec;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Command;

/// Time between two checks for signals.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A run that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FinishedRun {
    /// Pid of the command.
    pub(crate) pid: u32,
    /// Time from just before its start to just after its end.
    pub(crate) wall_ns: u64,
    /// How it ended, and the resources that it used.
    pub(crate) ended: ExitedChild,
}

/// Why there was no run.
#[derive(Debug)]
pub(crate) enum RunError {
    /// The command could not be started.
    Start(io::Error),
    /// The command was started, but could not be waited for.
    Wait(io::Error),
}

/// Runs the command once, measured by the meter. With `stdout_is_taken`, its standard output goes to stderr.
pub(crate) fn run_command(
    meter: &mut Meter,
    words: &[OsString],
    stdout_is_taken: bool,
    signals: &Signals,
) -> Result<FinishedRun, RunError> {
    let (program, arguments) =
        words.split_first().ok_or_else(|| RunError::Start(io::ErrorKind::InvalidInput.into()))?;
    let mut command = Command::new(program);
    command.args(arguments);
    if stdout_is_taken {
        command.stdout(io::stderr());
    }
    meter.starts(true);
    let begun_ns = monotonic_ns();
    let child = command.spawn();
    meter.starts(false);
    let child = child.map_err(RunError::Start)?;
    let pid = child.id();
    wait_until_over(pid, signals);
    let ended = loop {
        // A command that ignores signals is waited for.
        if let Some(ended) = child::wait(pid).map_err(RunError::Wait)? {
            break ended;
        }
    };
    let wall_ns = monotonic_ns().saturating_sub(begun_ns);
    Ok(FinishedRun { pid, wall_ns, ended })
}

/// Returns when the process has ended, and passes signals on. An interrupt from the terminal reaches the command by
/// itself.
fn wait_until_over(pid: u32, signals: &Signals) {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    let mut passed_on = false;
    while !is_over(&handle) {
        match signals.pending() {
            Some("SIGTERM") if !passed_on => {
                passed_on = true;
                let _ = kill_process(pid, Signal::TERM);
            }
            Some("SIGINT") if !passed_on => {
                passed_on = true;
                if !rustix::termios::isatty(io::stdin()) {
                    let _ = kill_process(pid, Signal::INT);
                }
            }
            _ => {}
        }
    }
}

/// Waits for [`LOOK`] at most. Returns whether the process has ended.
fn is_over(handle: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(handle, PollFlags::IN)];
    match poll(&mut fds, Some(&LOOK)) {
        Ok(ready) => ready > 0,
        Err(error) => error != rustix::io::Errno::INTR,
    }
}
