// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command under test: starts it in a run's cgroup, waits for it to listen or to end, and keeps the end of its
//! output.

use super::cgroups::{RunGroup, SweepCgroups};
use super::load::Target;
use super::variants::Settings;
use crate::failure::Failure;
use crate::tail::Tail;
use anyhow::{Context as _, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::io::pipe;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Interval between two checks for a listening service.
const LOOK: Duration = Duration::from_millis(10);
/// Longest time that a connection attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A running command. Dropping this value kills the command; its descendants are killed with the run's cgroup.
#[derive(Debug)]
pub(crate) struct Service {
    child: Child,
    name: String,
    output: Tail,
}

impl Service {
    /// Starts the command in the run's cgroup, with the variant's environment.
    pub(crate) fn start(
        ground: &SweepCgroups,
        group: &RunGroup,
        words: &[OsString],
        settings: &Settings,
    ) -> Result<Self> {
        let (output, writer) = pipe().context("cannot keep the command's output")?;
        // The worker joins the cgroup before it executes the command, so that no part of the command runs outside.
        let mut command = Command::new(ground.program());
        command.arg("lab-worker");
        for dir in group.dirs() {
            command.arg("--cgroup").arg(dir);
        }
        command.arg(format!("--nice={}", ground.nice())).args(["tool", "--"]).args(words);
        for (name, value) in settings {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        // Ctrl-C must reach only the sweep, which then ends the command.
        command.process_group(0);
        let child = command.spawn().context("cannot start a process")?;
        let name = words.first().map_or(String::new(), |word| word.display().to_string());
        Ok(Self { child, name, output: Tail::read(output)? })
    }

    /// Waits until one of the addresses accepts connections, and returns it; `None` if `stop` asked for the end.
    ///
    /// # Errors
    ///
    /// If the command ends, or `timeout` passes, before that.
    pub(crate) fn wait_for(
        &mut self,
        addresses: &[SocketAddr],
        timeout: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<SocketAddr>> {
        let deadline = Instant::now() + timeout;
        let shown: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
        let shown = shown.join(" or ");
        let mut last = String::new();
        loop {
            for address in addresses {
                match TcpStream::connect_timeout(address, CONNECT_TIMEOUT) {
                    Ok(_) => return Ok(Some(*address)),
                    Err(error) => last = error.to_string(),
                }
            }
            if let Some(status) = self.child.try_wait()? {
                let before = format!("before it listened at {shown}");
                return Err(self.ended(status, &before));
            }
            if stop() {
                return Ok(None);
            }
            if Instant::now() > deadline {
                return Err(Failure::bad_input(format!(
                    "`{}` does not listen at {shown} after {} s ({last}): check the address, or give it \
                     longer with --start-timeout{}",
                    self.name,
                    timeout.as_secs_f64(),
                    self.output.words()
                )));
            }
            thread::sleep(LOOK);
        }
    }

    /// Fails if the command has ended.
    pub(crate) fn must_run(&mut self, when: &str) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => Err(self.ended(status, when)),
            None => Ok(()),
        }
    }

    /// Waits for the command to end, for at most `timeout`, which must be below 1 s. Returns its exit status if it
    /// ended. May return early.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<Option<ExitStatus>> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let handle = pidfd_open(pid.context("a process has a pid")?, PidfdFlags::empty())?;
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(timeout.subsec_nanos()) };
        match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&timeout)) {
            // Whatever woke this thread up, check the process; the caller calls again if it still runs.
            Ok(_) | Err(Errno::INTR) => Ok(self.child.try_wait()?),
            Err(error) => Err(error).context("cannot wait for the command"),
        }
    }

    /// The end of its output, as a clause to append to a sentence.
    pub(crate) fn last_output(&self) -> String {
        self.output.words()
    }

    /// The error for a command that has ended although it must not.
    pub(crate) fn ended(&self, status: ExitStatus, when: &str) -> anyhow::Error {
        let stay = if status.success() { ", but must stay in the foreground" } else { "" };
        Failure::bad_input(format!(
            "`{}` ended ({status}) {when}{stay}{}",
            self.name,
            self.output.words()
        ))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether something already listens at the address. It would be measured instead of the command.
pub(crate) fn taken(target: &Target) -> bool {
    TcpStream::connect_timeout(&target.address(), CONNECT_TIMEOUT).is_ok()
}
