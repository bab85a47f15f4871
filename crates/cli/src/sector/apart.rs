// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lets another process look. It may wait for a disk, or for the server of a filesystem, that never answers, where no
//! signal ends it. It is given up once it has waited for long without going on.

use crate::failure::{Exit, Failure};
use deburr_core::procfs::pid;
use std::ffi::OsString;
use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// Time without a step after which a process is given up. A disk that answers at all does so within it.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(10);
/// Interval at which it is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Children of children that are followed.
const MAX_DEPTH: usize = 8;

/// What a process is doing: if nothing of it changes, it waits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    pid: u32,
    switches: Vec<String>,
}

/// Runs this program with those arguments and that input. Returns what it printed, and its exit status.
pub(crate) fn run(arguments: &[OsString], input: String) -> anyhow::Result<(Vec<u8>, Exit)> {
    let failed = |error: std::io::Error| {
        Failure::error(Exit::Missing, format!("cannot start the process that looks: {error}"))
    };
    let mut command = Command::new("/proc/self/exe");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let (Some(mut to), Some(mut from)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(failed(std::io::ErrorKind::BrokenPipe.into()));
    };
    // If it has ended, its output is missing.
    std::thread::spawn(move || to.write_all(input.as_bytes()));
    let (send, printed) = sync_channel(1);
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let read = from.read_to_end(&mut text);
        // Nobody receives it if the process was given up.
        let _ = send.send(read.map(|_| text));
    });
    let (mut last, mut since) = (None, Instant::now());
    loop {
        match printed.recv_timeout(LOOK_EVERY) {
            Ok(text) => return Ok((text.map_err(failed)?, exit_of(&mut child)?)),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(failed(std::io::ErrorKind::BrokenPipe.into()));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = step(child.id());
        if now.is_none() || now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() > GIVEN_UP_AFTER {
            // It ends when what it waits for does.
            let _ = child.kill();
            return Err(Failure::error(
                Exit::Missing,
                format!(
                    "given up: a disk, or the server of a filesystem that the path of a file leads through, has not \
                     answered for {} s",
                    GIVEN_UP_AFTER.as_secs()
                ),
            ));
        }
    }
}

fn exit_of(child: &mut Child) -> anyhow::Result<Exit> {
    let status = child.wait()?;
    match status.code() {
        Some(0) => Ok(Exit::Done),
        Some(3) => Ok(Exit::Missing),
        Some(4) => Ok(Exit::Output),
        Some(_) => Ok(Exit::BadInput),
        None => {
            Err(Failure::error(Exit::Missing, format!("the process that looks ended: {status}")))
        }
    }
}

/// What the process does, or the one that it waits for; `None` if it computes.
fn step(child: u32) -> Option<Step> {
    let mut pid = child;
    for _ in 0..MAX_DEPTH {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let first = children.unwrap_or_default().split_whitespace().next().map(str::parse);
        match first {
            Some(Ok(below)) => pid = below,
            _ => break,
        }
    }
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    if pid::stat(&stat).ok()?.state == 'R' {
        return None;
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let switches = status.lines().filter(|line| line.contains("ctxt_switches"));
    Some(Step { pid, switches: switches.map(str::to_owned).collect() })
}
