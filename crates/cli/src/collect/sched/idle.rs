// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Were other CPUs idle while a thread waited in a run queue? Compares long waits with the idle intervals of all CPUs.

use super::wait_selection::choose;
use deburr_bpf::sched::{LastMove, Run};
use deburr_core::recording::IdleCpu;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Shorter waits are ignored: a wake-up alone takes tens of microseconds.
pub(super) const MIN_WAIT_NS: u64 = 100_000;
/// Maximum number of waits examined per bin of 100 ms. On 128 CPUs that bounds the work to some 1 % of a CPU.
const WAITS_PER_BIN: usize = 500;
/// Idle intervals are kept for this long; a wait that began earlier is compared with those that are left.
const MEMORY_NS: u64 = 5_000_000_000;
/// Maximum number of idle intervals kept per CPU.
const STRETCHES: usize = 4096;

/// Idle CPUs during the run-queue waits of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct IdleSum {
    /// Number of waits examined.
    pub(super) waits: u64,
    pub(super) waits_ns: u64,
    /// Total length of waits that were not examined: the budget was spent, or the thread was gone.
    pub(super) skipped_ns: u64,
    /// The part of `waits_ns` in which some CPU that the thread may use was idle.
    pub(super) allowed_ns: u64,
    /// The part of `waits_ns` in which no allowed CPU was idle, but another CPU was.
    pub(super) forbidden_ns: u64,
    /// Idle time of each CPU during the waits: (CPU, whether the thread may use it) -> nanoseconds.
    pub(super) cpus: BTreeMap<(u32, bool), u64>,
}

impl IdleSum {
    pub(super) fn merge(&mut self, other: &Self) {
        self.waits += other.waits;
        self.waits_ns += other.waits_ns;
        self.skipped_ns += other.skipped_ns;
        self.allowed_ns += other.allowed_ns;
        self.forbidden_ns += other.forbidden_ns;
        for (key, ns) in &other.cpus {
            *self.cpus.entry(*key).or_insert(0) += ns;
        }
    }

    /// The idle time of each CPU, in the form of a record.
    pub(super) fn idle_cpus(&self) -> Vec<IdleCpu> {
        self.cpus
            .iter()
            .map(|(&(cpu, allowed), &idle_ns)| IdleCpu { cpu, allowed, idle_ns })
            .collect()
    }
}

/// Idle intervals `(start_ns, end_ns)`, in ascending order.
type IdleIntervals = VecDeque<(u64, u64)>;

/// Compares waits with the idle intervals of all CPUs.
pub(super) struct IdleFinder {
    idle: Vec<IdleIntervals>,
    sums: BTreeMap<u32, IdleSum>,
    /// Waits that ended since the last look, with the CPU of the run queue. The probe keeps 4096 stays per CPU, which
    /// bounds their number.
    waits: Vec<(usize, Run)>,
    looks: usize,
}

impl IdleFinder {
    /// Starts without history, for that many CPUs.
    pub(super) fn begin(cpus: usize) -> Self {
        let idle = vec![IdleIntervals::new(); cpus];
        Self { idle, sums: BTreeMap::new(), waits: Vec::new(), looks: 0 }
    }

    /// Adds a stay on a CPU that ended since the last look: an idle interval, or a thread with the wait before it.
    pub(super) fn ran(&mut self, cpu: usize, run: Run) {
        if run.tid == 0 {
            self.idles(cpu, run.start_ns, run.end_ns);
        } else if run.queued_ns >= MIN_WAIT_NS {
            self.waits.push((cpu, run));
        }
    }

    /// Adds an idle interval of that CPU, which may still be in progress.
    pub(super) fn idles(&mut self, cpu: usize, start_ns: u64, end_ns: u64) {
        if let Some(idle) = self.idle.get_mut(cpu) {
            push(idle, start_ns, end_ns);
        }
    }

    /// Drops old idle intervals, and examines the waits that ended since the last look, those of the target's processes
    /// first. `last_move` tells from which CPU's run queue a thread was moved last while it waited, and when.
    pub(super) fn look(
        &mut self,
        now_ns: u64,
        target: &BTreeSet<u32>,
        last_move: &dyn Fn(u32) -> Option<LastMove>,
    ) {
        for idle in &mut self.idle {
            while idle.len() > STRETCHES
                || idle.front().is_some_and(|stretch| stretch.1 + MEMORY_NS < now_ns)
            {
                idle.pop_front();
            }
        }
        let mut waits = std::mem::take(&mut self.waits);
        let chosen = choose(&mut waits, target, WAITS_PER_BIN, self.looks);
        self.looks = self.looks.wrapping_add(1);
        for ((cpu, run), chosen) in waits.into_iter().zip(chosen) {
            let sum = self.sums.entry(run.tgid).or_default();
            if !chosen {
                sum.skipped_ns += run.queued_ns;
                continue;
            }
            let from = run.start_ns.saturating_sub(run.queued_ns);
            let wait = (from, run.start_ns);
            let stays = stays(&self.idle, cpu, wait, || last_move(run.tid));
            lay_over(sum, &self.idle, &stays, &mut || affinity(run.tid));
        }
    }

    /// Takes the sums since the last call, by thread-group id.
    pub(super) fn take(&mut self) -> BTreeMap<u32, IdleSum> {
        std::mem::take(&mut self.sums)
    }
}

/// Appends an interval, or extends the last one: an interval that was in progress is added again when it has ended.
fn push(idle: &mut IdleIntervals, start: u64, end: u64) {
    if let Some(last) = idle.back_mut()
        && last.1 >= start
    {
        last.1 = last.1.max(end);
        return;
    }
    if end > start {
        idle.push_back((start, end));
    }
}

/// The CPU affinity of a thread; `None` if the thread is gone.
fn affinity(tid: u32) -> Option<CpuSet> {
    sched_getaffinity(Pid::from_raw(tid.cast_signed())).ok()
}

/// A part of a wait: in the run queue of that CPU, from, to.
type QueuedInterval = (usize, (u64, u64));

/// The run queues that a thread was on during a wait that ended on CPU `last`: two, if it was moved meanwhile. That is
/// only asked if that CPU idled during the wait: no other answer changes anything.
fn stays(
    idle: &[IdleIntervals],
    last: usize,
    wait: (u64, u64),
    last_move: impl Fn() -> Option<LastMove>,
) -> Vec<QueuedInterval> {
    let idled = idle.get(last).is_some_and(|stretches| !overlaps(stretches, wait).is_empty());
    match idled.then(last_move).flatten() {
        // A later move is of another wait.
        Some(LastMove { from_cpu, at_ns, .. }) if wait.0 < at_ns && at_ns <= wait.1 => {
            vec![(from_cpu, (wait.0, at_ns)), (last, (at_ns, wait.1))]
        }
        _ => vec![(last, wait)],
    }
}

/// Adds one wait: which CPUs were idle during it, other than the one whose run queue the thread was on. The thread's
/// affinity is only read when one was.
fn lay_over(
    sum: &mut IdleSum,
    idle: &[IdleIntervals],
    stays: &[QueuedInterval],
    affinity: &mut dyn FnMut() -> Option<CpuSet>,
) {
    let wait_ns: u64 = stays.iter().map(|(_, (from, to))| to - from).sum();
    let mut allowed_cpus: Option<CpuSet> = None;
    let (mut allowed, mut any) = (Vec::new(), Vec::new());
    for (cpu, stretches) in idle.iter().enumerate() {
        let elsewhere = stays.iter().filter(|(own, _)| *own != cpu);
        let parts: Vec<_> = elsewhere.flat_map(|(_, part)| overlaps(stretches, *part)).collect();
        let ns: u64 = parts.iter().map(|part| part.1 - part.0).sum();
        if ns == 0 {
            continue;
        }
        if allowed_cpus.is_none() {
            allowed_cpus = affinity();
        }
        // The affinity of a thread that is gone is unknown.
        let Some(set) = &allowed_cpus else {
            sum.skipped_ns += wait_ns;
            return;
        };
        let may = cpu < CpuSet::MAX_CPU && set.is_set(cpu);
        let number = u32::try_from(cpu).unwrap_or(u32::MAX);
        *sum.cpus.entry((number, may)).or_insert(0) += ns;
        if may {
            allowed.extend_from_slice(&parts);
        }
        any.extend(parts);
    }
    sum.waits += 1;
    sum.waits_ns += wait_ns;
    let allowed_ns = union(&mut allowed);
    sum.allowed_ns += allowed_ns;
    sum.forbidden_ns += union(&mut any) - allowed_ns;
}

/// The parts of a wait in which that CPU was idle.
fn overlaps(stretches: &IdleIntervals, wait: (u64, u64)) -> Vec<(u64, u64)> {
    let first = stretches.partition_point(|stretch| stretch.1 <= wait.0);
    stretches
        .range(first..)
        .take_while(|stretch| stretch.0 < wait.1)
        .map(|stretch| (stretch.0.max(wait.0), stretch.1.min(wait.1)))
        .collect()
}

/// Time covered by at least one of the parts.
fn union(parts: &mut [(u64, u64)]) -> u64 {
    parts.sort_unstable();
    let (mut covered, mut end) = (0, 0);
    for &(from, to) in parts.iter() {
        let from = from.max(end);
        if to > from {
            covered += to - from;
            end = to;
        }
    }
    covered
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn only(cpus: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        for &cpu in cpus {
            set.set(cpu);
        }
        set
    }

    #[test]
    fn a_pinned_thread_waits_while_a_forbidden_cpu_idles() {
        let idle = vec![IdleIntervals::new(), IdleIntervals::from([(0, 50), (80, 200)])];
        let mut sum = IdleSum::default();
        lay_over(&mut sum, &idle, &[(0, (10, 110))], &mut || Some(only(&[0])));
        assert_eq!((sum.waits, sum.waits_ns, sum.allowed_ns, sum.forbidden_ns), (1, 100, 0, 70));
        assert_eq!(sum.cpus, BTreeMap::from([((1, false), 70)]));
    }

    #[test]
    fn an_allowed_idle_cpu_hides_a_forbidden_one() {
        let idle = vec![
            IdleIntervals::new(),
            IdleIntervals::from([(0, 60)]),
            IdleIntervals::from([(40, 100)]),
        ];
        let mut sum = IdleSum::default();
        lay_over(&mut sum, &idle, &[(0, (0, 100))], &mut || Some(only(&[0, 1])));
        assert_eq!((sum.allowed_ns, sum.forbidden_ns), (60, 40));
    }

    #[test]
    fn nobody_is_asked_when_no_cpu_idled() {
        let idle = vec![IdleIntervals::from([(0, 100)]), IdleIntervals::new()];
        let mut sum = IdleSum::default();
        lay_over(&mut sum, &idle, &[(0, (0, 100))], &mut || panic!("asked"));
        assert_eq!((sum.allowed_ns, sum.forbidden_ns), (0, 0));
    }

    #[test]
    fn the_cpu_that_ended_a_wait_was_idle_for_it_until_the_thread_was_moved_there() {
        let idle = vec![IdleIntervals::new(), IdleIntervals::from([(0, 400)])];
        let sum_of = |moved: Option<(usize, u64)>| {
            let last_move =
                moved.map(|(from_cpu, at_ns)| LastMove { from_cpu, at_ns, stayed_ns: None });
            let mut sum = IdleSum::default();
            let stays = stays(&idle, 1, (0, 400), || last_move);
            lay_over(&mut sum, &idle, &stays, &mut || Some(only(&[0, 1])));
            (sum.waits, sum.waits_ns, sum.allowed_ns)
        };
        assert_eq!(sum_of(Some((0, 390))), (1, 400, 390));
        assert_eq!(sum_of(None), (1, 400, 0), "it woke up there");
        assert_eq!(sum_of(Some((0, 500))), (1, 400, 0), "it was moved later");
        let asked = stays(&idle, 0, (0, 400), || panic!("asked"));
        assert_eq!(asked, [(0, (0, 400))]);
    }

    #[test]
    fn a_wait_of_a_thread_that_is_gone_counts_as_not_looked_at() {
        let idle = vec![IdleIntervals::new(), IdleIntervals::from([(0, 100)])];
        let mut sum = IdleSum::default();
        lay_over(&mut sum, &idle, &[(0, (0, 100))], &mut || None);
        assert_eq!(sum, IdleSum { skipped_ns: 100, ..IdleSum::default() });
    }

    #[test]
    fn waits_beyond_the_budget_are_counted() {
        let mut finder = IdleFinder::begin(2);
        let run = |tgid| Run {
            tid: tgid,
            tgid,
            start_ns: 500_000,
            end_ns: 600_000,
            queued_ns: 200_000,
            throttled_ns: 0,
        };
        for _ in 0..2 * WAITS_PER_BIN {
            finder.ran(0, run(7));
        }
        finder.ran(1, run(8));
        finder.look(1_000_000, &BTreeSet::from([8]), &|_| None);
        let sums = finder.take();
        assert_eq!((sums[&8].waits, sums[&8].skipped_ns), (1, 0));
        assert_eq!(sums[&7].waits, WAITS_PER_BIN as u64 - 1);
        assert_eq!(sums[&7].waits_ns + sums[&7].skipped_ns, 2 * WAITS_PER_BIN as u64 * 200_000);
    }

    #[test]
    fn a_stretch_in_progress_is_counted_once() {
        let mut idle = IdleIntervals::new();
        push(&mut idle, 10, 20);
        push(&mut idle, 10, 30);
        push(&mut idle, 40, 50);
        assert_eq!(idle, [(10, 30), (40, 50)]);
    }

    proptest! {
        #[test]
        fn the_union_is_what_a_bitmap_says(parts in prop::collection::vec((0u64..100, 0u64..100), 0..20)) {
            let mut parts: Vec<_> = parts.into_iter().filter(|part| part.0 < part.1).collect();
            let expected =
                (0..100).filter(|t| parts.iter().any(|part| part.0 <= *t && *t < part.1)).count();
            prop_assert_eq!(union(&mut parts), expected as u64);
        }
    }
}
