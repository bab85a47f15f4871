// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The probe of stacks: in what functions watched threads go to sleep, and in what functions those are that wake them.
//!
//! Its programs exist only where a profile was asked for, and belong to the threads that the scheduler probe watches.

use crate::log::Log;
use crate::mapped::{Mapped, MappedOnUse, Plain};
use crate::object::LoadedObject;
use crate::sched::{Call, Watched};
use crate::skel::stacks::types::{stacks_cpu, stacks_entry};
use crate::skel::stacks::{StacksSkel, StacksSkelBuilder};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::os::fd::AsFd as _;

// SAFETY: generated from C structs of integers and arrays of them; every bit pattern is a value.
unsafe impl Plain for stacks_cpu {}
// SAFETY: as above.
unsafe impl Plain for stacks_entry {}

const HOOKED: [&str; 2] = ["on_sleep", "on_end"];

/// `STACK_ENTRIES` of `stacks.h`.
const ENTRIES: u32 = 1024;

/// The stack of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadStack {
    /// Thread-group id of the process.
    pub tgid: u32,
    /// Start of its main thread, in nanoseconds of the boot clock.
    pub leader_boot_ns: u64,
    /// In what the thread is in the kernel.
    pub call: Call,
    /// First argument of that system call.
    pub argument: u64,
    /// Addresses in its program, innermost first: found by frame pointers, so the chain may end early.
    pub user: Vec<u64>,
    /// Addresses in the kernel, innermost first, beginning with the program that reads them: only of a sleep that no signal
    /// ends, or outside of a system call, or in `ioctl`.
    pub kernel: Vec<u64>,
}

/// What was seen of a sleep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackEvent {
    /// Thread id of the sleeper.
    pub sleeper: u32,
    /// When the sleep began, by `CLOCK_MONOTONIC`.
    pub since_ns: u64,
    /// Sleeps of the thread that this one stands for.
    pub weight: u32,
    /// How long it was, if it ends; `None` = it begins.
    pub slept_ns: Option<u64>,
    /// The sleeper's stack if it begins, that of the thread that ended it if it ends; `None` = it ended in an interrupt, by
    /// a thread of the kernel, or it is not known in what.
    pub stack: Option<ThreadStack>,
}

/// The probe, loaded and attached. Dropping it detaches it.
pub struct StacksProbe {
    object: LoadedObject<StacksSkel<'static>>,
    cpus: Mapped<stacks_cpu>,
    log: Log<stacks_entry>,
}

impl StacksProbe {
    /// Loads the programs and attaches them. `cpus` = number of possible CPUs of the host.
    ///
    /// # Errors
    /// The error of libbpf or the kernel, with the operation that failed.
    pub fn open(watched: &Watched, cpus: u32) -> Result<Self, String> {
        let object = LoadedObject::load(StacksSkelBuilder::default(), &HOOKED, |open| {
            let rodata = open.maps.rodata_data.as_deref_mut().expect("the object has constants");
            rodata.thread_mask = watched.slots - 1;
            rodata.preempt_minus_rq = watched.preempt_minus_rq;
            rodata.ioctl_call = i32::try_from(libc::SYS_ioctl).unwrap_or(-1);
            let data = open.maps.bss_data.as_deref_mut().expect("the object has variables");
            data.regs_offset = watched.regs_offset;
            open.maps.watches.reuse_fd(watched.watches.as_fd())?;
            open.maps.sleepers.set_max_entries(watched.slots)?;
            open.maps.cpus.set_max_entries(cpus)?;
            open.maps.entries.set_max_entries(cpus * ENTRIES)
        })?;
        let areas = Mapped::new(&object.skel.maps.cpus, cpus as usize)?;
        let entries = MappedOnUse::new(&object.skel.maps.entries, (cpus * ENTRIES) as usize)?;
        let mut probe = Self { object, cpus: areas, log: Log::new(entries, cpus) };
        probe.object.attach_all()?;
        Ok(probe)
    }

    /// Calls `each` for what was seen since the last call, CPU by CPU: an end may come before its beginning.
    pub fn read(&mut self, mut each: impl FnMut(StackEvent)) {
        let cpus = &self.cpus;
        let head = |cpu| cpus.u64(cpu, offset_of!(stacks_cpu, written));
        self.log.read(head, |entry| each(decode(entry)));
    }

    /// What was lost so far, by kind; only counts that are not 0.
    #[must_use]
    pub fn lost(&self) -> BTreeMap<&'static str, u64> {
        let all = [("overrun", self.log.overrun), ("nested", self.object.missed())];
        all.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// Runs of the programs so far.
    #[must_use]
    pub fn runs(&self) -> u64 {
        let runs = offset_of!(stacks_cpu, runs);
        (0..self.cpus.len()).map(|cpu| self.cpus.u64(cpu, runs)).sum()
    }

    /// Kernel memory of the maps, in bytes.
    #[must_use]
    pub fn map_bytes(&self) -> u64 {
        self.object.map_bytes()
    }

    /// Run time in nanoseconds and number of runs, counted while [`crate::RunStats`] existed.
    #[must_use]
    pub fn timed_runs(&self) -> Option<crate::TimedRuns> {
        self.object.timed_runs()
    }
}

fn decode(entry: &stacks_entry) -> StackEvent {
    let user = &entry.user[..entry.user.len().min(entry.frames.into())];
    let kernel = &entry.kernel[..entry.kernel.len().min(entry.kernel_frames.into())];
    StackEvent {
        sleeper: entry.sleeper,
        since_ns: entry.since_ns,
        weight: entry.weight,
        slept_ns: (entry.slept_ns > 0).then_some(entry.slept_ns),
        stack: (entry.tgid > 0).then(|| ThreadStack {
            tgid: entry.tgid,
            leader_boot_ns: entry.leader_boot_ns,
            call: Call::of(entry.call),
            argument: entry.address,
            user: user.to_vec(),
            kernel: kernel.to_vec(),
        }),
    }
}
