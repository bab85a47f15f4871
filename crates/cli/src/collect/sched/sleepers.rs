// SPDX-License-Identifier: Apache-2.0 OR MIT
//! On a whole host, whose sleeps are looked at: those of the processes that lose most time, and of those whose threads take
//! most turns, since who waits for a lock loses nothing that the run queues know of.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Processes of each kind.
const OF_EACH: usize = 8;
/// Seconds for which a process is looked at after it was among them last.
const FOR_S: u32 = 10;
/// Maximum number of processes, and of their threads.
const PROCESSES: usize = 24;
const THREADS: usize = 4_000;
/// A process is not among them if it lost less in a second ...
const LOST_NS: u64 = 1_000_000;
/// ... or if its threads got a CPU fewer times.
const TURNS: u64 = 10;
/// Above so many turns in a second, watching a process costs it more than 0.1 % of a CPU: it is left out.
const MOST_TURNS: u64 = 20_000;

/// Records of their sleeps in a second: a sixth of those of a target, since nobody asked for sleeps in particular.
pub(super) const RECORDS: u64 = 500;

/// What a process did in the second that ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Activity {
    pub(super) pid: u32,
    pub(super) threads: usize,
    /// Time in which it could not run although it wanted to: queued, throttled, block IO, memory.
    pub(super) lost_ns: u64,
    /// Times that its threads got a CPU.
    pub(super) turns: u64,
}

/// The processes that are looked at, and for how many seconds more.
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    chosen: BTreeMap<u32, (u32, usize)>,
    /// The kernel refused to attach the programs that watch threads: it would later, too.
    pub(super) refused: bool,
}

impl Sleepers {
    /// At the end of a second, with all processes that exist. Returns the pids of those that are looked at in the next one.
    pub(super) fn choose(&mut self, all: &[Activity]) -> BTreeSet<u32> {
        let all: Vec<Activity> = all.iter().filter(|it| it.turns <= MOST_TURNS).copied().collect();
        let existing: BTreeMap<u32, usize> = all.iter().map(|it| (it.pid, it.threads)).collect();
        self.chosen.retain(|pid, (seconds, threads)| {
            *seconds = seconds.saturating_sub(1);
            *threads = existing.get(pid).copied().unwrap_or(0);
            *seconds > 0 && existing.contains_key(pid)
        });
        let lost = most(&all, LOST_NS, |it| it.lost_ns);
        let turns = most(&all, TURNS, |it| it.turns);
        // Alternately, so that both kinds have their part of what there is room for.
        for rank in 0..OF_EACH {
            for it in [&lost, &turns].into_iter().filter_map(|of| of.get(rank)) {
                self.admit(it);
            }
        }
        self.chosen.keys().copied().collect()
    }

    fn admit(&mut self, it: &Activity) {
        let threads: usize = self.chosen.values().map(|(_, threads)| threads).sum();
        let has_room = self.chosen.len() < PROCESSES && threads + it.threads <= THREADS;
        if has_room || self.chosen.contains_key(&it.pid) {
            self.chosen.insert(it.pid, (FOR_S, it.threads));
        }
    }
}

/// Those with most of it, and at least `least`.
fn most(all: &[Activity], least: u64, of: impl Fn(&Activity) -> u64) -> Vec<Activity> {
    let mut some: Vec<Activity> = all.iter().filter(|it| of(it) >= least).copied().collect();
    some.sort_by_key(|it| (Reverse(of(it)), it.pid));
    some.truncate(OF_EACH);
    some
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity(pid: u32, lost_ns: u64, turns: u64) -> Activity {
        Activity { pid, threads: 1, lost_ns, turns }
    }

    #[test]
    fn those_that_lose_most_and_those_with_most_turns_are_chosen() {
        let mut all: Vec<Activity> =
            (1..=20).map(|pid| activity(pid, u64::from(pid) * LOST_NS, 0)).collect();
        all.extend((21..=40).map(|pid| activity(pid, 0, u64::from(pid))));
        all.push(activity(41, LOST_NS - 1, TURNS - 1));
        let chosen = Sleepers::default().choose(&all);
        assert_eq!(chosen, (13..=20).chain(33..=40).collect());
    }

    #[test]
    fn a_process_is_looked_at_for_some_time_and_not_after_its_end() {
        let mut sleepers = Sleepers::default();
        assert_eq!(sleepers.choose(&[activity(1, 0, 100)]), [1].into());
        for _ in 1..FOR_S {
            assert_eq!(sleepers.choose(&[activity(1, 0, 0)]), [1].into());
        }
        assert_eq!(sleepers.choose(&[activity(1, 0, 0)]), [].into());
        assert_eq!(sleepers.choose(&[activity(1, 0, 100)]), [1].into());
        assert_eq!(sleepers.choose(&[activity(1, 0, MOST_TURNS + 1)]), [].into());
        assert_eq!(sleepers.choose(&[activity(1, 0, 100)]), [1].into());
        assert_eq!(sleepers.choose(&[]), [].into());
    }

    #[test]
    fn there_is_room_for_so_many_threads_only() {
        let mut sleepers = Sleepers::default();
        let large = Activity { threads: THREADS, ..activity(1, 0, 100) };
        let small = activity(2, 0, 50);
        assert_eq!(sleepers.choose(&[large, small]), [1].into());
        let larger = Activity { threads: THREADS + 1, ..large };
        assert_eq!(Sleepers::default().choose(&[larger, small]), [2].into());
        for second in 0..20 {
            let first = 10 * second;
            let others: Vec<_> = (0..100)
                .map(|it| activity(it, 0, if (first..first + 10).contains(&it) { 100 } else { 0 }))
                .collect();
            assert!(sleepers.choose(&others).len() <= PROCESSES);
        }
    }
}
