// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Is the level of a series higher in one recording than in another? Blocks of time are the samples, not events: events
//! of one burst are not independent of each other, and seconds hardly are.
//!
//! Welch's t test of the means, with three corrections, because the seconds of a host resemble those before them:
//!
//! - **Autocorrelation.** The lag-1 correlation `r` is estimated from both series together, corrected for the bias of
//!   short series (Marriott & Pope 1954, Kendall 1954), and taken to be at least [`LEAST_CORRELATION`]. `n` blocks then
//!   count as `n (1 - r) / (1 + r)` independent ones, both for the variance of the mean and for the degrees of freedom
//!   (Zwiers & von Storch 1995, *Taking serial correlation into account in tests of the mean*).
//! - **The larger variance.** Of Welch's variance and that of both series together, the larger one. A short recording
//!   that no burst fell into has nearly no variance of its own, and would be surprisingly quiet.
//! - **Resolution.** Deviations are taken to be at least [`RESOLUTION`] of the mean.
//!
//! A bootstrap of blocks would need no formula, but with 10 to 60 s it has three to ten blocks to draw from: the
//! smallest p-value that it can give is then far above what many comparisons at once require. `docs/compare.md` has the
//! measured rates of false claims.

use super::interval::Interval;
use super::student::{student_p, student_quantile};

/// Correlation of successive blocks that is assumed even if less is seen: of ten blocks, their correlation cannot be
/// known, and tests that rely on it are wrong far too often.
pub const LEAST_CORRELATION: f64 = 0.55;
/// Correlation beyond which a series is no sample of anything.
const MOST_CORRELATION: f64 = 0.95;
/// Least standard deviation of a block, as a part of the larger mean.
const RESOLUTION: f64 = 0.02;
/// Fewest blocks in each series.
pub const MIN_BLOCKS: usize = 8;
/// Level of intervals.
const OUTSIDE: f64 = 0.05;

/// Means of two series, and what is known of their difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift {
    /// Mean of the first series.
    pub a: f64,
    /// Mean of the second series.
    pub b: f64,
    /// p-value of the difference: two-sided, not corrected for the number of comparisons.
    pub p: f64,
    /// Standard error of the difference.
    error: f64,
    /// Standard error of each mean.
    errors: [f64; 2],
    degrees: f64,
}

/// A series, summed up.
struct Moments {
    n: f64,
    mean: f64,
    squares: f64,
    lagged: f64,
}

impl Moments {
    fn of(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares = values.iter().map(|value| (value - mean).powi(2)).sum();
        let lagged = values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
        Self { n, mean, squares, lagged }
    }
}

/// Compares two series of equal blocks. `None` if one has fewer than [`MIN_BLOCKS`], or holds what is not a number.
#[must_use]
pub fn shift(a: &[f64], b: &[f64]) -> Option<Shift> {
    let short = a.len().min(b.len()) < MIN_BLOCKS;
    if short || a.iter().chain(b).any(|value| !value.is_finite()) {
        return None;
    }
    let sides = [Moments::of(a), Moments::of(b)];
    let squares = sides[0].squares + sides[1].squares;
    let n = sides[0].n + sides[1].n;
    let seen = if squares > 0.0 { (sides[0].lagged + sides[1].lagged) / squares } else { 0.0 };
    // The expected estimate of a series is r - (1 + 3 r) / n.
    let correlation =
        ((seen + 2.0 / n) / (1.0 - 6.0 / n)).clamp(LEAST_CORRELATION, MOST_CORRELATION);
    let worth = (1.0 - correlation) / (1.0 + correlation);
    // One block at least is what it is.
    let effective = sides.each_ref().map(|side| (side.n * worth).max(1.1));
    let least = (RESOLUTION * sides[0].mean.abs().max(sides[1].mean.abs())).powi(2);
    // Correlated blocks scatter less about their own mean than about the true one.
    let freedom = [0, 1].map(|i| sides[i].n * (1.0 - 1.0 / effective[i]));
    let own = [0, 1].map(|i| (sides[i].squares / freedom[i]).max(least) / effective[i]);
    let welch = own[0] + own[1];
    let together = (squares / (freedom[0] + freedom[1])).max(least);
    let variance = welch.max(together * (1.0 / effective[0] + 1.0 / effective[1]));
    let of = |i: usize| own[i] * own[i] / (effective[i] - 1.0);
    let degrees = if welch > 0.0 { welch * welch / (of(0) + of(1)) } else { 1.0 };
    let error = variance.sqrt();
    let difference = sides[1].mean - sides[0].mean;
    let p = if error > 0.0 { student_p(difference / error, degrees) } else { 1.0 };
    let errors = own.map(f64::sqrt);
    Some(Shift { a: sides[0].mean, b: sides[1].mean, p, error, errors, degrees })
}

/// A series whose mean is the ratio of the sums of two, and whose deviations are those of that ratio, block by block
/// (linearised): for [`shift`]. `None` if the lengths differ, or the sum of `per` is not positive.
#[must_use]
pub fn ratios(amounts: &[f64], per: &[f64]) -> Option<Vec<f64>> {
    let whole: f64 = per.iter().sum();
    if amounts.len() != per.len() || whole <= 0.0 {
        return None;
    }
    let ratio = amounts.iter().sum::<f64>() / whole;
    let mean = whole / per.len() as f64;
    Some(
        amounts
            .iter()
            .zip(per)
            .map(|(amount, per)| ratio + (amount - ratio * per) / mean)
            .collect(),
    )
}

impl Shift {
    /// The difference, second minus first, with its 95 % confidence interval.
    #[must_use]
    pub fn difference(&self) -> Interval {
        let half = student_quantile(OUTSIDE, self.degrees) * self.error;
        let value = self.b - self.a;
        Interval { value, low: Some(value - half), high: Some(value + half) }
    }

    /// The ratio, second to first, with its 95 % confidence interval from the logarithms of the means. `None` if one of
    /// the means cannot be told from 0, so that the ratio could be anything.
    #[must_use]
    pub fn ratio(&self) -> Option<Interval> {
        let quantile = student_quantile(OUTSIDE, self.degrees);
        let relative = [self.errors[0] / self.a, self.errors[1] / self.b];
        let known = |mean: f64, relative: f64| mean > 0.0 && relative * quantile < 1.0;
        if !known(self.a, relative[0]) || !known(self.b, relative[1]) {
            return None;
        }
        let half = quantile * relative[0].hypot(relative[1]);
        let value = self.b / self.a;
        Some(Interval { value, low: Some(value * (-half).exp()), high: Some(value * half.exp()) })
    }

    /// The smallest difference that would be found in four of five such pairs of recordings, at a level of significance
    /// (corrected for the number of comparisons).
    #[must_use]
    pub fn detectable(&self, level: f64) -> f64 {
        const MISSED: f64 = 0.2;
        // Beyond the quantile of twice the missed part lies that part, in one direction.
        let quantiles =
            student_quantile(level, self.degrees) + student_quantile(2.0 * MISSED, self.degrees);
        quantiles * self.error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn few_blocks_and_no_numbers_prove_nothing() {
        let blocks = [1.0; MIN_BLOCKS];
        assert!(shift(&blocks, &blocks).is_some());
        assert_eq!(shift(&blocks, &blocks[1..]), None);
        assert_eq!(shift(&blocks, &[f64::NAN; MIN_BLOCKS]), None);
        assert_eq!(shift(&[0.0; 20], &[0.0; 20]).unwrap().p, 1.0);
    }

    #[test]
    fn a_steady_difference_is_seen_and_has_its_size() {
        let series = |level: f64| (0..30).map(|i| level + f64::from(i * 7 % 5)).collect::<Vec<_>>();
        let found = shift(&series(10.0), &series(40.0)).unwrap();
        assert!(found.p < 1e-6, "{found:?}");
        let (ratio, difference) = (found.ratio().unwrap(), found.difference());
        assert!((ratio.value - 3.5).abs() < 1e-9 && ratio.differs_from_one(), "{ratio:?}");
        assert!((difference.value - 30.0).abs() < 1e-9 && difference.low.unwrap() > 25.0);
        assert!(found.detectable(0.01) < 10.0, "{found:?}");
    }

    #[test]
    fn a_ratio_to_nothing_is_none() {
        let found = shift(&[0.0; 20], &[5.0; 20]).unwrap();
        assert!(found.ratio().is_none() && found.p < 1e-6, "{found:?}");
    }

    #[test]
    fn amounts_in_proportion_to_what_they_are_for_do_not_scatter() {
        let work: Vec<f64> = (1..=20).map(f64::from).collect();
        let waits: Vec<f64> = work.iter().map(|it| 0.3 * it).collect();
        let found = ratios(&waits, &work).unwrap();
        assert!(found.iter().all(|it| (it - 0.3).abs() < 1e-12), "{found:?}");
        assert_eq!(ratios(&waits, &[0.0; 20]), None);
        assert_eq!(ratios(&waits, &work[1..]), None);
    }

    proptest! {
        #[test]
        fn roles_can_be_exchanged(
            a in prop::collection::vec(0.0..1e9f64, 0..40), b in prop::collection::vec(0.0..1e9f64, 0..40),
        ) {
            let (one, other) = (shift(&a, &b), shift(&b, &a));
            prop_assert_eq!(one.is_some(), a.len().min(b.len()) >= MIN_BLOCKS);
            let (Some(one), Some(other)) = (one, other) else { return Ok(()) };
            prop_assert!((one.p - other.p).abs() < 1e-9 && (0.0..=1.0).contains(&one.p));
            let (there, back) = (one.difference(), other.difference());
            let close = |x: f64, y: f64| (x - y).abs() <= 1e-6 * x.abs().max(y.abs()).max(1.0);
            prop_assert!(close(there.low.unwrap(), -back.high.unwrap()));
            prop_assert!(there.low.unwrap() <= there.value && there.value <= there.high.unwrap());
            prop_assert_eq!(one.ratio().is_some(), other.ratio().is_some());
            if let (Some(there), Some(back)) = (one.ratio(), other.ratio()) {
                prop_assert!(close(there.low.unwrap() * back.high.unwrap(), 1.0));
            }
        }

        #[test]
        fn a_series_does_not_differ_from_itself(a in prop::collection::vec(0.0..1e9f64, MIN_BLOCKS..40)) {
            let found = shift(&a, &a).unwrap();
            prop_assert!(found.p > 0.999 && found.difference().value == 0.0);
        }
    }
}
