// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The probe of interrupts: how long they took, on which CPU, and whose thread held it meanwhile.

mod plan;
mod serving;

pub use plan::IrqPlan;
pub use serving::Serving;

pub(crate) use plan::NEEDED;

use crate::mapped::{Mapped, Plain, from_bytes, set};
use crate::object::LoadedObject;
use crate::skel::irq::types::{
    irq_context, irq_cpu, irq_key, irq_kind, irq_lost, irq_serving, irq_sum,
};
use crate::skel::irq::{IrqSkel, IrqSkelBuilder};
use libbpf_rs::{MapCore as _, MapFlags};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::os::fd::AsFd as _;

// SAFETY: generated from C structs of integers and arrays of them; every bit pattern is a value.
unsafe impl Plain for irq_cpu {}
// SAFETY: as above.
unsafe impl Plain for irq_lost {}
// SAFETY: as above.
unsafe impl Plain for irq_key {}
// SAFETY: as above.
unsafe impl Plain for irq_sum {}
// SAFETY: as above.
unsafe impl Plain for irq_serving {}

/// Sums of two seconds: what interrupts each process on a CPU.
const SUMS_OF_CPU: u32 = 512;
const MOST_SUMS: u32 = 65_536;
/// The programs for interrupts that may be frequent: soft ones, and calls by other CPUs. Where they are detached, beginnings
/// are no more seen before ends are not, and the other way round where they are attached.
const FREQUENT: [&str; 6] = [
    "on_soft_began",
    "on_call_began",
    "on_single_began",
    "on_soft_ended",
    "on_call_ended",
    "on_single_ended",
];

/// What interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A soft interrupt of that vector.
    Soft(u32),
    /// A device, through the interrupt of that number.
    Device(u32),
    /// The timer of the CPU.
    Timer,
    /// Another CPU, which has this one call a function.
    Call,
}

impl Kind {
    /// Whether it may be frequent, and then is watched for a part of the time only ([`IrqProbe::watch_frequent`]).
    #[must_use]
    pub fn is_frequent(self) -> bool {
        matches!(self, Self::Soft(_) | Self::Call)
    }
}

/// In what it was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Context {
    /// It interrupted the thread.
    Interrupts,
    /// The thread asked for it, in a call of its own.
    OwnCall,
    /// Which of both is not known.
    NotKnown,
}

/// Interrupts of one kind on one CPU, while threads of one process held it, within a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupts {
    /// Thread-group id of the process; 0 = the CPU was idle.
    pub tgid: u32,
    /// Start of its main thread, in nanoseconds of the boot clock.
    pub leader_boot_ns: u64,
    /// Comm of its main thread.
    pub comm: [u8; 16],
    /// Whether it is a thread of the kernel.
    pub kernel: bool,
    /// Number of the CPU.
    pub cpu: u32,
    /// What interrupts.
    pub kind: Kind,
    /// In what it was served.
    pub context: Context,
    /// Time that it took; of soft interrupts without the hard ones that came meanwhile.
    pub ns: u64,
    /// How many.
    pub count: u64,
    /// The longest.
    pub longest_ns: u64,
    /// Times at which the one before was a millisecond or more ago.
    pub bursts: u64,
}

/// The probe, loaded and attached. Dropping it detaches it.
pub struct IrqProbe {
    object: LoadedObject<IrqSkel<'static>>,
    cpus: Mapped<irq_cpu>,
    serving: Option<Mapped<irq_serving>>,
    /// Those of [`FREQUENT`] that this kernel has hooks for.
    frequent: Vec<&'static str>,
    watches_frequent: bool,
}

impl IrqProbe {
    /// Loads the programs and attaches them. `cpus` = number of possible CPUs of the host; `serving` = the table in which it
    /// says which interrupts they serve.
    ///
    /// # Errors
    /// The error of libbpf or the kernel, with the operation that failed.
    pub fn open(plan: &IrqPlan, cpus: u32, serving: Option<&Serving>) -> Result<Self, String> {
        let object = LoadedObject::load(IrqSkelBuilder::default(), &plan.programs(), |open| {
            let rodata = open.maps.rodata_data.as_deref_mut().expect("the object has constants");
            rodata.preempt_minus_rq = plan.preempt_minus_rq;
            open.maps.cpus.set_max_entries(cpus)?;
            if let Some(serving) = serving {
                open.maps.serving.reuse_fd(serving.as_fd())?;
            }
            open.maps.sums.set_max_entries((cpus * SUMS_OF_CPU).clamp(SUMS_OF_CPU * 8, MOST_SUMS))
        })?;
        let areas = Mapped::new(&object.skel.maps.cpus, cpus as usize)?;
        let serving = serving.map(|serving| Mapped::new(serving, cpus as usize)).transpose()?;
        let loaded = plan.programs();
        let frequent = FREQUENT.into_iter().filter(|name| loaded.contains(name)).collect();
        let mut probe = Self { object, cpus: areas, serving, frequent, watches_frequent: true };
        probe.object.attach_all()?;
        Ok(probe)
    }

    /// Drops what ended so far.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn begin_window(&mut self) -> Result<(), String> {
        [0, 1].into_iter().try_for_each(|half| self.take(half).map(drop))
    }

    /// Ends a second: what ends from now on belongs to the next. Returns what [`Self::take`] needs to read it, once the
    /// programs that run now have ended.
    pub fn end_second(&mut self) -> u8 {
        let ended = (self.data().half & 1) as u8;
        set(&mut self.data().half, u32::from(ended ^ 1));
        ended
    }

    /// Interrupts so far of the kinds that may be frequent, while they were watched.
    #[must_use]
    pub fn frequent_seen(&self) -> u64 {
        self.sum(offset_of!(irq_cpu, soft_seen)) + self.sum(offset_of!(irq_cpu, call_seen))
    }

    /// Watches kinds of interrupts that may be frequent from now on, or does not: where nothing runs, they cost nothing.
    ///
    /// # Errors
    /// The error of libbpf or the kernel.
    pub fn watch_frequent(&mut self, watch: bool) -> Result<(), String> {
        if !watch {
            if self.watches_frequent {
                self.frequent.iter().for_each(|name| self.object.detach(name));
            }
            self.watches_frequent = false;
            self.serve_nothing();
            return Ok(());
        }
        if self.watches_frequent {
            return Ok(());
        }
        self.watches_frequent = true;
        let number = self.data().watch_number;
        set(&mut self.data().watch_number, number.wrapping_add(1));
        self.frequent.iter().rev().try_for_each(|name| self.object.attach(name))
    }

    /// Of a beginning that was seen, the end may not have been; a program that has begun may even write it after its
    /// detachment. Of a call by another CPU, the next hard interrupt tells that it is over.
    fn serve_nothing(&self) {
        let Some(serving) = &self.serving else { return };
        for cpu in 0..serving.len() {
            serving.set_u32(cpu, offset_of!(irq_serving, soft), 0);
        }
    }

    /// Whether the probe of the scheduler hears which interrupts the CPUs serve.
    #[must_use]
    pub fn tells_serving(&self) -> bool {
        self.serving.is_some()
    }

    /// Takes the sums of a second that has ended.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn take(&self, half: u8) -> Result<Vec<Interrupts>, String> {
        let failed = |error| format!("read a BPF table: {error}");
        let sums = &self.object.skel.maps.sums;
        let (mut all, mut taken) = (Vec::new(), Vec::new());
        for bytes in sums.keys() {
            let Some(key) = from_bytes::<irq_key>(&bytes).filter(|key| key.half == half) else {
                continue;
            };
            let value = sums.lookup(&bytes, MapFlags::ANY).map_err(failed)?;
            let sum = value.and_then(|value| from_bytes::<irq_sum>(&value));
            all.extend(sum.and_then(|sum| decode(&key, &sum)));
            taken.push(bytes);
        }
        // Not while the table is walked: an entry that is gone sends the walk back to its beginning.
        for key in taken {
            sums.delete(&key).map_err(failed)?;
        }
        Ok(all)
    }

    fn data(&mut self) -> &mut crate::skel::irq::types::bss {
        self.object.skel.maps.bss_data.as_deref_mut().expect("the object has variables")
    }

    fn sum(&self, offset: usize) -> u64 {
        (0..self.cpus.len()).map(|cpu| self.cpus.u64(cpu, offset)).sum()
    }

    /// What was lost so far, by kind; only counts that are not 0.
    #[must_use]
    pub fn lost(&self) -> BTreeMap<&'static str, u64> {
        let full = self.sum(offset_of!(irq_cpu, lost) + offset_of!(irq_lost, sums_full));
        let all = [("sums_full", full), ("nested", self.object.missed())];
        all.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// Runs of all programs so far.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.sum(offset_of!(irq_cpu, runs))
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

fn decode(key: &irq_key, sum: &irq_sum) -> Option<Interrupts> {
    let is = |kind: irq_kind| u32::from(key.kind) == kind.0;
    let served = |context: irq_context| u32::from(key.context) == context.0;
    Some(Interrupts {
        tgid: key.tgid,
        leader_boot_ns: sum.leader_boot_ns,
        comm: sum.comm,
        kernel: sum.kernel != 0,
        cpu: key.cpu,
        kind: match () {
            () if is(irq_kind::IRQ_SOFT) => Kind::Soft(key.line),
            () if is(irq_kind::IRQ_DEVICE) => Kind::Device(key.line),
            () if is(irq_kind::IRQ_TIMER) => Kind::Timer,
            () if is(irq_kind::IRQ_CALL) => Kind::Call,
            () => return None,
        },
        context: match () {
            () if served(irq_context::IRQ_INTERRUPTS) => Context::Interrupts,
            () if served(irq_context::IRQ_OWN_CALL) => Context::OwnCall,
            () => Context::NotKnown,
        },
        ns: sum.ns,
        count: sum.count,
        longest_ns: sum.longest_ns,
        bursts: sum.bursts,
    })
}
