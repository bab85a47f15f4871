// SPDX-License-Identifier: Apache-2.0 OR MIT
//! False-positive rate and power of the statistical tests of this module, by many simulated windows with a fixed seed.

use super::Random as Rng;
use super::{
    Clock, Rhythm, SIGNIFICANT, Span, coincidence, coincidence_by_length, grid, pace, rhythm,
    worst_moments,
};

const S: f64 = 1e9;
const RUNS: u32 = 2000;

impl Rng {
    pub(crate) fn next(&mut self) -> f64 {
        self.uniform()
    }

    /// Normally distributed, by Box and Muller.
    pub(crate) fn normal(&mut self) -> f64 {
        (-2.0 * self.next().ln()).sqrt() * (2.0 * std::f64::consts::PI * self.next()).cos()
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.next().ln()
    }

    /// An interval with half the relative variation of an exponential one.
    fn gamma4(&mut self, mean: f64) -> f64 {
        (0..4).map(|_| self.exponential(mean / 4.0)).sum()
    }

    /// Times of events with such intervals, in seconds, at least 1 s apart, as after the merging of bursts.
    fn events(&mut self, window_s: f64, interval: impl Fn(&mut Self) -> f64) -> Vec<f64> {
        let mut at = Vec::new();
        let mut t = interval(self) * self.next();
        while t < window_s {
            if at.last().is_none_or(|last| t - last >= 1.0) {
                at.push(t);
            }
            t += interval(self);
        }
        at
    }

    /// Start times of a flusher's passes, in seconds: an interval, then work. One pass in twelve is too small to be
    /// seen, and some other events look like passes.
    fn flusher(&mut self, window_s: f64, interval_s: f64) -> Vec<f64> {
        let mut at = Vec::new();
        let mut t = interval_s * self.next();
        while t < window_s {
            if self.next() >= 0.08 {
                at.push(t);
            }
            t += interval_s + (0.05 + 0.03 * self.next()) * interval_s.min(5.0);
        }
        at.extend(self.events(window_s, |chance| chance.exponential(20.0)));
        at.sort_by(f64::total_cmp);
        at.dedup_by(|b, a| *b - *a < 1.0);
        at
    }
}

fn ns(at: &[f64]) -> Vec<u64> {
    at.iter().map(|s| (s * S) as u64).collect()
}

/// Share of runs in which `say` returns true.
fn share(seed: u64, say: impl Fn(&mut Rng) -> bool) -> f64 {
    share_of(RUNS, seed, say)
}

fn share_of(runs: u32, seed: u64, say: impl Fn(&mut Rng) -> bool) -> f64 {
    let mut chance = Rng::new(seed);
    let yes = (0..runs).filter(|_| say(&mut chance)).count();
    yes as f64 / f64::from(runs)
}

fn found(at: &[f64], window_s: f64, clocks: &[Clock]) -> bool {
    matches!(rhythm(&ns(at), (window_s * S) as u64, clocks), Rhythm::Found { .. })
}

/// Loads without a clock: independent events, more regular ones, and very few. Name, mean interval in seconds, and
/// whether the intervals are Gamma-distributed.
const APERIODIC: [(&str, f64, bool); 7] = [
    ("Poisson, 2 s", 2.0, false),
    ("Poisson, 5 s", 5.0, false),
    ("Gamma(4), 2 s", 2.0, true),
    ("Gamma(4), 4 s", 4.0, true),
    ("Gamma(4), 5 s", 5.0, true),
    ("Gamma(4), 6 s", 6.0, true),
    ("quiet", 40.0, false),
];

fn aperiodic(chance: &mut Rng, window_s: f64, mean_s: f64, even: bool) -> Vec<f64> {
    chance.events(
        window_s,
        |chance| if even { chance.gamma4(mean_s) } else { chance.exponential(mean_s) },
    )
}

#[test]
fn a_clock_is_seen_in_at_most_two_of_a_hundred_aperiodic_loads() {
    for (name, mean_s, even) in APERIODIC {
        for window_s in [20.0, 40.0, 60.0, 120.0] {
            for period_s in [2.0, 5.0] {
                let clock = [Clock::every((period_s * S) as u64)];
                let wrong = share(1, |chance| {
                    found(&aperiodic(chance, window_s, mean_s, even), window_s, &clock)
                });
                assert!(wrong <= 0.02, "{name}, {window_s} s, known {period_s} s: {wrong}");
            }
            let clocks = grid((window_s * S) as u64);
            let wrong = share(2, |chance| {
                found(&aperiodic(chance, window_s, mean_s, even), window_s, &clocks)
            });
            assert!(wrong <= 0.02, "{name}, {window_s} s, unknown: {wrong}");
        }
    }
}

#[test]
fn the_flushers_clocks_are_seen() {
    let power = |period_s: f64, window_s: f64| {
        let clock = [Clock::every((period_s * S) as u64)];
        share(3, |chance| found(&chance.flusher(window_s, period_s), window_s, &clock))
    };
    for (period_s, window_s, least) in
        [(5.0, 30.0, 0.55), (5.0, 45.0, 0.82), (5.0, 60.0, 0.93), (2.0, 40.0, 0.9)]
    {
        let seen = power(period_s, window_s);
        assert!(seen >= least, "{period_s} s in {window_s} s: {seen}");
    }
    let blind =
        share(4, |chance| found(&chance.flusher(90.0, 5.0), 90.0, &grid((90.0 * S) as u64)));
    assert!(blind >= 0.8, "unknown period: {blind}");
}

/// Bytes of a process in bins of 100 ms: bursts of 0.1 to 0.6 s at these times, of various sizes, above a low level.
fn bytes(chance: &mut Rng, starts_s: &[f64], window_s: f64) -> Vec<u64> {
    let mut bins: Vec<u64> =
        (0..(window_s * 10.0) as usize).map(|_| (chance.next() * 20.0) as u64).collect();
    for start_s in starts_s {
        let amount = (500.0 + 1_000.0 * chance.next()) as u64;
        let first = (start_s * 10.0) as usize;
        for bin in bins.iter_mut().skip(first).take(1 + (chance.next() * 6.0) as usize) {
            *bin += amount;
        }
    }
    bins
}

const BIN_NS: u64 = 100_000_000;
/// Number of processes that are tested at once, as in the rules, which report the most significant one.
const AMONG: usize = 4;
/// Number of runs of the tests that generate series of bins, which are slower.
const FEWER_RUNS: u32 = 500;

/// Random times of bursts with a mean interval, without a minimum distance.
fn any_times(chance: &mut Rng, window_s: f64, mean_s: f64, even: bool) -> Vec<f64> {
    let mut at = Vec::new();
    let next = |chance: &mut Rng| {
        if even { chance.gamma4(mean_s) } else { chance.exponential(mean_s) }
    };
    let mut t = next(chance) * chance.next();
    while t < window_s {
        at.push(t);
        t += next(chance);
    }
    at
}

#[test]
fn bursts_of_somebody_without_a_timer_have_no_rhythm() {
    for (name, mean_s, even) in APERIODIC {
        for window_s in [20.0, 40.0, 120.0] {
            let wrong = share_of(FEWER_RUNS, 7, |chance| {
                (0..AMONG).any(|_| {
                    let at = any_times(chance, window_s, mean_s, even);
                    let bins = bytes(chance, &at, window_s);
                    let found = pace(&bins, BIN_NS, (window_s * S) as u64, AMONG);
                    matches!(found.rhythm, Rhythm::Found { .. })
                })
            });
            assert!(wrong <= 0.02, "{name}, {window_s} s: {wrong}");
        }
    }
}

#[test]
fn bursts_of_a_timer_have_one() {
    for (period_s, window_s, least) in [(3.0, 40.0, 0.9), (3.0, 60.0, 0.95), (10.0, 120.0, 0.9)] {
        let seen = share_of(FEWER_RUNS, 8, |chance| {
            let mut at = vec![period_s * chance.next()];
            while let Some(next) = at.last().map(|t| t + period_s + 0.1 * chance.next())
                && next < window_s
            {
                at.push(next);
            }
            let bins = bytes(chance, &at, window_s);
            let found = pace(&bins, BIN_NS, (window_s * S) as u64, AMONG);
            matches!(found.rhythm, Rhythm::Found { .. })
        });
        assert!(seen >= least, "{period_s} s in {window_s} s: {seen}");
    }
}

#[test]
fn stalls_that_know_nothing_of_a_timer_rarely_look_as_if_they_did() {
    for (name, mean_s, even) in APERIODIC {
        for (window_s, period_s) in [(40.0, 3.0), (60.0, 5.0)] {
            let wrong = share_of(FEWER_RUNS, 9, |chance| {
                (0..AMONG).any(|_| {
                    let starts: Vec<f64> = (0..(window_s / period_s) as u32)
                        .map(|n| (f64::from(n) + 0.1 * chance.next()) * period_s)
                        .collect();
                    let bins = bytes(chance, &starts, window_s);
                    let window_ns = (window_s * S) as u64;
                    let found = pace(&bins, BIN_NS, window_ns, AMONG);
                    let stalls = aperiodic(chance, window_s, mean_s, even);
                    let span = |t: &f64| Span::new((t * S) as u64, ((t + 0.08) * S) as u64);
                    let stalls: Vec<_> = stalls.iter().map(span).collect();
                    let moments = worst_moments(&stalls);
                    let together = coincidence(&moments, &found.bursts, window_ns);
                    together.is_sure() && together.p * (AMONG as f64) < SIGNIFICANT
                })
            });
            assert!(wrong <= 0.02, "{name}, {window_s} s, bursts every {period_s} s: {wrong}");
        }
    }
}

/// Whether stalls significantly coincide with simulated passes, which take a tenth of the time. `stalls` generates the
/// stalls, either independent of the passes or caused by them.
fn coincides(
    chance: &mut Rng,
    window_s: f64,
    period_s: f64,
    stalls: impl Fn(&mut Rng, &[f64]) -> Vec<(f64, f64)>,
) -> bool {
    let passes = chance.flusher(window_s, period_s);
    let stalls = stalls(chance, &passes);
    let span = |t: f64, length: f64| Span::new((t * S) as u64, ((t + length) * S) as u64);
    let passes: Vec<_> = passes.iter().map(|&t| span(t, period_s / 10.0)).collect();
    let stalls: Vec<_> = stalls.iter().map(|&(t, length)| span(t, length)).collect();
    coincidence_by_length(&stalls, &passes, (window_s * S) as u64).is_sure()
}

/// Length of a stall in seconds: always the same; or mostly short with a few much longer ones, as on disks.
fn length(chance: &mut Rng, alike: bool) -> f64 {
    if alike {
        0.08
    } else {
        0.015 + chance.exponential(0.02) * f64::from(u8::from(chance.next() < 0.2)) * 20.0
    }
}

#[test]
fn stalls_that_know_nothing_of_the_passes_rarely_look_as_if_they_did() {
    for (name, mean_s, even) in APERIODIC {
        for (window_s, period_s) in [(30.0, 5.0), (60.0, 5.0), (40.0, 2.0)] {
            for alike in [true, false] {
                let wrong = share(5, |chance| {
                    coincides(chance, window_s, period_s, |chance, _| {
                        let at = aperiodic(chance, window_s, mean_s, even);
                        at.into_iter().map(|t| (t, length(chance, alike))).collect()
                    })
                });
                let case = format!("{name}, {window_s} s, passes every {period_s} s, {alike}");
                assert!(wrong <= 0.02, "{case}: {wrong}");
            }
        }
    }
}

#[test]
fn stalls_that_follow_the_passes_are_seen() {
    for (window_s, period_s) in [(30.0, 5.0), (40.0, 2.0)] {
        for noise in [false, true] {
            let seen = share(6, |chance| {
                coincides(chance, window_s, period_s, |chance, passes| {
                    let mut stalls = Vec::new();
                    for &pass in passes {
                        // Three of four passes cause a stall.
                        if chance.next() < 0.75 {
                            let at = pass + 0.5 * chance.next() * period_s / 10.0;
                            stalls.push((at, 0.1 + 0.2 * chance.next()));
                        }
                    }
                    if noise {
                        // Stalls of a busy host, independent of the passes.
                        let small = any_times(chance, window_s, 1.5, false);
                        stalls.extend(small.iter().map(|&t| (t, 0.01 + 0.01 * chance.next())));
                    }
                    stalls
                })
            });
            let least = if noise { 0.85 } else { 0.9 };
            assert!(seen >= least, "every {period_s} s in {window_s} s, noise {noise}: {seen}");
        }
    }
}
