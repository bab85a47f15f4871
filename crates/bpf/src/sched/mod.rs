// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scheduler probe: how every thread spends its wall time, which processes it
//! waits behind, and which threads ran when.
//!
//! A program on `sched_switch` writes amounts that only grow into mapped arrays; reading them needs no system call. All
//! timestamps are those of the run queues' clock; [`Clock`] relates it to `CLOCK_MONOTONIC`.

mod amounts;
mod asked;
mod blame;
mod client;
mod delta;
mod moves;
mod object;
pub mod plan;
mod reported;
mod sleep;
mod slot;
mod threads;
mod timeline;
mod unseen;
mod waiting;
mod watched;

pub use blame::{Blame, ProbeCulprit, Sums};
pub use client::Client;
pub use delta::ThreadDelta;
pub use moves::LastMove;
pub use object::{Inet, Object};
pub use sleep::{Call, Caller, Context, KernelLock, LockKind, Sleep, Waker};
pub use threads::ThreadScan;
pub use timeline::{Run, Timeline};
pub use unseen::UnseenProcess;
pub use waiting::{Waiter, Waiting};
pub use watched::Watched;

use crate::irq::Serving;
use crate::mapped::{Mapped, MappedOnUse, Plain, set};
use crate::object::LoadedObject;
use crate::skel::sched::types::{
    sched_area, sched_bucket, sched_cpu, sched_culprit, sched_lost, sched_overflow, sched_reported,
    sched_run, sched_sleeps, sched_thread, sched_waits,
};
use crate::skel::sched::{OpenSchedSkel, SchedSkel, SchedSkelBuilder};
use deburr_core::recording::WAIT_BUCKETS;
use libbpf_rs::{MapCore as _, MapFlags};
use plan::{Plan, ProgramNames};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Number of states of the wall-time ledger, which is indexed by [`State`].
pub const STATES: usize = 8;

/// States of a thread's wall time: `enum sched_state` of `sched.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum State {
    OnCpu = 0,
    Queued = 1,
    Throttled = 2,
    Sleep = 3,
    BlockIo = 4,
    MemStall = 5,
    Uninterruptible = 6,
    Stopped = 7,
}

/// Waits of at least this length may be reported while they are in progress; at their end the probe then blames only
/// the rest. Shorter waits end before it matters when they are reported.
pub const LONG_WAIT_NS: u64 = 10_000_000;

/// `ST_DEAD` of `sched.h`.
const DEAD: u8 = 8;

// SAFETY: generated from C structs of integers and arrays of them; every bit pattern is a value.
unsafe impl Plain for sched_thread {}
// SAFETY: as above.
unsafe impl Plain for sched_waits {}
// SAFETY: as above.
unsafe impl Plain for sched_area {}
// SAFETY: as above.
unsafe impl Plain for sched_cpu {}
// SAFETY: as above.
unsafe impl Plain for sched_run {}
// SAFETY: as above.
unsafe impl Plain for sched_culprit {}
// SAFETY: as above.
unsafe impl Plain for sched_lost {}
// SAFETY: as above.
unsafe impl Plain for sched_overflow {}
// SAFETY: as above.
unsafe impl Plain for [sched_bucket; WAIT_BUCKETS] {}

const _: () = assert!(size_of::<sched_thread>() == 192);
const _: () = assert!(size_of::<sched_waits>() == 16 * WAIT_BUCKETS + 2 * 160);

/// The probe, loaded and attached. Dropping it detaches it.
pub struct SchedProbe {
    object: LoadedObject<SchedSkel<'static>>,
    names: ProgramNames,
    /// Thread ids of the kernel are those of this process's system calls, too.
    knows_tids: bool,
    threads: Mapped<sched_thread>,
    waits: MappedOnUse<sched_waits>,
    areas: Mapped<sched_area>,
    reported_waits: Mapped<sched_reported>,
    sleeps: Mapped<sched_sleeps>,
    watch: sleep::Watch,
    preempt_minus_rq: i64,
    hidden_wakeups: waiting::HiddenWakeups,
    /// Queued and throttled time of all threads as last reported, waits in progress included: it must not shrink.
    most_waited_ns: (u64, u64),
    /// Each CPU's amounts as last read.
    last_read: Vec<sched_cpu>,
}

/// The probe's tables of threads and CPUs, for other probes: they see in which states the current thread has spent its time.
#[derive(Debug)]
pub struct ThreadMaps {
    pub(crate) areas: OwnedFd,
    pub(crate) threads: OwnedFd,
}

/// Amounts of the whole host so far, summed over CPUs, with what is in progress at the time they are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostTotals {
    /// CPU time of threads.
    pub busy_ns: u64,
    /// Time that threads waited in run queues.
    pub queued_ns: u64,
    /// Time that threads were throttled.
    pub throttled_ns: u64,
    /// Time that threads waited for block IO, of waits that ended.
    pub block_io_ns: u64,
    /// Run-queue waits that ended.
    pub waits: u64,
    /// Context switches, including those to the idle task.
    pub switches: u64,
}

/// The run queues' clock: `CLOCK_MONOTONIC` minus an offset that the probe measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Offset to subtract from `CLOCK_MONOTONIC`; negative if the run queues' clock is ahead of it.
    pub monotonic_minus_clock_ns: i64,
}

impl Clock {
    /// The run queues' clock at this time of `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn at(self, monotonic_ns: u64) -> u64 {
        monotonic_ns.wrapping_sub_signed(self.monotonic_minus_clock_ns)
    }

    /// `CLOCK_MONOTONIC` at this time of the run queues' clock; the reverse of [`Clock::at`].
    #[must_use]
    pub fn monotonic_ns(self, clock_ns: u64) -> u64 {
        clock_ns.wrapping_add_signed(self.monotonic_minus_clock_ns)
    }

    /// The run queues' clock now.
    #[must_use]
    pub fn now(self) -> u64 {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a valid timespec; CLOCK_MONOTONIC exists everywhere.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
        let (seconds, nanos) = (now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned());
        self.at(seconds * 1_000_000_000 + nanos)
    }
}

impl SchedProbe {
    /// Loads the programs, iterates over all threads once, attaches the programs, and makes every CPU switch once. Those
    /// that watch threads are attached by [`SchedProbe::begin_watch`].
    /// `cpus` = number of possible CPUs of the host; `serving` = the table in which the probe of interrupts says which ones
    /// they serve: without it, it is not told by which a thread is woken.
    ///
    /// # Errors
    /// The error of libbpf or the kernel, with the operation that failed.
    pub fn open(plan: &Plan, cpus: u32, serving: Option<&Serving>) -> Result<Self, String> {
        let names = ProgramNames::of(plan);
        let mut object = LoadedObject::load(SchedSkelBuilder::default(), &names.all(), |open| {
            configure(open, plan, cpus, serving)
        })?;
        let maps = &object.skel.maps;
        let threads = Mapped::new(&maps.threads, plan.slots as usize)?;
        let waits = MappedOnUse::new(&maps.waits, plan.slots as usize)?;
        let areas = Mapped::new(&maps.areas, cpus as usize)?;
        let reported_waits = Mapped::new(&maps.reported_waits, plan.slots as usize)?;
        let (_, sleeps) = sizes_for_sleeps(plan, cpus);
        let sleeps = Mapped::new(&maps.sleeps, sleeps as usize)?;

        if let Some(name) = names.task_iterator {
            object.attach(name)?;
            object.iterate(name).map_err(|error| format!("look at all threads: {error}"))?;
            object.detach(name);
        }
        let kept = names.waiting_iterator.iter().chain(&names.hooks).chain(&names.asleep);
        kept.copied().try_for_each(|name| object.attach(name))?;
        let probe = Self {
            object,
            names,
            knows_tids: plan.initial_pid_namespace,
            threads,
            waits,
            reported_waits,
            sleeps,
            watch: sleep::Watch::of(plan.slots),
            preempt_minus_rq: plan.preempt_minus_rq,
            hidden_wakeups: waiting::HiddenWakeups::default(),
            most_waited_ns: (0, 0),
            last_read: vec![sched_cpu::default(); areas.len()],
            areas,
        };
        if plan.initial_pid_namespace {
            probe.forget_the_gone();
        }
        probe.switch_every_cpu(cpus);
        Ok(probe)
    }

    /// Its tables of threads and CPUs; `None` = they cannot be shared.
    #[must_use]
    pub fn thread_maps(&self) -> Option<ThreadMaps> {
        let maps = &self.object.skel.maps;
        let areas = maps.areas.as_fd().try_clone_to_owned().ok()?;
        let threads = maps.threads.as_fd().try_clone_to_owned().ok()?;
        Some(ThreadMaps { areas, threads })
    }

    /// Runs `work` while the probe is detached from `sched_switch`, as if switches were
    /// lost: for tests of how that is reported.
    ///
    /// # Errors
    /// The error of libbpf or the kernel when the program is attached again.
    pub fn blindly<R>(&mut self, work: impl FnOnce() -> R) -> Result<R, String> {
        self.object.detach(self.names.switch());
        let result = work();
        self.object.attach(self.names.switch())?;
        Ok(result)
    }

    /// Frees the slots of threads that ended between the iteration over all threads and the attachment of the hook:
    /// their ends would never be reported, and they would seem to wait or sleep for ever.
    fn forget_the_gone(&self) {
        for slot in 0..self.threads.len() {
            let tid = self.threads.u32(slot, offset_of!(sched_thread, tid));
            if tid != 0 && is_gone(self.threads.u32(slot, offset_of!(sched_thread, tgid)), tid) {
                self.threads.set_u32(slot, offset_of!(sched_thread, tid), 0);
            }
        }
    }

    /// Whether the thread has ended, as far as this process can know.
    fn has_ended(&self, thread: &sched_thread) -> bool {
        self.knows_tids && has_ended(thread.tgid, thread.tid)
    }

    /// Lets every CPU that has not switched yet do so once, so that its clock is known, and that it idles if it does. A CPU
    /// that is not in this thread's affinity mask, or that a real-time thread keeps, stays unknown until it switches by
    /// itself, but for the thread that the iteration over all threads found on it.
    fn switch_every_cpu(&self, cpus: u32) {
        let Some(own) = affinity() else { return };
        for cpu in 0..cpus.min(libc::CPU_SETSIZE.unsigned_abs()) as usize {
            // SAFETY: cpu is below CPU_SETSIZE.
            if unsafe { libc::CPU_ISSET(cpu, &own) } && !self.seen(cpu) {
                visit(cpu, &own);
            }
        }
    }

    /// Number of possible CPUs: one more than the highest possible CPU number.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.areas.len()
    }

    /// Whether that CPU has switched, and its clock was compared then.
    fn seen(&self, cpu: usize) -> bool {
        self.areas.u64(cpu, offset_of!(sched_area, cpu.compared_ns)) != 0
    }

    /// Relation of the run queues' clock to `CLOCK_MONOTONIC`, as measured by the CPU that switched last; `None` before
    /// any CPU has switched.
    #[must_use]
    pub fn clock(&self) -> Option<Clock> {
        let newest = (0..self.areas.len())
            .filter(|&cpu| self.seen(cpu))
            .max_by_key(|&cpu| self.areas.u64(cpu, offset_of!(sched_area, cpu.since_ns)))?;
        let offset = self.areas.u64(newest, offset_of!(sched_area, cpu.monotonic_minus_clock_ns));
        Some(Clock { monotonic_minus_clock_ns: offset.cast_signed() })
    }

    /// Ends the current epoch and returns its number: its blame can be read from now on.
    pub fn end_epoch(&mut self) -> u32 {
        let maps = &mut self.object.skel.maps;
        let data = maps.data_data.as_deref_mut().expect("the object has a data section");
        let ended = data.epoch;
        set(&mut data.epoch, ended.wrapping_add(1));
        ended
    }

    /// Sets whether any cgroup of the host has a CPU quota: only then the probe reads throttle clocks.
    pub fn set_quota_in_use(&mut self, in_use: bool) {
        let maps = &mut self.object.skel.maps;
        let data = maps.data_data.as_deref_mut().expect("the object has a data section");
        set(&mut data.quota_in_use, u32::from(in_use));
    }

    fn cpu(&self, cpu: usize) -> Option<sched_cpu> {
        let versions = (offset_of!(sched_area, cpu.head), offset_of!(sched_area, cpu.done));
        self.areas.settled(cpu, versions, || self.areas.peek::<sched_cpu>(cpu, 0)).ok()
    }

    /// Amounts of the whole host at `clock_ns` on the run queues' clock, with the waits
    /// in progress as `waiting` has them.
    #[must_use]
    pub fn host_totals(&mut self, clock_ns: u64, waiting: &Waiting) -> HostTotals {
        for number in 0..self.areas.len() {
            // A CPU that could not be read keeps its last amounts: it must not drop out of a sum that only grows.
            if let Some(cpu) = self.cpu(number) {
                self.last_read[number] = cpu;
            }
        }
        let mut sum = HostTotals::default();
        for cpu in &self.last_read {
            if cpu.tid != 0 && cpu.since_ns != 0 {
                sum.busy_ns += clock_ns.saturating_sub(cpu.since_ns);
            }
            sum.busy_ns += cpu.busy_ns;
            sum.queued_ns += cpu.waited_ns;
            sum.throttled_ns += cpu.throttled_ns;
            sum.block_io_ns += cpu.block_io_ns;
            sum.waits += cpu.waits;
            sum.switches += cpu.done;
        }
        // A wait that ended between the two readings may be in neither or in both of them until the next look.
        let (queued_ns, throttled_ns) = waiting.sums_ns(self);
        let most = &mut self.most_waited_ns;
        most.0 = most.0.max(sum.queued_ns + queued_ns);
        most.1 = most.1.max(sum.throttled_ns + throttled_ns);
        (sum.queued_ns, sum.throttled_ns) = *most;
        sum
    }

    /// Times a thread left a CPU without a reported switch. How many of those switches were lost is given by
    /// [`ThreadScan::switches_missed`].
    pub(super) fn left_unseen(&self) -> u64 {
        self.sum_of(offset_of!(sched_area, cpu.lost.switches_missed))
    }

    /// What was lost so far, by kind; only counts that are not 0.
    #[must_use]
    pub fn lost(&self) -> BTreeMap<&'static str, u64> {
        let mut sum = BTreeMap::new();
        for cpu in 0..self.areas.len() {
            let lost: sched_lost = self.areas.peek(cpu, offset_of!(sched_area, cpu.lost));
            for (name, value) in [
                ("thread_table_full", lost.thread_table_full),
                ("exit_unread", lost.exit_unread),
                ("slot_raced", lost.slot_raced),
                ("blame_table_full_ns", lost.blame_table_full_ns),
                ("clock_backward", lost.clock_backward),
            ] {
                if value > 0 {
                    *sum.entry(name).or_insert(0) += value;
                }
            }
        }
        let (overrun, collisions) = self.sleeps_lost();
        let of_sleeps = [("sleeps_overrun", overrun), ("threads_unwatched", collisions)];
        sum.extend(of_sleeps.into_iter().filter(|(_, value)| *value > 0));
        sum
    }

    /// Threads that found no slot in the table; usually none.
    fn overflow_entries(&self) -> Vec<sched_overflow> {
        if self.sum_of(offset_of!(sched_area, cpu.overflows)) == 0 {
            return Vec::new();
        }
        let map = &self.object.skel.maps.overflow;
        map.keys()
            .filter_map(|key| map.lookup(&key, MapFlags::ANY).ok().flatten())
            .filter(|bytes| bytes.len() >= size_of::<sched_overflow>())
            // SAFETY: long enough, any bit pattern is a value, alignment is not assumed.
            .map(|bytes| unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
            .collect()
    }

    fn forget_overflow(&self, tid: u32) {
        // If deletion fails, the entry is found dead again and adds nothing.
        let _ = self.object.skel.maps.overflow.delete(&tid.to_ne_bytes());
    }

    fn sum_of(&self, offset: usize) -> u64 {
        (0..self.areas.len()).map(|cpu| self.areas.u64(cpu, offset)).sum()
    }

    /// Context switches of all CPUs so far: runs of the switch program, and switches that it detected to have missed.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.sum_of(offset_of!(sched_area, cpu.done))
    }

    /// Kernel memory of the maps, in bytes.
    #[must_use]
    pub fn map_bytes(&self) -> u64 {
        self.object.map_bytes()
    }

    /// The timed runs of the switch program, timed while [`crate::RunStats`] existed. Their time includes that of the runs
    /// at wake-ups.
    #[must_use]
    pub fn timed_runs(&self) -> Option<crate::TimedRuns> {
        let timed = self.object.timed_runs_of(self.names.switch());
        let wakings = self.names.waking.iter().filter_map(|it| self.object.timed_runs_of(it));
        wakings.fold(timed, |sum, more| {
            sum.map(|sum| crate::TimedRuns { ns: sum.ns + more.ns, ..sum })
        })
    }
}

/// Whether there is no such thread any more.
fn is_gone(tgid: u32, tid: u32) -> bool {
    // SAFETY: signal 0 is sent to nobody; the call only says whether it could be.
    let answer = unsafe { libc::syscall(libc::SYS_tgkill, tgid, tid, 0) };
    answer != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// Whether a thread has ended, be it that nobody has waited for it yet (a zombie, which signals still reach).
fn has_ended(tgid: u32, tid: u32) -> bool {
    let Ok(stat) = std::fs::read(format!("/proc/{tgid}/task/{tid}/stat")) else {
        return is_gone(tgid, tid);
    };
    // The comm may hold anything, parentheses too; the state follows the last one.
    let state = stat.rsplit(|&byte| byte == b')').next().and_then(|rest| rest.get(1));
    matches!(state, Some(b'Z' | b'X'))
}

/// How long a CPU is waited for.
const VISIT: Duration = Duration::from_millis(20);

/// Lets a thread run on that CPU. It is not this thread, which a real-time thread there could stop for ever; a thread
/// that does not get the CPU is sent back to the CPUs of `own`, where it ends.
fn visit(cpu: usize, own: &libc::cpu_set_t) {
    // SAFETY: cpu_set_t is a plain bit mask.
    let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: cpu is below CPU_SETSIZE.
    unsafe { libc::CPU_SET(cpu, &mut one) };
    let (steps, seen) = mpsc::sync_channel(2);
    let go = move || {
        // SAFETY: gettid has no arguments.
        if steps.send(unsafe { libc::gettid() }).is_ok() {
            set_affinity(0, &one);
            let _ = steps.send(0);
        }
    };
    if thread::Builder::new().name("deburr-visit".into()).spawn(go).is_err() {
        return;
    }
    let Ok(tid) = seen.recv() else { return };
    if seen.recv_timeout(VISIT).is_err() {
        set_affinity(tid, own);
    }
}

/// The affinity mask of this thread.
fn affinity() -> Option<libc::cpu_set_t> {
    // SAFETY: cpu_set_t is a plain bit mask.
    let mut mask: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the mask is valid for its size; 0 is this thread.
    let failed = unsafe { libc::sched_getaffinity(0, size_of_val(&mask), &raw mut mask) };
    (failed == 0).then_some(mask)
}

/// Sets the affinity mask of a thread of this process; 0 = of this thread.
fn set_affinity(tid: i32, mask: &libc::cpu_set_t) {
    // SAFETY: the mask is valid for its size.
    unsafe { libc::sched_setaffinity(tid, size_of_val(mask), mask) };
}

fn configure(
    open: &mut OpenSchedSkel<'static>,
    plan: &Plan,
    cpus: u32,
    serving: Option<&Serving>,
) -> libbpf_rs::Result<()> {
    let rodata = open.maps.rodata_data.as_deref_mut().expect("the object has constants");
    rodata.thread_mask = plan.slots - 1;
    rodata.cgroup_v2 = plan.cgroup_v2;
    rodata.pressure_minus_rq = plan.pressure_minus_rq;
    rodata.long_wait_ns = LONG_WAIT_NS;
    rodata.tells_sleeps = plan.sleeps;
    rodata.preempt_minus_rq = plan.preempt_minus_rq;
    rodata.says_file = sleep::says_file();
    rodata.polled_by_iterator = cpus;
    rodata.jiffy_ns = crate::writeback::ns_per_jiffy();
    open.maps.threads.set_max_entries(plan.slots)?;
    open.maps.waits.set_max_entries(plan.slots)?;
    open.maps.reported_waits.set_max_entries(plan.slots)?;
    open.maps.moves.set_max_entries(plan.slots)?;
    let (watches, sleeps) = sizes_for_sleeps(plan, cpus);
    open.maps.watches.set_max_entries(watches)?;
    open.maps.sleeps.set_max_entries(sleeps)?;
    if let Some(serving) = serving {
        open.maps.serving.reuse_fd(serving.as_fd())?;
    }
    open.maps.polled.set_max_entries(if plan.sleeps { cpus + 1 } else { 1 })?;
    open.maps.areas.set_max_entries(cpus)
}

/// Numbers of watches and of logs of sleeps: one of each where there is nothing to watch.
fn sizes_for_sleeps(plan: &Plan, cpus: u32) -> (u32, u32) {
    if plan.sleeps { (plan.slots, cpus) } else { (1, 1) }
}

#[cfg(test)]
mod tests {
    use super::has_ended;
    use std::process::{Command, Stdio};

    #[test]
    fn a_zombie_has_ended() {
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        assert!(!has_ended(pid, pid));
        drop(child.stdin.take());
        while !has_ended(pid, pid) {
            std::thread::yield_now();
        }
        assert!(std::path::Path::new(&format!("/proc/{pid}")).exists(), "nobody waited for it");
        child.wait().unwrap();
        assert!(has_ended(pid, pid));
    }
}
