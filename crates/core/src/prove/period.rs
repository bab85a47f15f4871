// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a period follows the setting of a clock: each block has another value of the setting, in an order that chance
//! decides, and the period must be as long as the value says.
//!
//! Two tests of all orders in which the values could have come, after each round of one block for each value, each
//! with an error of 5 % over all looks ([`Looks`]):
//!
//! - *The period does not depend on the setting.* Then the same periods would have been seen in any order. Rejected if
//!   they are nearer to their own values than to those of nearly all other orders.
//! - *The period follows the setting*, give or take the same parts. Then other orders would have moved the periods
//!   with the values. Rejected if the periods are more alike than they would be in nearly all other orders.

use super::effect::median;
use super::looks::{Looks, Spending};
use super::verdict::{Reason, Test, Verdict};
use crate::stats::Random;
use serde::{Deserialize, Serialize};

/// Of each test: 5 % over all looks. Until the first round 1/24, the smallest p-value that four values can have.
const SPENDING: Spending = Spending { error: 0.05, kept: 1.0 / 6.0 };
/// Largest median distance of periods that fit, or are alike, as a part. A timer that is set anew after its work is
/// late by that.
const MISFIT: f64 = 0.12;
/// Most rounds, of one block for each value.
pub const MOST_ROUNDS: usize = 3;
/// Part of the blocks that may have no period.
const MAY_MISS: f64 = 0.25;
/// Fewest and most values of a setting.
const VALUES: std::ops::RangeInclusive<usize> = 4..=5;

/// A block: the period that its setting predicts, and the one that was seen, both in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeriodBlock {
    /// Predicted.
    pub predicted_ns: f64,
    /// Observed; absent if nothing came at regular times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_ns: Option<f64>,
}

/// What the blocks say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeriodJudgement {
    /// What they say.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Number of rounds that it is from, up to the one that decided.
    pub rounds: u32,
    /// Median distance from the prediction, as a part of it.
    pub misfit: f64,
    /// Median distance of the periods from their median, as a part of it.
    pub spread: f64,
    /// The test of "the period does not depend on the setting".
    pub independent: Test,
    /// The test of "the period follows the setting".
    pub follows: Test,
    /// Blocks without a period.
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
/// round, without any period, or where a round has fewer than 4 or more than 5 values.
#[must_use]
pub fn judge_periods(rounds: &[Vec<PeriodBlock>]) -> Option<PeriodJudgement> {
    let is_valid = |it: &PeriodBlock| it.predicted_ns.is_finite() && it.predicted_ns > 0.0;
    if rounds.iter().any(|it| !VALUES.contains(&it.len()) || !it.iter().all(is_valid)) {
        return None;
    }
    let (mut independent, mut follows) = (Looks::new(SPENDING), Looks::new(SPENDING));
    let mut judgement = None;
    for (at, round) in rounds.iter().take(MOST_ROUNDS).enumerate() {
        let round: Vec<(f64, Option<f64>)> = round.iter().map(logarithms).collect();
        let orders = orders(&round.iter().map(|it| it.0).collect::<Vec<_>>());
        let fit = |order: &Vec<f64>| -> f64 {
            let pairs = round.iter().zip(order);
            -pairs
                .filter_map(|((_, seen), value)| Some((*seen.as_ref()? - value).abs()))
                .sum::<f64>()
        };
        let alike = |order: &Vec<f64>| -> f64 {
            let moved = round.iter().zip(order);
            let moved: Vec<f64> = moved
                .filter_map(|((own, seen), value)| Some(seen.as_ref()? - own + value))
                .collect();
            -distances(&moved).iter().sum::<f64>()
        };
        // The first order is that of the round itself.
        independent.add(&orders.iter().map(fit).collect::<Vec<_>>(), 0);
        follows.add(&orders.iter().map(alike).collect::<Vec<_>>(), 0);
        independent.look();
        follows.look();
        let so_far: Vec<(f64, Option<f64>)> =
            rounds[..=at].iter().flatten().map(logarithms).collect();
        judgement = judged(&so_far, at + 1, round.len() as u32, [&independent, &follows]);
        if judgement.as_ref().is_some_and(|it| !it.verdict.is_undecided()) {
            break;
        }
    }
    judgement
}

/// The judgement of the blocks so far, as logarithms of the predicted and the observed period.
fn judged(
    blocks: &[(f64, Option<f64>)],
    rounds: usize,
    values: u32,
    [independent, follows]: [&Looks; 2],
) -> Option<PeriodJudgement> {
    let seen: Vec<f64> = blocks.iter().filter_map(|it| it.1).collect();
    let part = |mut distances: Vec<f64>| {
        distances.sort_by(f64::total_cmp);
        median(&distances).map(|it| it.exp() - 1.0)
    };
    let misfit = part(blocks.iter().filter_map(|it| Some((it.1? - it.0).abs())).collect())?;
    let spread = part(distances(&seen))?;
    let missing = blocks.len() - seen.len();
    let too_many = missing as f64 > MAY_MISS * blocks.len() as f64;
    let verdict = if too_many && rounds == MOST_ROUNDS {
        Verdict::Inconclusive { reason: Reason::NumbersMissing }
    } else if !too_many && independent.is_rejected() && misfit <= MISFIT {
        Verdict::Confirmed
    } else if !too_many && follows.is_rejected() && spread <= MISFIT && misfit > MISFIT {
        Verdict::Refuted
    } else if rounds == MOST_ROUNDS {
        Verdict::Inconclusive { reason: Reason::BlocksUsedUp { blocks_more: None } }
    } else {
        Verdict::Undecided { blocks_more: Some(values) }
    };
    Some(PeriodJudgement {
        verdict,
        rounds: rounds as u32,
        misfit,
        spread,
        independent: independent.seen(),
        follows: follows.seen(),
        missing: missing as u32,
    })
}

/// Logarithms of the predicted and the observed period. What is not a positive number was not observed.
fn logarithms(block: &PeriodBlock) -> (f64, Option<f64>) {
    let seen = block.observed_ns.filter(|it| it.is_finite() && *it > 0.0);
    (block.predicted_ns.ln(), seen.map(f64::ln))
}

/// Distances of numbers from their median.
fn distances(numbers: &[f64]) -> Vec<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = median(&sorted).unwrap_or_default();
    numbers.iter().map(|it| (it - middle).abs()).collect()
}

/// All orders of some values, their own one first.
fn orders(values: &[f64]) -> Vec<Vec<f64>> {
    let mut orders = vec![values.to_vec()];
    for at in 0..values.len() {
        let more = orders.iter().flat_map(|order| {
            (at + 1..values.len()).map(|other| {
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
