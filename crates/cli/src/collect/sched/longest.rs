// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The longest waits of a second, each whole: what the thread waited behind, how long it was throttled, and when.

use super::long_waits::{LongWaits, WaitPart};
use deburr_bpf::sched::{LastMove, ProbeCulprit, Run, SchedProbe, Waiter};
use std::collections::{BTreeMap, BTreeSet};

/// Shorter waits are not told one by one.
const MIN_WAIT_NS: u64 = 1_000_000;
/// Number of processes outside the target, those with the longest waits, of which one is told in a second.
const OTHERS: usize = 50;

/// A wait, with all that is known of what it was behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WholeWait {
    pub(super) tid: u32,
    /// Length, in run queues and throttled.
    pub(super) wait_ns: u64,
    pub(super) throttled_ns: u64,
    /// When it ended, on the run queues' clock.
    pub(super) until_ns: u64,
    /// Nanoseconds behind each. They sum to what the thread was not throttled.
    pub(super) parts: BTreeMap<ProbeCulprit, u64>,
}

/// The longest wait of each process since they were last taken.
#[derive(Debug, Default)]
pub(super) struct LongestWaits {
    /// Of waits that began before this time of the run queues' clock only a part is known.
    known_from_ns: u64,
    /// Threads are throttled one by one, before they are queued. Otherwise a whole group is, while its threads are queued,
    /// and when within the wait that was is not known.
    one_by_one: bool,
    longest: BTreeMap<u32, WholeWait>,
    /// Waits that ended since the last look, with the CPU whose run queue they ended in.
    ended: BTreeMap<u32, (usize, Run)>,
}

impl LongestWaits {
    /// Starts at that time of the run queues' clock.
    pub(super) fn begin(known_from_ns: u64, one_by_one: bool) -> Self {
        Self { known_from_ns, one_by_one, ..Self::default() }
    }

    /// Adds a stay on a CPU, which began with the end of a wait.
    pub(super) fn ran(&mut self, cpu: usize, run: Run) {
        let wait_ns = length_ns(&run);
        let from_ns = run.start_ns.saturating_sub(wait_ns);
        // What a wait lasted before the window is not in its length.
        if run.tid == 0 || wait_ns < MIN_WAIT_NS || from_ns <= self.known_from_ns {
            return;
        }
        // Only now: most stays follow a short wait.
        if self.longest.get(&run.tgid).is_some_and(|told| told.wait_ns >= wait_ns) {
            return;
        }
        let longest = self.ended.entry(run.tgid).or_insert((cpu, run));
        if wait_ns > length_ns(&longest.1) {
            *longest = (cpu, run);
        }
    }

    /// Looks up what the waits that ended were behind. All that ran until now must have been added to `history`.
    pub(super) fn look(&mut self, probe: &SchedProbe, history: &LongWaits) {
        for (tgid, (cpu, run)) in std::mem::take(&mut self.ended) {
            let parts = if run.throttled_ns > 0 && !self.one_by_one {
                BTreeMap::from([(ProbeCulprit::NotSampled, run.queued_ns)])
            } else {
                let parts = parts_of(cpu, &run, probe.last_move(run.tid));
                sum(parts.into_iter().map(|part| history.behind(part)))
            };
            let wait = WholeWait {
                tid: run.tid,
                wait_ns: length_ns(&run),
                throttled_ns: run.throttled_ns,
                until_ns: run.start_ns,
                parts,
            };
            self.longest.insert(tgid, wait);
        }
    }

    /// Adds a wait that is in progress at the end of the window, which is at that time of the run queues' clock.
    pub(super) fn waits(&mut self, waiter: &Waiter, at_ns: u64) {
        let Waiter { tid, tgid, queued_ns, throttled_ns, cpu, .. } = *waiter;
        self.ran(cpu, Run { tid, tgid, start_ns: at_ns, end_ns: at_ns, queued_ns, throttled_ns });
    }

    /// Takes the longest waits by process: those of the target, and of others those of the processes that waited longest.
    pub(super) fn take(&mut self, target: &BTreeSet<u32>) -> BTreeMap<u32, WholeWait> {
        let all = std::mem::take(&mut self.longest);
        let (mut told, mut others): (BTreeMap<_, _>, Vec<_>) = (BTreeMap::new(), Vec::new());
        for (tgid, wait) in all {
            if target.contains(&tgid) {
                told.insert(tgid, wait);
            } else {
                others.push((tgid, wait));
            }
        }
        others.sort_by_key(|(tgid, wait)| (std::cmp::Reverse(wait.wait_ns), *tgid));
        told.extend(others.into_iter().take(OTHERS));
        told
    }
}

/// Length of the wait before this stay, in run queues and throttled.
fn length_ns(run: &Run) -> u64 {
    run.queued_ns.saturating_add(run.throttled_ns)
}

fn sum(parts: impl Iterator<Item = BTreeMap<ProbeCulprit, u64>>) -> BTreeMap<ProbeCulprit, u64> {
    let mut sums = BTreeMap::new();
    for (behind, ns) in parts.flatten() {
        *sums.entry(behind).or_insert(0) += ns;
    }
    sums
}

/// In which run queues a wait was spent that ended with this stay on that CPU. Where the thread was before the last move
/// but one is not known, and nothing is if it was moved again since.
fn parts_of(cpu: usize, run: &Run, moved: Option<LastMove>) -> Vec<WaitPart> {
    let from_ns = run.start_ns.saturating_sub(run.queued_ns);
    let part = |cpu, from_ns, to_ns| WaitPart { cpu, from_ns, to_ns };
    let all = match moved {
        Some(moved) if moved.at_ns > run.start_ns => vec![part(None, from_ns, run.start_ns)],
        Some(moved) if moved.at_ns > from_ns => {
            let stayed_ns = moved.stayed_ns.unwrap_or(u64::MAX);
            let there_ns = moved.at_ns.saturating_sub(stayed_ns).max(from_ns);
            vec![
                part(None, from_ns, there_ns),
                part(Some(moved.from_cpu), there_ns, moved.at_ns),
                part(Some(cpu), moved.at_ns, run.start_ns),
            ]
        }
        _ => vec![part(Some(cpu), from_ns, run.start_ns)],
    };
    all.into_iter().filter(|part| part.to_ns > part.from_ns).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(tgid: u32, start_ns: u64, queued_ns: u64) -> Run {
        Run { tid: tgid, tgid, start_ns, end_ns: start_ns + 10, queued_ns, throttled_ns: 0 }
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn only_long_waits_that_began_in_the_window_are_candidates() {
        let mut waits = LongestWaits::begin(100 * MS, true);
        waits.ran(0, run(7, 110 * MS, 10 * MS));
        waits.ran(0, run(7, 110 * MS, MS - 1));
        waits.ran(0, Run { tid: 0, ..run(0, 150 * MS, 5 * MS) });
        assert!(waits.ended.is_empty());
        waits.ran(1, run(7, 120 * MS, 5 * MS));
        waits.ran(0, run(7, 130 * MS, 4 * MS));
        assert_eq!(waits.ended[&7], (1, run(7, 120 * MS, 5 * MS)));
        let throttled = Run { throttled_ns: 4 * MS, ..run(7, 140 * MS, 2 * MS) };
        waits.ran(0, throttled);
        assert_eq!(waits.ended[&7], (0, throttled), "throttled time is a part of the wait");
        waits.ran(0, Run { throttled_ns: 40 * MS, ..run(7, 140 * MS, 2 * MS) });
        assert_eq!(waits.ended[&7], (0, throttled), "that one began before the window");
    }

    #[test]
    fn the_target_is_told_of_and_the_worst_others() {
        let mut waits = LongestWaits::begin(0, true);
        for tgid in 1..200 {
            let wait = WholeWait {
                tid: tgid,
                wait_ns: u64::from(tgid),
                throttled_ns: 0,
                until_ns: 0,
                parts: BTreeMap::new(),
            };
            waits.longest.insert(tgid, wait);
        }
        let told = waits.take(&BTreeSet::from([1]));
        assert_eq!(told.len(), 1 + OTHERS);
        assert!(told.contains_key(&1) && told.contains_key(&199) && !told.contains_key(&2));
        assert!(waits.take(&BTreeSet::new()).is_empty(), "each is told once");
    }

    #[test]
    fn a_wait_is_told_by_run_queues() {
        let wait = run(7, 100, 50);
        let told = |moved| {
            let parts = parts_of(1, &wait, moved);
            parts.into_iter().map(|part| (part.cpu, part.from_ns, part.to_ns)).collect::<Vec<_>>()
        };
        let moved = |at_ns, stayed_ns| Some(LastMove { from_cpu: 0, at_ns, stayed_ns });
        assert_eq!(told(None), [(Some(1), 50, 100)]);
        assert_eq!(told(moved(50, None)), [(Some(1), 50, 100)], "it was moved before");
        assert_eq!(told(moved(80, None)), [(Some(0), 50, 80), (Some(1), 80, 100)]);
        assert_eq!(
            told(moved(80, Some(10))),
            [(None, 50, 70), (Some(0), 70, 80), (Some(1), 80, 100)],
            "it was moved twice"
        );
        assert_eq!(told(moved(101, None)), [(None, 50, 100)], "it was moved in a later wait");
    }

    proptest! {
        #[test]
        fn parts_sum_to_the_wait(
            start_ns in 0u64..1000, queued_ns in 0u64..1000, at_ns in 0u64..2000, stayed in prop::option::of(0u64..2000),
        ) {
            let wait = run(7, start_ns, queued_ns.min(start_ns));
            let moved = LastMove { from_cpu: 0, at_ns, stayed_ns: stayed };
            let parts = parts_of(1, &wait, Some(moved));
            let sum: u64 = parts.iter().map(|part| part.to_ns - part.from_ns).sum();
            prop_assert_eq!(sum, wait.queued_ns);
            prop_assert!(parts.windows(2).all(|pair| pair[0].to_ns == pair[1].from_ns));
        }
    }
}
