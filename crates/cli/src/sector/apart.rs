// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lets another process look. It may wait for a disk, or for the server of a filesystem, that never answers, where no
//! signal ends it. It is given up once it has waited for long without going on. Then others look at parts of the sectors,
//! so that those are given up only for which there is no answer.

use crate::failure::{Exit, Failure};
use deburr_core::procfs::pid;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// Time without a step after which a process is given up. A disk that answers at all does so within it.
pub(crate) const GIVEN_UP_AFTER: Duration = Duration::from_secs(10);
/// The same for a process that looks at a part of the sectors, and the time in which that is done.
pub(crate) const PART_GIVEN_UP_AFTER: Duration = Duration::from_secs(5);
pub(crate) const PARTS_END_AFTER: Duration = Duration::from_secs(60);
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

/// Runs this program with those arguments and that input. Returns what it printed, and its exit status; `None` if it was
/// given up because it took no step for that long.
pub(crate) fn run(
    arguments: &[OsString],
    input: String,
    given_up_after: Duration,
) -> anyhow::Result<Option<(Vec<u8>, Exit)>> {
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
            Ok(text) => return Ok(Some((text.map_err(failed)?, exit_of(&mut child)?))),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(failed(std::io::ErrorKind::BrokenPipe.into()));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = step(child.id());
        if now.is_none() || now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() > given_up_after {
            // It ends when what it waits for does.
            let _ = child.kill();
            return Ok(None);
        }
    }
}

/// Why something is not known that was given up.
pub(crate) fn given_up() -> String {
    format!(
        "given up: a disk, or the server of a filesystem that the path of a file leads through, has not answered for \
         {} s",
        GIVEN_UP_AFTER.as_secs()
    )
}

/// The answers for sectors that were given up together: halves of them are asked for, and halves of those that are given
/// up. `None` for those that are given up by themselves, or for which no time is left. `ask` returns an answer for each
/// sector, or `None` if it gives them up.
pub(crate) fn by_parts<A>(
    sectors: &[u64],
    mut is_time_left: impl FnMut() -> bool,
    mut ask: impl FnMut(&[u64]) -> anyhow::Result<Option<Vec<A>>>,
) -> anyhow::Result<Vec<Option<A>>> {
    let mut answers: Vec<Option<A>> = sectors.iter().map(|_| None).collect();
    // Neighbours have more in common.
    let mut all: Vec<usize> = (0..sectors.len()).collect();
    all.sort_by_key(|&index| sectors[index]);
    let mut waiting = VecDeque::from([all]);
    let mut is_first = true;
    while let Some(part) = waiting.pop_front() {
        let wanted: Vec<u64> = part.iter().map(|&index| sectors[index]).collect();
        // All of them together were given up already.
        let answered = if is_first { None } else { ask(&wanted)? };
        match answered {
            Some(answered) => {
                for (&index, answer) in part.iter().zip(answered) {
                    answers[index] = Some(answer);
                }
            }
            None if part.len() > 1 => {
                let (low, high) = part.split_at(part.len() / 2);
                waiting.extend([low.to_vec(), high.to_vec()]);
            }
            None => {}
        }
        is_first = false;
        if !is_time_left() {
            break;
        }
    }
    Ok(answers)
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

#[cfg(test)]
mod tests {
    use super::by_parts;

    #[test]
    fn only_those_are_given_up_that_have_no_answer_by_themselves() {
        let sectors: Vec<u64> = (0..40).rev().collect();
        let mut asked = 0;
        let answers = by_parts(
            &sectors,
            || true,
            |part| {
                asked += 1;
                let silent = part.iter().any(|sector| [7, 31].contains(sector));
                Ok((!silent).then(|| part.to_vec()))
            },
        );
        for (answer, sector) in answers.unwrap().into_iter().zip(sectors) {
            assert_eq!(answer, (![7, 31].contains(&sector)).then_some(sector));
        }
        assert!(asked <= 24, "asked {asked} times");
    }

    #[test]
    fn when_no_time_is_left_what_was_answered_stays() {
        let mut left = 3;
        let answers = by_parts(
            &[1, 2, 3, 4],
            || {
                left -= 1;
                left > 0
            },
            |part| Ok((!part.contains(&4)).then(|| part.to_vec())),
        );
        assert_eq!(answers.unwrap(), [Some(1), Some(2), None, None]);
    }
}
