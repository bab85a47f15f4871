// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sleeps and chains in words.

use super::kind;
use crate::finding::SleepLink;
use crate::recording::{
    Awaited, Did, FutexUser, KernelLock, ProcId, SleepState, Slept, SleptOn, WokenBy,
};
use crate::text::ticked;
use crate::view::View;

/// On what a call sleeps.
pub(in crate::rules) fn on(view: &View, call: &str, on: &SleptOn) -> Option<String> {
    Some(match on {
        SleptOn::NotKnown if kind::CHILDREN.contains(&call) => "a child process".into(),
        SleptOn::NotKnown if kind::SENDS_MESSAGES.contains(&call) => "a message queue".into(),
        SleptOn::NotKnown | SleptOn::Others => return None,
        SleptOn::Futex { user: Some(FutexUser::Interpreter), .. } => {
            "the interpreter's lock".into()
        }
        SleptOn::Futex { address, .. } if on.is_lock() => format!("a lock at {address:#x}"),
        SleptOn::Futex { address: 0, .. } => "several futexes".into(),
        SleptOn::Futex { address, .. } => format!("a futex at {address:#x}"),
        SleptOn::File { path: Some(path), .. } => ticked(path),
        SleptOn::File { device, inode, path: None, .. } => format!("inode {inode} of {device}"),
        SleptOn::Pipe => "a pipe".into(),
        SleptOn::Character { terminal: true } => "a terminal".into(),
        SleptOn::Character { terminal: false } => "a character device".into(),
        SleptOn::Anonymous { name } if name.starts_with("eventpo") => return None,
        SleptOn::Anonymous { name } => whole(name).into(),
        SleptOn::Inet { port: Some(port), .. } => format!("clients of port {port}"),
        SleptOn::Inet { remote: Some(remote), protocol, .. } => format!("{remote} ({protocol})"),
        SleptOn::Inet { protocol, .. } => format!("a socket ({protocol})"),
        SleptOn::Unix { accepted: true, .. } => "clients of a unix socket".into(),
        SleptOn::Unix { peer: Some(peer), .. } => {
            format!("a unix socket of {}", name_of(view, *peer)?)
        }
        SleptOn::Unix { peer: None, .. } => "a unix socket".into(),
        SleptOn::Socket { family } => format!("a socket of family {family}"),
        SleptOn::Transfers => "its own transfers of disks".into(),
        SleptOn::KernelLock { lock, within } => match self::on(view, call, within) {
            Some(what) => format!("{} ({what})", kernel_lock(*lock)),
            None => kernel_lock(*lock).into(),
        },
    })
}

/// Whether it is a futex that is no lock.
pub(super) fn is_condition(on: &SleptOn) -> bool {
    matches!(on, SleptOn::Futex { .. }) && !on.is_lock()
}

/// The name of a file without a type, of which seven letters are recorded.
fn whole(name: &str) -> &str {
    const LONGER: [&str; 5] = ["io_uring", "signalfd", "userfaultfd", "perf_event", "fanotify"];
    let cut = |whole: &&&str| name.len() == 7 && whole.starts_with(name);
    LONGER.iter().find(cut).unwrap_or(&name)
}

/// A lock of the kernel.
pub(in crate::rules) fn kernel_lock(lock: KernelLock) -> &'static str {
    match lock {
        KernelLock::Mutex => "a mutex of the kernel",
        KernelLock::Semaphore => "a semaphore of the kernel",
        KernelLock::RwsemRead => "a semaphore of the kernel, to read",
        KernelLock::RwsemWrite => "a semaphore of the kernel, to write",
        KernelLock::MmapLock => "the lock of the address space",
    }
}

/// What ended a sleep of a process.
pub(super) fn woken(view: &View, own: ProcId, woken: &WokenBy) -> Option<String> {
    Some(match woken {
        // It may have been woken since it was looked at.
        WokenBy::NotKnown | WokenBy::NotYet => return None,
        WokenBy::Thread { proc, .. } | WokenBy::Sender { proc } if *proc == own => {
            "its own threads".into()
        }
        WokenBy::Thread { proc, .. } | WokenBy::Sender { proc } => name_of(view, *proc)?,
        WokenBy::SoftInterrupt => "a soft interrupt".into(),
        WokenBy::HardInterrupt => "a timer or device".into(),
        WokenBy::Timer => "a timer".into(),
        WokenBy::KernelTimer => "a timer of the kernel".into(),
        WokenBy::Network => "the network".into(),
        WokenBy::Disk => "a disk".into(),
        WokenBy::OtherCpu => "a call by another CPU".into(),
        WokenBy::Device => "a device".into(),
    })
}

/// A thread that a process waited for, and what it did.
pub(in crate::rules) fn link(view: &View, own: ProcId, it: &Awaited) -> SleepLink {
    SleepLink { who: who(view, own, it), did: did(view, &it.did) }
}

/// The thread; of another process, with that.
pub(in crate::rules) fn who(view: &View, own: ProcId, it: &Awaited) -> String {
    let process = name_of(view, it.proc).unwrap_or_else(|| "a process".into());
    let thread = Some(&it.thread).filter(|name| !name.is_empty()).map(|name| ticked(name));
    match thread {
        Some(thread) if it.proc == own || thread == process => thread,
        Some(thread) => format!("{thread} of {process}"),
        None if it.proc == own => "another thread".into(),
        None => process,
    }
}

/// What it did.
pub(in crate::rules) fn did(view: &View, did: &Did) -> String {
    match did {
        Did::NotSeen => "not seen".into(),
        Did::OnCpu => "on a CPU".into(),
        Did::Queued => "in a run queue".into(),
        Did::Throttled => "stopped by a CPU quota".into(),
        Did::Slept(Slept { state: SleepState::Stopped, .. }) => "stopped".into(),
        Did::Slept(Slept { state, call, on: what, .. }) => {
            let mut text = format!("in {call}");
            // A runtime has a condition for each thread: its address would make each chain another one.
            let of_condition = is_condition(what);
            if let Some(on) = on(view, call, what).filter(|_| !of_condition) {
                text += &format!(": {on}");
            }
            text += match state {
                SleepState::Asleep | SleepState::Stopped => "",
                SleepState::BlockIo => ", block IO",
                SleepState::Memory => ", memory",
                SleepState::Uninterruptible => ", uninterruptible",
            };
            text
        }
    }
}

fn name_of(view: &View, id: ProcId) -> Option<String> {
    let facts = view.processes().get(&id)?.facts.as_ref()?;
    Some(ticked(&facts.comm))
}
