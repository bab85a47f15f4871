// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a sleep is time that somebody lost.

use super::entry;
use crate::finding::SleepKind;
use crate::recording::{
    Awaited, Did, EVENT_CALLS, KernelLock, ProcId, SleepState, Slept, SleptOn, WokenBy,
    changes_address_space,
};
use crate::view::{Role, SleepKey};

/// Calls that end when a time has passed.
const SLEEPS: &[&str] = &["nanosleep", "clock_nanosleep"];
/// Calls that take a time after which they end in any case.
const TIMED: &[&str] = &[
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "futex",
    "futex_waitv",
    "rt_sigtimedwait",
    "recvmmsg",
    "semtimedop",
    "io_getevents",
    "io_pgetevents",
    "mq_timedreceive",
];
/// Calls that wait for a client to come.
const ACCEPTS: &[&str] = &["accept", "accept4"];
/// Calls that wait for the other end of a connection to be there.
const CONNECTS: &[&str] = &["connect"];
/// Calls that do something with a path, or give a file back. What they do on a disk or behind a lock is no interruptible sleep: in
/// one that a thread ends which writes, it has answered for a filesystem that its process serves (FUSE).
const PATH_CALLS: &[&str] = &[
    "open",
    "openat",
    "openat2",
    "creat",
    "close",
    "stat",
    "lstat",
    "newfstatat",
    "statx",
    "access",
    "faccessat",
    "faccessat2",
    "readlink",
    "readlinkat",
    "unlink",
    "unlinkat",
    "rename",
    "renameat",
    "renameat2",
    "mkdir",
    "mkdirat",
    "rmdir",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "chmod",
    "fchmodat",
    "chown",
    "lchown",
    "fchownat",
    "truncate",
    "utimensat",
    "statfs",
    "chdir",
    "getxattr",
    "lgetxattr",
    "setxattr",
    "lsetxattr",
    "listxattr",
    "llistxattr",
    "execve",
    "execveat",
];
/// Calls that wait for a child process to end.
pub(in crate::rules) const CHILDREN: &[&str] = &["wait4", "waitid"];
/// Calls with which a process answers for a filesystem that it serves.
const SERVES: &[&str] = &["write", "writev", "pwrite64", "pwritev", "splice", "io_uring_enter"];
/// Calls that supervisors let others make, or make for them (seccomp), and how they answer. Opens may wait for a device.
const SUPERVISED: &[&str] = &[
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "mount",
    "umount2",
    "chown",
    "lchown",
    "fchownat",
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "unlink",
    "unlinkat",
    "rename",
    "renameat",
    "renameat2",
];
const SUPERVISES: &str = "ioctl";
/// Calls that wait until the other end takes what was sent.
const SENDS: &[&str] = &[
    "write", "writev", "pwritev", "pwritev2", "sendto", "sendmsg", "sendmmsg", "sendfile", "splice",
];
/// Calls that wait until somebody takes a message out of a queue, which is full.
pub(in crate::rules) const SENDS_MESSAGES: &[&str] = &["mq_timedsend", "msgsnd"];
/// Calls that send a signal.
pub(in crate::rules) const SIGNALS: &[&str] =
    &["kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal"];
/// What a thread is in that touches memory.
const PAGE_FAULT: &str = "(page fault)";
/// Calls that wait for a lock of a file.
const FILE_LOCKS: &[&str] = &["flock", "fcntl"];

/// By what the user said of the thread, if anything.
pub(in crate::rules) fn of(own: ProcId, key: &SleepKey) -> SleepKind {
    let kind = match key.role {
        Role::NotSaid => of_chain(own, key),
        Role::Entry { asked, .. } => entry::of(own, key, asked),
        Role::NoEntry => return SleepKind::NoEntry,
        Role::Runtime => return of_runtime(own, key),
    };
    if keeps_client_waiting(own, key) { SleepKind::WaitsForOthers } else { kind }
}

/// Of a thread that a runtime has for itself: whoever gives it something to do, it has no work before.
fn of_runtime(own: ProcId, key: &SleepKey) -> SleepKind {
    match of_chain(own, key) {
        SleepKind::OwnTimer => SleepKind::OwnTimer,
        _ if key.slept.state == SleepState::Asleep => SleepKind::WaitsForWork,
        kind => kind,
    }
}

/// Whether a thread waits for another one while a client waits for its answer. An event loop serves others meanwhile: what ends
/// its wait is not for that client, but for a signal, which another process sends to one that waits for it.
pub(in crate::rules) fn keeps_client_waiting(own: ProcId, key: &SleepKey) -> bool {
    let WokenBy::Thread { proc, call } = &key.slept.woken else { return false };
    let signalled = *proc != own && SIGNALS.contains(&call.as_str());
    key.in_request
        && key.slept.state == SleepState::Asleep
        && (signalled || !is_event_loop(&key.slept))
}

/// The order of evidence: what is a delay whoever ends it; whose turn it is at a socket, and whether its process has asked
/// for what it waits for; timers; and where another thread ended it, what that one did, or waited for, meanwhile. The first thread of a chain of which it
/// can be told decides: one that asked a peer waits for others, whatever that peer waits for.
pub(super) fn of_chain(own: ProcId, key: &SleepKey) -> SleepKind {
    if is_for_child(own, &key.slept) {
        return of_child(key.behind.first());
    }
    let mut of = (own, &key.slept);
    for (at, next) in key.behind.iter().enumerate() {
        let is_awaited = at > 0 && of.0 == own;
        let kind = own_or_not_known(own, of.0, of_link(of, &key.behind[at..], is_awaited));
        match &next.did {
            _ if kind != SleepKind::NotKnown => return kind,
            Did::NotSeen => return SleepKind::NotKnown,
            Did::OnCpu | Did::Queued | Did::Throttled => return SleepKind::WaitsForOthers,
            Did::Slept(slept) => of = (next.proc, slept),
        }
    }
    own_or_not_known(own, of.0, of_link(of, &[], false))
}

/// Of a wait for a child that ended: one that only lets time pass may be how its parent rests, as a script does.
fn of_child(child: Option<&Awaited>) -> SleepKind {
    match child.map(|it| &it.did) {
        Some(Did::Slept(slept)) if naps(slept) => SleepKind::NotKnown,
        _ => SleepKind::WaitsForOthers,
    }
}

/// A timer of another process is none of its own: whether that one is at rest, or in the middle of an answer, is not known.
fn own_or_not_known(own: ProcId, of: ProcId, kind: SleepKind) -> SleepKind {
    if kind == SleepKind::OwnTimer && of != own { SleepKind::NotKnown } else { kind }
}

/// Of a sleep, and what is behind it. An event loop that waits until a thread of its process has finished something, while that
/// one sleeps, is at rest: it would take anything else meanwhile, and what that thread waits for is counted there. Who waits
/// for an event loop of its process (`is_awaited`) has nothing to do while the loop is at rest, whatever ends that: the
/// loop's own sleep counts it.
fn of_link((own, slept): (ProcId, &Slept), behind: &[Awaited], is_awaited: bool) -> SleepKind {
    let sleeps = |it: &Awaited| matches!(&it.did, Did::Slept(it) if it.state == SleepState::Asleep);
    let is_own = behind.first().is_some_and(|first| first.proc == own);
    match of_sleep(slept) {
        SleepKind::NotKnown
            if is_event_loop(slept) && is_own && (is_awaited || behind.iter().all(sleeps)) =>
        {
            SleepKind::WaitsForWork
        }
        kind => kind,
    }
}

/// Whether it waits for whatever comes next: in an event poll, or in another call on several files, of which one was ready.
pub(in crate::rules) fn is_event_loop(slept: &Slept) -> bool {
    let ready = match slept.on {
        SleptOn::Inet { ready, .. } | SleptOn::Unix { ready, .. } => ready,
        _ => false,
    };
    ready || EVENT_CALLS.contains(&slept.call.as_str())
}

/// Whether it does nothing but to wait until a time has passed.
pub(in crate::rules) fn naps(slept: &Slept) -> bool {
    slept.state == SleepState::Asleep && SLEEPS.contains(&slept.call.as_str())
}

/// Whether a timer that the thread set itself ends it, or has.
pub(in crate::rules) fn is_own_timer(slept: &Slept) -> bool {
    of_sleep(slept) == SleepKind::OwnTimer
}

/// Whether it waits for a lock in the memory of its process.
pub(in crate::rules) fn is_lock(slept: &Slept) -> bool {
    slept.on.is_lock()
}

/// Whether it waits until the other end takes what was sent.
pub(in crate::rules) fn sends(slept: &Slept) -> bool {
    let call = slept.call.as_str();
    SENDS.contains(&call) || SENDS_MESSAGES.contains(&call)
}

/// Whether it waits for a lock of a file.
pub(in crate::rules) fn is_file_lock(slept: &Slept) -> bool {
    FILE_LOCKS.contains(&slept.call.as_str())
}

/// Whether it waits for an answer on a connection that its process opened, or of a process that serves a filesystem.
pub(in crate::rules) fn is_answer(slept: &Slept) -> bool {
    let connection = match slept.on {
        SleptOn::Inet { listens, .. } => listens == Some(false),
        SleptOn::Unix { accepted, .. } => !accepted,
        _ => return is_of_served_file(slept),
    };
    connection && !sends(slept)
}

/// Whether it is a call that does something with a path, or gives a file back.
pub(in crate::rules) fn is_of_path(call: &str) -> bool {
    PATH_CALLS.contains(&call)
}

/// Whether it waits for a process that serves a filesystem: on a file of one, or in a call with a path.
pub(in crate::rules) fn is_of_served_file(slept: &Slept) -> bool {
    let call = slept.call.as_str();
    match slept.on {
        // Pages of it that are read ahead are waited for like those of a disk.
        SleptOn::File { served, .. } => {
            use SleepState::{Asleep, BlockIo, Uninterruptible};
            served
                && matches!(slept.state, Asleep | BlockIo | Uninterruptible)
                && !is_file_lock(slept)
                && !TIMED.contains(&call)
        }
        SleptOn::NotKnown => {
            let answers = |by: &str| match by {
                SUPERVISES => SUPERVISED.contains(&call),
                by => SERVES.contains(&by) && is_of_path(call),
            };
            slept.state == SleepState::Asleep
                && matches!(&slept.woken, WokenBy::Thread { call, .. } if answers(call))
        }
        _ => false,
    }
}

/// Whether it waited for a child process, which has ended. Whoever only keeps children running waits for as long as they do.
pub(in crate::rules) fn is_for_child(own: ProcId, slept: &Slept) -> bool {
    let WokenBy::Thread { proc, call } = &slept.woken else { return false };
    slept.state == SleepState::Asleep
        && CHILDREN.contains(&slept.call.as_str())
        && *proc != own
        // The last thread of a process that ends may be in any call, and is in none if a signal ended it.
        && !SIGNALS.contains(&call.as_str())
}

/// Whether it waits until a connection is made.
pub(in crate::rules) fn connects(slept: &Slept) -> bool {
    CONNECTS.contains(&slept.call.as_str())
}

/// Whether it waits for the lock of its process's address space, as the kernel says. Where it does not say: in a call that
/// changes it, or in a page fault, woken by a thread of the process that was in one, too.
pub(in crate::rules) fn is_address_space(own: ProcId, slept: &Slept) -> bool {
    if let SleptOn::KernelLock { lock, .. } = &slept.on {
        return *lock == KernelLock::MmapLock;
    }
    let woken = match &slept.woken {
        WokenBy::Thread { proc, call } => *proc == own && changes_address_space(call),
        _ => false,
    };
    woken && slept.state == SleepState::Uninterruptible && changes_address_space(&slept.call)
}

/// Whether it waits for another lock of the kernel.
pub(in crate::rules) fn is_kernel_lock(slept: &Slept) -> bool {
    matches!(&slept.on, SleptOn::KernelLock { lock, .. } if *lock != KernelLock::MmapLock)
}

pub(super) fn of_sleep(slept: &Slept) -> SleepKind {
    use SleepKind::{NotKnown, OwnTimer, WaitsForOthers, WaitsForWork};
    let call = slept.call.as_str();
    let is_behind_lock =
        is_lock(slept) || is_file_lock(slept) || matches!(slept.on, SleptOn::KernelLock { .. });
    if slept.state != SleepState::Asleep || is_behind_lock {
        return WaitsForOthers;
    }
    if SLEEPS.contains(&call) {
        return OwnTimer;
    }
    // An answer that did not come in time is as late as one that came.
    if slept.woken.is_timer() && TIMED.contains(&call) && !is_for_answer(&slept.on) {
        return OwnTimer;
    }
    if slept.is_for_disk() {
        return WaitsForOthers;
    }
    // A page that a process fills in (userfaultfd), or a filesystem that one serves.
    if SENDS_MESSAGES.contains(&call) || call == PAGE_FAULT {
        return WaitsForOthers;
    }
    let sends = sends(slept);
    match &slept.on {
        SleptOn::Anonymous { name } if name == "timerfd" => OwnTimer,
        _ if ACCEPTS.contains(&call) => WaitsForWork,
        _ if connects(slept) || is_of_served_file(slept) => WaitsForOthers,
        SleptOn::Pipe
        | SleptOn::Character { terminal: true }
        | SleptOn::Inet { .. }
        | SleptOn::Unix { .. }
            if sends =>
        {
            WaitsForOthers
        }
        SleptOn::Inet { listens: Some(true), .. } | SleptOn::Unix { accepted: true, .. } => {
            WaitsForWork
        }
        SleptOn::Inet { listens: Some(false), remote: Some(_), asked: Some(true), .. } => {
            WaitsForOthers
        }
        _ => NotKnown,
    }
}

/// Whether it is the one connection that a call waits for, on which something was asked.
fn is_for_answer(on: &SleptOn) -> bool {
    matches!(
        on,
        SleptOn::Inet {
            listens: Some(false),
            remote: Some(_),
            asked: Some(true),
            ready: false,
            ..
        }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slept(call: &str, on: SleptOn, woken: WokenBy) -> Slept {
        Slept { state: SleepState::Asleep, call: call.into(), on, woken }
    }

    fn inet(listens: Option<bool>) -> SleptOn {
        let remote = (listens == Some(false)).then(|| "10.0.0.7:5432".into());
        let (protocol, asked) = ("tcp".into(), Some(true));
        SleptOn::Inet { protocol, listens, port: None, remote, asked, ready: false }
    }

    fn not_asked(has_asked: Option<bool>) -> SleptOn {
        let mut on = inet(Some(false));
        if let SleptOn::Inet { asked, .. } = &mut on {
            *asked = has_asked;
        }
        on
    }

    #[test]
    fn kinds_follow_the_order_of_evidence() {
        use SleepKind::{NotKnown, OwnTimer, WaitsForOthers, WaitsForWork};
        let by = WokenBy::SoftInterrupt;
        let futex = |op, value| SleptOn::Futex { address: 64, value, op, user: None };
        let poll = SleptOn::Anonymous { name: "eventpo".into() };
        let terminal = || SleptOn::Character { terminal: true };
        let by_thread = |call: &str| WokenBy::Thread { proc: ProcId(2), call: call.into() };
        let file = |served| SleptOn::File { device: "0:57".into(), inode: 2, path: None, served };
        for (call, on, woken, kind) in [
            ("recvfrom", inet(Some(true)), by.clone(), WaitsForWork),
            ("recvfrom", inet(Some(false)), by.clone(), WaitsForOthers),
            ("recvfrom", inet(None), by.clone(), NotKnown),
            // Somebody who listens to what comes, and a first sleep.
            ("recvfrom", not_asked(Some(false)), by.clone(), NotKnown),
            ("recvfrom", not_asked(None), by.clone(), NotKnown),
            // A client that does not read.
            ("sendto", inet(Some(true)), by.clone(), WaitsForOthers),
            ("accept4", SleptOn::NotKnown, by.clone(), WaitsForWork),
            ("futex", futex(0, 2), by.clone(), WaitsForOthers),
            ("futex", futex(6, 1), by.clone(), WaitsForOthers),
            // A condition, or a pool without work.
            ("futex", futex(9, 0), by.clone(), NotKnown),
            ("futex", futex(9, 2), by.clone(), NotKnown),
            ("futex", futex(9, 0), WokenBy::HardInterrupt, OwnTimer),
            ("clock_nanosleep", SleptOn::NotKnown, by.clone(), OwnTimer),
            ("epoll_wait", poll.clone(), WokenBy::HardInterrupt, OwnTimer),
            ("epoll_wait", poll.clone(), WokenBy::NotYet, NotKnown),
            ("epoll_wait", poll, WokenBy::Timer, OwnTimer),
            // An event that is not the end of the time; and where nothing was asked.
            ("io_getevents", SleptOn::NotKnown, WokenBy::Disk, NotKnown),
            ("io_getevents", SleptOn::NotKnown, WokenBy::OtherCpu, NotKnown),
            ("io_getevents", SleptOn::NotKnown, WokenBy::Timer, OwnTimer),
            ("io_getevents", SleptOn::Transfers, WokenBy::Disk, WaitsForOthers),
            ("io_uring_enter", SleptOn::Transfers, by_thread("(kernel work)"), WaitsForOthers),
            ("poll", not_asked(Some(false)), WokenBy::Timer, OwnTimer),
            ("poll", SleptOn::Pipe, WokenBy::Timer, OwnTimer),
            // An answer that did not come in time.
            ("poll", inet(Some(false)), WokenBy::Timer, WaitsForOthers),
            ("poll", inet(Some(false)), WokenBy::HardInterrupt, WaitsForOthers),
            ("recvfrom", inet(Some(false)), WokenBy::KernelTimer, WaitsForOthers),
            ("flock", SleptOn::NotKnown, by.clone(), WaitsForOthers),
            // Nobody is at the other end yet.
            ("connect", not_asked(None), by.clone(), WaitsForOthers),
            ("connect", not_asked(Some(false)), WokenBy::KernelTimer, WaitsForOthers),
            // Answered for a filesystem; and opened at the other end of a named pipe.
            ("openat", SleptOn::NotKnown, by_thread("writev"), WaitsForOthers),
            ("openat", SleptOn::NotKnown, by_thread("openat"), NotKnown),
            ("openat", SleptOn::NotKnown, WokenBy::NotYet, NotKnown),
            ("close", SleptOn::NotKnown, by.clone(), NotKnown),
            // Supervised by a process (seccomp); and memory that one fills in.
            ("mkdir", SleptOn::NotKnown, by_thread("ioctl"), WaitsForOthers),
            ("mount", SleptOn::NotKnown, by_thread("ioctl"), WaitsForOthers),
            // Of a terminal, whose line is up now.
            ("openat", SleptOn::NotKnown, by_thread("ioctl"), NotKnown),
            ("(page fault)", SleptOn::NotKnown, by_thread("ioctl"), WaitsForOthers),
            ("mq_timedsend", SleptOn::NotKnown, by.clone(), WaitsForOthers),
            ("mq_timedsend", SleptOn::NotKnown, WokenBy::Timer, WaitsForOthers),
            // Of files that the kernel has, some are read by whoever waits for the next line of a log.
            ("read", file(true), WokenBy::NotYet, WaitsForOthers),
            ("read", file(false), WokenBy::NotYet, NotKnown),
            ("poll", file(true), WokenBy::NotYet, NotKnown),
            // Whoever types at a terminal, and whoever reads from it.
            ("read", terminal(), by.clone(), NotKnown),
            ("write", terminal(), by, WaitsForOthers),
        ] {
            let slept = slept(call, on, woken);
            assert_eq!(of_sleep(&slept), kind, "{slept:?}");
        }
    }

    #[test]
    fn who_waits_for_a_child_waits_for_one_that_ends() {
        use SleepKind::{NotKnown, WaitsForOthers};
        let by = |proc, call: &str| WokenBy::Thread { proc: ProcId(proc), call: call.into() };
        for (call, woken, kind) in [
            ("wait4", by(2, "exit_group"), WaitsForOthers),
            ("waitid", by(2, "futex"), WaitsForOthers),
            // Its own process ends; somebody sends a signal; and the child runs on.
            ("wait4", by(1, "exit_group"), NotKnown),
            ("waitid", by(2, "kill"), NotKnown),
            ("wait4", WokenBy::NotYet, NotKnown),
        ] {
            let key = waits(slept(call, SleptOn::NotKnown, woken), vec![]);
            assert_eq!(of(ProcId(1), &key), kind, "{key:?}");
        }
        // What it did decides, if it did nothing but to sleep; of children of others nothing is known.
        let child = |call: &str| {
            let did = Did::Slept(slept(call, SleptOn::NotKnown, WokenBy::Timer));
            vec![Awaited { proc: ProcId(2), thread: "sleep".into(), too: false, did }]
        };
        for (own, call, kind) in
            [(1, "clock_nanosleep", NotKnown), (1, "read", WaitsForOthers), (3, "read", NotKnown)]
        {
            let waits_for = slept("wait4", SleptOn::NotKnown, by(2, "exit_group"));
            let key = match own {
                1 => waits(waits_for, child(call)),
                _ => {
                    let did = Did::Slept(waits_for);
                    let shell = Awaited { proc: ProcId(1), thread: "sh".into(), too: false, did };
                    waits(slept("read", SleptOn::Pipe, by(1, "write")), vec![shell])
                }
            };
            assert_eq!(of(ProcId(own), &key), kind, "{key:?}");
        }
    }

    fn waits(slept: Slept, behind: Vec<Awaited>) -> SleepKey {
        SleepKey { role: Role::NotSaid, slept, thread: None, in_request: false, behind }
    }

    /// A pool waits on a condition; who ends it is told by what that one did.
    #[test]
    fn a_pool_waits_for_what_its_dispatcher_waits_for() {
        use SleepKind::{NotKnown, OwnTimer, WaitsForOthers, WaitsForWork};
        let condition = || SleptOn::Futex { address: 64, value: 0, op: 9, user: None };
        let own = |did| Awaited { proc: ProcId(1), thread: "dispatcher".into(), too: false, did };
        let does = |call, on, woken| Did::Slept(slept(call, on, woken));
        let by = || WokenBy::SoftInterrupt;
        for (did, kind) in [
            (Did::NotSeen, NotKnown),
            (Did::OnCpu, WaitsForOthers),
            (Did::Queued, WaitsForOthers),
            (does("epoll_wait", inet(Some(true)), by()), WaitsForWork),
            (does("recvfrom", inet(Some(false)), by()), WaitsForOthers),
            (does("clock_nanosleep", SleptOn::NotKnown, by()), OwnTimer),
            (does("futex", condition(), by()), NotKnown),
        ] {
            let slept = slept("futex", condition(), WokenBy::NotKnown);
            let key = waits(slept, vec![own(did)]);
            assert_eq!(of(ProcId(1), &key), kind, "{key:?}");
        }
        // The dispatcher asked somebody, who is late for a reason of his own.
        let asked = own(does("recvfrom", inet(Some(false)), by()));
        let naps = own(does("clock_nanosleep", SleptOn::NotKnown, by()));
        let slept = slept("futex", condition(), WokenBy::NotKnown);
        let key = waits(slept, vec![asked, naps]);
        assert_eq!(of(ProcId(1), &key), WaitsForOthers);
        // A process that sleeps before it answers, and one that does something now and then, look alike.
        let pair = SleptOn::Unix { peer: None, accepted: false, ready: false };
        let slept = tests::slept("recvfrom", pair, WokenBy::NotKnown);
        let naps = Awaited { proc: ProcId(2), ..own(does("nanosleep", SleptOn::NotKnown, by())) };
        let key = waits(slept, vec![naps]);
        assert_eq!(of(ProcId(1), &key), NotKnown, "another process's timer is none of its own");
        assert_eq!(of(ProcId(2), &key), OwnTimer);
        // An event loop takes whatever comes, unless the thread that it waits for is late.
        let pair = SleptOn::Unix { peer: None, accepted: false, ready: true };
        let event = tests::slept("epoll_wait", pair, WokenBy::NotKnown);
        for (proc, did, kind) in [
            (1, does("recvfrom", inet(Some(false)), by()), WaitsForWork),
            (1, Did::Queued, WaitsForOthers),
            (2, does("recvfrom", inet(Some(false)), by()), WaitsForOthers),
        ] {
            let behind = vec![Awaited { proc: ProcId(proc), ..own(did) }];
            let key = waits(event.clone(), behind);
            assert_eq!(of(ProcId(1), &key), kind, "{key:?}");
        }
        // So a pool behind the loop has no work, whatever that thread does.
        for (did, kind) in [
            (Did::Queued, WaitsForWork),
            (Did::OnCpu, WaitsForWork),
            (does("recvfrom", inet(Some(false)), by()), WaitsForWork),
        ] {
            let rests = own(Did::Slept(event.clone()));
            let slept = tests::slept("futex", condition(), WokenBy::NotKnown);
            let behind = vec![rests, own(did)];
            let key = waits(slept, behind);
            assert_eq!(of(ProcId(1), &key), kind, "{key:?}");
        }
        let lock = SleptOn::Futex { address: 64, value: 2, op: 0, user: None };
        let slept = Slept { on: lock, ..key.slept };
        let did = does("clock_nanosleep", SleptOn::NotKnown, by());
        let key = waits(slept, vec![own(did)]);
        assert_eq!(
            of(ProcId(1), &key),
            WaitsForOthers,
            "who sleeps with a lock keeps others waiting"
        );
    }
}
