// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Real-time priority for a thread: `sched_setscheduler`. No BPF, but a system call that has no safe wrapper.

use std::io;

/// Gives the calling thread precedence over all ordinary tasks on its CPU: `SCHED_FIFO` at the lowest priority. Its
/// children do not inherit it. The thread must sleep again soon.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE` or a sufficient `RLIMIT_RTPRIO`, or in a cgroup without a real-time budget.
pub fn take_precedence() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the structure lives through the call, which only reads it.
    let failed = unsafe {
        libc::sched_setscheduler(
            0,
            libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK,
            &raw const parameters,
        )
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::take_precedence;

    #[test]
    fn a_thread_gets_it_or_is_told_that_it_may_not() {
        let answer = std::thread::spawn(take_precedence).join().unwrap();
        if let Err(error) = answer {
            assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
        }
    }
}
