// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a process does on a signal: `sigaction`, which has no safe wrapper that only asks, or that may end the process at
//! a bad access to memory.

use std::io;
use std::sync::OnceLock;

/// Whether this process ignores a signal, as programs under `nohup` ignore SIGHUP.
///
/// # Errors
/// If there is no such signal.
pub fn is_ignored(signal: i32) -> io::Result<bool> {
    // SAFETY: a struct of integers and a pointer to a function, for which all zeroes (the default) is a valid value.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is changed, because no new action is given; the result goes to our own variable.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut now) };
    if asked != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(now.sa_sigaction == libc::SIG_IGN)
}

/// What is written to standard error on SIGBUS, and the exit status then.
static ON_BUS_ERROR: OnceLock<(&str, i32)> = OnceLock::new();

/// From now on the process ends with that message and exit status if a file becomes shorter than what is mapped of it and
/// used (SIGBUS). The first call decides for all.
///
/// # Errors
/// If the kernel refuses.
pub fn exit_on_bus_error(message: &'static str, status: i32) -> io::Result<()> {
    ON_BUS_ERROR.get_or_init(|| (message, status));
    // SAFETY: a struct of integers and a pointer to a function, for which all zeroes (the default) is a valid value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(libc::c_int) = end;
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_RESETHAND;
    // SAFETY: the handler only makes calls that are allowed in one, and does not return.
    let set = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

extern "C" fn end(_: libc::c_int) {
    let (message, status) = ON_BUS_ERROR.get().copied().unwrap_or(("", 1));
    // SAFETY: the pointer and the length are those of a string. Neither call allocates memory or takes a lock.
    unsafe {
        libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), message.len());
        libc::_exit(status);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_signal_is_told_from_others() {
        // The standard library ignores SIGPIPE in every program.
        assert!(is_ignored(libc::SIGPIPE).unwrap());
        assert!(!is_ignored(libc::SIGUSR2).unwrap());
        assert!(is_ignored(100_000).is_err());
    }
}
