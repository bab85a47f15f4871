// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a child process used: `wait4`, which has no safe wrapper.

use std::io;

/// How a child ended, and what it and its own children that were waited for used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its exit status, if it was not killed.
    pub code: Option<i32>,
    /// The signal that killed it.
    pub signal: Option<i32>,
    /// CPU time in user space, in nanoseconds.
    pub user_ns: u64,
    /// CPU time in the kernel, in nanoseconds.
    pub system_ns: u64,
    /// Greatest resident set of one of them, in bytes.
    pub max_rss_bytes: u64,
    /// Context switches because it waited.
    pub voluntary: u64,
    /// Context switches because another thread was to run.
    pub involuntary: u64,
}

/// Waits for the child of this pid, until it ends or a signal arrives (`None`).
///
/// # Errors
/// `ECHILD` if it is none of this process, or was waited for before.
pub fn wait(pid: u32) -> io::Result<Option<Ended>> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut status = 0;
    // SAFETY: plain numbers; all zeroes are a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both are ours, of the types that the call writes.
    let done = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
    if done < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted { Ok(None) } else { Err(error) };
    }
    let ns = |time: libc::timeval| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        seconds * 1_000_000_000 + u64::try_from(time.tv_usec).unwrap_or(0) * 1000
    };
    let count = |number: libc::c_long| u64::try_from(number).unwrap_or(0);
    Ok(Some(Ended {
        code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
        user_ns: ns(usage.ru_utime),
        system_ns: ns(usage.ru_stime),
        // In units of 1024 bytes.
        max_rss_bytes: count(usage.ru_maxrss) * 1024,
        voluntary: count(usage.ru_nvcsw),
        involuntary: count(usage.ru_nivcsw),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    #[allow(clippy::zombie_processes, reason = "it is waited for, by its pid")]
    fn how_a_child_ended_is_told() {
        let end = |script: &str| {
            let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
            wait(child.id()).unwrap().unwrap()
        };
        assert_eq!((end("exit 7").code, end("exit 7").signal), (Some(7), None));
        assert_eq!((end("kill -9 $$").code, end("kill -9 $$").signal), (None, Some(9)));
        assert!(wait(1).is_err());
    }
}
