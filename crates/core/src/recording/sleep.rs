// SPDX-License-Identifier: Apache-2.0 OR MIT
//! On what the threads of the target sleep, and who wakes them.

use super::observed::observed;
use super::{ProcId, Source};
use serde::{Deserialize, Serialize};

/// In which state of the ledger a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SleepState {
    /// Interruptible sleep.
    Asleep,
    /// Uninterruptible sleep for block IO.
    BlockIo,
    /// Uninterruptible sleep for memory.
    Memory,
    /// Other uninterruptible sleep.
    Uninterruptible,
    /// No sleep of its own: stopped by a signal, held by a tracer, or frozen. Who ended it, and in which call, says by which of
    /// them; neither its call nor on what it slept before is told.
    Stopped,
}

/// On what a thread sleeps, as its system call says. Facts only: what they mean is judged when a recording is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SleptOn {
    /// Its call says nothing, or it could not be read.
    #[default]
    NotKnown,
    /// A word in the memory of the process.
    Futex {
        /// Its address in the process; 0 = several.
        address: u64,
        /// The value that the thread expected there when it went to sleep: how libraries mark a lock that is waited for. As
        /// it is up to 2; 4 = one of the two highest bits is set, and others, but not all; 3 = another.
        value: u32,
        /// The operation of the call, `FUTEX_...`, without flags.
        op: u32,
        /// Whose code waits. `None` = the value has no meaning of its own, with this operation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<FutexUser>,
    },
    /// A file.
    File {
        /// Major and minor number of its filesystem's device, as `8:1`.
        device: String,
        /// Inode number.
        inode: u64,
        /// Its path, as the process saw it; `None` if that could not be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        /// A process serves its filesystem (FUSE).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        served: bool,
    },
    /// A pipe, or a named one.
    Pipe,
    /// A character device: `/dev/fuse`, ...
    Character {
        /// A terminal: what is written there is read by another process, or goes over a wire.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        terminal: bool,
    },
    /// A file without a name in any filesystem, or an event poll that found nothing ready: `eventpoll`, `eventfd`,
    /// `timerfd`, `signalfd`, `inotify`, `io_uring`, ... at most seven letters of it.
    Anonymous {
        /// Beginning of the kernel's name of it.
        name: String,
    },
    /// A socket of TCP, UDP, ...
    Inet {
        /// `tcp`, `udp` or the number of the socket's type.
        protocol: String,
        /// Its own port is one on which a process of its network namespace listens: its other end is a client. `None` = it
        /// is not known who listens.
        listens: Option<bool>,
        /// Own port, if `listens`.
        port: Option<u16>,
        /// Address and port of the other end, if not `listens`.
        remote: Option<String>,
        /// Its process has sent something since the last sleep on it that was looked at, or it has sent something and read
        /// nothing yet: it waits for an answer. `None` = neither, and no sleep on it was looked at before.
        #[serde(default)]
        asked: Option<bool>,
        /// It is the one that is ready of several that the call waits for.
        ready: bool,
    },
    /// A unix socket.
    Unix {
        /// The process at the other end.
        peer: Option<ProcId>,
        /// It has an address: it listens, or was accepted.
        accepted: bool,
        /// It is the one that is ready of several that the call waits for.
        ready: bool,
    },
    /// A socket of another family.
    Socket {
        /// `AF_...`
        family: u16,
    },
    /// Transfers that the thread itself has asked disks for without waiting (libaio, io_uring), of which one was complete.
    Transfers,
    /// A lock of the kernel, in a call on something.
    KernelLock {
        /// What the lock is.
        lock: KernelLock,
        /// On what the call is.
        within: Box<SleptOn>,
    },
    /// Many different ones, each of a small part of the time.
    Others,
}

/// How a thread waits on a futex: the arguments of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FutexWait {
    /// Address of the word.
    pub address: u64,
    /// Operation with its flags.
    pub op: u32,
    /// Expected value.
    pub value: u32,
    /// Whether it has a timeout.
    pub is_timed: bool,
}

/// Whose code waits on a futex, which says what the value of the word means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FutexUser {
    /// glibc.
    Glibc,
    /// musl.
    Musl,
    /// Neither, or that is not known: a runtime, another library, or a program that is linked statically. Several threads
    /// have waited on the word, one of them has woken another one, and it had the same value again afterwards: no counter and
    /// no event, but something that each of them takes in turn.
    Shared,
    /// CPython, which waits for the lock of its interpreter (GIL). The address is that of the interpreter's data: the lock is
    /// in them, and has several words.
    Interpreter,
    /// As for `Shared`, and that was not seen. The threads of some runtimes wait for work on a word that each has of its own.
    Other,
}

/// What a lock of the kernel is, as the kernel says it from 6.16 on (`CONFIG_DETECT_HUNG_TASK_BLOCKER`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelLock {
    /// A mutex.
    Mutex,
    /// A counting semaphore.
    Semaphore,
    /// A read-write semaphore, to read.
    RwsemRead,
    /// A read-write semaphore, to write.
    RwsemWrite,
    /// The read-write semaphore of the address space of the thread's process.
    MmapLock,
}

/// What ended a sleep.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum WokenBy {
    /// Not known.
    #[default]
    NotKnown,
    /// Nothing: it sleeps on.
    NotYet,
    /// A thread, by what it did.
    Thread {
        /// Its process; 0 in `proc` does not occur.
        proc: ProcId,
        /// What it did in the kernel, as in [`SleepTick::call`].
        call: String,
    },
    /// The network, in the context of the process at the other end, on this host: one that sent, or that made room by
    /// receiving.
    Sender {
        /// That process.
        proc: ProcId,
    },
    /// A soft interrupt: it was not seen which, or it was one for something else than below.
    SoftInterrupt,
    /// A hard interrupt, and it was not seen which: a timer, or a device.
    HardInterrupt,
    /// A timer of high resolution: a time that a program has set.
    Timer,
    /// A timer of the kernel's timer wheel: that of a protocol, or of a wait that the kernel limits.
    KernelTimer,
    /// The network.
    Network,
    /// Block IO that was complete.
    Disk,
    /// A function that another CPU had this one call, as for block IO that is complete.
    OtherCpu,
    /// The interrupt of another device.
    Device,
}

impl WokenBy {
    /// Whether a time that the program had set ended it. Where it was not seen which interrupt did, most often one of a timer
    /// did.
    #[must_use]
    pub fn is_timer(&self) -> bool {
        matches!(self, Self::Timer | Self::HardInterrupt)
    }

    /// The process that ended it.
    #[must_use]
    pub fn process(&self) -> Option<ProcId> {
        match self {
            Self::Thread { proc, .. } | Self::Sender { proc } => Some(*proc),
            _ => None,
        }
    }
}

/// What a thread did while another one waited for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "did", rename_all = "snake_case")]
pub enum Did {
    /// Not seen: its process was not watched, or what it did was too short, or too long ago.
    #[default]
    NotSeen,
    /// It had a CPU.
    OnCpu,
    /// It waited in run queues.
    Queued,
    /// A CPU quota stopped it.
    Throttled,
    /// It slept. What ended that sleep is the next in the chain, if a thread did.
    Slept(Slept),
}

/// How a thread slept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Slept {
    /// Which state of the ledger it is part of.
    pub state: SleepState,
    /// System call, as in [`SleepTick::call`].
    pub call: String,
    /// On what.
    pub on: SleptOn,
    /// What ended it.
    pub woken: WokenBy,
}

impl Slept {
    /// Whether the thread waited for block IO.
    #[must_use]
    pub fn is_for_disk(&self) -> bool {
        self.state == SleepState::BlockIo || self.on == SleptOn::Transfers
    }
}

/// A thread that others waited for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Awaited {
    /// Its process.
    pub proc: ProcId,
    /// Its name; empty if it is not known.
    pub thread: String,
    /// They take turns: it waited for an answer, and the thread of the same process that waits for it has lately waited for one of
    /// the same other end itself; or a client waits for the answer of either, and it was waiting in the same way when the other one
    /// began to, and was served first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub too: bool,
    /// What it did meanwhile.
    #[serde(flatten)]
    pub did: Did,
}

/// Longest chain of threads of which each waits for the next.
pub const CHAIN: usize = 8;

/// Sleep of the threads of a process of the target, alike sleeps summed (BPF scheduler probe). For a millisecond of a
/// thread's sleep, or for one that is longer, one is looked at, and stands for those before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SleepTick {
    /// Start.
    pub t0_ns: u64,
    /// End.
    pub t1_ns: u64,
    /// The process.
    pub proc: ProcId,
    /// Which state of the ledger it is part of.
    pub state: SleepState,
    /// System call, as in the manual pages; in parentheses what is none: `(page fault)`, `(kernel work)`,
    /// `(32-bit call)`, `(not known)`, `(others)`.
    pub call: String,
    /// On what.
    pub on: SleptOn,
    /// What ended it.
    pub woken: WokenBy,
    /// Name of the threads; `None` if it is not known, or differs.
    pub thread: Option<String>,
    /// The entry that the threads belong to, by its place in [`Meta::entries`](super::Meta::entries); `None` if they belong
    /// to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<u32>,
    /// Of an entry's thread, whether it had asked the thread that ended it: an entry's thread was the last that gave this
    /// one something to do. `None` if that is not known, or no thread ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<bool>,
    /// Whether the thread was the last to read from a client of its process, and nothing was sent to it since: on a connection of
    /// TCP, or on one of a unix socket on which the client sleeps. `None` = that is not known: it may be at work for a client all
    /// the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_request: Option<bool>,
    /// What this part of the sleep waited for: the thread that ended it, or that held its lock, the one that this
    /// waited for, and so on; [`CHAIN`] at most. Empty if no thread of this host is known to have ended it.
    pub behind: Vec<Awaited>,
    /// Sleep that these stand for.
    pub ns: u64,
    /// Number of sleeps that were looked at, or parts of them.
    pub looked_at: u64,
    /// The longest of them so far, from its beginning.
    pub longest_ns: u64,
}

observed! {
    it: SleepTick over t0_ns..t1_ns, from Source::Sched;
    to [it.proc], it.woken.process(), it.on.peer(), it.behind.iter().flat_map(Awaited::processes)
}

impl Awaited {
    /// The processes that it refers to.
    fn processes(&self) -> impl Iterator<Item = ProcId> {
        let (peer, waker) = match &self.did {
            Did::Slept(Slept { on, woken, .. }) => (on.peer(), woken.process()),
            _ => (None, None),
        };
        [Some(self.proc), peer, waker].into_iter().flatten()
    }
}

/// Operations of a futex: `FUTEX_WAIT`, `FUTEX_WAIT_BITSET`, `FUTEX_LOCK_PI`, `FUTEX_LOCK_PI2`.
const FUTEX_WAIT: u32 = 0;
const FUTEX_WAIT_BITSET: u32 = 9;
const FUTEX_LOCKS: [u32; 2] = [6, 13];
/// The operation without its flags, `FUTEX_PRIVATE_FLAG` and this one.
const FUTEX_OPERATION: u32 = 0x7f;
const FUTEX_CLOCK_REALTIME: u32 = 256;
/// What a mutex of glibc holds while somebody waits for it; and so do those of most others, as of Rust's standard library,
/// which waits with `FUTEX_WAIT_BITSET`.
const CONTENDED: u32 = 2;
/// Bits of which musl sets one in its locks while somebody waits for them, beside the owner or how many there are. A
/// semaphore has the first alone. (musl: `src/thread/pthread_mutex_timedlock.c`, `src/thread/__lock.c`,
/// `src/stdio/__lockfile.c`)
const WAITED_FOR: u32 = 0xc000_0000;
/// See [`SleptOn::Futex`].
const OTHER: u32 = 3;
const MARKED: u32 = 4;

/// Calls that take the lock of the address space of their process, and what else does.
const MEMORY: &[&str] = &[
    "(page fault)",
    "mmap",
    "munmap",
    "mremap",
    "mprotect",
    "pkey_mprotect",
    "madvise",
    "process_madvise",
    "brk",
    "mlock",
    "mlock2",
    "munlock",
    "mlockall",
    "munlockall",
    "mbind",
    "migrate_pages",
    "move_pages",
    "clone",
    "clone3",
    "fork",
    "shmat",
    "shmdt",
];

/// Calls of event loops, which wait for whatever comes next. `poll` and `select` are also used to wait for one answer.
pub const EVENT_CALLS: &[&str] = &["epoll_wait", "epoll_pwait", "epoll_pwait2"];

/// Whether a call, as in [`SleepTick::call`], takes the lock of the address space of its process.
#[must_use]
pub fn changes_address_space(call: &str) -> bool {
    MEMORY.contains(&call)
}

impl SleptOn {
    /// A word on which a thread waits. `user` is asked where the value may be that of a lock.
    pub fn futex(wait: FutexWait, user: impl FnOnce() -> FutexUser) -> Self {
        let FutexWait { address, op, value, is_timed } = wait;
        let is_marked = value & WAITED_FOR != 0 && value & !WAITED_FOR != 0 && value != u32::MAX;
        let has_clock = op & FUTEX_CLOCK_REALTIME != 0;
        let op = op & FUTEX_OPERATION;
        let (value, may_be_lock) = match (op, value) {
            (FUTEX_WAIT, CONTENDED) => (CONTENDED, true),
            (FUTEX_WAIT, _) if is_marked => (MARKED, true),
            // A mutex of a runtime; a read-write lock of glibc, which has a clock.
            (FUTEX_WAIT_BITSET, CONTENDED) => (CONTENDED, !is_timed),
            (FUTEX_WAIT_BITSET, OTHER) => (OTHER, has_clock && !is_timed),
            _ => (value.min(OTHER), false),
        };
        Self::Futex { address, value, op, user: may_be_lock.then(user) }
    }

    /// Whether it is a lock in the memory of the process: one that the kernel hands over, or one whose value says that it is
    /// waited for. What musl's conditions hold while a thread waits is what glibc's mutexes do, and so do the words on which
    /// the threads of some runtimes wait for work: each of them has one of its own.
    #[must_use]
    pub fn is_lock(&self) -> bool {
        let Self::Futex { op, value, user, .. } = self else { return false };
        let is_mark = match user {
            // Recordings of before it was known who waits.
            None | Some(FutexUser::Glibc) => *op == FUTEX_WAIT && *value == CONTENDED,
            Some(FutexUser::Musl) => *value == MARKED,
            Some(FutexUser::Shared | FutexUser::Interpreter) => true,
            Some(FutexUser::Other) => false,
        };
        FUTEX_LOCKS.contains(op) || is_mark
    }

    /// The same without the address of a futex that is no lock: a runtime has one for each thread.
    #[must_use]
    pub fn of_any_condition(self) -> Self {
        match self {
            Self::Futex { op, value, user, .. } if !self.is_lock() => {
                Self::Futex { address: 0, value, op, user }
            }
            on => on,
        }
    }

    /// The process at the other end of a unix socket.
    #[must_use]
    pub fn peer(&self) -> Option<ProcId> {
        match self {
            Self::Unix { peer, .. } => *peer,
            Self::KernelLock { within, .. } => within.peer(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIVATE: u32 = 128;
    const BITSET: u32 = 9 | PRIVATE;
    const LOCK_PI: u32 = 6 | PRIVATE;

    fn wait(op: u32, value: u32) -> FutexWait {
        FutexWait { address: 64, op, value, is_timed: false }
    }

    #[test]
    fn what_a_value_means_depends_on_whose_code_waits() {
        use FutexUser::{Glibc, Musl, Other, Shared};
        let is_lock = |op, value, user| SleptOn::futex(wait(op, value), || user).is_lock();
        let of = |op, value| [Glibc, Musl, Shared, Other].map(|it| is_lock(op, value, it));
        // A mutex of glibc, and a condition of musl.
        assert_eq!(of(PRIVATE, 2), [true, false, true, false]);
        // A mutex of Rust, and the two words of a read-write lock of glibc, which has a clock.
        for (op, value) in
            [(BITSET, 2), (BITSET | FUTEX_CLOCK_REALTIME, 2), (BITSET | FUTEX_CLOCK_REALTIME, 3)]
        {
            assert_eq!(of(op, value), [false, false, true, false]);
        }
        // A mutex of musl; one that a thread owns; its allocator's; that of a stream.
        for value in [0x8000_0010, 0x8000_1234, 0x8000_0003, 0x4000_1234] {
            assert_eq!(of(PRIVATE, value), [false, true, true, false], "{value:#x}");
        }
        // A semaphore of musl, a thread of Rust that is parked, conditions.
        for value in [0x8000_0000, u32::MAX, 0, 1, 3, 4, 7] {
            assert_eq!(of(PRIVATE, value), [false; 4], "{value:#x}");
        }
        assert_eq!(of(LOCK_PI, 0), [true; 4]);
    }

    #[test]
    fn whose_code_waits_is_asked_only_where_it_matters() {
        let never = || panic!("it does not matter");
        for (op, value, kept) in
            [(BITSET, 0, 0), (BITSET, 3, 3), (BITSET, 0x8000_0010, 3), (0, 0, 0), (0, 7, 3)]
        {
            let on = SleptOn::futex(wait(op, value), never);
            let op = op & FUTEX_OPERATION;
            assert_eq!(on, SleptOn::Futex { address: 64, value: kept, op, user: None });
        }
        let timed = SleptOn::futex(FutexWait { is_timed: true, ..wait(BITSET, 2) }, never);
        assert!(!timed.is_lock());
    }
}
