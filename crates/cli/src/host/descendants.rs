// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The processes below a process, and their end. Their numbers are looked at again through a handle before anything is done
//! to them, so that one that got a number later is never touched.

use super::task::Process;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;

/// Most generations between a process and one below it.
const MAX_GENERATIONS: u32 = 1000;

/// The number of the parent of a process that has not ended.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = Process::of(pid).ok()?.stat().ok()?;
    i32::try_from(stat.ppid).ok()
}

/// Whether `pid` is a running process below `ancestor`.
fn is_below(mut pid: i32, ancestor: i32) -> bool {
    for _ in 0..MAX_GENERATIONS {
        match parent_of(pid) {
            Some(parent) if parent == ancestor => return true,
            Some(parent) if parent > 1 => pid = parent,
            _ => return false,
        }
    }
    false
}

/// The numbers of the running processes below that one, ascending.
pub(crate) fn below(ancestor: i32) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut below: Vec<i32> = pids.filter(|pid| is_below(*pid, ancestor)).collect();
    below.sort_unstable();
    below
}

/// Kills the processes that are below that one now, the latest first. Returns how many there were. One whose parent ends at
/// that moment stays below only if `ancestor` adopts orphans.
pub(crate) fn kill_below(ancestor: i32) -> usize {
    let all = below(ancestor);
    for &pid in all.iter().rev() {
        let Some(handle) =
            Pid::from_raw(pid).and_then(|it| pidfd_open(it, PidfdFlags::empty()).ok())
        else {
            continue;
        };
        if is_below(pid, ancestor) {
            let _ = pidfd_send_signal(handle, Signal::KILL);
        }
    }
    all.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn what_a_process_has_started_is_below_it_and_ends_with_it() {
        let mut shell = Command::new("sh")
            .args(["-c", "(sleep 600; true) & sleep 600 & wait"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let pid = i32::try_from(shell.id()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        // A shell of its own with its program, and the program beside it.
        while below(pid).len() < 3 {
            assert!(Instant::now() < deadline, "{:?}", below(pid));
            std::thread::sleep(Duration::from_millis(10));
        }
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(below(own).contains(&pid) && !below(pid).contains(&own));
        assert!(!below(pid).contains(&pid));
        while kill_below(pid) > 0 {
            assert!(Instant::now() < deadline, "{:?}", below(pid));
        }
        shell.kill().unwrap();
        shell.wait().unwrap();
        assert_eq!(below(pid), Vec::<i32>::new());
    }
}
