// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The writeback probe: why there was something to write at a given time, which
//! threads dirtied it, and which were delayed.

mod event;
mod plan;
pub mod syncs;

pub use event::{Event, Journal};
pub use plan::WritebackPlan;

use crate::log::{self, Log};
use crate::mapped::{Mapped, Plain};
use crate::skel::writeback::types::{writeback_cpu, writeback_event, writeback_lost};
use crate::skel::writeback::{OpenWritebackSkel, WritebackSkel, WritebackSkelBuilder};
use crate::{stats, verdict};
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore as _};
use std::collections::BTreeMap;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd as _, BorrowedFd};

// SAFETY: generated from C structs of integers and arrays of them; every bit pattern is a value.
unsafe impl Plain for writeback_cpu {}
// SAFETY: as above.
unsafe impl Plain for writeback_event {}
// SAFETY: as above.
unsafe impl Plain for writeback_lost {}

/// All programs of the object, in the order of [`WritebackPlan::loads`].
macro_rules! programs {
    ($progs:expr, $($reference:tt)+) => {
        [
            $($reference)+ $progs.on_start,
            $($reference)+ $progs.on_written,
            $($reference)+ $progs.on_asked,
            $($reference)+ $progs.on_inode,
            $($reference)+ $progs.on_dirtied,
            $($reference)+ $progs.on_sync_began,
            $($reference)+ $progs.on_sync_ended,
            $($reference)+ $progs.on_commit_began,
            $($reference)+ $progs.on_commit_counted,
            $($reference)+ $progs.on_commit_ended,
            $($reference)+ $progs.on_buffer_began,
            $($reference)+ $progs.on_buffer_ended,
            $($reference)+ $progs.on_transaction_ended,
            $($reference)+ $progs.on_xfs_sync,
            $($reference)+ $progs.on_xfs_sync_both,
            $($reference)+ $progs.on_btrfs_sync,
            $($reference)+ $progs.on_btrfs_sync_both,
            $($reference)+ $progs.on_btrfs_sync_began,
            $($reference)+ $progs.on_btrfs_sync_ended,
            $($reference)+ $progs.on_paused_8,
            $($reference)+ $progs.on_paused_12,
        ]
    };
}

/// Display names of the programs, in the same order.
const NAMES: [&str; 21] = [
    "pass_began",
    "pass_ended",
    "pass_asked",
    "inode_written",
    "inode_dirtied",
    "sync_began",
    "sync_ended",
    "commit_began",
    "commit_counted",
    "commit_ended",
    "xfs_buffer_began",
    "xfs_buffer_ended",
    "btrfs_transaction_ended",
    "xfs_sync",
    "xfs_sync",
    "btrfs_sync",
    "btrfs_sync",
    "btrfs_sync_began",
    "btrfs_sync_ended",
    "pause",
    "pause",
];

/// The probe, loaded and attached. Dropping it detaches it.
pub struct WritebackProbe {
    plan: WritebackPlan,
    _links: Vec<Link>,
    skel: WritebackSkel<'static>,
    cpus: Mapped<writeback_cpu>,
    log: Log<writeback_event>,
    ns_per_jiffy: u64,
    map_bytes: u64,
}

impl WritebackProbe {
    /// Loads the programs and attaches them. `cpus` = number of possible CPUs of the host.
    ///
    /// # Errors
    /// The error of libbpf or the kernel, with the operation that failed.
    pub fn open(plan: &WritebackPlan, cpus: u32) -> Result<Self, String> {
        verdict::listen();
        // One small allocation for the life of the process: the skeleton borrows it.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = WritebackSkelBuilder::default()
            .open(storage)
            .map_err(|error| format!("open BPF object: {error}"))?;
        let entries =
            configure(&mut open, plan, cpus).map_err(|error| format!("configure BPF: {error}"))?;
        let mut skel = open
            .load()
            .map_err(|error| format!("load BPF programs: {error}{}", verdict::suffix()))?;
        let mapped = |error| format!("map BPF arrays: {error}");
        let areas = Mapped::new(skel.maps.cpus.as_fd(), cpus as usize).map_err(mapped)?;
        let log = Mapped::new(skel.maps.entries.as_fd(), entries as usize).map_err(mapped)?;
        let mut links = Vec::new();
        for (program, load) in programs!(skel.progs, &mut).into_iter().zip(plan.loads()) {
            if load {
                links.push(program.attach().map_err(|error| {
                    format!("attach BPF program {}: {error}", program.name().to_string_lossy())
                })?);
            }
        }
        let map_bytes = map_bytes(&skel);
        Ok(Self {
            plan: plan.clone(),
            _links: links,
            skel,
            cpus: areas,
            log: Log::new(log, cpus),
            ns_per_jiffy: ns_per_jiffy(),
            map_bytes,
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
        add("nested", stats::missed_by_all(&self.programs()));
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
        self.map_bytes
    }

    /// Run time in nanoseconds and number of runs of all programs, counted while [`crate::RunStats`] existed.
    #[must_use]
    pub fn run_time(&self) -> Option<(u64, u64)> {
        stats::run_time_of_all(&self.programs())
    }

    /// Instructions that the kernel's verifier processed to accept each program.
    #[must_use]
    pub fn verified_instructions(&self) -> BTreeMap<&'static str, u64> {
        stats::verified(&self.programs())
    }

    /// The loaded programs, with their display names.
    fn programs(&self) -> Vec<(&'static str, BorrowedFd<'_>)> {
        let programs = programs!(self.skel.progs, &).into_iter().zip(self.plan.loads());
        let named = NAMES.into_iter().zip(programs);
        named
            .filter(|(_, (_, loaded))| *loaded)
            .map(|(name, (program, _))| (name, program.as_fd()))
            .collect()
    }
}

/// Sets constants, map sizes and which programs are loaded. Returns the number of entries of the log, of all CPUs.
fn configure(
    open: &mut OpenWritebackSkel<'static>,
    plan: &WritebackPlan,
    cpus: u32,
) -> Result<u32, libbpf_rs::Error> {
    let each = log::entries_of_each(cpus);
    let rodata = open.maps.rodata_data.as_deref_mut().expect("the object has constants");
    rodata.log_entries = each;
    open.maps.cpus.set_max_entries(cpus)?;
    open.maps.entries.set_max_entries(cpus * each)?;
    for (program, load) in programs!(open.progs, &mut).into_iter().zip(plan.loads()) {
        program.set_autoload(load);
    }
    Ok(cpus * each)
}

/// The kernel's tick in nanoseconds: the resolution of its coarse clocks.
fn ns_per_jiffy() -> u64 {
    let mut tick = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid timespec; the clock exists since 2.6.32.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut tick) };
    tick.tv_sec.cast_unsigned() * 1_000_000_000 + tick.tv_nsec.cast_unsigned()
}

fn map_bytes(skel: &WritebackSkel<'_>) -> u64 {
    let maps = &skel.maps;
    [&maps.entries, &maps.cpus, &maps.inodes, &maps.tasks, &maps.buffers, &maps.returns]
        .iter()
        .map(|map| u64::from(map.value_size()) * u64::from(map.max_entries()))
        .sum()
}
