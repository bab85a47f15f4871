// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Does an amount come in bursts that follow a clock of their own?

use super::{Rhythm, SIGNIFICANT, Span, bursts, grid, rhythm};

/// Bins with less than one part in this many of the largest bin are not part of a burst.
const FLOOR_PART: u64 = 8;
/// Bursts with less time between them are merged: a process that works for a while pauses now and then.
const GAP_NS: u64 = 500_000_000;
/// With fewer periods in the window, an unknown clock is hard to distinguish from chance.
const ENOUGH_PERIODS: u64 = 8;

/// Largest number of bins to which a series is extended.
const MOST_BINS: usize = 1 << 16;

/// The bursts of an amount, and their rhythm.
#[derive(Clone, Debug, PartialEq)]
pub struct BurstPattern {
    /// Start and end of each burst.
    pub bursts: Vec<Span>,
    /// Their clock. It is not known in advance, so all clocks that fit into the window are tried.
    pub rhythm: Rhythm,
}

/// Searches equal bins from time 0 on for bursts, and the bursts for a clock. `among` is the number of series that are
/// tested with the same question: p-values are multiplied by it (Bonferroni).
#[must_use]
pub fn pace(bins: &[u64], width_ns: u64, window_ns: u64, among: usize) -> BurstPattern {
    // The bins end with the last amount; the rest of the window is quiet.
    let mut bins = bins.to_vec();
    let whole = usize::try_from(window_ns / width_ns.max(1)).unwrap_or(usize::MAX);
    bins.resize(whole.clamp(bins.len(), bins.len().max(MOST_BINS)), 0);
    let floor = bins.iter().max().copied().unwrap_or(0) / FLOOR_PART;
    let found = bursts(&bins, width_ns, floor, GAP_NS);
    let bursts: Vec<Span> = found.iter().map(|it| Span::new(it.t0_ns, it.t1_ns)).collect();
    let at: Vec<u64> = bursts.iter().map(|burst| burst.t0_ns).collect();
    let rhythm = match rhythm(&at, window_ns, &grid(window_ns)) {
        Rhythm::Found { period_ns, pairs, expected, p } => {
            let p = p * among as f64;
            if p < SIGNIFICANT {
                Rhythm::Found { period_ns, pairs, expected, p }
            } else {
                Rhythm::None { p: p.min(1.0) }
            }
        }
        other => other,
    };
    let rhythm = match (rhythm, usual_distance_ns(&at)) {
        // A clock as slow as that was not tried: the window does not hold enough of its ticks.
        (Rhythm::None { .. }, Some(ns)) if window_ns < ns.saturating_mul(ENOUGH_PERIODS) => {
            Rhythm::NeedsMore { for_ns: ns.saturating_mul(ENOUGH_PERIODS) - window_ns }
        }
        (rhythm, _) => rhythm,
    };
    BurstPattern { bursts, rhythm }
}

/// Median distance between the starts of bursts; `None` with fewer than two bursts.
fn usual_distance_ns(at: &[u64]) -> Option<u64> {
    let mut distances: Vec<u64> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    distances.sort_unstable();
    distances.get(distances.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BIN_NS: u64 = 100_000_000;
    const S: u64 = 1_000_000_000;

    /// Bins with bursts of 400 ms from these times on, and little else.
    fn bursts_at(starts_ms: impl Iterator<Item = u64>, bins: usize) -> Vec<u64> {
        let mut all = vec![3; bins];
        for start_ms in starts_ms {
            let first = (start_ms / 100) as usize;
            all[first..(first + 4).min(bins)].fill(1000);
        }
        all
    }

    #[test]
    fn a_timer_of_3_s_that_works_for_a_while_is_seen() {
        let bins = bursts_at((0..13).map(|n| 400 + n * 3_040), 400);
        let found = pace(&bins, BIN_NS, 40 * S, 4);
        assert_eq!(found.bursts.len(), 13);
        assert_eq!(found.bursts[0], Span::new(400_000_000, 800_000_000));
        let Rhythm::Found { period_ns, pairs, p, .. } = found.rhythm else { panic!("{found:?}") };
        assert!((2_900_000_000..3_200_000_000).contains(&period_ns), "{period_ns}");
        assert!(pairs == 12 && p < 1e-3, "{pairs} {p}");
    }

    #[test]
    fn what_never_rests_has_no_bursts() {
        assert_eq!(pace(&[1000; 400], BIN_NS, 40 * S, 1).bursts, []);
        assert_eq!(pace(&[], BIN_NS, 40 * S, 1).bursts, []);
    }

    #[test]
    fn too_few_bursts_say_how_long_to_look() {
        let bins = bursts_at([400, 3_440, 6_480].into_iter(), 80);
        let found = pace(&bins, BIN_NS, 8 * S, 1);
        assert_eq!(found.rhythm, Rhythm::NeedsMore { for_ns: 8 * 3_000_000_000 - 8 * S });
    }

    proptest! {
        #[test]
        fn any_amounts_get_an_answer(
            bins in prop::collection::vec(any::<u64>(), 0..60), width in 1..S, window in 0..600 * S, among in 0..9usize,
        ) {
            let _ = pace(&bins, width, window, among);
        }
    }
}
