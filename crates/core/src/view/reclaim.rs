// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that threads free before they get some: sums by process and by what binds, and who allocates where a limit
//! binds or the host is short of memory, second by second; and who holds the host's memory.

use super::Counter;
use crate::recording::{
    CgroupId, MemoryBound, MemoryHeld, MemoryReading, ProcId, ReclaimKind, ReclaimTick,
};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Processes that are told apart as causes in a second, for each cgroup and the host: those that freed most.
const CAUSES: usize = 20;
/// Pairs of processes that are kept; of others the cause is not named.
const PAIRS: usize = 50_000;

/// What makes reclaim alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReclaimKey {
    /// Why.
    pub kind: ReclaimKind,
    /// Cgroup whose limit binds; `None` = there is none, or it is not known.
    pub cgroup: Option<CgroupId>,
    /// Which limit of it.
    pub bound: Option<MemoryBound>,
}

/// Sums of [`ReclaimTick`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Time from begin to end.
    pub ns: u64,
    /// The part of it of which the next two are known.
    pub known_ns: u64,
    /// The part of that which the ledger has as waiting for memory.
    pub memory_ns: u64,
    /// The part of that which is not time on a CPU.
    pub off_cpu_ns: u64,
    /// How often.
    pub count: u64,
    /// The longest.
    pub longest_ns: u64,
    /// Pages that were freed.
    pub pages: u64,
}

impl Reclaimed {
    /// Adds more of it.
    pub fn add(&mut self, more: &Self) {
        self.ns += more.ns;
        self.known_ns += more.known_ns;
        self.memory_ns += more.memory_ns;
        self.off_cpu_ns += more.off_cpu_ns;
        self.count += more.count;
        self.longest_ns = self.longest_ns.max(more.longest_ns);
        self.pages += more.pages;
    }
}

/// A cgroup whose limit made threads free memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitLevel {
    /// The limit, when it last did.
    pub limit_bytes: Option<u64>,
    /// Usage at the same time.
    pub usage_bytes: Option<u64>,
}

/// Counters of the host's memory, or of a cgroup's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryCounters {
    /// File pages that came back a short while after they were dropped.
    pub refaults_file: Counter,
    /// The same for pages that were swapped out.
    pub refaults_anon: Counter,
    /// File pages that came back so soon that the kernel takes them for needed, in bytes.
    pub activated_bytes: Counter,
    /// Those of them that were in use for longer before, in bytes.
    pub restored_bytes: Counter,
    /// Least free memory of the host at any reading.
    pub least_free_bytes: Option<u64>,
    /// Free memory below which the kernel reclaims in the background.
    pub low_bytes: Option<u64>,
}

impl MemoryCounters {
    /// Bytes of file pages that came back soon, the waiting for which is block IO to the kernel; `None` = not counted.
    #[must_use]
    pub fn read_again_bytes(&self) -> Option<u64> {
        Some(self.activated_bytes.delta()?.saturating_sub(self.restored_bytes.delta()?))
    }

    /// Pages that came back; `None` = not counted.
    #[must_use]
    pub fn refaults(&self) -> Option<u64> {
        match (self.refaults_file.delta(), self.refaults_anon.delta()) {
            (None, None) => None,
            (file, anon) => Some(file.unwrap_or(0).saturating_add(anon.unwrap_or(0))),
        }
    }
}

/// All reclaim of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReclaimView {
    sums: BTreeMap<(ProcId, bool), BTreeMap<ReclaimKey, Reclaimed>>,
    levels: BTreeMap<CgroupId, LimitLevel>,
    counters: BTreeMap<Option<CgroupId>, MemoryCounters>,
    blame: Blame,
    second: Second,
    /// Those of the last look.
    held: Vec<MemoryHeld>,
}

/// Where memory is short: at the limit of a cgroup, or in the whole host (`None`).
type Place = Option<CgroupId>;
/// Time of a process in reclaim, by where, and by whose allocation: (victim, place, cause) -> ns.
type Blame = BTreeMap<(ProcId, Place, ProcId), u64>;

/// Reclaim at limits and for the host in the second that is being read.
#[derive(Clone, Debug, Default, PartialEq)]
struct Second {
    t1_ns: u64,
    at: BTreeMap<Place, Vec<(ProcId, Reclaimed)>>,
}

impl ReclaimView {
    pub(super) fn tick(&mut self, tick: &ReclaimTick) {
        let ReclaimTick { proc, kernel, kind, cgroup, bound, .. } = *tick;
        let of = Reclaimed {
            ns: tick.ns,
            known_ns: tick.known_ns,
            memory_ns: tick.memory_ns,
            off_cpu_ns: tick.off_cpu_ns,
            count: tick.count,
            longest_ns: tick.longest_ns,
            pages: tick.pages,
        };
        let key = ReclaimKey { kind, cgroup, bound };
        self.sums.entry((proc, kernel)).or_default().entry(key).or_default().add(&of);
        let place = match (kind, cgroup) {
            (ReclaimKind::Limit, Some(_)) => cgroup,
            (ReclaimKind::Direct, _) => None,
            _ => return,
        };
        if let Some(cgroup) = place {
            let LimitLevel { limit_bytes, usage_bytes } = self.levels.entry(cgroup).or_default();
            *limit_bytes = tick.limit_bytes.or(*limit_bytes);
            *usage_bytes = tick.usage_bytes.or(*usage_bytes);
        }
        if self.second.t1_ns != tick.t1_ns {
            let ended = std::mem::take(&mut self.second);
            self.second.t1_ns = tick.t1_ns;
            blame(&ended, &mut self.blame);
        }
        if !kernel {
            self.second.at.entry(place).or_default().push((proc, of));
        }
    }

    pub(super) fn reading(&mut self, reading: &MemoryReading) {
        let counters = self.counters.entry(reading.cgroup).or_default();
        counters.refaults_file.push(reading.refaults_file);
        counters.refaults_anon.push(reading.refaults_anon);
        counters.activated_bytes.push(reading.activated_bytes);
        counters.restored_bytes.push(reading.restored_bytes);
        let least = [counters.least_free_bytes, reading.free_bytes].into_iter().flatten().min();
        counters.least_free_bytes = least;
        counters.low_bytes = reading.low_bytes.or(counters.low_bytes);
    }

    pub(super) fn holds(&mut self, held: &MemoryHeld) {
        if self.held.last().is_some_and(|last| last.t_ns != held.t_ns) {
            self.held.clear();
        }
        self.held.push(*held);
    }

    /// What processes held of the host's memory when that was looked at last; none if the host was never short of it, or that was
    /// not recorded.
    #[must_use]
    pub fn held(&self) -> &[MemoryHeld] {
        &self.held
    }

    /// What a process did, by why.
    pub fn of(&self, proc: ProcId) -> impl Iterator<Item = (ReclaimKey, Reclaimed)> + '_ {
        let of_process = self.sums.range((proc, false)..=(proc, true));
        of_process.flat_map(|(_, sums)| sums.iter().map(|(key, sum)| (*key, *sum)))
    }

    /// How often anybody did, of all kinds.
    #[must_use]
    pub fn count(&self) -> u64 {
        let sums = self.sums.values().flat_map(BTreeMap::values);
        sums.map(|of| of.count).fold(0, u64::saturating_add)
    }

    /// Time of that kind which threads of the kernel spent, for nobody in particular.
    #[must_use]
    pub fn of_kernel_ns(&self, kind: ReclaimKind) -> u64 {
        let of_kernel = self.sums.iter().filter(|((_, kernel), _)| *kernel);
        let sums = of_kernel.flat_map(|(_, sums)| sums.iter());
        sums.filter(|(key, _)| key.kind == kind).map(|(_, sum)| sum.ns).sum()
    }

    /// Pages that anybody freed at the limits of a cgroup.
    #[must_use]
    pub fn freed_at(&self, cgroup: CgroupId) -> u64 {
        let sums = self.sums.values().flatten();
        let there =
            sums.filter(|(key, _)| key.kind == ReclaimKind::Limit && key.cgroup == Some(cgroup));
        there.map(|(_, of)| of.pages).fold(0, u64::saturating_add)
    }

    /// The cgroup as its limit last made a thread free memory.
    #[must_use]
    pub fn level(&self, cgroup: CgroupId) -> LimitLevel {
        self.levels.get(&cgroup).copied().unwrap_or_default()
    }

    /// The counters of a cgroup, or of the host; `None` = not recorded.
    #[must_use]
    pub fn counters(&self, cgroup: Option<CgroupId>) -> Option<&MemoryCounters> {
        self.counters.get(&cgroup)
    }

    /// Time that these processes spent at the limit of a cgroup, or freeing the host's memory (`None`), by whose allocation: in
    /// each second it is shared by the pages that each process had to free there. [`ProcId::OTHERS`] = not told apart.
    #[must_use]
    pub fn blame(&self, victims: &[ProcId], place: Option<CgroupId>) -> BTreeMap<ProcId, u64> {
        let mut last = BTreeMap::new();
        blame(&self.second, &mut last);
        let mut sum: BTreeMap<ProcId, u64> = BTreeMap::new();
        for map in [&self.blame, &last] {
            for &victim in victims {
                let range = (victim, place, ProcId(0))..=(victim, place, ProcId(u32::MAX));
                for (&(_, _, cause), ns) in map.range(range) {
                    *sum.entry(cause).or_default() += ns;
                }
            }
        }
        sum
    }
}

/// Divides the time of each process in reclaim among those that freed pages at the same place in the same second.
fn blame(second: &Second, to: &mut Blame) {
    for (&place, ticks) in &second.at {
        // Where nothing could be freed, the number of attempts is what there is.
        let freed = ticks.iter().any(|(_, of)| of.pages > 0);
        let amount = |of: &Reclaimed| if freed { of.pages } else { of.count };
        let all = ticks.iter().fold(0_u64, |sum, (_, of)| sum.saturating_add(amount(of))).max(1);
        let mut causes: Vec<(ProcId, u64)> =
            ticks.iter().map(|(proc, of)| (*proc, amount(of))).collect();
        causes.sort_by_key(|&(proc, amount)| (Reverse(amount), proc));
        let rest: u64 = causes.drain(CAUSES.min(causes.len())..).map(|(_, amount)| amount).sum();
        causes.push((ProcId::OTHERS, rest));
        for (victim, of) in ticks.iter().filter(|(_, of)| of.ns > 0) {
            for &(cause, amount) in causes.iter().filter(|(_, amount)| *amount > 0) {
                let ns = (u128::from(of.ns) * u128::from(amount) / u128::from(all)) as u64;
                let mut key = (*victim, place, cause);
                if to.len() >= PAIRS && !to.contains_key(&key) {
                    key.2 = ProcId::OTHERS;
                }
                *to.entry(key).or_default() += ns;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: CgroupId = CgroupId(7);

    fn tick(second: u64, proc: u32, ns: u64, pages: u64) -> ReclaimTick {
        ReclaimTick {
            t0_ns: second,
            t1_ns: second + 1,
            proc: ProcId(proc),
            kernel: false,
            kind: ReclaimKind::Limit,
            cgroup: Some(AT),
            bound: Some(MemoryBound::Max),
            limit_bytes: Some(100),
            usage_bytes: Some(99),
            ns,
            known_ns: ns,
            memory_ns: 0,
            off_cpu_ns: 0,
            count: 1,
            longest_ns: ns,
            pages,
        }
    }

    fn view(ticks: &[ReclaimTick]) -> ReclaimView {
        let mut view = ReclaimView::default();
        ticks.iter().for_each(|one| view.tick(one));
        view
    }

    #[test]
    fn who_allocates_in_another_second_is_no_cause() {
        let view = view(&[
            tick(0, 1, 1000, 10),
            tick(0, 2, 50, 30),
            tick(1, 3, 5000, 9999),
            tick(2, 1, 400, 1),
        ]);
        let causes = view.blame(&[ProcId(1)], Some(AT));
        assert_eq!(causes, [(ProcId(1), 250 + 400), (ProcId(2), 750)].into());
        assert_eq!(view.blame(&[ProcId(1)], Some(CgroupId(8))), BTreeMap::new());
    }

    #[test]
    fn who_held_memory_at_an_earlier_look_only_does_not_count() {
        let mut view = view(&[]);
        for (t_ns, proc) in [(10, 3), (10, 4), (20, 4), (20, 5)] {
            let (proc, grown_bytes) = (ProcId(proc), Some(t_ns));
            view.holds(&MemoryHeld {
                t_ns,
                proc,
                anon_bytes: 50,
                swapped_bytes: None,
                grown_bytes,
            });
        }
        let held: Vec<_> = view.held().iter().map(|it| (it.proc.0, it.grown_bytes)).collect();
        assert_eq!(held, [(4, Some(20)), (5, Some(20))]);
    }

    /// A neighbour that frees memory at a limit of its own allocates nothing of the host's.
    #[test]
    fn who_frees_the_hosts_memory_is_told_apart_from_who_is_at_a_limit() {
        let of_host = |proc, ns, pages| ReclaimTick {
            kind: ReclaimKind::Direct,
            cgroup: None,
            ..tick(0, proc, ns, pages)
        };
        let moved = ReclaimTick { kind: ReclaimKind::Compaction, ..of_host(4, 70, 0) };
        let all = [of_host(1, 1000, 10), of_host(2, 50, 30), tick(0, 3, 7, 9999), moved];
        let view = view(&all);
        let causes = view.blame(&[ProcId(1)], None);
        assert_eq!(causes, [(ProcId(1), 250), (ProcId(2), 750)].into());
        assert_eq!(view.blame(&[ProcId(1)], Some(AT)), BTreeMap::new());
        assert_eq!(view.blame(&[ProcId(4)], None), BTreeMap::new(), "moving memory is no reclaim");
    }

    #[test]
    fn what_all_freed_at_a_limit_is_summed() {
        let mut other = tick(0, 3, 1, 500);
        other.cgroup = Some(CgroupId(8));
        let view = view(&[tick(0, 1, 1000, 10), tick(1, 1, 5, 7), tick(1, 2, 50, 30), other]);
        assert_eq!([AT, CgroupId(8), CgroupId(9)].map(|id| view.freed_at(id)), [47, 500, 0]);
    }

    #[test]
    fn where_nothing_can_be_freed_attempts_count() {
        let causes = view(&[tick(0, 1, 900, 0), tick(0, 2, 1, 0)]).blame(&[ProcId(1)], Some(AT));
        assert_eq!(causes, [(ProcId(1), 450), (ProcId(2), 450)].into());
    }

    #[test]
    fn causes_beyond_the_largest_are_summed() {
        let ticks: Vec<_> =
            (1..=40).map(|proc| tick(0, proc, 4000, 100 - u64::from(proc))).collect();
        let causes = view(&ticks).blame(&[ProcId(40)], Some(AT));
        assert_eq!(causes.len(), CAUSES + 1);
        let sum: u64 = causes.values().sum();
        assert!((3900..=4000).contains(&sum), "{sum}");
    }

    #[test]
    fn the_kernels_own_threads_are_told_apart() {
        let mut own =
            ReclaimTick { kernel: true, kind: ReclaimKind::Compaction, ..tick(0, 5, 70, 0) };
        own.cgroup = None;
        let view = view(&[own, tick(0, 1, 10, 1)]);
        assert_eq!(view.of_kernel_ns(ReclaimKind::Compaction), 70);
        assert_eq!(view.of_kernel_ns(ReclaimKind::Limit), 0);
        assert_eq!(view.of(ProcId(5)).map(|(_, of)| of.ns).sum::<u64>(), 70);
    }
}
