// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The block probe: every transfer to and from block devices, who submitted it, for
//! which file, why, and how long it took.
//!
//! At the completion of a request, one [`Transfer`] is reported for each file whose pages it carried. File names are
//! reported separately, once for each file, as the kernel knew them at the first transfer.

mod held;
mod name;
mod plan;
mod transfer;

pub use held::{Direction, HeldTransfers};
pub use name::FirstName;
pub use plan::{BlockPlan, RequestHook};
pub use transfer::{Op, Requester, Target, Transfer};

pub(crate) use plan::{NEEDED, OF_LIMITS};

use crate::log::{self, Log};
use crate::mapped::{Mapped, MappedOnUse, Plain, set};
use crate::object::LoadedObject;
use crate::skel::block::types::{block_cpu, block_entry, block_lost};
use crate::skel::block::{BlockSkel, BlockSkelBuilder, OpenBlockSkel};
use libbpf_rs::{RingBuffer, RingBufferBuilder};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

// SAFETY: generated from C structs of integers and arrays of them; every bit pattern is a value.
unsafe impl Plain for block_cpu {}
// SAFETY: as above.
unsafe impl Plain for block_entry {}
// SAFETY: as above.
unsafe impl Plain for block_lost {}

/// The probe, loaded and attached. Dropping it detaches it.
pub struct BlockProbe {
    plan: BlockPlan,
    object: LoadedObject<BlockSkel<'static>>,
    names: RingBuffer<'static>,
    new_names: Arc<Mutex<Vec<FirstName>>>,
    cpus: Mapped<block_cpu>,
    log: Log<block_entry>,
    /// One in `1 << shift` requests is followed.
    shift: u32,
    /// Number of consecutive reads during which all requests were followed.
    steady: u32,
}

/// After this many reads with all requests followed, hardly any request in flight can
/// be untracked: 3 s, at ten reads a second.
const STEADY_READS: u32 = 30;

impl BlockProbe {
    /// Loads the programs and attaches them. `cpus` = number of possible CPUs of the host.
    ///
    /// # Errors
    /// The error of libbpf or the kernel, with the operation that failed.
    pub fn open(plan: &BlockPlan, cpus: u32) -> Result<Self, String> {
        let entries = log::entries_of_each(cpus);
        let mut object =
            LoadedObject::load(BlockSkelBuilder::default(), &plan.programs(), |open| {
                configure(open, plan, cpus, entries)
            })?;
        let maps = &object.skel.maps;
        let areas = Mapped::new(&maps.cpus, cpus as usize)?;
        let log = MappedOnUse::new(&maps.entries, (cpus * entries) as usize)?;
        let new_names = Arc::new(Mutex::new(Vec::new()));
        let names =
            names(&object.skel, &new_names).map_err(|error| format!("map BPF ring: {error}"))?;
        object.attach_all()?;
        let mut probe = Self {
            plan: plan.clone(),
            object,
            names,
            new_names,
            cpus: areas,
            log: Log::new(log, cpus),
            shift: 0,
            steady: STEADY_READS,
        };
        probe.follow(1, true);
        Ok(probe)
    }

    /// Reports all transfers that completed since the last call (CPU by CPU, in order of completion
    /// on each), and the names of files that were not seen before. A file's name may be reported
    /// after its first transfers, and more than once.
    pub fn read(&mut self, transfer: &mut dyn FnMut(&Transfer), named: &mut dyn FnMut(FirstName)) {
        let cpus = &self.cpus;
        let bits = self.plan.bits;
        self.log.read(
            |cpu| cpus.u64(cpu, offset_of!(block_cpu, head)),
            |entry| transfer(&transfer::decode(entry, bits)),
        );
        for cpu in 0..cpus.len() {
            cpus.set_u64(cpu, offset_of!(block_cpu, read), self.log.place(cpu));
        }
        self.renew();
        self.names.consume_raw();
        let new_names =
            std::mem::take(&mut *self.new_names.lock().unwrap_or_else(PoisonError::into_inner));
        new_names.into_iter().for_each(named);
    }

    /// From now on follows one in `one_in` requests, rounded up to a power of two. With `in_haste`, even fewer are
    /// followed while the log fills faster than it is read.
    pub fn follow(&mut self, one_in: u32, in_haste: bool) {
        self.shift = one_in.clamp(1, 1 << 16).next_power_of_two().trailing_zeros();
        let room = if in_haste { self.log.of_each() / 2 } else { u64::MAX };
        let maps = &mut self.object.skel.maps;
        let data = maps.data_data.as_deref_mut().expect("the object has a data section");
        set(&mut data.log_room, u32::try_from(room).unwrap_or(u32::MAX));
        self.renew();
    }

    /// Restores the wanted sampling rate, and sets whether every request in flight must be a followed one.
    fn renew(&mut self) {
        let shift = self.shift;
        let maps = &mut self.object.skel.maps;
        let data = maps.bss_data.as_deref_mut().expect("the object has variables");
        // SAFETY: a valid, aligned field of the mapped data section; programs write it at any time.
        if shift != 0 || unsafe { ptr::read_volatile(&raw const data.sample_shift) } != 0 {
            self.steady = 0;
        }
        set(&mut data.all_followed, u32::from(shift == 0 && self.steady >= STEADY_READS));
        set(&mut data.wanted_shift, shift);
        set(&mut data.sample_shift, shift);
        self.steady = self.steady.saturating_add(1);
    }

    /// The kernel's name for a writeback reason, given as in [`Transfer::reason`]:
    /// `periodic`, `background`, `sync`, ...
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
            let lost: block_lost = self.cpus.peek(cpu, offset_of!(block_cpu, lost));
            add("starts_full", lost.starts_full);
            add("start_unseen", lost.start_unseen);
            add("completion_unseen", lost.completion_unseen);
            add("bios_beyond", lost.bios_beyond);
            add("names_deferred", lost.names_deferred);
            add("workers_collide", lost.workers_collide);
            add("held_full", lost.held_full);
            add("nested", lost.nested);
        }
        add("log_overrun", self.log.overrun);
        add("nested", self.object.missed());
        sum
    }

    /// Runs of all programs so far; where requests are sampled, the runs of some programs are estimated.
    #[must_use]
    pub fn runs(&self) -> u64 {
        [
            offset_of!(block_cpu, queued),
            offset_of!(block_cpu, begun),
            offset_of!(block_cpu, issued),
            offset_of!(block_cpu, completed),
            offset_of!(block_cpu, runs),
        ]
        .into_iter()
        .map(|offset| self.sum_of(offset))
        .sum()
    }

    /// Requests created so far, followed or not; the sampling rate is chosen by it. Where the kernel has no hook for
    /// their creation, insertions are counted instead, which is 0 for devices without an IO scheduler.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.sum_of(offset_of!(block_cpu, begun))
    }

    /// Transfers throttled by IO limits since the probe was loaded, in order of device, cgroup and direction. Empty
    /// where they cannot be identified ([`BlockPlan::limits`]).
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn held(&self) -> Result<Vec<HeldTransfers>, String> {
        if self.sum_of(offset_of!(block_cpu, held)) == 0 {
            return Ok(Vec::new());
        }
        held::read(&self.object.skel.maps.held)
            .map_err(|error| format!("read a BPF table: {error}"))
    }

    fn sum_of(&self, offset: usize) -> u64 {
        (0..self.cpus.len()).map(|cpu| self.cpus.u64(cpu, offset)).sum()
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

/// Sets constants and the sizes of maps; the log has that many entries for each CPU.
fn configure(
    open: &mut OpenBlockSkel<'static>,
    plan: &BlockPlan,
    cpus: u32,
    entries: u32,
) -> libbpf_rs::Result<()> {
    let rodata = open.maps.rodata_data.as_deref_mut().expect("the object has constants");
    rodata.log_entries = entries;
    rodata.io_start = plan.io_start;
    rodata.limits = plan.limits.is_some();
    rodata.limit_flags = plan.limits.unwrap_or(0);
    open.maps.cpus.set_max_entries(cpus)?;
    open.maps.name_space.set_max_entries(cpus)?;
    open.maps.entries.set_max_entries(cpus * entries)
}

fn names(
    skel: &BlockSkel<'static>,
    new_names: &Arc<Mutex<Vec<FirstName>>>,
) -> libbpf_rs::Result<RingBuffer<'static>> {
    let new_names = Arc::clone(new_names);
    let mut builder = RingBufferBuilder::new();
    builder.add(&skel.maps.names, move |bytes| {
        if let Some(named) = name::decode(bytes) {
            new_names.lock().unwrap_or_else(PoisonError::into_inner).push(named);
        }
        0
    })?;
    builder.build()
}
