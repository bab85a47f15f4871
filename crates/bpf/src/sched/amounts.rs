// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Differences of amounts that were read at two times.

use super::{STATES, State};
use deburr_core::recording::{WaitHist, bucket_range_ns};

/// `now - before` for each of them; 0 where that is negative.
pub(super) fn difference<const N: usize>(now: &[u64; N], before: &[u64; N]) -> [u64; N] {
    std::array::from_fn(|i| now[i].saturating_sub(before[i]))
}

/// `now - before` for each state. Where that is negative, the missing amount is taken from other states, largest first,
/// so that the sum is the difference of the sums. Lengths and blame of waits are reported separately and are not
/// changed: queued and throttled time is only reduced if it exceeds `wall_ns`, the time since, and `unattributed_ns`, the
/// time before in which the thread was in no known state. (A thread that is never seen to leave a CPU seems to run until
/// it is known not to; what it waited is known when it has a CPU again.) The other states never exceed `wall_ns`.
pub(super) fn conserved_difference(
    now: &[u64; STATES],
    before: &[u64; STATES],
    wall_ns: u64,
    unattributed_ns: u64,
) -> [u64; STATES] {
    const WAITS: [usize; 2] = [State::Queued as usize, State::Throttled as usize];
    let mut more = difference(now, before);
    let owed = difference(before, now);
    let owed_by_waits: u64 = WAITS.iter().map(|&state| owed[state]).sum();
    let owed_by_others = owed.iter().sum::<u64>() - owed_by_waits;
    take_away(&mut more, owed_by_waits);
    let mut waits = [0; STATES];
    for state in WAITS {
        std::mem::swap(&mut waits[state], &mut more[state]);
    }
    take_away(&mut more, owed_by_others);
    let in_states_ns = more.iter().chain(&waits).sum::<u64>();
    let rest = take_away(&mut more, in_states_ns.saturating_sub(wall_ns));
    take_away(&mut waits, rest.saturating_sub(unattributed_ns));
    std::array::from_fn(|state| more[state] + waits[state])
}

/// Subtracts an amount from the states, largest first. Returns the part that exceeds their sum.
pub(super) fn take_away(states: &mut [u64; STATES], mut amount: u64) -> u64 {
    while amount > 0 {
        let Some(largest) = states.iter_mut().max().filter(|ns| **ns > 0) else { break };
        let part = amount.min(*largest);
        *largest -= part;
        amount -= part;
    }
    amount
}

/// Takes back what a thread waited before the window and was only known of later: at the start of the window it seemed to
/// be in another state (`before`). Its histogram has waits of the window only, of
/// `counted_ns` in all with the one in progress.
pub(super) fn give_back_waits(states: &mut [u64; STATES], before: &[u64; STATES], counted_ns: u64) {
    let queued = State::Queued as usize;
    let Some(seemed) = (0..STATES).max_by_key(|&state| before[state]) else { return };
    let excess_ns = states[queued].saturating_sub(counted_ns).min(before[seemed]);
    states[queued] -= excess_ns;
    states[seemed] += excess_ns;
}

/// The longest of `waits`, and what remains for the next look of `noted_ns`, the longest wait that was noted so far. The
/// probe notes the length of a wait first and adds it to the histogram then: a look in between finds it noted, and not
/// among the waits. If the length of the longest is not known, it is the mean of those in the highest bucket.
pub(super) fn longest_of(waits: &WaitHist, noted_ns: u64) -> (u64, u64) {
    let Some(bucket) = waits.count.iter().rposition(|&count| count > 0) else {
        return (0, noted_ns);
    };
    let (from_ns, to_ns) = bucket_range_ns(bucket);
    if (from_ns..to_ns).contains(&noted_ns) {
        return (noted_ns, 0);
    }
    let mean_ns = waits.ns[bucket] / waits.count[bucket];
    (mean_ns.clamp(from_ns, to_ns - 1), if noted_ns >= to_ns { noted_ns } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_waited_before_the_window_is_not_waited_in_it() {
        // It slept for 220 as it seemed, and had waited; in the window it waited 2 and slept 87.
        let (before, now) = ([0, 0, 0, 220, 0, 0, 0, 0], [4, 222, 0, 87, 0, 0, 0, 0]);
        let mut states = conserved_difference(&now, &before, 93, 0);
        let sum: u64 = states.iter().sum();
        give_back_waits(&mut states, &before, 2);
        assert_eq!((states[1], states.iter().sum::<u64>()), (2, sum));
        let mut states = [4, 9, 0, 80, 0, 0, 0, 0];
        give_back_waits(&mut states, &[0; STATES], 2);
        assert_eq!(states[1], 9, "nothing else was told of that time");
    }

    #[test]
    fn the_longest_wait_is_one_of_the_waits() {
        let mut waits = WaitHist::default();
        assert_eq!(longest_of(&waits, 0), (0, 0));
        assert_eq!(longest_of(&waits, 900), (0, 900), "it is not counted yet");
        waits.add(70_000);
        waits.add(3_000);
        assert_eq!(longest_of(&waits, 70_000), (70_000, 0));
        assert_eq!(longest_of(&waits, 5_000_000), (70_000, 5_000_000), "it comes with the next");
        assert_eq!(longest_of(&waits, 3_000), (70_000, 0), "another reading has taken it");
        assert_eq!(longest_of(&waits, 0), (70_000, 0));
    }

    #[test]
    fn the_difference_keeps_the_sum() {
        let before = [10, 40, 0, 0, 0, 0, 0, 0];
        let now = [10, 30, 25, 0, 0, 0, 0, 0];
        assert_eq!(conserved_difference(&now, &before, 15, 0), [0, 0, 15, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn what_was_told_of_a_cpu_that_the_thread_had_left_is_not_taken_from_its_waiting() {
        // It waited 6 ms since; where it was otherwise is not known.
        let (before, now) = ([54, 40, 0, 0, 0, 0, 0, 0], [0, 46, 0, 0, 0, 0, 0, 0]);
        assert_eq!(conserved_difference(&now, &before, 100, 0), [0, 6, 0, 0, 0, 0, 0, 0]);
        assert_eq!(
            conserved_difference(&now, &before, 4, 0)[1],
            4,
            "never more than the wall time"
        );
        let now = [300, 46, 0, 0, 0, 0, 0, 0];
        assert_eq!(conserved_difference(&now, &before, 100, 0), [94, 6, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_wait_may_have_begun_when_nothing_was_known() {
        let (before, now) = ([0, 40, 0, 0, 0, 0, 0, 0], [30, 160, 0, 0, 0, 0, 0, 0]);
        assert_eq!(conserved_difference(&now, &before, 100, 50), [0, 120, 0, 0, 0, 0, 0, 0]);
        assert_eq!(conserved_difference(&now, &before, 100, 10), [0, 110, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn what_was_told_too_early_is_taken_from_waiting_last() {
        let before = [100, 0, 0, 0, 0, 0, 0, 0];
        let now = [97, 20, 0, 5, 0, 0, 0, 0];
        assert_eq!(conserved_difference(&now, &before, 22, 0), [0, 20, 0, 2, 0, 0, 0, 0]);
        let now = [90, 20, 0, 5, 0, 0, 0, 0];
        assert_eq!(conserved_difference(&now, &before, 15, 0), [0, 15, 0, 0, 0, 0, 0, 0]);
    }
}
