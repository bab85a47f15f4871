// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exit status and resource usage of a child process: `wait4`, which has no safe wrapper.

use std::io;

/// How a child ended, and the resources used by it and by those of its own children that it waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitedChild {
    /// Exit status, unless it was killed by a signal.
    pub code: Option<i32>,
    /// The signal that killed it, if one did.
    pub signal: Option<i32>,
    /// CPU time in user space, in nanoseconds.
    pub user_ns: u64,
    /// CPU time in the kernel, in nanoseconds.
    pub system_ns: u64,
    /// Peak resident set size of the largest of these processes, in bytes.
    pub max_rss_bytes: u64,
    /// Voluntary context switches: the thread blocked.
    pub voluntary: u64,
    /// Involuntary context switches: the thread was preempted.
    pub involuntary: u64,
}

/// Waits for the child with this pid to end; `None` = a signal arrived first.
///
/// # Errors
/// `ECHILD` if it is not a child of this process, or was waited for before.
pub fn wait(pid: u32) -> io::Result<Option<ExitedChild>> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut status = 0;
    // SAFETY: a struct of integers, for which all zeroes is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to our own variables, of the types that the call writes.
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
    Ok(Some(ExitedChild {
        code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
        user_ns: ns(usage.ru_utime),
        system_ns: ns(usage.ru_stime),
        // `ru_maxrss` is in units of 1024 bytes.
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
