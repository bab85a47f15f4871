// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Upper tails of distributions: how likely is an amount, or a larger one?

/// Probability of `k` or more independent events where `mean` are expected:
/// `1 - sum(i < k) mean^i e^-mean / i!`. For `k` above the mean, the upper tail itself is summed, so that small
/// probabilities keep their precision.
#[must_use]
pub fn poisson(k: u64, mean: f64) -> f64 {
    if k == 0 {
        return 1.0;
    }
    if mean <= 0.0 {
        return 0.0;
    }
    let log_mean = mean.ln();
    let term = |log: f64| (log - mean).exp();
    let mut log = 0.0;
    if (k as f64) <= mean {
        let mut below = term(log);
        for i in 1..k {
            log += log_mean - (i as f64).ln();
            below += term(log);
        }
        return (1.0 - below).clamp(0.0, 1.0);
    }
    for i in 1..=k {
        log += log_mean - (i as f64).ln();
    }
    let (mut sum, mut next) = (0.0, term(log));
    let mut i = k;
    // Above the mean, terms decrease at least geometrically.
    while next > sum * 1e-16 && next > 0.0 {
        sum += next;
        i += 1;
        next *= mean / i as f64;
    }
    sum.min(1.0)
}

/// Probability of `k` or more successes in `n` independent trials with probability `p` each:
/// `sum(i >= k) C(n, i) p^i (1-p)^(n-i)`.
pub(super) fn binomial(k: u64, n: u64, p: f64) -> f64 {
    if k == 0 || p >= 1.0 {
        return 1.0;
    }
    if k > n || p <= 0.0 {
        return 0.0;
    }
    let (log_p, log_q) = (p.ln(), (-p).ln_1p());
    let mut log_choose = 0.0;
    let mut sum = 0.0;
    for i in 0..=n {
        if i > 0 {
            log_choose += ((n - i + 1) as f64).ln() - (i as f64).ln();
        }
        if i >= k {
            sum += (log_choose + i as f64 * log_p + (n - i) as f64 * log_q).exp();
        }
    }
    sum.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::{binomial, poisson};
    use proptest::prelude::*;

    #[test]
    fn tails_of_tables() {
        // 1 - e^-1 (1 + 1 + 1/2); four heads in four tosses.
        assert!((poisson(3, 1.0) - 0.080_301_397).abs() < 1e-8);
        assert!((poisson(20, 2.0) - 5.9e-14).abs() < 1e-14, "{}", poisson(20, 2.0));
        assert!((binomial(4, 4, 0.5) - 0.0625).abs() < 1e-12);
        assert!((binomial(14, 14, 0.25) - 0.25f64.powi(14)).abs() < 1e-18);
    }

    proptest! {
        #[test]
        fn more_is_less_likely(k in 0..200u64, n in 0..200u64, mean in 0.0..100.0f64, p in 0.0..1.0f64) {
            prop_assert!(poisson(k + 1, mean) <= poisson(k, mean) + 1e-12);
            prop_assert!(binomial(k + 1, n, p) <= binomial(k, n, p) + 1e-12);
            prop_assert!((0.0..=1.0).contains(&poisson(k, mean)) && (0.0..=1.0).contains(&binomial(k, n, p)));
        }

        #[test]
        fn what_is_expected_more_is_more_likely(k in 1..50u64, mean in 0.1..40.0f64, more in 0.0..40.0f64) {
            prop_assert!(poisson(k, mean) <= poisson(k, mean + more) + 1e-12);
        }
    }
}
