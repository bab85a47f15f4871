// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reclaim probe: how long threads free memory before they get some, and whose limit makes them.

mod plan;

pub use plan::ReclaimPlan;

pub(crate) use plan::{NEEDED, OF_BOUNDS};

use crate::mapped::{Mapped, Plain, from_bytes, set};
use crate::object::LoadedObject;
use crate::sched::ThreadMaps;
use crate::skel::reclaim::types::{
    reclaim_bound, reclaim_cpu, reclaim_key, reclaim_kind, reclaim_lost, reclaim_sum, reclaim_task,
};
use crate::skel::reclaim::{ReclaimSkel, ReclaimSkelBuilder};
use libbpf_rs::{MapCore as _, MapFlags};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::os::fd::AsFd as _;

// SAFETY: generated from C structs of integers and arrays of them; every bit pattern is a value.
unsafe impl Plain for reclaim_cpu {}
// SAFETY: as above.
unsafe impl Plain for reclaim_task {}
// SAFETY: as above.
unsafe impl Plain for reclaim_lost {}
// SAFETY: as above.
unsafe impl Plain for reclaim_key {}
// SAFETY: as above.
unsafe impl Plain for reclaim_sum {}

/// `RECLAIM_TASKS` of `reclaim.h`.
const TASKS: usize = 1024;

/// Why a thread frees memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A memory cgroup is at its limit.
    Limit,
    /// The host is short of memory.
    Direct,
    /// It wants a large page, and the free memory is in small pieces.
    Compaction,
}

/// Which limit of a memory cgroup binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// `memory.max`, or `memory.limit_in_bytes`.
    Max,
    /// `memory.high`.
    High,
}

/// What a process spent on one kind of reclaim within a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reclaim {
    /// Thread-group id.
    pub tgid: u32,
    /// Start of its main thread, in nanoseconds of the boot clock.
    pub leader_boot_ns: u64,
    /// Comm of its main thread; `None` = not known, because it is under way.
    pub comm: Option<[u8; 16]>,
    /// Whether it is a thread of the kernel.
    pub kernel: bool,
    /// Why.
    pub kind: Kind,
    /// Id of the cgroup whose limit binds, in the tree of the memory controller, and which limit; `None` = not known.
    pub bound: Option<(u64, Bound)>,
    /// Limit and usage of that cgroup when the last of these began, in pages.
    pub limit_and_usage_pages: (u64, u64),
    /// Time from begin to end.
    pub ns: u64,
    /// The part of `ns` of which `memory_ns` and `off_cpu_ns` are known.
    pub known_ns: u64,
    /// The part of it that is sleep for memory in the account of the scheduler probe.
    pub memory_ns: u64,
    /// The part of it that is not time on a CPU.
    pub off_cpu_ns: u64,
    /// How often.
    pub count: u64,
    /// The longest.
    pub longest_ns: u64,
    /// Pages that were freed; compaction frees none.
    pub pages: u64,
}

/// The probe, loaded and attached. Dropping it detaches it.
pub struct ReclaimProbe {
    object: LoadedObject<ReclaimSkel<'static>>,
    cpus: Mapped<reclaim_cpu>,
    tasks: Mapped<reclaim_task>,
}

impl ReclaimProbe {
    /// Loads the programs and attaches them. `cpus` = number of possible CPUs of the host; `threads` = the tables of the
    /// scheduler probe, without which it is not known which part of the time threads sleep.
    ///
    /// # Errors
    /// The error of libbpf or the kernel, with the operation that failed.
    pub fn open(
        plan: &ReclaimPlan,
        cpus: u32,
        threads: Option<&ThreadMaps>,
    ) -> Result<Self, String> {
        let builder = ReclaimSkelBuilder::default();
        let object = LoadedObject::load(builder, &plan.programs(), |open| {
            let rodata = open.maps.rodata_data.as_deref_mut().expect("the object has constants");
            rodata.has_bounds = plan.bounds;
            rodata.knows_threads = threads.is_some();
            if let Some(threads) = threads {
                open.maps.areas.reuse_fd(threads.areas.as_fd())?;
                open.maps.threads.reuse_fd(threads.threads.as_fd())?;
            }
            open.maps.cpus.set_max_entries(cpus)
        })?;
        let areas = Mapped::new(&object.skel.maps.cpus, cpus as usize)?;
        let tasks = Mapped::new(&object.skel.maps.tasks, TASKS)?;
        let mut probe = Self { object, cpus: areas, tasks };
        probe.object.attach_all()?;
        Ok(probe)
    }

    /// Reclaim that is under way counts from this time of `CLOCK_MONOTONIC` on. What ended before is dropped.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn begin_window(&mut self, start_mono_ns: u64) -> Result<(), String> {
        set(&mut self.data().window_start_ns, start_mono_ns);
        let half = self.half();
        self.take(half).map(drop)
    }

    /// Ends a second: what ends from now on belongs to the next. Returns what [`Self::take`] needs to read it, once the
    /// programs that run now have ended.
    pub fn end_second(&mut self) -> u8 {
        let ended = self.half();
        set(&mut self.data().half, u32::from(ended ^ 1));
        ended
    }

    /// Takes the sums of a second that has ended.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn take(&self, half: u8) -> Result<Vec<Reclaim>, String> {
        let failed = |error| format!("read a BPF table: {error}");
        let sums = &self.object.skel.maps.sums;
        let (mut all, mut taken) = (Vec::new(), Vec::new());
        for bytes in sums.keys() {
            let Some(key) = from_bytes::<reclaim_key>(&bytes).filter(|key| key.half == half) else {
                continue;
            };
            let value = sums.lookup(&bytes, MapFlags::ANY).map_err(failed)?;
            let sum = value.and_then(|value| from_bytes::<reclaim_sum>(&value));
            all.extend(sum.and_then(|sum| decode(&key, &sum, Some(sum.comm))));
            taken.push(bytes);
        }
        // Not while the table is walked: an entry that is gone sends the walk back to its beginning.
        for key in taken {
            sums.delete(&key).map_err(failed)?;
        }
        Ok(all)
    }

    /// What is under way at this time of `CLOCK_MONOTONIC`, since `start_mono_ns` at the earliest.
    #[must_use]
    pub fn under_way(&self, start_mono_ns: u64, now_mono_ns: u64) -> Vec<Reclaim> {
        let open = (0..self.tasks.len()).filter_map(|slot| {
            if self.tasks.u32(slot, offset_of!(reclaim_task, tid)) == 0 {
                return None;
            }
            let task: reclaim_task = self.tasks.peek(slot, 0);
            let key = reclaim_key {
                leader_boot_ns: task.leader_boot_ns,
                cgroup: task.cgroup,
                tgid: task.tgid,
                kind: task.kind,
                bound: task.bound,
                kernel: task.kernel,
                half: 0,
            };
            let ns = now_mono_ns.saturating_sub(task.begin_ns.max(start_mono_ns));
            let sum = reclaim_sum {
                ns,
                count: 1,
                longest_ns: ns,
                limit_pages: task.limit_pages,
                usage_pages: task.usage_pages,
                ..reclaim_sum::default()
            };
            (task.tid != 0 && ns > 0).then(|| decode(&key, &sum, None)).flatten()
        });
        open.collect()
    }

    fn data(&mut self) -> &mut crate::skel::reclaim::types::bss {
        self.object.skel.maps.bss_data.as_deref_mut().expect("the object has variables")
    }

    fn half(&mut self) -> u8 {
        (self.data().half & 1) as u8
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
            let lost: reclaim_lost = self.cpus.peek(cpu, offset_of!(reclaim_cpu, lost));
            add("sums_full", lost.sums_full);
            add("tasks_collide", lost.tasks_collide);
            add("begin_unseen", lost.begin_unseen);
        }
        add("nested", self.object.missed());
        sum
    }

    /// Runs of all programs so far.
    #[must_use]
    pub fn runs(&self) -> u64 {
        (0..self.cpus.len()).map(|cpu| self.cpus.u64(cpu, offset_of!(reclaim_cpu, runs))).sum()
    }

    /// Kernel memory of the maps, in bytes, without those of the scheduler probe.
    #[must_use]
    pub fn map_bytes(&self) -> u64 {
        let maps = &self.object.skel.maps;
        let shared = [&maps.areas as &dyn libbpf_rs::MapCore, &maps.threads];
        let bytes = shared.map(|map| u64::from(map.value_size()) * u64::from(map.max_entries()));
        self.object.map_bytes().saturating_sub(bytes.iter().sum())
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

fn decode(key: &reclaim_key, sum: &reclaim_sum, comm: Option<[u8; 16]>) -> Option<Reclaim> {
    let is = |kind: reclaim_kind| u32::from(key.kind) == kind.0;
    let bound_by = |bound: reclaim_bound| u32::from(key.bound) == bound.0;
    Some(Reclaim {
        tgid: key.tgid,
        leader_boot_ns: key.leader_boot_ns,
        comm,
        kernel: key.kernel != 0,
        kind: match () {
            () if is(reclaim_kind::RECLAIM_LIMIT) => Kind::Limit,
            () if is(reclaim_kind::RECLAIM_DIRECT) => Kind::Direct,
            () if is(reclaim_kind::RECLAIM_COMPACTION) => Kind::Compaction,
            () => return None,
        },
        bound: match () {
            () if key.cgroup == 0 => None,
            () if bound_by(reclaim_bound::RECLAIM_BY_MAX) => Some((key.cgroup, Bound::Max)),
            () if bound_by(reclaim_bound::RECLAIM_BY_HIGH) => Some((key.cgroup, Bound::High)),
            () => None,
        },
        limit_and_usage_pages: (sum.limit_pages, sum.usage_pages),
        ns: sum.ns,
        known_ns: sum.known_ns,
        memory_ns: sum.memory_ns,
        off_cpu_ns: sum.off_cpu_ns,
        count: sum.count,
        longest_ns: sum.longest_ns,
        pages: sum.pages,
    })
}
