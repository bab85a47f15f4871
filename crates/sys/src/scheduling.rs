// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scheduling policy of any thread: `sched_getscheduler`, `sched_setscheduler`.

use std::io;

/// A scheduling policy as the kernel numbers it, and the priority of a real-time one (else 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// `SCHED_OTHER` = 0, `SCHED_FIFO` = 1, `SCHED_RR` = 2, `SCHED_BATCH` = 3, `SCHED_IDLE` = 5, `SCHED_DEADLINE` = 6.
    pub policy: i32,
    /// Real-time priority, 1 to 99; 0 for the other policies.
    pub priority: i32,
    /// Whether its children start with the usual policy.
    pub reset_on_fork: bool,
}

/// The policy of a thread.
///
/// # Errors
/// `ESRCH` if there is no such thread.
pub fn get(tid: i32) -> io::Result<Scheduling> {
    // SAFETY: the call has no pointers.
    let policy = unsafe { libc::sched_getscheduler(tid) };
    if policy < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to our own variable, of the type that the call writes.
    if unsafe { libc::sched_getparam(tid, &raw mut parameters) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Scheduling {
        policy: policy & !libc::SCHED_RESET_ON_FORK,
        priority: parameters.sched_priority,
        reset_on_fork: policy & libc::SCHED_RESET_ON_FORK != 0,
    })
}

/// Gives a thread a policy. Its nice value stays.
///
/// # Errors
/// `ESRCH` if there is no such thread; `EPERM` without `CAP_SYS_NICE`, or in a cgroup without a real-time budget;
/// `EINVAL` for a policy that takes more parameters.
pub fn set(tid: i32, scheduling: Scheduling) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: scheduling.priority };
    let flag = if scheduling.reset_on_fork { libc::SCHED_RESET_ON_FORK } else { 0 };
    // SAFETY: the structure lives through the call, which only reads it.
    let failed =
        unsafe { libc::sched_setscheduler(tid, scheduling.policy | flag, &raw const parameters) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_the_policy_that_it_was_given() {
        std::thread::spawn(|| {
            let batch = Scheduling { policy: libc::SCHED_BATCH, priority: 0, reset_on_fork: true };
            set(0, batch).unwrap();
            assert_eq!(get(0).unwrap(), batch);
            assert!(set(0, Scheduling { priority: 1, ..batch }).is_err());
            assert!(get(-1).is_err());
        })
        .join()
        .unwrap();
    }
}
