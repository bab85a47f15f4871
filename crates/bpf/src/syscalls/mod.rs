// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The system call probe: what the system calls of chosen threads cost, by call and by file.
//!
//! While it is attached, every system call of the host runs its programs; for threads
//! that are not observed they return at once.

mod plan;
mod reading;
mod table;

pub use plan::SyscallPlan;
pub use reading::{Call, FileUse, Reading};

pub(crate) use plan::NEEDED;

use crate::mapped::{Mapped, Plain, set};
use crate::object::LoadedObject;
use crate::skel::syscalls::types::{sys_cpu, sys_file, sys_key, sys_stat, sys_thread};
use crate::skel::syscalls::{OpenSyscallsSkel, SyscallsSkel, SyscallsSkelBuilder};
use libbpf_rs::{MapCore as _, MapFlags};
use std::collections::BTreeMap;
use std::mem::offset_of;
use table::CALLS;

// SAFETY: generated from C structs of integers and arrays of them; every bit pattern is a value.
unsafe impl Plain for sys_cpu {}
// SAFETY: as above.
unsafe impl Plain for sys_stat {}
// SAFETY: as above.
unsafe impl Plain for sys_thread {}
// SAFETY: as above.
unsafe impl Plain for sys_key {}
// SAFETY: as above.
unsafe impl Plain for sys_file {}

/// Minimum and maximum size of the thread table. At 64 bytes per entry it takes 2 to 8 MB of kernel memory. With as
/// many entries as possible pids, no two threads share one.
const PLACES: (u32, u32) = (1 << 15, 1 << 17);
/// All programs, in the order in which they are attached: who ends and who begins is known before anybody is counted.
const ATTACHED: [&str; 6] = ["on_end", "on_exec", "on_fork", "on_switch", "on_exit", "on_enter"];
/// `SYS_NONE`: no call is in progress.
const NONE: u32 = u32::MAX;

/// The probe, loaded and attached. Dropping it detaches it.
pub struct SyscallProbe {
    object: LoadedObject<SyscallsSkel<'static>>,
    threads: Mapped<sys_thread>,
    stats: Mapped<sys_stat>,
    cpus: Mapped<sys_cpu>,
    groups: u32,
}

impl SyscallProbe {
    /// Loads the programs and attaches them. `cpus` = number of possible CPUs of the host, `pids` = maximum number of
    /// pids, `groups` = number of groups of threads for which calls are counted separately.
    ///
    /// # Errors
    /// The error of libbpf or the kernel, with the operation that failed.
    pub fn open(_plan: &SyscallPlan, cpus: u32, pids: u32, groups: u32) -> Result<Self, String> {
        let groups = groups.max(1);
        let places = pids.clamp(PLACES.0, PLACES.1).next_power_of_two();
        let mut object = LoadedObject::load(SyscallsSkelBuilder::default(), &ATTACHED, |open| {
            configure(open, cpus, places, groups)
        })?;
        let maps = &object.skel.maps;
        let accounts = (cpus * groups) as usize * CALLS;
        let threads = Mapped::new(&maps.threads, places as usize)?;
        let stats = Mapped::new(&maps.stats, accounts)?;
        let areas = Mapped::new(&maps.cpus, cpus as usize)?;
        object.attach_all()?;
        Ok(Self { object, threads, stats, cpus: areas, groups })
    }

    /// Observes a thread from its next system call on, and all threads and processes that it starts. `false` = it is
    /// observed already, or another thread has its entry in the table.
    pub fn watch(&self, tid: u32, tgid: u32, group: u32) -> bool {
        let place = tid as usize & (self.threads.len() - 1);
        if self.threads.u32(place, offset_of!(sys_thread, pid)) != 0 {
            return false;
        }
        let set = |offset, value| self.threads.set_u32(place, offset, value);
        set(offset_of!(sys_thread, tgid), tgid);
        set(offset_of!(sys_thread, group), group.min(self.groups - 1));
        set(offset_of!(sys_thread, armed), 0);
        set(offset_of!(sys_thread, nr), NONE);
        set(offset_of!(sys_thread, off), 0);
        set(offset_of!(sys_thread, pid), tid);
        true
    }

    /// Stops observing a thread.
    pub fn forget(&self, tid: u32) {
        let place = tid as usize & (self.threads.len() - 1);
        if self.threads.u32(place, offset_of!(sys_thread, pid)) == tid {
            self.threads.set_u32(place, offset_of!(sys_thread, pid), 0);
        }
    }

    /// Stops observing all threads.
    pub fn forget_all(&self) {
        for place in 0..self.threads.len() {
            self.threads.set_u32(place, offset_of!(sys_thread, pid), 0);
        }
    }

    /// Whether any observed thread has not ended.
    #[must_use]
    pub fn watches_any(&self) -> bool {
        let pid = offset_of!(sys_thread, pid);
        (0..self.threads.len()).any(|place| self.threads.u32(place, pid) != 0)
    }

    /// Processes that the thread `tid` starts from now on are observed from their `exec` on; `None` = no further ones.
    pub fn starts_by(&mut self, tid: Option<u32>) {
        let maps = &mut self.object.skel.maps;
        let data = maps.bss_data.as_deref_mut().expect("the object has variables");
        set(&mut data.starter, tid.unwrap_or(0));
    }

    /// Reads everything counted so far.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn read(&self) -> Result<Reading, String> {
        let mut reading = Reading { calls: self.calls(), ..Reading::default() };
        let files = &self.object.skel.maps.files;
        for key in files.keys() {
            let value = files.lookup(&key, MapFlags::ANY);
            let value = value.map_err(|error| format!("read a BPF table: {error}"))?;
            reading.files.extend(value.and_then(|value| reading::file(&key, &value)));
        }
        for place in 0..self.threads.len() {
            if self.threads.u32(place, offset_of!(sys_thread, pid)) == 0 {
                continue;
            }
            let thread: sys_thread = self.threads.peek(place, 0);
            if thread.armed == 0 && (thread.nr as usize) < CALLS {
                let name = table::name_of(thread.nr);
                reading.under_way.push((thread.group, name, thread.since_ns));
            }
        }
        for cpu in 0..self.cpus.len() {
            let area: sys_cpu = self.cpus.peek(cpu, 0);
            reading.processes += area.processes;
            reading.threads += area.threads;
            reading.files_full += area.lost.files_full;
            reading.files_full_ns += area.lost.files_full_ns;
            reading.unread += area.lost.unread;
            reading.unread_ns += area.lost.unread_ns;
            reading.threads_collide += area.lost.threads_collide;
        }
        reading.missed = self.object.missed();
        Ok(reading)
    }

    fn calls(&self) -> Vec<Call> {
        let mut all: BTreeMap<(u32, u32), Call> = BTreeMap::new();
        for place in 0..self.stats.len() {
            let began = self.stats.u64(place, offset_of!(sys_stat, calls))
                + self.stats.u64(place, offset_of!(sys_stat, unfinished));
            if began == 0 {
                continue;
            }
            let stat: sys_stat = self.stats.peek(place, 0);
            let (number, area) = ((place % CALLS) as u32, (place / CALLS) as u32);
            let group = area % self.groups;
            all.entry((group, number))
                .and_modify(|call| call.add(&stat))
                .or_insert_with(|| reading::call(group, number, &stat));
        }
        all.into_values().collect()
    }

    /// Instructions that the kernel's verifier processed to accept each program.
    #[must_use]
    pub fn verified_instructions(&self) -> BTreeMap<&'static str, u64> {
        self.object.verified_instructions()
    }

    /// Kernel memory of the maps, in bytes.
    #[must_use]
    pub fn map_bytes(&self) -> u64 {
        self.object.map_bytes()
    }
}

fn configure(
    open: &mut OpenSyscallsSkel<'static>,
    cpus: u32,
    places: u32,
    groups: u32,
) -> libbpf_rs::Result<()> {
    let rodata = open.maps.rodata_data.as_deref_mut().expect("the object has constants");
    rodata.thread_mask = places - 1;
    rodata.groups = groups;
    rodata.where_of = table::where_of();
    open.maps.threads.set_max_entries(places)?;
    open.maps.stats.set_max_entries(cpus * groups * CALLS as u32)?;
    open.maps.cpus.set_max_entries(cpus)?;
    open.maps.scratches.set_max_entries(cpus)?;
    open.maps.cell_space.set_max_entries(cpus)
}
