// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is the true value behind repeated measurements? Mean and confidence interval.

use serde::{Deserialize, Serialize};

/// A mean with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Mean of the repetitions: geometric for [`Scatter::Factor`], arithmetic for [`Scatter::Amount`].
    pub value: f64,
    /// Lower end of the interval; absent with fewer than two repetitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Upper end of the interval; absent with fewer than two repetitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
}

/// How the repetitions of a quantity vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scatter {
    /// By a factor, as times and costs do: mean and interval are computed from logarithms. If a value is not positive,
    /// they are computed from the values.
    Factor,
    /// By an amount, as shares do. Intervals do not extend below 0.
    Amount,
}

/// Two-sided 95 % quantiles of Student's t, by degrees of freedom from 1.
const STUDENT_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// The quantile for more than 30 degrees of freedom: slightly conservative.
const STUDENT_95_MORE: f64 = 2.042;

/// Mean and interval of repetitions; `None` if there are none, or one is not finite.
#[must_use]
pub fn interval(values: &[f64], scatter: Scatter) -> Option<Interval> {
    if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    if scatter == Scatter::Factor && values.iter().all(|value| *value > 0.0) {
        let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
        let (mean, half) = student(&logs);
        let end =
            |sign: f64| half.map(|half| (mean + sign * half).exp()).filter(|end| end.is_finite());
        return Some(Interval { value: mean.exp(), low: end(-1.0), high: end(1.0) });
    }
    let (mean, half) = student(values);
    let low = half.map(|half| (mean - half).max(mean.min(0.0)));
    Some(Interval { value: mean, low, high: half.map(|half| mean + half) })
}

/// Ratio of the second to the first value of each pair; `None` if there are no pairs, or a value is not positive. The
/// values of a pair were measured one after the other, so slow drift cancels out.
#[must_use]
pub fn ratio(pairs: &[(f64, f64)]) -> Option<Interval> {
    if pairs.iter().any(|&(first, second)| first <= 0.0 || second <= 0.0) {
        return None;
    }
    let ratios: Vec<f64> = pairs.iter().map(|(first, second)| second / first).collect();
    interval(&ratios, Scatter::Factor)
}

impl Interval {
    /// For ratios: whether the interval excludes 1.
    #[must_use]
    pub fn differs_from_one(&self) -> bool {
        matches!((self.low, self.high), (Some(low), Some(high)) if low > 1.0 || high < 1.0)
    }
}

/// Mean, and half the width of its confidence interval by Student's t distribution.
fn student(values: &[f64]) -> (f64, Option<f64>) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let degrees = values.len() - 1;
    if degrees == 0 {
        return (mean, None);
    }
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / degrees as f64;
    let quantile = STUDENT_95.get(degrees - 1).copied().unwrap_or(STUDENT_95_MORE);
    (mean, Some(quantile * (variance / n).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn examples() {
        // Mean 2, deviation 1, t(2) = 4.303: 2 +- 2.484, which does not go below 0.
        let amount = interval(&[1.0, 2.0, 3.0], Scatter::Amount).unwrap();
        assert_eq!((amount.value, amount.low), (2.0, Some(0.0)));
        assert!((amount.high.unwrap() - 4.484).abs() < 1e-3);
        // Half and double are equally far from 1.
        let factor = interval(&[0.5, 2.0], Scatter::Factor).unwrap();
        assert!((factor.value - 1.0).abs() < 1e-12);
        assert!((factor.low.unwrap() * factor.high.unwrap() - 1.0).abs() < 1e-9);
        assert!(!factor.differs_from_one());
        assert!(ratio(&[(1.0, 2.0), (2.0, 4.1), (3.0, 5.9)]).unwrap().differs_from_one());
        assert_eq!(interval(&[], Scatter::Amount), None);
        assert_eq!(interval(&[1.0, f64::NAN], Scatter::Factor), None);
        let single = interval(&[7.0], Scatter::Amount).unwrap();
        assert_eq!((single.low, single.high), (None, None));
        assert_eq!(ratio(&[(0.0, 1.0)]), None);
        assert_eq!(interval(&[0.0, 0.0], Scatter::Factor).unwrap().value, 0.0);
    }

    /// About 95 % of the intervals of samples with a known mean contain it.
    #[test]
    fn intervals_cover_the_truth_as_often_as_they_say() {
        let mut state: u64 = 7;
        let mut uniform = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let tries = 4000;
        let covered = (0..tries).filter(|_| {
            // The sum of twelve uniform numbers is nearly normal, with mean 6 and standard deviation 1.
            let sample: Vec<f64> =
                (0..4).map(|_| (0..12).map(|_| uniform()).sum::<f64>()).collect();
            let it = interval(&sample, Scatter::Amount).unwrap();
            (it.low.unwrap()..it.high.unwrap()).contains(&6.0)
        });
        let share = covered.count() as f64 / f64::from(tries);
        assert!((0.935..0.965).contains(&share), "{share}");
    }

    proptest! {
        #[test]
        fn the_mean_is_inside_and_ends_are_numbers(values in prop::collection::vec(1e-3..1e12f64, 1..9)) {
            for scatter in [Scatter::Factor, Scatter::Amount] {
                let it = interval(&values, scatter).unwrap();
                let slack = it.value * 1e-9;
                prop_assert!(it.low.is_none_or(|low| low <= it.value + slack && low >= 0.0));
                prop_assert!(it.high.is_none_or(|high| high >= it.value - slack));
            }
        }
    }
}
