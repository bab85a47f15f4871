// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blame for run-queue waits that are still in progress: what ran on the same CPU meanwhile, bin by bin.
//!
//! The probe attributes a wait when it is over. A long wait would then appear all at once in the second in which it
//! ends, or never if the window ends first. So at each look the exact part before the look is attributed, and the
//! probe's record of the wait is marked, so that its end adds only the rest.

use deburr_bpf::sched::{LONG_WAIT_NS, ProbeCulprit, Run, SchedProbe, Sums, Waiter, Waiting};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Maximum number of stays kept per CPU, 200 kB. Stays that no later look can need are dropped at once.
const STAYS: usize = 1 << 13;
/// Number of stays that are kept for longer, for waits that are told whole when they are over.
const STAYS_OF_WHOLE_WAITS: usize = 1 << 10;
/// How long these are kept.
const KEPT_NS: u64 = 2_000_000_000;

/// A stay of a process on a CPU, from switch-in to switch-out; thread-group id 0 is the idle thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CpuRun {
    start_ns: u64,
    end_ns: u64,
    tgid: u32,
}

/// The latest stays on each CPU, in order of time.
#[derive(Debug, Default)]
struct RunHistory {
    cpus: Vec<VecDeque<CpuRun>>,
}

impl RunHistory {
    fn push(&mut self, cpu: usize, stay: CpuRun) {
        let Some(stays) = self.cpus.get_mut(cpu) else { return };
        // A stay in progress is pushed at each look, each time with a later end.
        if let Some(last) = stays.back_mut()
            && last.start_ns == stay.start_ns
            && last.tgid == stay.tgid
        {
            last.end_ns = stay.end_ns;
        } else {
            // After a missed switch stays overlap. Cut the earlier one, so that no time is counted twice.
            if let Some(last) = stays.back_mut() {
                last.end_ns = last.end_ns.min(stay.start_ns);
            }
            stays.push_back(stay);
        }
        if stays.len() > STAYS {
            stays.pop_front();
        }
    }

    /// Drops stays that ended before `before_ns`, but for the latest that ended less than [`KEPT_NS`] before.
    fn forget(&mut self, before_ns: u64) {
        for stays in &mut self.cpus {
            let gone = |before_ns| stays.partition_point(|stay| stay.end_ns < before_ns);
            let most = stays.len().saturating_sub(STAYS_OF_WHOLE_WAITS);
            let gone = gone(before_ns).min(most).max(gone(before_ns.saturating_sub(KEPT_NS)));
            stays.drain(..gone);
        }
    }

    /// What ran on that CPU in `[from_ns, to_ns)`, in nanoseconds each.
    fn ran(&self, cpu: usize, from_ns: u64, to_ns: u64) -> BTreeMap<ProbeCulprit, u64> {
        let mut sums = BTreeMap::new();
        let Some(stays) = self.cpus.get(cpu) else { return sums };
        let first = stays.partition_point(|stay| stay.end_ns <= from_ns);
        for stay in stays.range(first..).take_while(|stay| stay.start_ns < to_ns) {
            let ns = stay.end_ns.min(to_ns).saturating_sub(stay.start_ns.max(from_ns));
            let behind =
                if stay.tgid == 0 { ProbeCulprit::Idle } else { ProbeCulprit::Process(stay.tgid) };
            *sums.entry(behind).or_insert(0) += ns;
        }
        sums
    }
}

/// A part `[from_ns, to_ns)` of a wait, in the run queue of `cpu`; `None` = in an unknown run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct WaitPart {
    pub(super) cpu: Option<usize>,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
}

/// Attributes waits in progress to what ran on their CPUs.
#[derive(Debug)]
pub(super) struct LongWaits {
    history: RunHistory,
}

impl LongWaits {
    /// Starts without history, for that many CPUs.
    pub(super) fn begin(cpus: usize) -> Self {
        Self { history: RunHistory { cpus: vec![VecDeque::new(); cpus] } }
    }

    /// Adds a stay that ended or is in progress.
    pub(super) fn ran(&mut self, cpu: usize, run: Run) {
        let Run { start_ns, end_ns, tgid, .. } = run;
        self.history.push(cpu, CpuRun { start_ns, end_ns, tgid });
    }

    /// Blame for the time by which waits in progress grew since they were last attributed. Waits shorter than
    /// [`LONG_WAIT_NS`] are left out unless `all` is set, which is for the last look. Time without a known stay is
    /// [`Behind::NotSampled`].
    pub(super) fn tell(&mut self, probe: &SchedProbe, waiting: &Waiting, all: bool) -> Sums {
        let mut sums = Sums::new();
        let mut known = HashMap::new();
        let waiters: Vec<Waiter> = waiting.queued(probe).collect();
        for waiter in waiters.iter().filter(|waiter| all || waiter.queued_ns >= LONG_WAIT_NS) {
            let parts = parts_of(waiter, probe.reported_ns(waiter), waiting.at_ns());
            if !probe.note_told(waiter) {
                continue;
            }
            for part in parts {
                let behind = known.entry(part).or_insert_with(|| self.behind(part));
                for (&behind, &ns) in behind.iter() {
                    *sums.entry((waiter.tgid, behind)).or_insert(0) += ns;
                }
            }
        }
        // Longer waits were attributed just now, so the next look goes back no further than this.
        self.history.forget(waiting.at_ns().saturating_sub(LONG_WAIT_NS));
        sums
    }

    /// What ran during that part of a wait, in nanoseconds; the values sum to its length.
    pub(super) fn behind(&self, part: WaitPart) -> BTreeMap<ProbeCulprit, u64> {
        let length_ns = part.to_ns - part.from_ns;
        let Some(cpu) = part.cpu else {
            return BTreeMap::from([(ProbeCulprit::Migrated, length_ns)]);
        };
        let mut behind = self.history.ran(cpu, part.from_ns, part.to_ns);
        let known_ns: u64 = behind.values().sum();
        if known_ns < length_ns {
            behind.insert(ProbeCulprit::NotSampled, length_ns - known_ns);
        }
        behind
    }
}

/// The parts of a wait that were not attributed before: in the run queue that the thread was moved away from, and in
/// its present one.
fn parts_of(waiter: &Waiter, reported_ns: u64, at_ns: u64) -> Vec<WaitPart> {
    let new_ns = waiter.queued_ns.saturating_sub(reported_ns);
    let here_ns = waiter.here_ns.min(new_ns);
    let elsewhere_ns = new_ns - here_ns;
    let elsewhere = match waiter.moved {
        Some((cpu, moved_ns)) => WaitPart {
            cpu: Some(cpu),
            from_ns: moved_ns.saturating_sub(elsewhere_ns),
            to_ns: moved_ns,
        },
        None => WaitPart { cpu: None, from_ns: 0, to_ns: elsewhere_ns },
    };
    let here = WaitPart { cpu: Some(waiter.cpu), from_ns: at_ns - here_ns, to_ns: at_ns };
    [elsewhere, here].into_iter().filter(|part| part.to_ns > part.from_ns).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn history(stays: &[(u64, u64, u32)]) -> LongWaits {
        let mut waits = LongWaits::begin(1);
        for &(start_ns, end_ns, tgid) in stays {
            waits.history.push(0, CpuRun { start_ns, end_ns, tgid });
        }
        waits
    }

    #[test]
    fn a_stay_in_progress_is_one_stay() {
        let waits = history(&[(0, 10, 7), (10, 20, 8), (10, 30, 8), (30, 40, 0)]);
        assert_eq!(waits.history.cpus[0].len(), 3);
        let behind = waits.behind(WaitPart { cpu: Some(0), from_ns: 5, to_ns: 35 });
        let expected = [
            (ProbeCulprit::Process(7), 5),
            (ProbeCulprit::Process(8), 20),
            (ProbeCulprit::Idle, 5),
        ];
        assert_eq!(behind, BTreeMap::from(expected));
    }

    #[test]
    fn what_no_look_can_need_is_forgotten() {
        let mut waits = history(&[(0, 10, 7), (10, 20, 8), (20, 30, 7)]);
        waits.history.forget(20);
        assert_eq!(waits.history.cpus[0].len(), 3, "waits that are told whole may need them");
        waits.history.forget(20 + KEPT_NS);
        assert_eq!(waits.history.cpus[0].len(), 2);
        for at in 3..2 * STAYS as u64 {
            waits.history.push(0, CpuRun { start_ns: at * 10, end_ns: at * 10 + 10, tgid: 7 });
        }
        assert_eq!(waits.history.cpus[0].len(), STAYS);
        waits.history.forget(20 * STAYS as u64);
        assert_eq!(waits.history.cpus[0].len(), STAYS_OF_WHOLE_WAITS);
    }

    #[test]
    fn what_nobody_is_known_to_have_run_in_is_said() {
        let waits = history(&[(10, 20, 8)]);
        let behind = waits.behind(WaitPart { cpu: Some(0), from_ns: 0, to_ns: 20 });
        assert_eq!(
            behind,
            BTreeMap::from([(ProbeCulprit::Process(8), 10), (ProbeCulprit::NotSampled, 10)])
        );
        let moved = waits.behind(WaitPart { cpu: None, from_ns: 0, to_ns: 20 });
        assert_eq!(moved, BTreeMap::from([(ProbeCulprit::Migrated, 20)]));
    }

    proptest! {
        /// However a wait is cut by looks and moved between queues, its parts sum to it.
        #[test]
        fn parts_sum_to_the_wait(
            looks in prop::collection::vec((1u64..1000, 0u64..1000, 0usize..3), 1..10),
        ) {
            let waits = history(&[(0, 3000, 7), (3000, 9000, 8)]);
            let (mut at_ns, mut queued_ns, mut sum, mut reported_ns) = (0, 0, 0, 0);
            for (grown_ns, here_ns, cpu) in looks {
                at_ns += grown_ns;
                queued_ns += grown_ns;
                let waiter = Waiter::example(queued_ns, here_ns.min(queued_ns), cpu);
                for part in parts_of(&waiter, reported_ns, at_ns) {
                    sum += waits.behind(part).values().sum::<u64>();
                }
                reported_ns = queued_ns;
                prop_assert_eq!(sum, queued_ns);
            }
        }
    }
}
