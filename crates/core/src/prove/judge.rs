// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the blocks of an experiment say: whether the change lowers the measure, and by how much.
//!
//! The test is a randomisation test (Fisher): under the hypothesis that the change does nothing, the numbers would have been the
//! same in any order of the arms, and each order of [`ORDERS`] was as likely in each group. So the share of all possible
//! experiments that look as strong is the p-value, whatever the noise is: it may drift, be autocorrelated, or have outliers. The
//! statistic is the sum of the ranks of the changed blocks, after the mean of each group is taken away (aligned ranks, Hodges and
//! Lehmann 1962), so that one wild block weighs no more than the largest rank.

use super::design::{Arm, GROUP, ORDERS};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Groups before the first look: with one, no result is unlikely enough.
pub const FIRST_LOOK: usize = 2;
/// Most groups: an experiment that is not decided by then ends without a result.
pub const MOST_GROUPS: usize = 6;
/// Probability of a false `confirmed`, and of a false `refuted`, over all looks.
pub const ERROR: f64 = 0.05;
/// What each look may spend of it: the first as much as the most extreme of its 36 experiments has, the others the rest.
const SPENT: [f64; MOST_GROUPS - FIRST_LOOK + 1] = [0.0278, 0.0055, 0.0055, 0.0055, 0.0055];
/// Level of the interval of the effect, both sides together.
const INTERVAL_ERROR: f64 = 0.05;
/// Steps in which the ends of the interval are looked for.
const STEPS: u32 = 400;
/// A measure that is less than this part of the baseline in the unchanged blocks is not the symptom any more.
const SYMPTOM: f64 = 0.3;

/// A group of blocks: what was done, and the numbers.
pub type Group = [(Arm, f64); GROUP];

/// What is asked. Fixed before the first block.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The measure before the experiment.
    pub baseline: f64,
    /// The least fall that counts, in the unit of the measure.
    pub least: f64,
}

/// What the blocks say so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// Whether it is decided.
    pub state: State,
    /// By how much the measure is lower in the changed blocks: the estimate, and the ends of the interval.
    pub effect: Effect,
    /// Probability that a change which does nothing looks as good.
    pub p_effect: f64,
    /// Probability that a change which does the least that counts looks as bad.
    pub p_no_effect: f64,
}

/// A fall of the measure, in its unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Estimate.
    pub fall: f64,
    /// Lower end of the 95 % interval.
    pub from: f64,
    /// Upper end.
    pub to: f64,
}

/// The state of an experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The change lowers the measure by what counts.
    Confirmed,
    /// It does not.
    Refuted,
    /// Not decided; about so many blocks more are needed, `None` if that cannot be told.
    Undecided {
        /// The number of blocks.
        blocks_more: Option<u32>,
    },
    /// The symptom is not there any more: nothing can be learned.
    NoSymptom,
}

/// Judges the complete groups; `None` with fewer than [`FIRST_LOOK`].
#[must_use]
pub fn judge(groups: &[Group], question: Question) -> Option<Judgement> {
    let spent = *SPENT.get(groups.len().checked_sub(FIRST_LOOK)?).or(SPENT.last())?;
    let p_effect = p_lower(groups, 0.0);
    let p_no_effect = p_higher(groups, question.least);
    let effect = effect(groups);
    let before = median(of_arm(groups, Arm::Before));
    let state = if before < SYMPTOM * question.baseline {
        State::NoSymptom
    } else if p_effect <= spent && effect.fall >= question.least {
        State::Confirmed
    } else if p_no_effect <= spent && effect.fall < question.least {
        State::Refuted
    } else {
        let nearer = p_effect.min(p_no_effect);
        State::Undecided { blocks_more: blocks_more(groups.len(), nearer) }
    };
    Some(Judgement { state, effect, p_effect, p_no_effect })
}

/// The numbers of the blocks of one arm.
fn of_arm(groups: &[Group], arm: Arm) -> Vec<f64> {
    groups.iter().flatten().filter(|block| block.0 == arm).map(|block| block.1).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// Twice the rank of each block among all, after the mean of its group is taken away and `fall` is given back to the changed
/// blocks. Equal numbers share their ranks.
fn ranks(groups: &[Group], fall: f64) -> Vec<[u32; GROUP]> {
    let aligned: Vec<f64> = groups
        .iter()
        .flat_map(|group| {
            let given = group.map(|(arm, value)| match arm {
                Arm::Before => value,
                Arm::Changed => value + fall,
            });
            let mean = given.iter().sum::<f64>() / GROUP as f64;
            given.map(|value| value - mean)
        })
        .collect();
    let rank = |of: f64| {
        let below = aligned.iter().filter(|it| **it < of).count();
        let alike = aligned.iter().filter(|it| **it == of).count();
        (2 * below + alike + 1) as u32
    };
    aligned.chunks(GROUP).map(|group| std::array::from_fn(|i| rank(group[i]))).collect()
}

fn sum(ranks: &[u32; GROUP], order: &[Arm; GROUP]) -> u32 {
    ranks.iter().zip(order).filter(|(_, arm)| **arm == Arm::Changed).map(|(rank, _)| rank).sum()
}

/// How many of all possible experiments have which sum of ranks, and the sum of the one that was made.
fn distribution(groups: &[Group], fall: f64) -> (BTreeMap<u32, f64>, u32) {
    let mut all = BTreeMap::from([(0, 1.0)]);
    let mut made = 0;
    for (ranks, group) in ranks(groups, fall).iter().zip(groups) {
        made += sum(ranks, &group.map(|block| block.0));
        let mut with = BTreeMap::new();
        for (so_far, chance) in &all {
            for order in &ORDERS {
                *with.entry(so_far + sum(ranks, order)).or_insert(0.0) +=
                    chance / ORDERS.len() as f64;
            }
        }
        all = with;
    }
    (all, made)
}

/// Probability that the changed blocks are as low as they are, if the change lowers them by `fall`.
fn p_lower(groups: &[Group], fall: f64) -> f64 {
    let (all, made) = distribution(groups, fall);
    all.range(..=made).map(|it| it.1).sum::<f64>().min(1.0)
}

/// Probability that the changed blocks are as high as they are, if the change lowers them by `fall`.
fn p_higher(groups: &[Group], fall: f64) -> f64 {
    let (all, made) = distribution(groups, fall);
    all.range(made..).map(|it| it.1).sum::<f64>().min(1.0)
}

/// The falls that the numbers do not contradict (inversion of the test), and their middle.
fn effect(groups: &[Group]) -> Effect {
    let (before, changed) = (of_arm(groups, Arm::Before), of_arm(groups, Arm::Changed));
    let fall = median(before.clone()) - median(changed.clone());
    let ends = |values: &[f64]| {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        (least, values.iter().copied().fold(f64::NEG_INFINITY, f64::max))
    };
    let ((a_least, a_most), (b_least, b_most)) = (ends(&before), ends(&changed));
    let (from, to) = (a_least - b_most, a_most - b_least);
    let step = (to - from) / f64::from(STEPS);
    let error = INTERVAL_ERROR / 2.0;
    let fits = |fall: f64| p_lower(groups, fall) > error && p_higher(groups, fall) > error;
    let mut falls = (0..=STEPS).map(|i| from + f64::from(i) * step).filter(|fall| fits(*fall));
    let first = falls.next().unwrap_or(fall);
    let last = falls.next_back().unwrap_or(first);
    Effect { fall, from: first.min(fall), to: last.max(fall) }
}

/// About how many blocks more decide, if the numbers go on as they are: the distance from chance, in standard deviations, grows
/// with the square root of their number.
fn blocks_more(groups: usize, p: f64) -> Option<u32> {
    let deviations = |p: f64| crate::stats::student_quantile(p.clamp(1e-9, 1.0), 1e6);
    let (is, needed) = (deviations(2.0 * p.min(0.5)), deviations(2.0 * SPENT[SPENT.len() - 1]));
    let times = (needed / is).powi(2);
    let more = (groups as f64 * times).ceil() - groups as f64;
    (more.is_finite() && more < 50.0).then(|| (more.max(1.0) as u32) * GROUP as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prove::design::Draw;
    use proptest::prelude::*;

    const QUESTION: Question = Question { baseline: 100.0, least: 25.0 };

    fn groups(n: usize, seed: u64, mut value: impl FnMut(Arm) -> f64) -> Vec<Group> {
        let mut draw = Draw::new(seed);
        (0..n).map(|_| draw.order().map(|arm| (arm, value(arm)))).collect()
    }

    #[test]
    fn a_clear_effect_is_confirmed_at_the_first_look_and_none_is_refuted() {
        let mut noise = Draw::new(9);
        let mut around = |mean: f64| mean + noise.below(10) as f64;
        let clear = groups(2, 1, |arm| around(if arm == Arm::Changed { 20.0 } else { 100.0 }));
        let it = judge(&clear, QUESTION).unwrap();
        assert_eq!(it.state, State::Confirmed);
        assert!((it.p_effect - 1.0 / 36.0).abs() < 1e-9, "{it:?}");
        assert!(it.effect.from <= 80.0 && it.effect.to >= 75.0 && it.effect.from > 25.0, "{it:?}");
        let none = groups(2, 1, |_| around(100.0));
        assert_eq!(judge(&none, QUESTION).unwrap().state, State::Refuted);
        assert_eq!(judge(&none[..1], QUESTION), None);
    }

    #[test]
    fn worse_is_refuted_too_little_is_not_confirmed_and_no_symptom_is_said() {
        let worse = groups(2, 3, |arm| if arm == Arm::Changed { 200.0 } else { 100.0 });
        assert_eq!(judge(&worse, QUESTION).unwrap().state, State::Refuted);
        let little = groups(3, 3, |arm| if arm == Arm::Changed { 90.0 } else { 100.0 });
        assert_eq!(judge(&little, QUESTION).unwrap().state, State::Refuted);
        let gone = groups(2, 3, |arm| if arm == Arm::Changed { 1.0 } else { 5.0 });
        assert_eq!(judge(&gone, QUESTION).unwrap().state, State::NoSymptom);
    }

    #[test]
    fn one_wild_block_does_not_undo_what_the_others_say() {
        for wild in 0..8_usize {
            let mut numbers =
                groups(3, wild as u64, |arm| if arm == Arm::Changed { 20.0 } else { 100.0 });
            numbers[wild / GROUP][wild % GROUP].1 = 10_000.0;
            let it = judge(&numbers, QUESTION).unwrap();
            assert_ne!(it.state, State::Refuted, "{wild}: {it:?}");
        }
    }

    proptest! {
        /// Under no effect the p-value is at most `x` in at most that share of all experiments: all orders of one set of
        /// numbers are gone through.
        #[test]
        fn the_p_value_is_exact(numbers in prop::collection::vec(0.0..1e6f64, 8)) {
            let mut ps = Vec::new();
            for first in ORDERS {
                for second in ORDERS {
                    let of = |order: [Arm; GROUP], from: usize| -> Group {
                        std::array::from_fn(|i| (order[i], numbers[from + i]))
                    };
                    ps.push(p_lower(&[of(first, 0), of(second, GROUP)], 0.0));
                }
            }
            for x in [0.0278, 0.1, 0.3, 0.7] {
                let at_most = ps.iter().filter(|p| **p <= x + 1e-9).count();
                prop_assert!(at_most as f64 / 36.0 <= x + 1e-4, "{at_most} at {x}");
            }
        }

        /// The unit does not matter, nor does a constant.
        #[test]
        fn scale_and_origin_do_not_matter(
            numbers in prop::collection::vec(1.0..1e3f64, 8),
            seed: u64,
            times in prop::sample::select(vec![0.5, 2.0, 1024.0]),
        ) {
            let mut at = 0;
            let plain = groups(2, seed, |_| { at += 1; numbers[at - 1] });
            let scaled: Vec<Group> =
                plain.iter().map(|group| group.map(|(arm, value)| (arm, value * times))).collect();
            let question = |by: f64| Question { baseline: 300.0 * by, least: 50.0 * by };
            let (one, other) = (judge(&plain, question(1.0)).unwrap(), judge(&scaled, question(times)).unwrap());
            prop_assert_eq!(one.state, other.state);
            prop_assert!((one.p_effect - other.p_effect).abs() < 1e-9);
            prop_assert!(one.effect.from <= one.effect.fall && one.effect.fall <= one.effect.to);
        }
    }
}
