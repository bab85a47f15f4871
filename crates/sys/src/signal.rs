// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a process does on a signal: `sigaction`, which has no safe wrapper that only asks.

use std::io;

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
