// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The profile probe: in what functions CPUs are found at the beats of a clock.

mod clock;
mod plan;

pub use plan::ProfilePlan;

pub(crate) use plan::NEEDED;

use crate::log::Log;
use crate::mapped::{Mapped, MappedOnUse, Plain};
use crate::object::LoadedObject;
use crate::skel::profile::types::{profile_cpu, profile_sample};
use crate::skel::profile::{ProfileSkel, ProfileSkelBuilder};
use clock::{Clock, Random};
use std::collections::BTreeMap;
use std::mem::offset_of;

// SAFETY: generated from C structs of integers and arrays of them; every bit pattern is a value.
unsafe impl Plain for profile_cpu {}
// SAFETY: as above.
unsafe impl Plain for profile_sample {}

/// `PROFILE_ENTRIES` of `profile.h`.
const ENTRIES: u32 = 64;

/// CPU time between two samples, on average.
pub const PERIOD_NS: u64 = clock::MEAN_PERIOD_NS;

/// Where the clock found a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Thread-group id of the process.
    pub tgid: u32,
    /// Start of its main thread, in nanoseconds of the boot clock.
    pub leader_boot_ns: u64,
    /// Comm of the thread.
    pub comm: [u8; 16],
    /// Whether it is a thread of the kernel.
    pub kernel: bool,
    /// Addresses in the kernel, innermost first; empty = it ran its own program.
    pub kernel_stack: Vec<u64>,
    /// Addresses in its program, innermost first: found by frame pointers, so the chain may end early.
    pub user_stack: Vec<u64>,
}

/// The probe, loaded and attached. Dropping it detaches it.
pub struct ProfileProbe {
    object: LoadedObject<ProfileSkel<'static>>,
    cpus: Mapped<profile_cpu>,
    log: Log<profile_sample>,
    clocks: Vec<Clock>,
    random: Random,
}

impl ProfileProbe {
    /// Loads the program and has it run at the beats of a clock on each of the CPUs that are `online`. `cpus` = number of
    /// possible CPUs of the host; `seed` = any number, for the periods of the clocks.
    ///
    /// # Errors
    /// The error of libbpf or the kernel, with the operation that failed.
    pub fn open(plan: &ProfilePlan, cpus: u32, online: &[u32], seed: u64) -> Result<Self, String> {
        let object = LoadedObject::load(ProfileSkelBuilder::default(), &plan.programs(), |open| {
            open.maps.cpus.set_max_entries(cpus)?;
            open.maps.entries.set_max_entries(cpus * ENTRIES)
        })?;
        let areas = Mapped::new(&object.skel.maps.cpus, cpus as usize)?;
        let entries = MappedOnUse::new(&object.skel.maps.entries, (cpus * ENTRIES) as usize)?;
        let mut random = Random::new(seed);
        let clocks = online.iter().map(|&cpu| Clock::of(cpu, &mut random));
        let clocks = clocks.collect::<Result<Vec<_>, _>>()?;
        let log = Log::new(entries, cpus);
        let mut probe = Self { object, cpus: areas, log, clocks, random };
        for clock in &probe.clocks {
            probe.object.attach_to_event("on_beat", clock.event()?)?;
        }
        Ok(probe)
    }

    /// Calls `each` for the samples since the last call, and varies the clocks. To be called ten times a second.
    pub fn read(&mut self, mut each: impl FnMut(&Sample)) {
        let cpus = &self.cpus;
        let head = |cpu| cpus.u64(cpu, offset_of!(profile_cpu, written));
        self.log.read(head, |sample| each(&decode(sample)));
        for clock in &self.clocks {
            clock.vary(&mut self.random);
        }
    }

    /// What was lost so far, by kind; only counts that are not 0.
    #[must_use]
    pub fn lost(&self) -> BTreeMap<&'static str, u64> {
        let all = [("overrun", self.log.overrun), ("nested", self.object.missed())];
        all.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// Runs of the program so far that found a thread.
    #[must_use]
    pub fn runs(&self) -> u64 {
        let written = offset_of!(profile_cpu, written);
        (0..self.cpus.len()).map(|cpu| self.cpus.u64(cpu, written)).sum()
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

    /// Instructions that the kernel's verifier processed to accept the program.
    #[must_use]
    pub fn verified_instructions(&self) -> BTreeMap<&'static str, u64> {
        self.object.verified_instructions()
    }
}

fn decode(sample: &profile_sample) -> Sample {
    let of = |stack: &[u64], frames: u16| stack[..stack.len().min(frames.into())].to_vec();
    Sample {
        tgid: sample.tgid,
        leader_boot_ns: sample.leader_boot_ns,
        comm: sample.comm,
        kernel: sample.kernel != 0,
        kernel_stack: of(&sample.kernel_stack, sample.kernel_frames),
        user_stack: of(&sample.user, sample.user_frames),
    }
}
