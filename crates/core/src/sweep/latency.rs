// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Latency of requests, including those that were never answered.

use serde::{Deserialize, Serialize};

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Time from when the request was due to its answer, or to the end of the wait for an answer, in nanoseconds.
    pub ns: u64,
    /// Whether the request was answered.
    pub answered: bool,
}

/// Latency of the requests of one window, counted from when they were due.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Mean latency, in nanoseconds.
    pub mean_ns: f64,
    /// Median latency.
    pub p50_ns: u64,
    /// 99th percentile; absent with fewer than 100 requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    /// Longest latency.
    pub max_ns: u64,
    /// Whether unanswered requests are included. They count with the time that they had waited, so the real values are
    /// higher.
    pub at_least: bool,
}

/// Minimum number of samples for a 99th percentile; with fewer it would be the maximum.
const P99_SAMPLES: usize = 100;

impl Latency {
    /// Latency of all requests of a window that did not fail; `None` if none was answered.
    #[must_use]
    pub fn of(mut samples: Vec<Sample>) -> Option<Self> {
        if !samples.iter().any(|sample| sample.answered) {
            return None;
        }
        samples.sort_unstable_by_key(|sample| sample.ns);
        let sum: f64 = samples.iter().map(|sample| sample.ns as f64).sum();
        let at = |percent: usize| samples[(samples.len() * percent).div_ceil(100).max(1) - 1].ns;
        Some(Self {
            mean_ns: sum / samples.len() as f64,
            p50_ns: at(50),
            p99_ns: (samples.len() >= P99_SAMPLES).then(|| at(99)),
            max_ns: at(100),
            at_least: samples.iter().any(|sample| !sample.answered),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn answered(ns: impl IntoIterator<Item = u64>) -> Vec<Sample> {
        ns.into_iter().map(|ns| Sample { ns, answered: true }).collect()
    }

    #[test]
    fn examples() {
        let all = Latency::of(answered((1..=200).rev())).unwrap();
        assert_eq!((all.mean_ns, all.p50_ns, all.p99_ns, all.max_ns), (100.5, 100, Some(198), 200));
        assert!(!all.at_least);
        assert_eq!(Latency::of(answered(1..=99)).unwrap().p99_ns, None);
        let lost = vec![Sample { ns: 5, answered: false }];
        assert_eq!(Latency::of(lost.clone()), None);
        assert!(Latency::of([lost, answered([1])].concat()).unwrap().at_least);
    }

    proptest! {
        #[test]
        fn they_are_in_order(ns in prop::collection::vec(0..u64::MAX / 4096, 1..400), lost in 0usize..3) {
            let mut samples = answered(ns);
            let n = samples.len();
            for sample in samples.iter_mut().take(lost.min(n - 1)) {
                sample.answered = false;
            }
            let it = Latency::of(samples).unwrap();
            prop_assert!(it.p50_ns <= it.p99_ns.unwrap_or(it.max_ns) && it.p99_ns.unwrap_or(0) <= it.max_ns);
            prop_assert!(it.mean_ns <= it.max_ns as f64 * (1.0 + 1e-9));
        }
    }
}
