// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which waits are examined, if there are more than the budget allows: the target's first, then of each process the same
//! number, evenly spread over the CPUs and the time of its waits.

use deburr_bpf::sched::Run;
use std::collections::BTreeSet;

/// Sorts the waits by process, and tells which of them are examined: `most` at most. `target` holds the pids of the
/// target's processes. `turn` counts the calls, so that it is not always the same processes and moments.
pub(super) fn choose(
    waits: &mut [(usize, Run)],
    target: &BTreeSet<u32>,
    most: usize,
    turn: usize,
) -> Vec<bool> {
    if waits.len() <= most {
        return vec![true; waits.len()];
    }
    // Stable sort: the waits of a process stay in the order of CPUs and time.
    waits.sort_by_key(|(_, run)| run.tgid);
    let mut processes = Vec::new();
    let mut from = 0;
    for waits in waits.chunk_by(|(_, a), (_, b)| a.tgid == b.tgid) {
        processes.push((waits[0].1.tgid, from, waits.len()));
        from += waits.len();
    }
    let (targets, others): (Vec<_>, Vec<_>) =
        processes.into_iter().partition(|(tgid, ..)| target.contains(tgid));
    let mut chosen = vec![false; waits.len()];
    let mut left = most;
    for processes in [targets, others] {
        let numbers: Vec<usize> = processes.iter().map(|&(.., number)| number).collect();
        let shares = shares(&numbers, left, turn);
        left -= shares.iter().sum::<usize>();
        for (&(_, from, number), share) in processes.iter().zip(shares) {
            spread(number, share, turn).for_each(|at| chosen[from + at] = true);
        }
    }
    chosen
}

/// How many waits of each process are examined, given how many each has; `budget` at most in all.
fn shares(numbers: &[usize], budget: usize, turn: usize) -> Vec<usize> {
    let most = most_each(numbers, budget);
    let mut shares: Vec<usize> = numbers.iter().map(|&number| number.min(most)).collect();
    let want_more: Vec<usize> = (0..numbers.len()).filter(|&at| numbers[at] > most).collect();
    if !want_more.is_empty() {
        // Not enough for one more each: they take turns.
        let left = budget - shares.iter().sum::<usize>();
        for i in 0..left {
            shares[want_more[turn.wrapping_mul(left).wrapping_add(i) % want_more.len()]] += 1;
        }
    }
    shares
}

/// The largest number that all processes can have, if those with fewer waits take no more than they have.
fn most_each(numbers: &[usize], budget: usize) -> usize {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    let (mut left, mut processes) = (budget, sorted.len());
    for number in sorted {
        if number > left / processes {
            return left / processes;
        }
        left -= number;
        processes -= 1;
    }
    usize::MAX
}

/// `share` of `number` places, at equal distances. Over many turns each place is as likely as any other.
fn spread(number: usize, share: usize, turn: usize) -> impl Iterator<Item = usize> {
    // Odd and without small factors: consecutive turns begin at places far from each other.
    let from = turn.wrapping_mul(0x9E37_79B1) % number.max(1);
    (0..share).map(move |i| (i * number + from) / share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// That many waits of that process on that CPU.
    fn waits(cpu: usize, tgid: u32, number: usize) -> Vec<(usize, Run)> {
        let run = Run {
            tid: tgid,
            tgid,
            start_ns: 2_000_000,
            end_ns: 3_000_000,
            queued_ns: 1_000_000,
            throttled_ns: 0,
        };
        vec![(cpu, run); number]
    }

    /// The number of chosen waits of that process in that many turns.
    fn looked_at(waits: &[(usize, Run)], target: &[u32], tgid: u32, turns: usize) -> usize {
        let target = target.iter().copied().collect();
        (0..turns)
            .map(|turn| {
                let mut waits = waits.to_vec();
                let chosen = choose(&mut waits, &target, 500, turn);
                waits
                    .iter()
                    .zip(chosen)
                    .filter(|((_, run), chosen)| *chosen && run.tgid == tgid)
                    .count()
            })
            .sum()
    }

    #[test]
    fn a_victim_on_the_last_cpu_is_looked_at_however_busy_the_others_are() {
        let mut all: Vec<_> = (0..90).flat_map(|cpu| waits(cpu, 100 + cpu as u32, 60)).collect();
        all.extend(waits(90, 7, 20));
        assert!(looked_at(&all, &[], 7, 10) >= 50);
        assert_eq!(looked_at(&all, &[7], 7, 10), 200, "the target's waits come first");
        assert_eq!(looked_at(&all[..400], &[], 100, 1), 60, "there is budget for all");
    }

    #[test]
    fn more_processes_than_the_budget_has_looks_take_turns() {
        let all: Vec<_> = (1..=2000).flat_map(|tgid| waits(0, tgid, 1)).collect();
        for tgid in [1, 1000, 2000] {
            assert_eq!(looked_at(&all, &[], tgid, 8), 2);
        }
    }

    #[test]
    fn the_looks_at_a_process_are_spread_over_its_cpus() {
        let mut all: Vec<_> = (0..10).flat_map(|cpu| waits(cpu, 7, 100)).collect();
        let chosen = choose(&mut all, &BTreeSet::new(), 500, 3);
        for cpu in 0..10 {
            let here = all.iter().zip(&chosen).filter(|((at, _), chosen)| *at == cpu && **chosen);
            assert_eq!(here.count(), 50);
        }
    }

    proptest! {
        #[test]
        fn the_budget_is_used_up_and_no_more(
            numbers in prop::collection::vec(1usize..200, 0..60), budget in 0usize..1000, turn: usize,
        ) {
            let shares = shares(&numbers, budget, turn);
            let all: usize = numbers.iter().sum();
            prop_assert_eq!(shares.iter().sum::<usize>(), all.min(budget));
            for (share, number) in shares.into_iter().zip(numbers) {
                let places: BTreeSet<usize> = spread(number, share, turn).collect();
                prop_assert_eq!(places.len(), share);
                prop_assert!(places.iter().all(|&at| at < number));
            }
        }
    }
}
