// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What sleeps have in common, so that alike ones can be summed. Processes are pids.

use super::super::super::listening::Listening;
use deburr_bpf::sched::{
    Call, Caller, Client, Context as Woke, Inet, KernelLock, LockKind, Object, Sleep, State,
};
use deburr_core::recording::{
    self, EVENT_CALLS, FutexUser, FutexWait, SleepState, SleptOn, changes_address_space,
};
use deburr_core::text::name::decode;
use std::net::SocketAddr;

/// Of the mode of an inode: what it is.
const S_IFMT: u16 = 0o170_000;
const FIFO: u16 = 0o010_000;
const CHARACTER: u16 = 0o020_000;
/// `SOCK_STREAM` and `SOCK_DGRAM`.
const STREAM: u16 = 1;
const DATAGRAMS: u16 = 2;

/// Sleeps of that length are all looked at.
const MOMENT_NS: u64 = 1_000_000;

/// In which call a thread slept, on what, and what ended it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slept {
    pub(super) state: SleepState,
    pub(super) call: Option<Call>,
    pub(super) on: SleptOn,
    pub(super) peer: Option<u32>,
    pub(super) woken: Woken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Woken {
    NotKnown,
    NotYet,
    Thread(u32, Call),
    Sender(u32),
    SoftInterrupt,
    HardInterrupt,
    Timer,
    KernelTimer,
    Network,
    Disk,
    OtherCpu,
    Device,
}

impl Slept {
    /// `None` if the thread did not sleep.
    pub(super) fn of(sleep: &Sleep, listening: &Listening) -> Option<Self> {
        let state = match sleep.state {
            it if it == State::Sleep as u8 => SleepState::Asleep,
            it if it == State::BlockIo as u8 => SleepState::BlockIo,
            it if it == State::MemStall as u8 => SleepState::Memory,
            it if it == State::Uninterruptible as u8 => SleepState::Uninterruptible,
            it if it == State::Stopped as u8 => SleepState::Stopped,
            _ => return None,
        };
        let (on, peer) = on_of(sleep, listening);
        let on = within_lock(sleep, on);
        let woken = woken_of(sleep);
        Some(Self { state, call: Some(sleep.call), woken, on, peer })
    }

    /// Whether it is worth to know what the thread did that ended it. Clients do not keep a server waiting.
    pub(super) fn is_behind_somebody(&self) -> bool {
        let by_thread = match self.woken {
            // One that works for the kernel is not watched.
            Woken::Thread(_, call) => call != Call::Kernel,
            Woken::Sender(_) => true,
            _ => false,
        };
        by_thread && !self.is_for_clients() && self.state != SleepState::Stopped
    }

    /// Whether a thread waited for whichever client came next.
    pub(super) fn is_for_any_client(&self) -> bool {
        let ready = match self.on {
            SleptOn::Inet { ready, .. } | SleptOn::Unix { ready, .. } => ready,
            _ => false,
        };
        self.is_for_clients() && (ready || self.call.is_some_and(|call| is(call, ACCEPTS)))
    }

    fn is_for_clients(&self) -> bool {
        match &self.on {
            SleptOn::Inet { listens, .. } => *listens == Some(true),
            SleptOn::Unix { accepted, .. } => *accepted,
            _ => self.call.is_some_and(|call| is(call, ACCEPTS)),
        }
    }
}

/// Whether a thread waits for whatever comes next: an event loop, or one that serves clients.
pub(super) fn is_for_whatever_comes(sleep: &Sleep, listening: &Listening) -> bool {
    let of_clients = match sleep.object {
        Object::Inet(inet) => is_of_client(sleep.tgid, &inet, listening) == Some(true),
        Object::Unix { has_address, .. } => has_address,
        _ => false,
    };
    let one_of_several = match sleep.object {
        Object::Inet(Inet { ready, .. }) | Object::Unix { ready, .. } => ready,
        _ => false,
    };
    of_clients
        || is(sleep.call, EVENT_CALLS)
        || is(sleep.call, ACCEPTS)
        || (one_of_several && is(sleep.call, POLLS))
}

/// Whether the other end of a socket is a client: somebody listens on its own port, or a program has chosen it for datagrams
/// of whoever sends some. `None` = not known.
fn is_of_client(tgid: u32, inet: &Inet, listening: &Listening) -> Option<bool> {
    match inet.kind {
        STREAM => listening.has(tgid, inet.local_port),
        DATAGRAMS => match (inet.bound, inet.remote_port != 0) {
            (true, false) => Some(true),
            (false, true) => Some(false),
            (true, true) | (false, false) => None,
        },
        _ => None,
    }
}

/// Process and own port of a sleep on a socket that somebody may listen on.
pub(super) fn port_of(sleep: &Sleep) -> Option<(u32, u16)> {
    match sleep.object {
        Object::Inet(Inet { kind: STREAM, local_port, .. }) => Some((sleep.tgid, local_port)),
        _ => None,
    }
}

/// The same of a socket on which the thread was asked something.
pub(super) fn asked_at(sleep: &Sleep) -> Option<(u32, u16)> {
    match sleep.client? {
        Client::Port { port, .. } => Some((sleep.tgid, port)),
        Client::Process(_) => None,
    }
}

/// Whether the thread has read something from a client, and not answered yet.
pub(super) fn is_in_request(sleep: &Sleep, listening: &Listening) -> bool {
    match sleep.client {
        Some(Client::Port { port, .. }) => listening.has(sleep.tgid, port) == Some(true),
        Some(Client::Process(_)) => true,
        None => false,
    }
}

/// A lock for which threads wait, and which is handed over from one to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Lock {
    /// A word in the memory of a process, at an address.
    Word(u32, u64),
    /// A lock of a file: device and inode. Processes share it.
    File(u32, u64),
    /// The lock of the address space of a process.
    AddressSpace(u32),
    /// Another lock of the kernel, at an address.
    Kernel(u64),
}

/// The lock that a sleep waits for.
pub(super) fn lock_of(sleep: &Sleep) -> Option<Lock> {
    let changes = |call: Call| changes_address_space(&call.name());
    match sleep.lock {
        Some(KernelLock { kind: LockKind::AddressSpace, .. }) => {
            return Some(Lock::AddressSpace(sleep.tgid));
        }
        Some(KernelLock { address, .. }) => return Some(Lock::Kernel(address)),
        None => {}
    }
    match sleep.object {
        Object::None if is(sleep.call, &["futex"]) => {
            let on = futex_of(sleep);
            match on {
                SleptOn::Futex { address, .. } if on.is_lock() => {
                    Some(Lock::Word(sleep.tgid, address))
                }
                _ => None,
            }
        }
        Object::File { device, inode, .. } if is(sleep.call, &["flock", "fcntl"]) => {
            Some(Lock::File(device, inode))
        }
        _ => (sleep.state == State::Uninterruptible as u8
            && sleep.waker.context == Woke::Thread
            && sleep.waker.tgid == sleep.tgid
            && changes(sleep.call)
            && changes(sleep.waker.call))
        .then_some(Lock::AddressSpace(sleep.tgid)),
    }
}

/// Whether what ended a sleep gave its thread something to do: it waited for whatever comes next, or for another thread in
/// no matter which way but for a lock. An answer, a disk, or a timer lets it go on with what it does. So does another thread
/// after a moment, as locks of interpreters and runtimes look like conditions.
pub(super) fn gives_something_to_do(sleep: &Sleep, listening: &Listening) -> bool {
    if is_for_whatever_comes(sleep, listening) {
        return true;
    }
    let own = sleep.waker.context == Woke::Thread && sleep.waker.tgid == sleep.tgid;
    let from_thread = match sleep.object {
        Object::Inet(_) | Object::Socket { .. } => false,
        Object::Unix { .. } => own,
        _ => sleep.waker.context == Woke::Thread && sleep.waker.call != Call::Kernel,
    };
    let is_asleep = sleep.state == State::Sleep as u8;
    let is_long = sleep.slept_ns >= MOMENT_NS;
    from_thread && is_asleep && is_long && lock_of(sleep).is_none() && !is(sleep.call, SENDS)
}

/// Whether a thread sleeps on a word in its memory that is no lock: a condition, a semaphore.
pub(super) fn is_condition(sleep: &Sleep) -> bool {
    waits_in_memory(sleep) && lock_of(sleep).is_none()
}

/// Whether a thread sleeps on a word in its memory.
pub(super) fn waits_in_memory(sleep: &Sleep) -> bool {
    matches!(sleep.object, Object::None) && is(sleep.call, &["futex", "futex_wait", "futex_waitv"])
}

/// The other end of a connection that a process opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherEnd {
    Address(SocketAddr),
    /// Of a unix socket: the process that listened.
    Process(u32),
}

impl OtherEnd {
    pub(super) fn of(slept: &Slept) -> Option<Self> {
        match &slept.on {
            // Each question in datagrams may have a socket of its own.
            SleptOn::Inet { protocol, listens: Some(false), remote, .. } if protocol == "tcp" => {
                Some(Self::Address(remote.as_ref()?.parse().ok()?))
            }
            SleptOn::Unix { accepted: false, .. } => slept.peer.map(Self::Process),
            _ => None,
        }
    }

    pub(super) fn is_of(self, object: &Object) -> bool {
        match *object {
            Object::Inet(Inet { remote, remote_port, .. }) => {
                self == Self::Address(SocketAddr::new(remote, remote_port))
            }
            Object::Unix { peer, has_address: false, .. } => self == Self::Process(peer),
            _ => false,
        }
    }
}

/// The descriptor, device and inode of the file on which a thread sleeps.
pub(super) fn file_of(sleep: &Sleep) -> Option<(u64, u32, u64)> {
    match sleep.object {
        Object::File { mode, device, inode, .. } if is_named(mode) => {
            Some((sleep.arguments[0], device, inode))
        }
        _ => None,
    }
}

/// Whether a file of that mode is no pipe and no character device.
fn is_named(mode: u16) -> bool {
    !matches!(mode & S_IFMT, FIFO | CHARACTER)
}

fn is(call: Call, names: &[&str]) -> bool {
    matches!(call, Call::System(_)) && names.contains(&&*call.name())
}

fn on_of(sleep: &Sleep, listening: &Listening) -> (SleptOn, Option<u32>) {
    let on = match sleep.object {
        Object::None if is(sleep.call, &["futex"]) => futex_of(sleep),
        Object::None => SleptOn::NotKnown,
        Object::File { mode, device, inode, served } => match mode & S_IFMT {
            FIFO => SleptOn::Pipe,
            CHARACTER => SleptOn::Character { terminal: is_terminal(device) },
            _ => SleptOn::File { device: device_text(device), inode, path: None, served },
        },
        Object::Anonymous(name) => {
            let end = name.iter().position(|&byte| byte == 0 || byte == b']').unwrap_or(name.len());
            SleptOn::Anonymous {
                name: decode(name[..end].strip_prefix(b"[").unwrap_or(&name[..end])),
            }
        }
        Object::Inet(inet) => inet_of(sleep.tgid, inet, listening),
        Object::Unix { peer, has_address, ready } => {
            let on = SleptOn::Unix { peer: None, accepted: has_address, ready };
            return (on, Some(peer).filter(|&peer| peer != 0));
        }
        Object::Socket { family } => SleptOn::Socket { family },
        Object::Transfers => SleptOn::Transfers,
    };
    (on, None)
}

/// The word in memory on which a thread waits, in that call.
fn futex_of(sleep: &Sleep) -> SleptOn {
    let [address, op, value] = sleep.arguments;
    let (op, value) = (op as u32, value as u32);
    let wait = FutexWait { address, op, value, is_timed: sleep.is_timed };
    let on = SleptOn::futex(wait, || match sleep.caller {
        Caller::Glibc => FutexUser::Glibc,
        Caller::Musl => FutexUser::Musl,
        Caller::Shared => FutexUser::Shared,
        Caller::Interpreter(_) | Caller::Other | Caller::At(_) => FutexUser::Other,
    });
    match (on, sleep.caller) {
        (SleptOn::Futex { value, op, .. }, Caller::Interpreter(address)) => {
            SleptOn::Futex { address, value, op, user: Some(FutexUser::Interpreter) }
        }
        (on, _) => on,
    }
}

/// Whether a thread that waited on a word was woken as whoever gives a lock on does it, or ends with it, and by no signal,
/// tracer or freezer, after which it waits on.
pub(super) fn is_handed_over(sleep: &Sleep) -> bool {
    sleep.waker.context == Woke::Thread && is(sleep.waker.call, &["futex", "exit", "exit_group"])
}

/// Whether a thread waits on a word whose value may be that of a lock.
pub(super) fn is_marked_futex(sleep: &Sleep) -> bool {
    matches!(sleep.object, Object::None)
        && is(sleep.call, &["futex"])
        && matches!(futex_of(sleep), SleptOn::Futex { user: Some(_), .. })
}

/// The lock of the kernel for which a thread sleeps, if it does, in a call on that.
fn within_lock(sleep: &Sleep, on: SleptOn) -> SleptOn {
    let Some(lock) = sleep.lock else { return on };
    let lock = match lock.kind {
        LockKind::Mutex => recording::KernelLock::Mutex,
        LockKind::Semaphore => recording::KernelLock::Semaphore,
        LockKind::Reads => recording::KernelLock::RwsemRead,
        LockKind::Writes => recording::KernelLock::RwsemWrite,
        LockKind::AddressSpace => recording::KernelLock::MmapLock,
    };
    SleptOn::KernelLock { lock, within: Box::new(on) }
}

/// Major and minor number of a device as the kernel has it in memory: 12 and 20 bits.
fn device_text(device: u32) -> String {
    format!("{}:{}", device >> 20, device & 0xf_ffff)
}

/// Whether a character device is a terminal: Documentation/admin-guide/devices.txt. One that a process made (136 to 143), of the
/// machine (4), at a wire (166, 188, 204), of a hypervisor (229), or the own one of whoever asks (5), but for the end of those
/// that make some (5:2).
fn is_terminal(device: u32) -> bool {
    match (device >> 20, device & 0xf_ffff) {
        (5, 2) => false,
        (major, _) => matches!(major, 4 | 5 | 136..=143 | 166 | 188 | 204 | 229),
    }
}

/// The same from its text.
pub(super) fn device_of(text: &str) -> Option<u32> {
    let (major, minor) = text.split_once(':')?;
    Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
}

fn inet_of(tgid: u32, inet: Inet, listening: &Listening) -> SleptOn {
    let protocol = match inet.kind {
        STREAM => "tcp".into(),
        DATAGRAMS => "udp".into(),
        other => format!("type {other}"),
    };
    let listens = is_of_client(tgid, &inet, listening);
    let connected = inet.remote_port != 0 && listens != Some(true);
    SleptOn::Inet {
        protocol,
        listens,
        port: (listens == Some(true)).then_some(inet.local_port),
        remote: connected.then(|| SocketAddr::new(inet.remote, inet.remote_port).to_string()),
        asked: inet.asked.filter(|_| connected && listens == Some(false)),
        ready: inet.ready,
    }
}

/// Calls in which a process sends: on this host, the other end is woken by it, in a soft interrupt.
const SENDS: &[&str] = &["write", "writev", "sendto", "sendmsg", "sendmmsg", "sendfile", "splice"];
/// Calls that take a list of files.
const POLLS: &[&str] = &["poll", "ppoll", "select", "pselect6"];
/// Calls that wait for a client.
const ACCEPTS: &[&str] = &["accept", "accept4"];
/// Calls in which a process receives, and so makes room for who sends.
const RECEIVES: &[&str] = &["read", "readv", "recvfrom", "recvmsg", "recvmmsg", "splice"];

/// Whether the thread that a soft interrupt met was about to send to the socket that another one slept on, or made room for
/// what that one sends: a packet for others may come in the middle of its call. The ports of listeners are translated on their
/// way to many containers, those of clients hardly ever: where they are, the sender is not named.
fn is_at_other_end(sleep: &Sleep) -> bool {
    let Sleep { call, waker, object, .. } = sleep;
    let other = if is(*call, SENDS) { RECEIVES } else { SENDS };
    let Object::Inet(Inet { kind, local_port, .. }) = object else { return false };
    let is_its = match waker.sends_to {
        Some(port) => port == *local_port,
        // Datagrams have an address each.
        None => *kind != STREAM,
    };
    is(waker.call, other) && is_its
}

fn woken_of(sleep: &Sleep) -> Woken {
    let waker = sleep.waker;
    match waker.context {
        Woke::Unknown => Woken::NotKnown,
        Woke::NotYet => Woken::NotYet,
        Woke::Thread if waker.tid == 0 => Woken::NotKnown,
        Woke::Thread => Woken::Thread(waker.tgid, waker.call),
        Woke::Socket | Woke::Sent if is_at_other_end(sleep) => Woken::Sender(waker.tgid),
        Woke::SoftIrq | Woke::Socket => Woken::SoftInterrupt,
        Woke::HardIrq => Woken::HardInterrupt,
        Woke::Timer => Woken::Timer,
        Woke::KernelTimer => Woken::KernelTimer,
        Woke::Network | Woke::Sent => Woken::Network,
        Woke::Disk => Woken::Disk,
        Woke::OtherCpu => Woken::OtherCpu,
        Woke::Device(_) => Woken::Device,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use deburr_bpf::sched::Waker;
    use std::net::Ipv4Addr;

    pub(in super::super) fn sleep(object: Object, waker: Woke) -> Sleep {
        Sleep {
            tid: 7,
            tgid: 7,
            since_ns: 0,
            slept_ns: 10,
            stands_for_ns: 10,
            state: State::Sleep as u8,
            call: Call::System(202),
            arguments: [0x1000, 128, 2],
            object,
            client: None,
            lock: None,
            caller: Caller::Glibc,
            is_timed: false,
            waker: Waker {
                context: waker,
                tid: 9,
                tgid: 8,
                call: Call::System(1),
                sends_to: match object {
                    Object::Inet(inet) => Some(inet.local_port),
                    _ => None,
                },
            },
        }
    }

    pub(in super::super) fn inet(local_port: u16) -> Object {
        let remote = Ipv4Addr::new(10, 0, 0, 7).into();
        Object::Inet(Inet {
            kind: 1,
            state: 1,
            local_port,
            remote,
            remote_port: 5432,
            asked: Some(true),
            bound: false,
            ready: true,
        })
    }

    #[test]
    fn clients_are_alike_and_servers_are_not() {
        let listening = Listening::of(7, 80, 40_000);
        let slept = |port| Slept::of(&sleep(inet(port), Woke::Socket), &listening).unwrap();
        let SleptOn::Inet { listens, port, remote, .. } = slept(80).on else { panic!() };
        assert_eq!((listens, port, remote), (Some(true), Some(80), None));
        assert!(!slept(80).is_behind_somebody() && slept(40_000).is_behind_somebody());
        let SleptOn::Inet { listens, port, remote, .. } = slept(40_000).on else { panic!() };
        assert_eq!((listens, port), (Some(false), None));
        assert_eq!(remote.as_deref(), Some("10.0.0.7:5432"));
        assert_eq!(slept(40_000).woken, Woken::Sender(8));
        // Whoever is interrupted in the same call on a file sends nothing.
        let by_file = Slept::of(&sleep(inet(40_000), Woke::SoftIrq), &listening).unwrap();
        assert_eq!(by_file.woken, Woken::SoftInterrupt);
        // Nor does one that sends to somebody else, in whose call the packet came.
        for (context, other) in [(Woke::Socket, Woken::SoftInterrupt), (Woke::Sent, Woken::Network)]
        {
            for (sends_to, woken) in
                [(Some(40_000), Woken::Sender(8)), (Some(40_001), other), (None, other)]
            {
                let it = sleep(inet(40_000), context);
                let waker = Waker { sends_to, ..it.waker };
                let slept = Slept::of(&Sleep { waker, ..it }, &listening).unwrap();
                assert_eq!(slept.woken, woken, "{context:?}, {sends_to:?}");
            }
        }
        // A datagram may come from a socket that is not connected.
        let Object::Inet(stream) = inet(40_000) else { panic!() };
        let it = sleep(Object::Inet(Inet { kind: DATAGRAMS, ..stream }), Woke::Sent);
        let waker = Waker { sends_to: None, ..it.waker };
        let of_datagrams = Slept::of(&Sleep { waker, ..it }, &listening).unwrap();
        assert_eq!(of_datagrams.woken, Woken::Sender(8));
        let SleptOn::Inet { listens, remote, .. } = slept(50_000).on else { panic!() };
        assert_eq!((listens, remote.is_some()), (None, true), "it was not looked");
    }

    #[test]
    fn whoever_a_cpu_ran_when_an_interrupt_came_is_not_the_waker() {
        let slept =
            |context| Slept::of(&sleep(Object::None, context), &Listening::default()).unwrap();
        assert_eq!(slept(Woke::SoftIrq).woken, Woken::SoftInterrupt);
        assert_eq!(slept(Woke::HardIrq).woken, Woken::HardInterrupt);
        assert_eq!(slept(Woke::Thread).woken, Woken::Thread(8, Call::System(1)));
        for (context, woken) in [
            (Woke::Timer, Woken::Timer),
            (Woke::KernelTimer, Woken::KernelTimer),
            (Woke::Network, Woken::Network),
            (Woke::Sent, Woken::Network),
            (Woke::Disk, Woken::Disk),
            (Woke::OtherCpu, Woken::OtherCpu),
            (Woke::Device(36), Woken::Device),
        ] {
            assert_eq!(slept(context).woken, woken);
            assert!(!slept(context).is_behind_somebody());
        }
        assert!(!slept(Woke::SoftIrq).is_behind_somebody());
        assert!(slept(Woke::Thread).is_behind_somebody());
    }

    #[test]
    fn a_lock_is_told_from_a_condition() {
        let lock = sleep(Object::None, Woke::Thread);
        assert_eq!(lock_of(&lock), Some(Lock::Word(7, 0x1000)));
        assert_eq!(lock_of(&Sleep { arguments: [0x1000, 128, 0], ..lock }), None);
        assert_eq!(lock_of(&Sleep { arguments: [0x1000, 137, 2], ..lock }), None);
        assert_eq!(
            lock_of(&Sleep { arguments: [0x1000, 134, 0], ..lock }),
            Some(Lock::Word(7, 0x1000))
        );
        assert_eq!(lock_of(&Sleep { call: Call::System(1), ..lock }), None);
        for caller in [Caller::Musl, Caller::Other, Caller::At(0)] {
            assert_eq!(lock_of(&Sleep { caller, ..lock }), None, "{caller:?}");
        }
        assert!(lock_of(&Sleep { caller: Caller::Shared, ..lock }).is_some());
        // The kernel says which of its own locks it is, whatever the call.
        for (kind, is) in [
            (LockKind::Writes, Lock::Kernel(0xff00)),
            (LockKind::AddressSpace, Lock::AddressSpace(7)),
        ] {
            let file = Object::File { mode: 0o100_644, device: 5, inode: 9, served: false };
            let known = Some(KernelLock { kind, address: 0xff00 });
            let slept = Sleep { lock: known, object: file, call: Call::System(1), ..lock };
            assert_eq!(lock_of(&slept), Some(is));
            let on = Slept::of(&slept, &Listening::default()).unwrap().on;
            let SleptOn::KernelLock { within, .. } = on else { panic!("{on:?}") };
            assert!(matches!(*within, SleptOn::File { inode: 9, .. }), "{within:?}");
        }
    }
}
