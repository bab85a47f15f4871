// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Could chance have drawn an order in which the data look as they do, given that they were looked at several times?
//!
//! A randomisation test. Each round of an experiment (a group, or one block for each value of a setting) was done in
//! one of several orders, all as likely as each other. If the order made no difference, the same numbers would have
//! come out in any other order, which gives every order of the whole experiment its statistic, a sum over the rounds.
//! The p-value is the part of the orders that look at least as extreme as the real one.
//!
//! The test is repeated after each round, and an experiment ends when it is decided. So the error is spent over the looks
//! (Lan & DeMets 1983), but on the orders themselves instead of a normal approximation: after round `k`, those orders
//! are rejected whose statistic is the largest among the orders not rejected before, as many as keep the rejected part
//! at or below [`Spending::until`]. Whatever the numbers are, no larger part is rejected: the error is exact, without
//! assumptions about noise, drift or correlation.

use super::verdict::Test;
use crate::stats::Random;

/// Most orders that are all counted. From then on each order so far is continued in one random way, with a fixed seed:
/// the p-value then has a standard error of 0.1 points at 5 %.
const MOST_ORDERS: usize = 50_000;
/// Statistics that differ by less are equal: they are sums of the same numbers.
const ROUNDING: f64 = 1e-9;

/// How much of the error may be spent until a round: `error * (1 - kept^round)`, the whole of it in an endless
/// experiment. It does not depend on the number of rounds, so an experiment can be prolonged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spending {
    /// Probability of a false rejection in all looks together.
    pub(super) error: f64,
    /// The part of what is left that a round leaves.
    pub(super) kept: f64,
}

impl Spending {
    /// Largest p-value that is rejected in a round, counted from 1.
    pub(super) fn until(self, round: u32) -> f64 {
        self.error * (1.0 - self.kept.powf(f64::from(round)))
    }
}

/// The test, round after round.
pub(super) struct Looks {
    spending: Spending,
    rounds: u32,
    /// Statistic of each order of the rounds so far.
    sums: Vec<f64>,
    /// Whether the order was rejected in an earlier look.
    rejected: Vec<bool>,
    /// Index of the order that was drawn.
    actual: usize,
    /// Sum of the means of the rounds, over their orders.
    mean: f64,
    /// Sum of the variances of the rounds.
    variance: f64,
    random: Random,
    p: f64,
}

impl Looks {
    pub(super) fn new(spending: Spending) -> Self {
        Self {
            spending,
            rounds: 0,
            sums: vec![0.0],
            rejected: vec![false],
            actual: 0,
            mean: 0.0,
            variance: 0.0,
            random: Random::new(1),
            p: 1.0,
        }
    }

    /// Adds a round: what each of its orders adds to the statistic (large = against the null hypothesis), and which of
    /// them was drawn.
    pub(super) fn add(&mut self, scores: &[f64], actual: usize) {
        let n = scores.len();
        self.rounds += 1;
        let mean = scores.iter().sum::<f64>() / n as f64;
        self.mean += mean;
        self.variance += scores.iter().map(|score| (score - mean).powi(2)).sum::<f64>() / n as f64;
        if self.sums.len() * n <= MOST_ORDERS {
            let of_all = |sum: &f64| scores.iter().map(|score| sum + score).collect::<Vec<_>>();
            self.sums = self.sums.iter().flat_map(of_all).collect();
            self.rejected =
                self.rejected.iter().flat_map(|it| std::iter::repeat_n(*it, n)).collect();
            self.actual = self.actual * n + actual;
            return;
        }
        for (at, sum) in self.sums.iter_mut().enumerate() {
            let drawn = self.random.below(n as u64) as usize;
            *sum += scores[if at == self.actual { actual } else { drawn }];
        }
    }

    /// Looks at the data: rejects what may be rejected until this round.
    pub(super) fn look(&mut self) {
        let all = self.sums.len();
        let before = self.rejected.iter().filter(|it| **it).count();
        let open = || self.sums.iter().zip(&self.rejected).filter(|(_, rejected)| !**rejected);
        if !self.is_rejected() {
            let least = self.sums[self.actual] - ROUNDING;
            let extreme = open().filter(|(sum, _)| **sum >= least).count();
            self.p = (before + extreme) as f64 / all as f64;
        }
        // A part of exactly the limit may be rejected.
        let may = (self.limit() * all as f64 * (1.0 + ROUNDING)) as usize;
        let Some(more) = may.checked_sub(before).filter(|more| *more > 0) else { return };
        let mut sums: Vec<f64> = open().map(|(sum, _)| *sum).collect();
        if more < sums.len() {
            let (_, largest_kept, _) =
                sums.select_nth_unstable_by(more, |one, other| other.total_cmp(one));
            let above = *largest_kept + ROUNDING;
            for (sum, rejected) in self.sums.iter().zip(&mut self.rejected) {
                *rejected |= *sum > above;
            }
        }
    }

    /// Whether the null hypothesis was rejected in one of the looks.
    pub(super) fn is_rejected(&self) -> bool {
        self.rejected[self.actual]
    }

    /// What the test says now. Its p-value is that of the look that rejected, or of the last one.
    pub(super) fn seen(&self) -> Test {
        Test { p: self.p, limit: self.limit(), rejected: self.is_rejected() }
    }

    /// Largest p-value that is rejected now.
    fn limit(&self) -> f64 {
        self.spending.until(self.rounds)
    }

    /// How many standard deviations the statistic is above its mean over all orders.
    pub(super) fn deviations(&self) -> f64 {
        let above = self.sums[self.actual] - self.mean;
        if self.variance > 0.0 { above / self.variance.sqrt() } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPENDING: Spending = Spending { error: 0.05, kept: 2.0 / 3.0 };
    /// Six orders, of which three speak for an effect.
    const SCORES: [f64; 6] = [1.0, -1.0, 1.0, -1.0, 1.0, -1.0];

    #[test]
    fn the_first_look_may_reject_what_the_most_extreme_of_36_orders_has() {
        assert!((SPENDING.until(2) - 1.0 / 36.0).abs() < 1e-12);
        assert!(SPENDING.until(1000) <= 0.05);
    }

    /// With eight rounds orders are drawn. The number of rounds that speak for an effect has a binomial distribution.
    #[test]
    fn drawn_orders_have_the_p_value_of_all_of_them() {
        let choose = |k: u32| (0..k).fold(1.0, |c, i| c * f64::from(8 - i) / f64::from(i + 1));
        for against in 0..=4 {
            let mut looks = Looks::new(SPENDING);
            (0..8).for_each(|round| looks.add(&SCORES, usize::from(round < against)));
            looks.look();
            let exact = (0..=against).map(choose).sum::<f64>() / 256.0;
            let p = looks.seen().p;
            assert!((p - exact).abs() < 0.01 && p > 0.0, "{against}: {p}, exactly {exact}");
            assert_eq!(looks.is_rejected(), exact <= looks.limit(), "{against}");
        }
    }
}
