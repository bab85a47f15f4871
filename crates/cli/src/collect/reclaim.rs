// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The BPF reclaim probe as a collector: how long processes free memory before they get some, and whose limit makes
//! them; with the kernel's counters of the host's memory and of the cgroups that are at their limit, and who holds the
//! host's memory when it is short.

use super::cost::{Cost, CostCounters};
use super::held::Held;
use super::{
    Beat, BeatTime, Collector, Context, Emit, ObservedProcess, Roots, possible_cpus, reread,
};
use crate::clock;
use deburr_bpf::TimedRuns;
use deburr_bpf::facts::facts;
use deburr_bpf::reclaim::{Bound, Kind, Reclaim, ReclaimPlan, ReclaimProbe};
use deburr_bpf::sched::ThreadMaps;
use deburr_core::procfs::memory;
use deburr_core::recording::{
    CgroupId, Coverage, MemoryBound, MemoryReading, ProcId, ReclaimKind, ReclaimTick, Record,
    Source, State,
};
use rustix::param::page_size;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;

/// What the probe would add where it is missing.
const GAIN: &str =
    "the probe tells who frees memory before it gets some, for how long, and whose limit makes it";

/// Processes that have a record of their own in each second: those that took longest. The others are summed by name.
const KEPT: usize = 200;
/// Cgroups at their limit whose counters are read.
const CGROUPS: usize = 64;

pub(crate) struct ReclaimCollector {
    probe: ReclaimProbe,
    partial: Option<String>,
    counters: Counters,
    cost: Cost,
    t0_ns: u64,
    /// The second that ended at the last beat, and is not read yet.
    ended: Option<Second>,
}

/// A second that has ended, and what the probe needs to read it.
#[derive(Clone, Copy, Debug)]
struct Second {
    half: u8,
    t0_ns: u64,
    t1_ns: u64,
}

impl CostCounters for ReclaimProbe {
    fn runs(&self) -> u64 {
        Self::runs(self)
    }

    fn timed_runs(&self) -> Option<TimedRuns> {
        Self::timed_runs(self)
    }

    fn map_bytes(&self) -> u64 {
        Self::map_bytes(self)
    }

    fn lost(&self) -> BTreeMap<String, u64> {
        let lost = Self::lost(self).into_iter();
        lost.map(|(name, amount)| (format!("reclaim_{name}"), amount)).collect()
    }
}

impl ReclaimCollector {
    /// Loads and attaches the probe; `Err` = the coverage of [`Source::Reclaim`] without it. `threads` = the tables of the
    /// scheduler probe.
    pub(crate) fn open(cx: &Context, threads: Option<&ThreadMaps>) -> Result<Self, State> {
        let missing = |reason| State::Missing { reason, gain: GAIN.into() };
        let plan = ReclaimPlan::new(&facts()).map_err(missing)?;
        let cpus = possible_cpus(&cx.roots);
        let probe = ReclaimProbe::open(&plan, cpus, threads).map_err(missing)?;
        let mut gaps = plan.gaps();
        if threads.is_none() {
            gaps.push(
                "which part of the time threads sleep is not known without the scheduler probe",
            );
        }
        Ok(Self {
            probe,
            partial: (!gaps.is_empty()).then(|| gaps.join("; ")),
            counters: Counters::open(&cx.roots),
            cost: Cost::default(),
            t0_ns: 0,
            ended: None,
        })
    }

    fn start(&mut self, cx: &mut Context, now: BeatTime, emit: Emit<'_>) -> Result<(), String> {
        let state = match self.partial.clone() {
            Some(reason) => State::Partial { reason },
            None => State::Active,
        };
        emit(Record::Coverage(Coverage { t_ns: 0, source: Source::Reclaim, state }));
        self.probe.begin_window(cx.window.start_mono_ns())?;
        self.cost.begin(&self.probe, &[]);
        self.counters.read(cx, now, emit);
        Ok(())
    }

    /// Reads a second that has ended.
    fn read(
        &mut self,
        cx: &mut Context,
        second: Second,
        last: bool,
        emit: Emit<'_>,
    ) -> Result<(), String> {
        let mut all = self.probe.take(second.half)?;
        if last {
            let start_ns = cx.window.start_mono_ns();
            all.extend(self.probe.under_way(start_ns, clock::monotonic_ns()));
        }
        for tick in ticks(all, second, &mut Names { cx, counters: &mut self.counters }, &mut *emit)
        {
            emit(Record::Reclaim(Box::new(tick)));
        }
        Ok(())
    }
}

impl Collector for ReclaimCollector {
    fn beat(&mut self, cx: &mut Context, now: BeatTime, emit: Emit<'_>) -> anyhow::Result<()> {
        if now.beat == Beat::Start {
            return self.start(cx, now, emit).map_err(anyhow::Error::msg);
        }
        self.cost.bin(&self.probe);
        if let Some(second) = self.ended.take() {
            self.read(cx, second, false, &mut *emit).map_err(anyhow::Error::msg)?;
        }
        if !now.beat.is_second() {
            return Ok(());
        }
        let half = self.probe.end_second();
        let t0_ns = std::mem::replace(&mut self.t0_ns, now.t_ns);
        let second = Second { half, t0_ns, t1_ns: now.t_ns };
        // Programs that run now still add to it: it is read at the next beat, unless there is none.
        if now.beat == Beat::End {
            self.read(cx, second, true, &mut *emit).map_err(anyhow::Error::msg)?;
        } else {
            self.ended = Some(second);
        }
        self.counters.read(cx, now, &mut *emit);
        emit(Record::Observer(self.cost.second(&self.probe, now.t_ns, &[])));
        Ok(())
    }
}

/// Gives identities to what the probe saw.
trait Identities {
    /// The process; `alone` = it is worth an identity of its own.
    fn process(&mut self, of: &Reclaim, alone: bool, emit: Emit<'_>) -> ProcId;
    /// The cgroup of that id in the memory controller's tree.
    fn cgroup(&mut self, id: u64, emit: Emit<'_>) -> Option<CgroupId>;
}

struct Names<'a> {
    cx: &'a mut Context,
    counters: &'a mut Counters,
}

impl Identities for Names<'_> {
    fn process(&mut self, of: &Reclaim, alone: bool, emit: Emit<'_>) -> ProcId {
        let sighting = sighting(of);
        let Context { roots, processes, cgroups, target, .. } = &mut *self.cx;
        match alone {
            true => processes.intern(roots, cgroups, target, sighting, emit),
            false => processes.fold(roots, cgroups, target, sighting, emit),
        }
    }

    fn cgroup(&mut self, id: u64, emit: Emit<'_>) -> Option<CgroupId> {
        let cgroups = &mut self.cx.cgroups;
        let owner = cgroups.owner(id, emit)?;
        // Where both controllers share a tree, an id may be that of a cgroup which is gone.
        if owner.0 == id && cgroups.get(owner).is_none() {
            return None;
        }
        self.counters.follow(owner, cgroups.memory_dir(id));
        Some(owner)
    }
}

/// What the probe knows of the process.
fn sighting(of: &Reclaim) -> ObservedProcess<'_> {
    ObservedProcess {
        pid: of.tgid,
        start_ns: Some(of.leader_boot_ns),
        comm: of.comm.as_ref().map(<[u8; 16]>::as_slice),
        ..ObservedProcess::default()
    }
}

/// The records of a second: processes that did little are summed by name.
fn ticks(
    mut all: Vec<Reclaim>,
    second: Second,
    names: &mut impl Identities,
    emit: Emit<'_>,
) -> Vec<ReclaimTick> {
    all.sort_by_key(|one| (Reverse(one.ns), one.tgid, one.kind, one.bound));
    let mut sums: BTreeMap<_, ReclaimTick> = BTreeMap::new();
    for (rank, one) in all.iter().enumerate() {
        let proc = names.process(one, rank < KEPT, &mut *emit);
        let cgroup = one.bound.and_then(|(id, _)| names.cgroup(id, &mut *emit));
        let tick = tick(one, second, proc, cgroup);
        let key = (tick.proc, tick.kernel, tick.kind, tick.cgroup, tick.bound);
        sums.entry(key).and_modify(|sum| add(sum, &tick)).or_insert(tick);
    }
    sums.into_values().collect()
}

fn tick(one: &Reclaim, second: Second, proc: ProcId, cgroup: Option<CgroupId>) -> ReclaimTick {
    let bytes = |pages: u64| pages.saturating_mul(page_size() as u64);
    let bound = one.bound.map(|(_, bound)| match bound {
        Bound::Max => MemoryBound::Max,
        Bound::High => MemoryBound::High,
    });
    let (limit, usage) = one.limit_and_usage_pages;
    ReclaimTick {
        t0_ns: second.t0_ns,
        t1_ns: second.t1_ns,
        proc,
        kernel: one.kernel,
        kind: match one.kind {
            Kind::Limit => ReclaimKind::Limit,
            Kind::Direct => ReclaimKind::Direct,
            Kind::Compaction => ReclaimKind::Compaction,
        },
        cgroup,
        bound,
        limit_bytes: bound.map(|_| bytes(limit)),
        usage_bytes: bound.map(|_| bytes(usage)),
        ns: one.ns,
        known_ns: one.known_ns,
        memory_ns: one.memory_ns,
        off_cpu_ns: one.off_cpu_ns,
        count: one.count,
        longest_ns: one.longest_ns,
        pages: one.pages,
    }
}

fn add(sum: &mut ReclaimTick, more: &ReclaimTick) {
    sum.ns += more.ns;
    sum.known_ns += more.known_ns;
    sum.memory_ns += more.memory_ns;
    sum.off_cpu_ns += more.off_cpu_ns;
    sum.count += more.count;
    sum.longest_ns = sum.longest_ns.max(more.longest_ns);
    sum.pages += more.pages;
}

/// The kernel's counters of memory.
struct Counters {
    host: Option<File>,
    low_bytes: Option<u64>,
    /// Of cgroups that were seen at their limit.
    cgroups: BTreeMap<CgroupId, PathBuf>,
    held: Held,
}

impl Counters {
    fn open(roots: &Roots) -> Self {
        let zones = fs::read(roots.proc.join("zoneinfo")).unwrap_or_default();
        Self {
            host: File::open(roots.proc.join("vmstat")).ok(),
            low_bytes: memory::low_watermark_pages(&zones).map(in_bytes),
            cgroups: BTreeMap::new(),
            held: Held::default(),
        }
    }

    /// Reads the counters of that cgroup from now on.
    fn follow(&mut self, id: CgroupId, dir: Option<PathBuf>) {
        if let Some(dir) = dir
            && self.cgroups.len() < CGROUPS
        {
            self.cgroups.entry(id).or_insert(dir);
        }
    }

    fn read(&mut self, cx: &mut Context, now: BeatTime, emit: Emit<'_>) {
        let t_ns = now.t_ns;
        if let Some(text) = self.host.as_ref().and_then(|file| reread::text(file).ok()) {
            let of = |name| memory::counter(&text, name);
            emit(Record::Memory(MemoryReading {
                t_ns,
                cgroup: None,
                refaults_file: of("workingset_refault_file"),
                refaults_anon: of("workingset_refault_anon"),
                activated_bytes: of("workingset_activate_file").map(in_bytes),
                restored_bytes: of("workingset_restore_file").map(in_bytes),
                free_bytes: of("nr_free_pages").map(in_bytes),
                low_bytes: self.low_bytes,
            }));
            match now.beat {
                Beat::Start => self.held = Held::start(&cx.roots, &text),
                _ => self.held.second(cx, &text, now, &mut *emit),
            }
        }
        // Those that were removed have no file any more.
        self.cgroups.retain(|&id, dir| {
            let Ok(text) = fs::read(dir.join("memory.stat")) else { return false };
            // On v1 the sums with the cgroups below have names of their own.
            let of = |name: &str| {
                memory::counter(&text, &format!("total_{name}"))
                    .or_else(|| memory::counter(&text, name))
            };
            emit(Record::Memory(MemoryReading {
                t_ns,
                cgroup: Some(id),
                refaults_file: of("workingset_refault_file"),
                refaults_anon: of("workingset_refault_anon"),
                activated_bytes: of("workingset_activate_file").map(in_bytes),
                restored_bytes: of("workingset_restore_file").map(in_bytes),
                ..MemoryReading::default()
            }));
            true
        });
    }
}

fn in_bytes(pages: u64) -> u64 {
    pages.saturating_mul(page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Known;

    impl Identities for Known {
        fn process(&mut self, of: &Reclaim, alone: bool, _: Emit<'_>) -> ProcId {
            if alone { ProcId(of.tgid) } else { ProcId::OTHERS }
        }

        fn cgroup(&mut self, id: u64, _: Emit<'_>) -> Option<CgroupId> {
            (id < 100).then_some(CgroupId(id))
        }
    }

    fn one(tgid: u32, ns: u64, cgroup: u64) -> Reclaim {
        Reclaim {
            tgid,
            leader_boot_ns: 0,
            comm: Some(*b"dd\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
            kernel: false,
            kind: Kind::Limit,
            bound: Some((cgroup, Bound::Max)),
            limit_and_usage_pages: (16, 15),
            ns,
            known_ns: ns,
            memory_ns: ns / 4,
            off_cpu_ns: ns / 2,
            count: 1,
            longest_ns: ns,
            pages: 32,
        }
    }

    fn ticks_of(all: Vec<Reclaim>) -> Vec<ReclaimTick> {
        let second = Second { half: 0, t0_ns: 0, t1_ns: 1 };
        ticks(all, second, &mut Known, &mut |_| {})
    }

    #[test]
    fn what_is_under_way_leaves_a_process_its_name() {
        let under_way = Reclaim { comm: None, ..one(1, 5, 7) };
        assert_eq!(sighting(&under_way).comm, None);
        assert!(sighting(&one(1, 5, 7)).comm.is_some_and(|comm| comm.starts_with(b"dd\0")));
    }

    #[test]
    fn of_many_processes_nothing_is_lost() {
        let many = KEPT as u32 + 50;
        let told = ticks_of((1..=many).map(|tgid| one(tgid, 1000 + u64::from(tgid), 7)).collect());
        assert_eq!(told.len(), KEPT + 1);
        let sum = |of: fn(&ReclaimTick) -> u64| told.iter().map(of).sum::<u64>();
        let expected: u64 = (1..=many).map(|tgid| 1000 + u64::from(tgid)).sum();
        assert_eq!((sum(|it| it.ns), sum(|it| it.count)), (expected, many.into()));
        let others = told.iter().find(|it| it.proc == ProcId::OTHERS).unwrap();
        assert_eq!((others.count, others.longest_ns), (50, 1050), "the smallest");
    }

    #[test]
    fn what_binds_is_told_by_cgroup_and_a_cgroup_that_is_gone_has_no_name() {
        let told = ticks_of(vec![one(1, 100, 7), one(1, 200, 8), one(1, 300, 700), one(1, 1, 700)]);
        let cgroups: Vec<_> = told.iter().map(|it| (it.cgroup, it.ns)).collect();
        let [seven, eight] = [7, 8].map(|id| Some(CgroupId(id)));
        assert_eq!(cgroups, [(None, 301), (seven, 100), (eight, 200)]);
        assert_eq!(told[0].limit_bytes, Some(16 * page_size() as u64));
    }
}
