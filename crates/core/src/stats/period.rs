// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Do events follow a clock that waits for an interval, works, and waits again?
//!
//! Such a clock (the kernel's flusher is one) has no stable phase: each tick comes an interval *after the end* of
//! the previous one. So spectra and Rayleigh's test do not apply, and autocorrelation locks on to the width
//! of the bursts. The remaining property is that an event has a successor one period later: the number of such events
//! is compared with the number expected for independent events of the same rate.

use super::{SIGNIFICANT, tail};

/// Fewer events with a successor look like chance to any reader.
const MIN_PAIRS: u64 = 3;
/// Periods that a window must hold before a negative result is meaningful: with fewer, `MIN_PAIRS` is hard to reach.
const MIN_PERIODS: u64 = 5;
/// With this many periods, a clock is found in nine of ten cases even if one tick in twelve is missed.
const ENOUGH_PERIODS: u64 = 12;
/// A p-value below this is a hint that justifies a longer observation.
const HINT: f64 = 0.1;
const MS: u64 = 1_000_000;
/// A day: longer periods are not of interest.
const LONGEST_NS: u64 = 86_400_000 * MS;

/// Range of the distances between two ticks of a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Shortest distance.
    pub from_ns: u64,
    /// Longest distance.
    pub to_ns: u64,
}

impl Clock {
    /// A timer that is restarted after some work: up to 6 % + 150 ms late; up to 3 % + 50 ms early, because of the
    /// resolution of the bins.
    #[must_use]
    pub fn every(period_ns: u64) -> Self {
        let period_ns = period_ns.min(LONGEST_NS);
        Self {
            from_ns: (period_ns / 100 * 97).saturating_sub(50 * MS),
            to_ns: period_ns / 100 * 106 + 150 * MS,
        }
    }
}

/// Result of a search for a rhythm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rhythm {
    /// Events follow a clock.
    Found {
        /// Median distance between an event and its successor.
        period_ns: u64,
        /// Number of events that have a successor.
        pairs: u64,
        /// Expected number for independent events.
        expected: f64,
        /// Probability of at least that many by chance, multiplied by the number of clocks that were tried.
        p: f64,
    },
    /// No clock was found.
    None {
        /// p-value of the best clock, multiplied by the number of clocks that were tried.
        p: f64,
    },
    /// The window is too short for an answer.
    NeedsMore {
        /// How much longer to observe, at least.
        for_ns: u64,
    },
}

/// Whether events at `at_ns` (ascending) in a window follow one of the clocks; returns the most significant one. If
/// the possible clocks are known, pass only those: each clock that is tried costs significance (Bonferroni).
#[must_use]
pub fn rhythm(at_ns: &[u64], window_ns: u64, clocks: &[Clock]) -> Rhythm {
    let best = clocks
        .iter()
        .map(|clock| (test(at_ns, window_ns, clock), clock))
        .min_by(|(a, _), (b, _)| a.p.total_cmp(&b.p));
    let Some((best, clock)) = best else { return Rhythm::None { p: 1.0 } };
    let p = (best.p * clocks.len() as f64).min(1.0);
    if p < SIGNIFICANT && best.pairs >= MIN_PAIRS {
        return Rhythm::Found {
            period_ns: best.period_ns,
            pairs: best.pairs,
            expected: best.expected,
            p,
        };
    }
    let periods = |number: u64| number.saturating_mul(clock.to_ns);
    let short = |number: u64| window_ns < periods(number);
    let hint = best.pairs + 1 >= MIN_PAIRS && p < HINT;
    if at_ns.len() > 1 && short(MIN_PERIODS) {
        Rhythm::NeedsMore { for_ns: periods(MIN_PERIODS) - window_ns }
    } else if hint && short(ENOUGH_PERIODS) {
        Rhythm::NeedsMore { for_ns: periods(ENOUGH_PERIODS) - window_ns }
    } else {
        Rhythm::None { p }
    }
}

/// Clocks to try if none is known: periods from 1 s to a quarter of the window, with adjoining ranges.
#[must_use]
pub fn grid(window_ns: u64) -> Vec<Clock> {
    let mut clocks = Vec::new();
    let mut period_ns = 1_000 * MS;
    while period_ns <= window_ns / 4 {
        let clock = Clock::every(period_ns);
        clocks.push(clock);
        // The range of the next clock starts where this one ends.
        period_ns = ((clock.to_ns + 50 * MS) / 97 * 100).max(period_ns + MS);
    }
    clocks
}

struct PeriodTest {
    pairs: u64,
    expected: f64,
    p: f64,
    period_ns: u64,
}

/// Counts the events that have a successor at the clock's distance. For independent events with rate `r`, an event has
/// one with probability `1 - e^(-r w)`, where `w` is the part of the clock's range that is inside the window. The
/// number of events that have one is approximately Poisson-distributed around the sum of these probabilities.
fn test(at_ns: &[u64], window_ns: u64, clock: &Clock) -> PeriodTest {
    let rate = at_ns.len().saturating_sub(1) as f64 / window_ns.max(1) as f64;
    let (mut pairs, mut expected) = (0, 0.0);
    let mut distances = Vec::new();
    for (index, &t) in at_ns.iter().enumerate() {
        let (from, to) =
            (t.saturating_add(clock.from_ns), t.saturating_add(clock.to_ns).min(window_ns));
        if from >= to {
            continue;
        }
        expected += 1.0 - (-rate * (to - from) as f64).exp();
        if let Some(&next) = at_ns[index + 1..].iter().find(|&&next| next >= from && next <= to) {
            pairs += 1;
            distances.push(next - t);
        }
    }
    distances.sort_unstable();
    let period_ns = distances.get(distances.len() / 2).copied().unwrap_or(0);
    PeriodTest { pairs, expected, p: tail::poisson(pairs, expected), period_ns }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn two_bursts_five_seconds_apart_are_no_period() {
        // From the recording of an incident, 8 s long.
        let said = rhythm(&[S, 6 * S], 8 * S, &[Clock::every(5 * S)]);
        let Rhythm::NeedsMore { for_ns } = said else { panic!("{said:?}") };
        assert!(for_ns > 15 * S && for_ns < 25 * S, "{for_ns}");
    }

    #[test]
    fn six_passes_five_seconds_apart_are_one() {
        let at: Vec<u64> = (0..6).map(|i| i * 5 * S).collect();
        let Rhythm::Found { period_ns, pairs, p, .. } = rhythm(&at, 26 * S, &[Clock::every(5 * S)])
        else {
            panic!("not found")
        };
        assert_eq!((period_ns, pairs), (5 * S, 5));
        assert!(p < 1e-3);
    }

    #[test]
    fn nothing_has_no_rhythm() {
        assert_eq!(rhythm(&[], 0, &[]), Rhythm::None { p: 1.0 });
        assert_eq!(rhythm(&[], 60 * S, &[Clock::every(S)]), Rhythm::None { p: 1.0 });
    }

    #[test]
    fn the_grid_has_no_holes() {
        for pair in grid(120 * S).windows(2) {
            assert!(
                pair[1].from_ns <= pair[0].to_ns + MS && pair[1].from_ns > pair[0].from_ns,
                "{pair:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_times_get_an_answer(
            mut at in prop::collection::vec(any::<u64>(), 0..40), window in any::<u64>(), period in any::<u64>(),
        ) {
            at.sort_unstable();
            let _ = rhythm(&at, window, &[Clock::every(period)]);
        }
    }
}
