// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The writeback probe: why there was something to write at a given time, which
//! threads dirtied it, and which were delayed.

mod event;
mod plan;
pub mod syncs;

pub use event::{Event, Journal};
pub use plan::WritebackPlan;

pub(crate) use plan::RETURN_CALLS;

use crate::log::{self, Log};
use crate::mapped::{Mapped, MappedOnUse, Plain};
use crate::object::LoadedObject;
use crate::skel::writeback::types::{writeback_cpu, writeback_event, writeback_lost};
use crate::skel::writeback::{WritebackSkel, WritebackSkelBuilder};
use std::collections::BTreeMap;
use std::mem::offset_of;

// SAFETY: generated from C structs of integers and arrays of them; every bit pattern is a value.
unsafe impl Plain for writeback_cpu {}
// SAFETY: as above.
unsafe impl Plain for writeback_event {}
// SAFETY: as above.
unsafe impl Plain for writeback_lost {}

/// The probe, loaded and attached. Dropping it detaches it.
pub struct WritebackProbe {
    plan: WritebackPlan,
    object: LoadedObject<WritebackSkel<'static>>,
    cpus: Mapped<writeback_cpu>,
    log: Log<writeback_event>,
    ns_per_jiffy: u64,
}

impl WritebackProbe {
    /// Loads the programs and attaches them. `cpus` = number of possible CPUs of the host.
    ///
    /// # Errors
    /// The error of libbpf or the kernel, with the operation that failed.
    pub fn open(plan: &WritebackPlan, cpus: u32) -> Result<Self, String> {
        let entries = log::entries_of_each(cpus);
        let mut object =
            LoadedObject::load(WritebackSkelBuilder::default(), &plan.programs(), |open| {
                let rodata =
                    open.maps.rodata_data.as_deref_mut().expect("the object has constants");
                rodata.log_entries = entries;
                open.maps.cpus.set_max_entries(cpus)?;
                open.maps.entries.set_max_entries(cpus * entries)
            })?;
        let maps = &object.skel.maps;
        let areas = Mapped::new(&maps.cpus, cpus as usize)?;
        let log = MappedOnUse::new(&maps.entries, (cpus * entries) as usize)?;
        object.attach_all()?;
        Ok(Self {
            plan: plan.clone(),
            object,
            cpus: areas,
            log: Log::new(log, cpus),
            ns_per_jiffy: ns_per_jiffy(),
        })
    }

    /// Reports all events since the last call: CPU by CPU, in order of time on each.
    pub fn read(&mut self, each: &mut dyn FnMut(Event)) {
        let (cpus, ns_per_jiffy) = (&self.cpus, self.ns_per_jiffy);
        self.log.read(
            |cpu| cpus.u64(cpu, offset_of!(writeback_cpu, head)),
            |entry| {
                if let Some(event) = event::decode(entry, ns_per_jiffy) {
                    each(event);
                }
            },
        );
    }

    /// The kernel's name for a writeback reason: `periodic`, `background`, `sync`, ...
    #[must_use]
    pub fn reason_name(&self, reason: u8) -> &str {
        let number = i64::from(reason) - 1;
        self.plan.reason_names.get(&number).map_or("unknown", String::as_str)
    }

    /// What was lost so far, by kind; only counts that are not 0.
    #[must_use]
    pub fn lost(&self) -> BTreeMap<&'static str, u64> {
        let mut sum = BTreeMap::new();
        let mut add = |name, value| {
            if value > 0 {
                *sum.entry(name).or_insert(0) += value;
            }
        };
        for cpu in 0..self.cpus.len() {
            let lost: writeback_lost = self.cpus.peek(cpu, offset_of!(writeback_cpu, lost));
            add("inodes_evicted", lost.inodes_evicted);
            add("tasks_collide", lost.tasks_collide);
            add("begin_unseen", lost.begin_unseen);
        }
        add("log_overrun", self.log.overrun);
        add("nested", self.object.missed());
        sum
    }

    /// Runs of all programs so far.
    #[must_use]
    pub fn runs(&self) -> u64 {
        (0..self.cpus.len()).map(|cpu| self.cpus.u64(cpu, offset_of!(writeback_cpu, runs))).sum()
    }

    /// Kernel memory of the maps, in bytes.
    #[must_use]
    pub fn map_bytes(&self) -> u64 {
        self.object.map_bytes()
    }

    /// Run time in nanoseconds and number of runs of all programs, counted while [`crate::RunStats`] existed.
    #[must_use]
    pub fn timed_runs(&self) -> Option<crate::TimedRuns> {
        self.object.timed_runs()
    }

    /// Instructions that the kernel's verifier processed to accept each program.
    #[must_use]
    pub fn verified_instructions(&self) -> BTreeMap<&'static str, u64> {
        self.object.verified_instructions()
    }
}

/// The kernel's tick in nanoseconds: the resolution of its coarse clocks.
pub(crate) fn ns_per_jiffy() -> u64 {
    let mut tick = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid timespec; the clock exists since 2.6.32.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut tick) };
    tick.tv_sec.cast_unsigned() * 1_000_000_000 + tick.tv_nsec.cast_unsigned()
}
