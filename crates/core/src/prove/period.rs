// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a period follows the setting of a clock: each block had another value of the setting, in an order that chance
//! decided, and the period must be as long as the value says.
//!
//! The p-value is the share of all orders in which the same periods would fit their values as well.

use super::judge::State;
use serde::{Deserialize, Serialize};

/// Largest p-value at which a fit is no chance: one of the 24 orders of four values.
const SIGNIFICANT: f64 = 0.05;
/// Largest median distance from the prediction, as a part of it. A timer that is set anew after its work is late by that.
const MISFIT: f64 = 0.12;
/// Periods that spread over less than this part of what the values do have not followed them.
const FOLLOWED: f64 = 0.5;
/// Most rounds, of one block for each value.
pub const MOST_ROUNDS: usize = 3;

/// A block: the period that its setting predicts, and the one that was seen, both in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeriodBlock {
    /// Predicted.
    pub predicted_ns: f64,
    /// Observed.
    pub observed_ns: f64,
}

/// What the blocks say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeriodJudgement {
    /// Whether it is decided.
    pub state: State,
    /// Median distance from the prediction, as a part of it.
    pub misfit: f64,
    /// Spread of the periods over that of the values, on a logarithmic scale: 1 = they follow, 0 = they stay.
    pub followed: f64,
    /// Probability that as good a fit is chance.
    pub p: f64,
}

/// Judges whole rounds: in each, every value occurs once. `None` without a round, or with a block without a period.
#[must_use]
pub fn judge_periods(rounds: &[Vec<PeriodBlock>]) -> Option<PeriodJudgement> {
    let positive = |it: &PeriodBlock| it.predicted_ns > 0.0 && it.observed_ns > 0.0;
    if rounds.is_empty() || rounds.iter().any(|it| it.len() < 3 || !it.iter().all(positive)) {
        return None;
    }
    let blocks: Vec<PeriodBlock> = rounds.iter().flatten().copied().collect();
    let mut misfits: Vec<f64> =
        blocks.iter().map(|it| (it.observed_ns / it.predicted_ns - 1.0).abs()).collect();
    misfits.sort_by(f64::total_cmp);
    let misfit = misfits[misfits.len() / 2];
    let p: f64 = rounds.iter().map(|it| share_as_good(it)).product();
    let followed = slope(&blocks);
    let state = if p <= SIGNIFICANT && misfit <= MISFIT {
        State::Confirmed
    } else if misfit > MISFIT && followed < FOLLOWED {
        State::Refuted
    } else {
        State::Undecided { blocks_more: Some(rounds[0].len() as u32) }
    };
    Some(PeriodJudgement { state, misfit, followed, p })
}

/// The slope of the logarithm of the observed period over that of the predicted one.
fn slope(blocks: &[PeriodBlock]) -> f64 {
    let mean = |of: fn(&PeriodBlock) -> f64| {
        blocks.iter().map(|it| of(it).ln()).sum::<f64>() / blocks.len() as f64
    };
    let (x, y) = (mean(|it| it.predicted_ns), mean(|it| it.observed_ns));
    let sums = blocks.iter().fold((0.0, 0.0), |(xy, xx), it| {
        let dx = it.predicted_ns.ln() - x;
        (xy + dx * (it.observed_ns.ln() - y), xx + dx * dx)
    });
    if sums.1 > 0.0 { sums.0 / sums.1 } else { 0.0 }
}

/// Share of all orders of the values in which the periods fit as well.
fn share_as_good(blocks: &[PeriodBlock]) -> f64 {
    let values: Vec<f64> = blocks.iter().map(|it| it.predicted_ns).collect();
    let observed: Vec<f64> = blocks.iter().map(|it| it.observed_ns).collect();
    let distance = |values: &[f64]| -> f64 {
        values.iter().zip(&observed).map(|(value, it)| (it / value).ln().abs()).sum()
    };
    let made = distance(&values);
    let (mut all, mut as_good) = (0u32, 0u32);
    permutations(&mut values.clone(), 0, &mut |order| {
        all += 1;
        as_good += u32::from(distance(order) <= made + 1e-9);
    });
    f64::from(as_good) / f64::from(all)
}

fn permutations(values: &mut [f64], from: usize, each: &mut impl FnMut(&[f64])) {
    if from + 1 >= values.len() {
        each(values);
        return;
    }
    for other in from..values.len() {
        values.swap(from, other);
        permutations(values, from + 1, each);
        values.swap(from, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(values: [f64; 4], observed: impl Fn(f64) -> f64) -> Vec<PeriodBlock> {
        let block = |value: f64| PeriodBlock { predicted_ns: value, observed_ns: observed(value) };
        values.map(block).into()
    }

    const VALUES: [f64; 4] = [5e9, 3.5e9, 8.5e9, 6.5e9];

    #[test]
    fn a_period_that_follows_is_confirmed_and_one_that_stays_is_refuted() {
        let it = judge_periods(&[round(VALUES, |value| value * 1.02 + 3e7)]).unwrap();
        assert_eq!(it.state, State::Confirmed);
        assert!(
            (it.p - 1.0 / 24.0).abs() < 1e-9 && it.misfit < 0.05 && it.followed > 0.8,
            "{it:?}"
        );
        for stays in [5e9, 2e9, 3.5e9, 9e9] {
            let it = judge_periods(&[round(VALUES, |_| stays)]).unwrap();
            assert_eq!(it.state, State::Refuted, "{stays}: {it:?}");
        }
    }

    #[test]
    fn a_multiple_does_not_fit_and_too_little_is_no_judgement() {
        let it = judge_periods(&[round(VALUES, |value| 2.0 * value)]).unwrap();
        assert_ne!(it.state, State::Confirmed);
        assert_eq!(judge_periods(&[]), None);
        assert_eq!(judge_periods(&[round(VALUES, |_| 0.0)]), None);
    }

    #[test]
    fn a_wild_block_is_borne_and_two_rounds_are_stronger_than_one() {
        let follows = round(VALUES, |value| value);
        let mut wild = follows.clone();
        wild[2].observed_ns = 30e9;
        let one = judge_periods(std::slice::from_ref(&wild)).unwrap();
        let two = judge_periods(&[wild, follows]).unwrap();
        assert_eq!(two.state, State::Confirmed);
        assert!(two.p < one.p, "{one:?} {two:?}");
    }
}
