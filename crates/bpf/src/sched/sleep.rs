// SPDX-License-Identifier: Apache-2.0 OR MIT
//! On what watched threads sleep, and who wakes them.
//!
//! Sleeps that have ended are read from a log of each CPU, those in progress from an iterator. A record stands for an
//! amount of its thread's sleep: all of it is told, but not each short sleep.

use super::asked::Asked;
use super::object::{self, Object};
use super::{Client, SchedProbe};
use crate::mapped::{Mapped, Plain, from_bytes, set};
use crate::skel::sched::types::{sched_sleep, sched_sleeps, sleep_file, sleep_lock};
use std::borrow::Cow;
use std::mem::offset_of;
use std::str::FromStr as _;
use syscalls::Sysno;

// SAFETY: generated from C structs of integers and arrays of them; every bit pattern is a value.
unsafe impl Plain for sched_sleep {}
// SAFETY: as above.
unsafe impl Plain for sched_sleeps {}

/// Number of system calls that are known to the probe (`SLEEP_CALLS`).
pub(super) const CALLS: usize = 512;
/// Entries of a CPU's log, and how many of them are not read: the oldest may be overwritten meanwhile.
const SLEEPS: u64 = ((size_of::<sched_sleeps>() - offset_of!(sched_sleeps, sleep))
    / size_of::<sched_sleep>()) as u64;
const MARGIN: u64 = 8;

/// Sleep for which a thread has one record, at first, ...
pub(super) const QUANTUM_NS: u64 = 1_000_000;
/// ... and at most. It is doubled, or more, while there are more records in a second than the reader wants, and halved
/// again where there are few.
const MOST_QUANTUM_NS: u64 = QUANTUM_NS << 14;
/// A thread that sleeps on has a record a second at most.
const LOOK_NS: u64 = 1_000_000_000;

/// Calls whose first argument is a file descriptor, and in which a thread may sleep.
const TAKE_FD: &[&str] = &[
    "read",
    "pread64",
    "readv",
    "preadv",
    "preadv2",
    "write",
    "pwrite64",
    "writev",
    "pwritev",
    "pwritev2",
    "recvfrom",
    "recvmsg",
    "recvmmsg",
    "sendto",
    "sendmsg",
    "sendmmsg",
    "accept",
    "accept4",
    "connect",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "flock",
    "fcntl",
    "fsync",
    "fstat",
    "lseek",
    "fgetxattr",
    "fchmod",
    "fchown",
    "fdatasync",
    "sync_file_range",
    "syncfs",
    "ftruncate",
    "fallocate",
    "ioctl",
    "splice",
    "tee",
    "sendfile",
    "copy_file_range",
    "getdents64",
    "io_uring_enter",
    "close",
];

/// Calls that take a list of file descriptors.
const POLL: &[&str] = &["poll", "ppoll", "select", "pselect6"];

/// For each call, how it says for which file it waits.
pub(super) fn says_file() -> [u8; CALLS] {
    let mut all = [0; CALLS];
    for (names, says) in [(TAKE_FD, sleep_file::SLEEP_DESCRIPTOR), (POLL, sleep_file::SLEEP_POLL)] {
        for number in names.iter().filter_map(|name| Sysno::from_str(name).ok()) {
            if let Some(place) = usize::try_from(number.id()).ok().and_then(|it| all.get_mut(it)) {
                *place = says.0 as u8;
            }
        }
    }
    all
}

/// What a thread does in the kernel while it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// A system call, by number.
    System(u16),
    /// None: a page fault, or another exception.
    Fault,
    /// It works for the kernel only, as the workers of io_uring do.
    Kernel,
    /// A system call of a 32-bit program.
    Compat,
    /// Not known on this kernel.
    Unknown,
}

impl Call {
    pub(crate) fn of(number: i16) -> Self {
        match number {
            -1 => Self::Fault,
            -2 => Self::Kernel,
            -3 => Self::Compat,
            _ => u16::try_from(number).map_or(Self::Unknown, Self::System),
        }
    }

    /// Its name, as in the manual pages; that of anything else in parentheses.
    #[must_use]
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Self::System(number) => Sysno::new(number.into())
                .map_or_else(|| format!("syscall_{number}").into(), |call| call.name().into()),
            Self::Fault => "(page fault)".into(),
            Self::Kernel => "(kernel work)".into(),
            Self::Compat => "(32-bit call)".into(),
            Self::Unknown => "(not known)".into(),
        }
    }
}

/// In what a thread was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Context {
    /// Not known: the wake-up was not seen, or its context cannot be read on this kernel.
    Unknown,
    /// By the thread that the CPU ran.
    Thread,
    /// In a soft interrupt: it is not known in which.
    SoftIrq,
    /// The same, and the thread that the CPU ran was in a call on a socket of the internet.
    Socket,
    /// In a soft interrupt for the network, which the thread that the CPU ran served in its own call on such a socket.
    Sent,
    /// In a hard interrupt: it is not known in which.
    HardIrq,
    /// In an interrupt of a timer of high resolution.
    Timer,
    /// In an interrupt of the kernel's timer wheel.
    KernelTimer,
    /// In an interrupt for the network.
    Network,
    /// In an interrupt for block IO that is complete.
    Disk,
    /// In a function that another CPU had this one call.
    OtherCpu,
    /// In the interrupt of a device, by its number.
    Device(u32),
    /// It sleeps on.
    NotYet,
}

/// Who woke a thread. In an interrupt, the thread is whoever the CPU ran meanwhile; in that of a device, it is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waker {
    /// In what.
    pub context: Context,
    /// Thread id; 0 = the CPU was idle, or it is not known.
    pub tid: u32,
    /// Thread-group id.
    pub tgid: u32,
    /// What that thread did in the kernel.
    pub call: Call,
    /// Of [`Context::Socket`] and [`Context::Sent`], where the other thread sleeps on a socket: the port to which the socket
    /// was connected that this one used. `None` = to none, or it is not known.
    pub sends_to: Option<u16>,
}

/// Kinds of the kernel's locks for which threads sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockKind {
    /// A mutex.
    Mutex,
    /// A counting semaphore.
    Semaphore,
    /// A read-write semaphore, to read.
    Reads,
    /// A read-write semaphore, to write.
    Writes,
    /// The read-write semaphore of the thread's own address space, `mmap_lock`.
    AddressSpace,
}

/// A lock of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelLock {
    /// What it is.
    pub kind: LockKind,
    /// Where it is, in the kernel's memory: what tells it from others. Not to be shown.
    pub address: u64,
}

fn lock_of(it: &sched_sleep) -> Option<KernelLock> {
    let is = |kind: sleep_lock| u32::from(it.lock) == kind.0;
    let kind = match () {
        () if is(sleep_lock::SLEEP_MUTEX) => LockKind::Mutex,
        () if is(sleep_lock::SLEEP_SEMAPHORE) => LockKind::Semaphore,
        () if is(sleep_lock::SLEEP_RWSEM_READ) => LockKind::Reads,
        () if is(sleep_lock::SLEEP_RWSEM_WRITE) => LockKind::Writes,
        () if is(sleep_lock::SLEEP_MMAP_LOCK) => LockKind::AddressSpace,
        () => return None,
    };
    let [low, high, ..] = it.remote.map(u64::from);
    Some(KernelLock { kind, address: high << 32 | low })
}

/// Whose code waits on a futex, which says what the value of the word means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// As the probe says it: the address in the program at which it goes on; 0 = not known.
    At(u64),
    /// glibc.
    Glibc,
    /// musl.
    Musl,
    /// Neither, as far as is known; but threads take what the word is for in turn.
    Shared,
    /// CPython, for the lock of the interpreter whose data begin at this address.
    Interpreter(u64),
    /// Neither, as far as that is known.
    Other,
}

/// A sleep of a watched thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// Thread id.
    pub tid: u32,
    /// Thread-group id.
    pub tgid: u32,
    /// When it began, on the run queues' clock.
    pub since_ns: u64,
    /// How long it took, or has taken so far.
    pub slept_ns: u64,
    /// How much of the thread's sleep this record stands for.
    pub stands_for_ns: u64,
    /// State of the ledger, an index like [`super::State`].
    pub state: u8,
    /// In which call.
    pub call: Call,
    /// The first three arguments of the system call.
    pub arguments: [u64; 3],
    /// On which file.
    pub object: Object,
    /// Who waits for an answer of the thread meanwhile, if it sleeps on no socket.
    pub client: Option<Client>,
    /// For which lock of the kernel. `None` = for none, in a call on a socket, or the kernel does not tell (before 6.16, or
    /// without `CONFIG_DETECT_HUNG_TASK_BLOCKER`).
    pub lock: Option<KernelLock>,
    /// Whose code made the call, if it is a `futex`.
    pub caller: Caller,
    /// If it is a `futex`: it has a timeout.
    pub is_timed: bool,
    /// Who ended it.
    pub waker: Waker,
}

fn sleep_of(it: &sched_sleep) -> Sleep {
    let context = match it.context {
        1 => Context::Thread,
        2 => Context::SoftIrq,
        3 => Context::HardIrq,
        5 => Context::NotYet,
        6 => Context::Socket,
        7 => Context::Timer,
        8 => Context::KernelTimer,
        9 => Context::Network,
        10 => Context::Disk,
        11 => Context::OtherCpu,
        12 => Context::Device(it.waker_tid),
        13 => Context::Sent,
        _ => Context::Unknown,
    };
    let object = Object::of(it);
    Sleep {
        tid: it.tid,
        tgid: it.tgid,
        since_ns: it.since_ns,
        slept_ns: it.slept_ns,
        stands_for_ns: it.stands_for_ns,
        state: it.state,
        call: Call::of(it.call),
        arguments: it.argument,
        object,
        client: Client::of(it),
        lock: lock_of(it),
        caller: Caller::At(if object == Object::None { it.inode } else { 0 }),
        is_timed: object == Object::None && it.mark != 0,
        waker: Waker {
            context,
            tid: it.waker_tid,
            tgid: it.waker_tgid,
            call: Call::of(it.waker_call),
            sends_to: match context {
                Context::Socket | Context::Sent if it.family != 0 => {
                    u16::try_from(it.device).ok().filter(|&port| port != 0)
                }
                _ => None,
            },
        },
    }
}

/// The watch on threads: what of the logs was read.
#[derive(Default)]
pub(super) struct Watch {
    /// Size of the table of watched threads, a power of two, - 1.
    pub(super) mask: u32,
    pub(super) heads: Vec<u64>,
    /// Records in a second, at most.
    pub(super) most_records: u64,
    /// Records of sleeps that have ended since it was last decided how many there may be.
    records: u64,
    /// Records that were overwritten before they were read.
    overrun: u64,
    /// Threads that could not be watched, because a watched one has their place.
    pub(super) collisions: u64,
    asked: Asked,
}

impl Watch {
    /// Of nobody, with a table for so many threads.
    pub(super) fn of(slots: u32) -> Self {
        Self { mask: slots - 1, ..Self::default() }
    }

    /// Sleeps as they are told, in the order in which they began.
    fn told(&mut self, mut all: Vec<sched_sleep>) -> Vec<Sleep> {
        all.sort_by_key(|it| it.since_ns);
        let told = all.iter().map(|it| {
            let mut sleep = sleep_of(it);
            let asks_first = object::asks_first(it, sleep.waker.context);
            self.asked.note(&mut sleep, it.write_seq, asks_first);
            sleep
        });
        told.collect()
    }
}

impl SchedProbe {
    /// The sleeps that ended since the last call.
    pub fn sleeps(&mut self) -> Vec<Sleep> {
        if !self.watches() {
            return Vec::new();
        }
        let mut all = Vec::new();
        for cpu in 0..self.sleeps.len() {
            let begin = self.watch.heads.get(cpu).copied().unwrap_or_default();
            let (end, lost) = read_log(&self.sleeps, cpu, begin, &mut all);
            self.watch.heads[cpu] = end;
            self.watch.overrun += lost;
        }
        self.watch.records += all.len() as u64;
        // Not only at the end of the second: the logs are full before.
        if all.len() as u64 > self.watch.most_records {
            self.set_quantum();
        }
        self.watch.told(all)
    }

    /// Sets how much sleep has one record when it ends, from the number of records since the last time.
    fn set_quantum(&mut self) {
        let records = std::mem::take(&mut self.watch.records);
        let maps = &mut self.object.skel.maps;
        let data = maps.data_data.as_deref_mut().expect("the object has a data section");
        let next_ns = next_quantum(data.sleep_quantum_ns, records, self.watch.most_records);
        set(&mut data.sleep_quantum_ns, next_ns);
    }

    /// Sets how much sleep in progress has one record: thousands of threads at rest do not make those rare of the others.
    fn set_quantum_in_progress(&mut self, records: u64) {
        let maps = &mut self.object.skel.maps;
        let data = maps.data_data.as_deref_mut().expect("the object has a data section");
        let most_records = self.watch.most_records / 2;
        let mut now_ns = data.asleep_quantum_ns;
        if records > most_records {
            // All below that are alike.
            now_ns = now_ns.max(LOOK_NS / 2);
        }
        set(&mut data.asleep_quantum_ns, next_quantum(now_ns, records, most_records));
    }

    /// To be called once a second: the sleeps in progress, as of the time of the last list of waiting threads: what was not
    /// told of them yet. `last` = all of it, as there is no further call.
    ///
    /// # Errors
    /// If the kernel's threads cannot be iterated.
    pub fn asleep(&mut self, last: bool) -> Result<Vec<Sleep>, String> {
        self.set_quantum();
        let Some(name) = self.names.asleep.filter(|_| self.watches()) else {
            return Ok(Vec::new());
        };
        if last {
            let maps = &mut self.object.skel.maps;
            let data = maps.data_data.as_deref_mut().expect("the object has a data section");
            set(&mut data.asleep_quantum_ns, QUANTUM_NS);
        }
        let bytes =
            self.object.iterate(name).map_err(|error| format!("look at who sleeps: {error}"))?;
        let found = bytes.chunks_exact(size_of::<sched_sleep>()).filter_map(from_bytes);
        let all: Vec<sched_sleep> = found.collect();
        self.set_quantum_in_progress(all.len() as u64);
        Ok(self.watch.told(all))
    }

    /// Records of sleeps that were lost, and threads that could not be watched.
    #[must_use]
    pub fn sleeps_lost(&self) -> (u64, u64) {
        let data = self.object.skel.maps.bss_data.as_deref();
        let met = data.map_or(0, |data| data.watch_collisions);
        (self.watch.overrun, self.watch.collisions + met)
    }
}

/// How much sleep has one record from now on: twice as much, or more, if there were too many, and half of it if few.
fn next_quantum(now_ns: u64, records: u64, most_records: u64) -> u64 {
    let most_records = most_records.max(1);
    if records > most_records {
        let by = (records / most_records).next_power_of_two().max(2);
        now_ns.max((now_ns * by).min(MOST_QUANTUM_NS))
    } else if records < most_records / 4 {
        (now_ns / 2).max(QUANTUM_NS)
    } else {
        now_ns
    }
}

/// Reads the log of a CPU from there on. Returns how far it was read, and how many records were overwritten before.
fn read_log(
    log: &Mapped<sched_sleeps>,
    cpu: usize,
    begin: u64,
    to: &mut Vec<sched_sleep>,
) -> (u64, u64) {
    let head = || log.u64(cpu, offset_of!(sched_sleeps, head));
    let end = head();
    let from = begin.max(end.saturating_sub(SLEEPS - MARGIN));
    let already = to.len();
    for at in from..end {
        let index = (at % SLEEPS) as usize;
        let offset = offset_of!(sched_sleeps, sleep) + index * size_of::<sched_sleep>();
        to.push(log.peek(cpu, offset));
    }
    // What the kernel may have overwritten meanwhile is dropped.
    let safe = head().saturating_sub(SLEEPS - MARGIN);
    let torn = safe.saturating_sub(from).min(end - from);
    let torn_here = usize::try_from(torn).unwrap_or(usize::MAX).min(to.len() - already);
    to.drain(already..already + torn_here);
    (end, from - begin + torn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_that_takes_a_descriptor_exists() {
        let all = TAKE_FD.iter().chain(POLL);
        let unknown: Vec<_> = all.filter(|name| Sysno::from_str(name).is_err()).collect();
        if cfg!(target_arch = "x86_64") {
            assert!(unknown.is_empty(), "{unknown:?}");
        }
        let says = [Sysno::futex, Sysno::read, Sysno::ppoll].map(|it| says_file()[it as usize]);
        assert_eq!(says, [0, 1, 2]);
    }

    #[test]
    fn records_are_made_rarer_where_there_are_too_many() {
        assert_eq!(next_quantum(QUANTUM_NS, 3000, 3000), QUANTUM_NS);
        assert_eq!(next_quantum(QUANTUM_NS, 3001, 3000), 2 * QUANTUM_NS);
        assert_eq!(next_quantum(QUANTUM_NS, 20_000, 3000), 8 * QUANTUM_NS);
        assert_eq!(next_quantum(8 * QUANTUM_NS, 749, 3000), 4 * QUANTUM_NS);
        assert_eq!(next_quantum(QUANTUM_NS, 0, 3000), QUANTUM_NS, "not less than at first");
        assert_eq!(next_quantum(MOST_QUANTUM_NS, 20_000, 0), MOST_QUANTUM_NS, "nor without end");
    }

    #[test]
    fn what_is_no_call_has_a_name_too() {
        assert_eq!(Call::of(-1).name(), "(page fault)");
        assert_eq!(Call::of(-3).name(), "(32-bit call)");
        assert_eq!(Call::of(-4), Call::Unknown);
        assert_eq!(Call::of(Sysno::futex as i16).name(), "futex");
    }
}
