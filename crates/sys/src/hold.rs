// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starts a program and holds it before its first instruction, until it is released (`ptrace`).
//!
//! Who observes a program from its beginning needs its pid before it runs, and has to know that it could be started
//! at all. A stop before `execve` gives only the former.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

/// A program that has not run yet. The kernel releases it, too, when the thread that started it ends.
#[derive(Debug)]
pub struct Held {
    pid: libc::pid_t,
}

/// Starts the command that `make` returns. `None` beside the child: it could not be held, and runs already.
///
/// Only root holds programs: the kernel denies a traced program the rights of its set-user-ID bit, unless the tracer
/// has them too. A program is not held either where tracing is forbidden, or if this process is traced itself,
/// together with its children.
///
/// # Errors
/// Why the program cannot be started, as [`Command::spawn`] says it.
pub fn spawn(make: impl Fn() -> Command) -> io::Result<(Child, Option<Held>)> {
    // SAFETY: the call has no arguments and always succeeds.
    if unsafe { libc::geteuid() } == 0 {
        let mut command = make();
        // SAFETY: the closure makes one system call, which is allowed between fork and exec, and allocates nothing.
        unsafe { command.pre_exec(trace_me) };
        // On any error the second attempt, without tracing, says whether it was that of the program.
        if let Ok(child) = command.spawn() {
            let held = stopped_at_exec(&child);
            return Ok((child, held));
        }
    }
    Ok((make().spawn()?, None))
}

fn trace_me() -> io::Result<()> {
    // SAFETY: this request ignores its other arguments.
    match unsafe { libc::ptrace(libc::PTRACE_TRACEME) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits for the stop after `execve`, which follows at once; `None` if the child was killed instead.
fn stopped_at_exec(child: &Child) -> Option<Held> {
    let pid = libc::pid_t::try_from(child.id()).ok()?;
    // An end is left for whoever waits for the child, a stop is not: waiting would take it for an end.
    let code = waited(child.id(), libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT)?;
    if !matches!(code, libc::CLD_TRAPPED | libc::CLD_STOPPED) {
        return None;
    }
    waited(child.id(), libc::WSTOPPED | libc::WNOHANG)?;
    Some(Held { pid })
}

/// What the child did (`CLD_*`); `None` if it is not to be waited for.
fn waited(pid: libc::id_t, options: libc::c_int) -> Option<libc::c_int> {
    loop {
        // SAFETY: a struct of integers, for which all zeroes is a valid value.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to our own variable, of the type that the call writes.
        if unsafe { libc::waitid(libc::P_PID, pid, &raw mut info, options) } == 0 {
            return Some(info.si_code);
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return None;
        }
    }
}

impl Held {
    /// Lets the program run. It has to be called by the thread that started it; one that was killed stays so.
    pub fn release(self) {
        drop(self);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: this request takes no address, and 0 as the signal to deliver.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.pid, 0, 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, thread, time::Duration};

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn nothing_runs_before_the_release_and_all_of_it_after() {
        let scratch = std::env::temp_dir().join(format!("deburr-held-{}", std::process::id()));
        let script = format!("echo ran > {}; exit 7", scratch.display());
        let (mut child, held) = spawn(|| sh(&script)).unwrap();
        if let Some(held) = held {
            thread::sleep(Duration::from_millis(100));
            assert!(!scratch.exists());
            assert!(child.try_wait().unwrap().is_none());
            held.release();
        }
        assert_eq!(child.wait().unwrap().code(), Some(7));
        assert_eq!(fs::read_to_string(&scratch).unwrap(), "ran\n");
        fs::remove_file(&scratch).unwrap();
    }

    #[test]
    fn who_is_killed_while_held_has_ended_and_what_cannot_be_started_is_told() {
        let (mut child, held) = spawn(|| sh("sleep 60")).unwrap();
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().code(), None);
        drop(held);
        let missing = spawn(|| Command::new("/nowhere/sh")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
