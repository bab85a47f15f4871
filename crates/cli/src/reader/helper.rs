// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process that reads, as the one that asks sees it: two pipes, and patience.

use super::NotRead;
use super::protocol::{self, Question, Reply};
use crate::collect::Roots;
use deburr_core::procfs::pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::time::{Duration, Instant};

/// How long an answer may take. A page of a program file that is read from a slow disk takes less.
pub(super) const PATIENCE: Duration = Duration::from_millis(500);
/// How long it may take while the process that reads computes, or has no CPU.
const STARVED_PATIENCE: Duration = Duration::from_secs(3);
/// Interval at which it is checked whether that is so.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long the process is waited for once nothing is asked of it any more. It usually needs less than a millisecond.
const ENDS_WITHIN: Duration = Duration::from_millis(100);
/// Part of an answer that is read at once.
const READ_BYTES: usize = 16 << 10;

/// A process that answers questions.
#[derive(Debug)]
pub(super) struct Helper {
    /// `None` once nothing is asked any more.
    to: Option<File>,
    from: OwnedFd,
    child: Option<Child>,
    pub(super) pid: u32,
    /// CPU time that it has used, as of its last answer.
    pub(super) cpu_ns: u64,
    is_stuck: bool,
}

impl Helper {
    /// Starts a process: this program again.
    #[cfg(not(test))]
    pub(super) fn start(roots: &Roots) -> io::Result<Self> {
        use std::os::unix::process::CommandExt as _;
        use std::process::{Command, Stdio};
        // The file that this process runs, even if its path leads to another file by now. It keeps none of this
        // process's files open, or those who read its output would wait for a process that is stuck.
        let mut child = Command::new("/proc/self/exe")
            .arg0("deburr")
            .arg("reader")
            .args([&roots.proc, &roots.sys, &roots.root])
            .env_clear()
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let (to, from, pid) = (OwnedFd::from(to), OwnedFd::from(from), child.id());
        Ok(Self { to: Some(to.into()), from, pid, child: Some(child), cpu_ns: 0, is_stuck: false })
    }

    /// Starts a thread in its place: a unit test is another program.
    #[cfg(test)]
    pub(super) fn start(roots: &Roots) -> io::Result<Self> {
        use std::os::unix::net::UnixStream;
        let (own, its) = UnixStream::pair()?;
        let (roots, mut its_input) = (roots.clone(), its.try_clone()?);
        let (send_tid, tid) = std::sync::mpsc::sync_channel(1);
        std::thread::spawn(move || {
            send_tid.send(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()).unwrap();
            let mut its_output = its;
            super::serve::serve(&roots, &mut its_input, &mut its_output)
        });
        let (to, from) = (OwnedFd::from(own.try_clone()?), OwnedFd::from(own));
        let pid = tid.recv().map_err(io::Error::other)?;
        Ok(Self { to: Some(to.into()), from, pid, child: None, cpu_ns: 0, is_stuck: false })
    }

    /// The answer to a question, if it comes in time. After an error it must not be asked again.
    pub(super) fn ask<T: DeserializeOwned>(&mut self, question: &Question) -> Result<T, NotRead> {
        self.ask_within(Some(PATIENCE), question)
    }

    /// The answer to a question, however long it takes: for what limits itself.
    pub(super) fn ask_patiently<T: DeserializeOwned>(
        &mut self,
        question: &Question,
    ) -> Result<T, NotRead> {
        self.ask_within(None, question)
    }

    fn ask_within<T: DeserializeOwned>(
        &mut self,
        patience: Option<Duration>,
        question: &Question,
    ) -> Result<T, NotRead> {
        // A question is shorter than the buffer of a pipe, which is empty.
        let sent = self.to.as_mut().map(|to| protocol::send(to, question));
        let reply = match sent {
            Some(Ok(())) => self.wait::<Reply<T>>(patience),
            _ => Err(NotRead::Failed),
        };
        match reply {
            Ok(reply) => {
                self.cpu_ns = reply.cpu_ns;
                Ok(reply.answer)
            }
            Err(why) => {
                self.give_up();
                Err(why)
            }
        }
    }

    fn wait<T: DeserializeOwned>(&self, patience: Option<Duration>) -> Result<T, NotRead> {
        let begin = Instant::now();
        let mut end = patience.map(|patience| begin + patience);
        let mut received = Vec::new();
        loop {
            let timeout = end.map(|end| {
                let left = end.saturating_duration_since(Instant::now());
                Timespec {
                    tv_sec: left.as_secs().cast_signed(),
                    tv_nsec: left.subsec_nanos().into(),
                }
            });
            match poll(&mut [PollFd::new(&self.from, PollFlags::IN)], timeout.as_ref()) {
                Err(Errno::INTR) => continue,
                Err(_) => return Err(NotRead::Failed),
                Ok(0) if self.is_runnable() && begin.elapsed() < STARVED_PATIENCE => {
                    end = Some(Instant::now() + LOOK_EVERY);
                    continue;
                }
                Ok(0) => return Err(NotRead::Stuck),
                Ok(_) => {}
            }
            let before = received.len();
            received.resize(before + READ_BYTES, 0);
            let read = match rustix::io::read(&self.from, &mut received[before..]) {
                Ok(0) => return Err(NotRead::Failed),
                Ok(read) => read,
                Err(Errno::INTR) => 0,
                Err(_) => return Err(NotRead::Failed),
            };
            received.truncate(before + read);
            match protocol::message(&received) {
                Ok(Some(reply)) => return Ok(reply),
                Ok(None) => {}
                Err(_) => return Err(NotRead::Failed),
            }
        }
    }

    /// Whether the process computes, or waits for a CPU only.
    fn is_runnable(&self) -> bool {
        let stat = std::fs::read(format!("/proc/{}/stat", self.pid));
        stat.is_ok_and(|text| pid::stat(&text).is_ok_and(|stat| stat.state == 'R'))
    }

    /// Leaves the process behind: it ends when what it waits for does. Nothing here waits for that.
    fn give_up(&mut self) {
        self.is_stuck = true;
        if let Some(child) = &mut self.child {
            let _ = child.kill();
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // The process ends at the end of its input.
        self.to = None;
        let begin = Instant::now();
        while let Some(child) = &mut self.child {
            let has_ended = !matches!(child.try_wait(), Ok(None));
            if has_ended || self.is_stuck || begin.elapsed() > ENDS_WITHIN {
                break;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}
