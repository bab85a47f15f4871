// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command under test: started in a run's cgroup, waited for, and ended with all that it started.

use super::ground::{Ground, RunGroup};
use super::load::Target;
use super::variants::Settings;
use crate::failure::Failure;
use anyhow::{Context as _, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::io::{PipeReader, Read as _, pipe};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often it is looked whether it is there.
const LOOK: Duration = Duration::from_millis(10);
/// Longest time that a connection on this host may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Of its output, so many bytes at the end are shown when it fails.
const TAIL_BYTES: usize = 600;
/// Longest wait for the rest of it.
const OUTPUT_TIMEOUT: Duration = Duration::from_millis(200);

/// A running command. Dropping it kills it; what it started goes with its cgroup.
#[derive(Debug)]
pub(crate) struct Service {
    child: Child,
    name: String,
    output: Output,
}

/// The end of what a command wrote: however much it is, neither a disk nor memory fills.
#[derive(Debug)]
struct Output {
    tail: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Service {
    /// Starts it.
    pub(crate) fn start(
        ground: &Ground,
        group: &RunGroup,
        words: &[OsString],
        settings: &Settings,
    ) -> Result<Self> {
        let (output, writer) = pipe().context("cannot keep the command's output")?;
        // It becomes the command once it is in the cgroup, so that nothing of that runs outside.
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
        // Ctrl-C ends the sweep, and that the command.
        command.process_group(0);
        let child = command.spawn().context("cannot start a process")?;
        let name = words.first().map_or(String::new(), |word| word.display().to_string());
        Ok(Self { child, name, output: Output::read(output)? })
    }

    /// Waits until something listens at one of the addresses; returns that. `stop` is asked meanwhile.
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
                    self.last_output()
                )));
            }
            thread::sleep(LOOK);
        }
    }

    /// An error if it has ended.
    pub(crate) fn must_run(&mut self, when: &str) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => Err(self.ended(status, when)),
            None => Ok(()),
        }
    }

    /// Waits for its end, so long at most; its exit status if that came.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<Option<ExitStatus>> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let handle = pidfd_open(pid.context("a process has a pid")?, PidfdFlags::empty())?;
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(timeout.subsec_nanos()) };
        match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&timeout)) {
            // Whatever it was, whoever waits looks at the process and asks again.
            Ok(_) | Err(Errno::INTR) => Ok(self.child.try_wait()?),
            Err(error) => Err(error).context("cannot wait for the command"),
        }
    }

    /// That it has ended, as an error.
    pub(crate) fn ended(&self, status: ExitStatus, when: &str) -> anyhow::Error {
        let stay = if status.success() { ", but must stay in the foreground" } else { "" };
        Failure::bad_input(format!(
            "`{}` ended ({status}) {when}{stay}{}",
            self.name,
            self.last_output()
        ))
    }

    /// The end of what it wrote, to be put behind a sentence.
    pub(crate) fn last_output(&self) -> String {
        let bytes = self.output.end();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        match lines.as_slice() {
            [] => "; it wrote nothing".into(),
            lines => format!("; it wrote: {}", lines.join(" / ")),
        }
    }
}

impl Output {
    /// Reads until all that write to it are gone.
    fn read(mut from: PipeReader) -> Result<Self> {
        let tail = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&tail);
        let read = move || {
            let mut bytes = [0; 1 << 16];
            while let Ok(read @ 1..) = from.read(&mut bytes) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&bytes[..read]);
                let surplus = kept.len().saturating_sub(TAIL_BYTES);
                kept.drain(..surplus);
            }
        };
        let reader = thread::Builder::new().name("output".into()).spawn(read);
        Ok(Self { tail, reader: reader.context("cannot read the command's output")? })
    }

    /// What came last. Of a command that has ended that is all of it; one that runs may go on.
    fn end(&self) -> Vec<u8> {
        let deadline = Instant::now() + OUTPUT_TIMEOUT;
        while !self.reader.is_finished() && Instant::now() < deadline {
            thread::sleep(LOOK);
        }
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether somebody listens there already: what is measured would be not the command.
pub(crate) fn taken(target: &Target) -> bool {
    TcpStream::connect_timeout(&target.address(), CONNECT_TIMEOUT).is_ok()
}
