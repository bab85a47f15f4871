// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who lets a thread go on that sleeps uninterruptibly in the kernel, for nothing that another rule tells.

use super::waits::Sleep;
use crate::recording::{EVENT_CALLS, SleepState, SleptOn, WokenBy};
use crate::rules::asleep::kind;
use crate::view::View;

/// Calls whose caller waits until its child runs another program.
const STARTS: &[&str] = &["vfork", "clone", "clone3", "fork"];
/// Calls that wait for a disk, whoever ends that.
const SYNCS: &[&str] = &["fsync", "fdatasync", "sync", "syncfs", "sync_file_range", "msync"];
/// Calls for which a scanner of files must be asked.
const OPENS: &[&str] = &["open", "openat", "openat2", "creat", "execve", "execveat"];
/// The call that waits for a grace period.
const MEMBARRIER: &str = "membarrier";
/// Calls besides event loops in which threads rest.
const RESTS: &[&str] = &[
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "accept",
    "accept4",
    "futex",
    "futex_waitv",
    "nanosleep",
    "clock_nanosleep",
    "pause",
    "wait4",
    "waitid",
    "rt_sigtimedwait",
    "rt_sigsuspend",
];
/// What a thread is in that touches memory; all else in parentheses is no call that is known.
const PAGE_FAULT: &str = "(page fault)";
/// The kernel's threads that end grace periods begin so, and those that wait for all tasks instead of all CPUs.
const RCU: &str = "rcu";
const RCU_OF_TASKS: &str = "rcu_tasks";

/// Who lets a thread go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holder {
    /// A process that writes as another one opens a file: it may be a scanner of files.
    Writes,
    /// A process that controls something while another one changes files: it may thaw their filesystem.
    Controls,
    /// All CPUs, each of which must have switched once.
    GracePeriod,
    /// A process, in another call.
    Other,
}

/// Uninterruptible sleep that is for none of the things that another rule tells, and that a thread of another process ended, or the
/// end of a grace period did.
pub(super) fn holder(view: &View, (own, key, _): &Sleep<'_>) -> Option<Holder> {
    let slept = &key.slept;
    let call = slept.call.as_str();
    let is_apart = matches!(slept.on, SleptOn::KernelLock { .. })
        || kind::is_address_space(*own, slept)
        || kind::is_of_served_file(slept)
        || kind::is_file_lock(slept);
    let is_known = !call.starts_with('(') || call == PAGE_FAULT;
    if slept.state != SleepState::Uninterruptible || is_apart || !is_known || rests(call) {
        return None;
    }
    if call == MEMBARRIER {
        return Some(Holder::GracePeriod);
    }
    let WokenBy::Thread { proc, call: by } = &slept.woken else { return None };
    let is_for_child_or_disk = STARTS.contains(&call) || SYNCS.contains(&call);
    if is_for_child_or_disk || SYNCS.contains(&by.as_str()) || proc == own {
        return None;
    }
    let facts = view.processes().get(proc).and_then(|process| process.facts.as_ref())?;
    match facts.kernel_thread {
        Some(true) => ends_grace_periods(&facts.comm).then_some(Holder::GracePeriod),
        _ if by == "write" && OPENS.contains(&call) => Some(Holder::Writes),
        _ if by == "ioctl" && (kind::is_of_path(call) || kind::sends(slept)) => {
            Some(Holder::Controls)
        }
        _ => Some(Holder::Other),
    }
}

/// Whether it is a call in which threads rest, which sleep uninterruptibly there only where they are frozen.
fn rests(call: &str) -> bool {
    EVENT_CALLS.contains(&call) || RESTS.contains(&call)
}

fn ends_grace_periods(comm: &str) -> bool {
    comm.starts_with(RCU) && !comm.starts_with(RCU_OF_TASKS)
}
