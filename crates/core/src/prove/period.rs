// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether bursts follow the setting of a clock: each block has another value of the setting, in an order that chance
//! decides, and the bursts must be as far apart as the value says, or a multiple of it: not every tick of a clock hurts.
//!
//! How well distances fit a period is the mean of `cos(2 pi distance / period)`: 1 if all of them are multiples of it, about
//! 0 if they have nothing to do with it. Two tests of all orders in which the values could have come, after each round of
//! one block for each value, each with an error of 5 % over all looks ([`Looks`]):
//!
//! - *The bursts do not depend on the setting.* Then the same distances would have been seen in any order. Rejected if
//!   they fit their own values better than those of nearly all other orders.
//! - *The bursts follow the setting*, give or take the same parts. Then other orders would have stretched the distances
//!   with the values. Rejected if one period fits all blocks better than it would in nearly all other orders.

use super::looks::{Looks, Spending};
use super::verdict::{Reason, Test, Verdict};
use crate::stats::Random;
use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;

/// Of each test: 5 % over all looks. Until the first round 1/24, the smallest p-value that four values can have.
const SPENDING: Spending = Spending { error: 0.05, kept: 1.0 / 6.0 };
/// Least mean fit, 0..1, of bursts that follow, or that have one period. Others are among them: on a busy machine, half of
/// the distances of a flusher's bursts were multiples of its interval.
const FITS: f64 = 0.3;
/// How late a tick may be, in parts of the shortest period: a timer that is set anew after its work is late by that.
const LATEST: f64 = 0.2;
/// Steps in which that is tried.
const STEPS: u32 = 8;
/// Ratio of successive periods that are tried.
const STEP: f64 = 1.01;
/// Part of the best fit that is told as one that is as good.
const NEARLY: f64 = 0.95;
/// Fewest distances of bursts in a block that is not missing.
const LEAST_DISTANCES: usize = 2;
/// Most rounds, of one block for each value.
pub const MOST_ROUNDS: usize = 3;
/// Part of the blocks that may have no period.
const MAY_MISS: f64 = 0.25;
/// Fewest and most values of a setting.
const VALUES: std::ops::RangeInclusive<usize> = 4..=5;

/// A block: the period that its setting predicts, and the distances of the bursts that were seen, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeriodBlock {
    /// Predicted.
    pub predicted_ns: f64,
    /// From the beginning of each burst to that of the next.
    pub distances_ns: Vec<f64>,
}

/// What the blocks say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeriodJudgement {
    /// What they say.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Number of rounds that it is from, up to the one that decided.
    pub rounds: u32,
    /// How well the distances fit what the setting predicts, -1..1.
    pub fit: f64,
    /// How much later than that the ticks come, in nanoseconds.
    pub late_ns: f64,
    /// How well they fit one period that all blocks have, -1..1.
    pub fit_of_one: f64,
    /// That period, in nanoseconds.
    pub one_ns: f64,
    /// The test of "the bursts do not depend on the setting".
    pub independent: Test,
    /// The test of "the bursts follow the setting".
    pub follows: Test,
    /// Blocks with too few bursts.
    pub missing: u32,
}

/// The order of the values in a round, as indices. Each order is as likely as the others. The same seed gives the same
/// orders.
#[must_use]
pub fn order(seed: u64, round: usize, values: usize) -> Vec<usize> {
    let mut random = Random::new(seed);
    let mut order = Vec::new();
    for _ in 0..=round {
        order = (0..values).collect();
        for last in (1..values).rev() {
            order.swap(last, random.below(last as u64 + 1) as usize);
        }
    }
    order
}

/// Judges whole rounds, in each of which every value occurs once. Rounds after the verdict are left out. `None` without a
/// round, without any distance, or where a round has fewer than 4 or more than 5 values.
#[must_use]
pub fn judge_periods(rounds: &[Vec<PeriodBlock>]) -> Option<PeriodJudgement> {
    let is_valid = |it: &PeriodBlock| is_length(it.predicted_ns);
    if rounds.iter().any(|it| !VALUES.contains(&it.len()) || !it.iter().all(is_valid)) {
        return None;
    }
    let (mut independent, mut follows) = (Looks::new(SPENDING), Looks::new(SPENDING));
    let mut judgement = None;
    for (at, round) in rounds.iter().take(MOST_ROUNDS).enumerate() {
        let blocks: Vec<&PeriodBlock> = round.iter().collect();
        let own: Vec<f64> = round.iter().map(|it| it.predicted_ns).collect();
        // The first order is that of the round itself.
        let orders = orders(round.len());
        let of_orders =
            |fits: &Fits| orders.iter().map(|order| fits.best(order).0).collect::<Vec<_>>();
        independent.add(&of_orders(&Fits::to_values(&blocks, &own)), 0);
        follows.add(&of_orders(&Fits::to_one_period(&blocks, &own)), 0);
        independent.look();
        follows.look();
        let so_far: Vec<&PeriodBlock> = rounds[..=at].iter().flatten().collect();
        judgement = judged(&so_far, at + 1, round.len() as u32, [&independent, &follows]);
        if judgement.as_ref().is_some_and(|it| !it.verdict.is_undecided()) {
            break;
        }
    }
    judgement
}

fn is_length(ns: f64) -> bool {
    ns.is_finite() && ns > 0.0
}

/// The judgement of the blocks so far.
fn judged(
    blocks: &[&PeriodBlock],
    rounds: usize,
    values: u32,
    [independent, follows]: [&Looks; 2],
) -> Option<PeriodJudgement> {
    let is_missing = |it: &&&PeriodBlock| it.distances_ns.len() < LEAST_DISTANCES;
    let missing = blocks.iter().filter(is_missing).count();
    if blocks.iter().all(|it| it.distances_ns.is_empty()) {
        return None;
    }
    let own = vec![0; blocks.len()];
    let (fit, late_ns) = Fits::to_values(blocks, &[]).best(&own);
    let one = Fits::to_one_period(blocks, &[]);
    let (fit_of_one, best_ns) = one.best(&own);
    // What fits a period also fits its half.
    let one_ns = one.longest(&own, NEARLY * fit_of_one).unwrap_or(best_ns);
    let too_many = missing as f64 > MAY_MISS * blocks.len() as f64;
    let verdict = if too_many && rounds == MOST_ROUNDS {
        Verdict::Inconclusive { reason: Reason::NumbersMissing }
    } else if !too_many && independent.is_rejected() && fit >= FITS {
        Verdict::Confirmed
    } else if !too_many && follows.is_rejected() && fit_of_one >= FITS && fit < FITS {
        Verdict::Refuted
    } else if rounds == MOST_ROUNDS {
        Verdict::Inconclusive { reason: Reason::BlocksUsedUp { blocks_more: None } }
    } else {
        Verdict::Undecided { blocks_more: Some(values) }
    };
    Some(PeriodJudgement {
        verdict,
        rounds: rounds as u32,
        fit,
        late_ns,
        fit_of_one,
        one_ns,
        independent: independent.seen(),
        follows: follows.seen(),
        missing: missing as u32,
    })
}

/// How well the distances of a block fit a period; 0 without any.
fn fit_of(block: &PeriodBlock, period_ns: f64) -> f64 {
    let turns = block.distances_ns.iter().filter(|ns| is_length(**ns)).map(|ns| ns / period_ns);
    let (sum, count) =
        turns.fold((0.0, 0u32), |(sum, count), it| (sum + (TAU * it).cos(), count + 1));
    sum / f64::from(count.max(1))
}

/// How well blocks fit, with each of some parameters that all blocks share.
struct Fits {
    parameters: Vec<f64>,
    /// Of each block, with each value, with each parameter.
    fits: Vec<Vec<Vec<f64>>>,
}

impl Fits {
    /// Of blocks with each of some values; without any, of each block with its own. `period` of a parameter, the block's own
    /// value and the other.
    fn new(
        blocks: &[&PeriodBlock],
        values: &[f64],
        parameters: Vec<f64>,
        period: impl Fn(f64, f64, f64) -> f64,
    ) -> Self {
        let of = |it: &PeriodBlock, value: f64| -> Vec<f64> {
            let periods = parameters.iter().map(|by| period(*by, it.predicted_ns, value));
            periods.map(|period| fit_of(it, period)).collect()
        };
        let of_block = |it: &&PeriodBlock| match values {
            [] => vec![of(it, it.predicted_ns)],
            values => values.iter().map(|value| of(it, *value)).collect(),
        };
        Self { fits: blocks.iter().map(of_block).collect(), parameters }
    }

    /// Fits to the values; the parameter is by how much later the ticks come.
    fn to_values(blocks: &[&PeriodBlock], values: &[f64]) -> Self {
        let shortest = blocks.iter().map(|it| it.predicted_ns).fold(f64::INFINITY, f64::min);
        let lates = (0..=STEPS).map(|step| LATEST * shortest * f64::from(step) / f64::from(STEPS));
        Self::new(blocks, values, lates.collect(), |late, _, value| value + late)
    }

    /// Fits to one period, which is the parameter, of distances that are stretched as if each block had had another value:
    /// from half of the shortest value to twice the longest.
    fn to_one_period(blocks: &[&PeriodBlock], values: &[f64]) -> Self {
        let own = || blocks.iter().map(|it| it.predicted_ns);
        let longest = own().fold(0.0, f64::max) * 2.0;
        let shortest = own().fold(f64::INFINITY, f64::min) / 2.0;
        let periods = std::iter::successors(Some(shortest), |it| Some(it * STEP));
        let periods = periods.take_while(|it| *it <= longest).collect();
        Self::new(blocks, values, periods, |period, own, value| period * own / value)
    }

    /// The mean fit of the blocks, each with the value of that number, with each parameter.
    fn means(&self, order: &[usize]) -> impl DoubleEndedIterator<Item = (f64, f64)> {
        let sum = move |parameter: usize| -> f64 {
            self.fits.iter().zip(order).map(|(fits, value)| fits[*value][parameter]).sum()
        };
        let blocks = self.fits.len().max(1) as f64;
        let all = self.parameters.iter().enumerate();
        all.map(move |(at, parameter)| (sum(at) / blocks, *parameter))
    }

    /// The largest mean fit, and its parameter.
    fn best(&self, order: &[usize]) -> (f64, f64) {
        self.means(order).max_by(|x, y| x.0.total_cmp(&y.0)).unwrap_or_default()
    }

    /// The largest parameter with that mean fit at least.
    fn longest(&self, order: &[usize], least: f64) -> Option<f64> {
        self.means(order).rev().find(|it| it.0 >= least).map(|it| it.1)
    }
}

/// All orders of so many values, by their numbers, that of the numbers first.
fn orders(values: usize) -> Vec<Vec<usize>> {
    let mut orders = vec![(0..values).collect::<Vec<_>>()];
    for at in 0..values {
        let more = orders.iter().flat_map(|order| {
            (at + 1..values).map(|other| {
                let mut order = order.clone();
                order.swap(at, other);
                order
            })
        });
        orders.extend(more.collect::<Vec<_>>());
    }
    orders
}

#[cfg(test)]
mod tests;
