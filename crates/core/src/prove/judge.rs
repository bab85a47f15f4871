// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Does the change move the measure, and by as much as the hypothesis says?
//!
//! Two tests, each after every group, each with an error of 5 % over all looks together ([`Looks`]):
//!
//! - *There is no effect.* If rejected, and the estimated effect is at least the minimal one, the hypothesis is
//!   confirmed.
//! - *The effect is at least the minimal one.* The minimal effect is taken back from the blocks with the change; they
//!   should then not be worse than the others. If rejected, the hypothesis is refuted.
//!
//! The statistic counts in how many pairs of a block without and one with the change, in the same group, the former is
//! larger (Wilcoxon, stratified), because one wild block must not decide. The differences themselves, as parts of the
//! range of their group, only decide between orders with the same count. A block without a number counts against the
//! test that it is used in: as worse than all others if it should have been better. So what made it missing need not
//! be known.

use super::design::{Arm, Design, GROUP, ORDERS};
use super::effect::{Direction, Effect, MinimalEffect, Scale, median};
use super::looks::{Looks, Spending};
use super::verdict::{Judgement, Look, Reason, Verdict};
use crate::text::Unit;
use serde::{Deserialize, Serialize};

/// Of each test: 5 % over all looks. Until the second group 1/36, the smallest p-value that it can have.
pub(super) const SPENDING: Spending = Spending { error: 0.05, kept: 2.0 / 3.0 };
/// The symptom is absent where both blocks as the host was have less than this part of the pilot's number.
const PRESENT: f64 = 0.25;
/// Part of an arm's blocks that may have no number.
const MAY_MISS: f64 = 0.25;
/// Weight of the differences against that of the count: all of a group together weigh less than one pair.
const OF_DIFFERENCE: f64 = 0.01;
/// Numbers that differ by no more than this part are equal: taking an effect back rounds, and of equal numbers one must not
/// become the larger by that.
const SAME: f64 = 1e-9;
/// Standard deviations of the statistic with which a test is usually decided.
const DECIDES: f64 = 1.9;
/// More blocks than this cannot be foretold.
const FORETOLD: f64 = 400.0;

/// When the symptom counts as present in the blocks as the host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guard {
    /// Always.
    Off,
    /// While the measure is a quarter of the pilot's or more; if the hypothesis is a rise, also at most four times of it.
    Pilot,
}

/// What an experiment asks, fixed before it starts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Unit of the measure.
    pub unit: Unit,
    /// Where the change should move the measure.
    pub direction: Direction,
    /// The smallest effect that counts.
    pub minimal_effect: MinimalEffect,
    /// The measure before the experiment, in its unit.
    pub pilot: f64,
    /// Whether the pilot's number guards the experiment.
    pub guard: Guard,
}

/// A question that cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ImpossibleQuestion {
    /// The minimal effect is no effect, or more than everything.
    #[error(
        "a minimal effect of {0} is not possible: it must be above 0, and a share by which a measure falls must be \
         below 1"
    )]
    MinimalEffect(f64),
    /// The pilot has no symptom.
    #[error(
        "the measure was {0} before the experiment: with nothing to change, nothing can be proved"
    )]
    Pilot(f64),
}

impl Question {
    /// Whether it can be asked.
    ///
    /// # Errors
    /// The minimal effect is not above 0, or a fall by the whole or more; or the pilot's number is not above 0, and
    /// guards the experiment.
    pub fn check(&self) -> Result<(), ImpossibleQuestion> {
        let (minimal, pilot) = (self.scale().minimal(), self.pilot);
        let is_share = matches!(self.minimal_effect, MinimalEffect::Share(_));
        let all = is_share && self.direction == Direction::Falls && minimal >= 1.0;
        if !minimal.is_finite() || minimal <= 0.0 || all {
            return Err(ImpossibleQuestion::MinimalEffect(minimal));
        }
        let guards = self.guard == Guard::Pilot;
        if !pilot.is_finite() || guards && pilot <= 0.0 {
            return Err(ImpossibleQuestion::Pilot(pilot));
        }
        Ok(())
    }

    pub(super) fn scale(&self) -> Scale {
        Scale { direction: self.direction, minimal: self.minimal_effect }
    }

    /// Whether the symptom is there, in a group.
    fn is_present(&self, before: &[f64]) -> bool {
        let high = before.iter().copied().reduce(f64::max);
        let low = before.iter().copied().reduce(f64::min);
        let (Some(high), Some(low), Guard::Pilot) = (high, low, self.guard) else { return true };
        let has_load = high >= PRESENT * self.pilot;
        has_load && (self.direction == Direction::Falls || low * PRESENT <= self.pilot)
    }
}

/// What a test asks about the effect.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Side {
    /// Rejected if the effect is larger.
    Larger,
    /// Rejected if the effect is smaller.
    Smaller,
}

/// A test of one size of the effect, group after group.
pub(super) struct SizeTest<'a> {
    design: &'a Design,
    scale: Scale,
    side: Side,
    effect: f64,
    looks: Looks,
    groups: usize,
}

impl<'a> SizeTest<'a> {
    pub(super) fn new(design: &'a Design, scale: Scale, side: Side, effect: f64) -> Self {
        let looks = Looks::new(SPENDING);
        Self { design, scale, side, effect, looks, groups: 0 }
    }

    /// Adds a group, and looks if it is time.
    pub(super) fn add(&mut self, four: &[Option<f64>; GROUP]) {
        let order = self.design.order(self.groups);
        let mut values = [0.0; GROUP];
        // Without an effect of this size, all values are from one population; with the effect that is looked for, those
        // as the host is are larger.
        let falls = (self.scale.direction == Direction::Falls) == (self.side == Side::Larger);
        let sign = if falls { 1.0 } else { -1.0 };
        for (value, (number, arm)) in values.iter_mut().zip(four.iter().zip(ORDERS[order])) {
            *value = match (number, arm) {
                (Some(number), Arm::Before) => sign * number,
                (Some(number), Arm::Changed) => sign * self.scale.undo(*number, self.effect),
                (None, Arm::Before) => f64::NEG_INFINITY,
                (None, Arm::Changed) => f64::INFINITY,
            }
        }
        self.looks.add(&scores(&values), order);
        self.groups += 1;
        if self.groups >= self.design.limits().least_groups as usize {
            self.looks.look();
        }
    }
}

/// The statistic of a group for each order that it could have had.
fn scores(values: &[f64; GROUP]) -> [f64; ORDERS.len()] {
    let finite = || values.iter().copied().filter(|value| value.is_finite());
    let range = finite().fold(f64::NEG_INFINITY, f64::max) - finite().fold(f64::INFINITY, f64::min);
    let pair = |before: f64, changed: f64| {
        let both = before.abs().max(changed.abs());
        if before == changed || both.is_finite() && (before - changed).abs() <= SAME * both {
            return 0.0;
        }
        let sign = if before > changed { 1.0 } else { -1.0 };
        let part = if range > 0.0 { ((before - changed) / range).clamp(-1.0, 1.0) } else { sign };
        sign + OF_DIFFERENCE * part
    };
    ORDERS.map(|order| {
        let of = |wanted: Arm| {
            values.iter().zip(order).filter(move |(_, arm)| *arm == wanted).map(|(value, _)| *value)
        };
        of(Arm::Before).flat_map(|before| of(Arm::Changed).map(move |it| pair(before, it))).sum()
    })
}

/// Says what the numbers of the blocks so far mean, one for each block in the order of the design. `None`, what is not
/// finite and what is negative is no number. An incomplete group is left out, and so are blocks after the verdict.
#[must_use]
pub fn judge(design: &Design, question: &Question, numbers: &[Option<f64>]) -> Judgement {
    let numbers: Vec<Option<f64>> =
        numbers.iter().map(|number| number.filter(|it| it.is_finite() && *it >= 0.0)).collect();
    let (verdict, looks, used) = decide(design, question, &numbers);
    let numbers = &numbers[..used * GROUP];
    let of = |wanted: Arm| {
        numbers.iter().zip(design.arms()).filter(move |(_, arm)| *arm == wanted).map(|(it, _)| *it)
    };
    let middle = |wanted: Arm| {
        let mut sorted: Vec<f64> = of(wanted).flatten().collect();
        sorted.sort_by(f64::total_cmp);
        median(&sorted)
    };
    let missing = |wanted: Arm| of(wanted).filter(Option::is_none).count() as u32;
    Judgement {
        verdict,
        groups: used as u32,
        before: middle(Arm::Before),
        changed: middle(Arm::Changed),
        effect: effect(design, question.scale(), numbers),
        before_missing: missing(Arm::Before),
        changed_missing: missing(Arm::Changed),
        looks,
    }
}

/// The verdict, the looks, and the number of groups up to the verdict.
pub(super) fn decide(
    design: &Design,
    question: &Question,
    numbers: &[Option<f64>],
) -> (Verdict, Vec<Look>, usize) {
    let scale = question.scale();
    let limits = design.limits();
    let mut no_effect = SizeTest::new(design, scale, Side::Larger, 0.0);
    let mut minimal = SizeTest::new(design, scale, Side::Smaller, scale.minimal());
    let mut looks = Vec::new();
    let mut verdict = Verdict::Undecided { blocks_more: None };
    let most = limits.most_groups as usize;
    let complete = numbers.as_chunks::<GROUP>().0;
    let used = complete.len().min(most);
    for (at, four) in complete[..used].iter().enumerate() {
        let arms = ORDERS[design.order(at)];
        let before: Vec<f64> = four
            .iter()
            .zip(arms)
            .filter(|(_, arm)| *arm == Arm::Before)
            .filter_map(|it| *it.0)
            .collect();
        let so_far = at + 1;
        if !question.is_present(&before) {
            let after_groups = at as u32;
            let gone = Reason::SymptomGone { after_groups };
            let reason = if at == 0 { Reason::SymptomAbsent } else { gone };
            return (Verdict::Inconclusive { reason }, looks, so_far);
        }
        no_effect.add(four);
        minimal.add(four);
        if so_far < limits.least_groups as usize {
            continue;
        }
        let seen = &numbers[..so_far * GROUP];
        let effect = median(&scale.of_pairs(design, seen));
        looks.push(Look {
            groups: so_far as u32,
            no_effect: no_effect.looks.seen(),
            minimal_effect: minimal.looks.seen(),
            effect,
        });
        let is_enough = effect.is_some_and(|it| it >= scale.minimal());
        let towards = if is_enough { &no_effect } else { &minimal };
        let blocks_more = blocks_more(&towards.looks, so_far);
        let missing = too_many_missing(design, seen);
        verdict = match is_enough {
            _ if missing => Verdict::Undecided { blocks_more: None },
            true if no_effect.looks.is_rejected() => Verdict::Confirmed,
            false if minimal.looks.is_rejected() => Verdict::Refuted,
            _ => Verdict::Undecided { blocks_more },
        };
        if !verdict.is_undecided() {
            return (verdict, looks, so_far);
        }
        if so_far == most {
            let used_up = Reason::BlocksUsedUp { blocks_more };
            let reason = if missing { Reason::NumbersMissing } else { used_up };
            verdict = Verdict::Inconclusive { reason };
        }
    }
    (verdict, looks, used)
}

/// Whether more than a quarter of the blocks of an arm have no number.
fn too_many_missing(design: &Design, numbers: &[Option<f64>]) -> bool {
    let missing = |wanted: Arm| {
        let of_arm = numbers.iter().zip(design.arms()).filter(|(_, arm)| *arm == wanted);
        of_arm.filter(|(number, _)| number.is_none()).count() as f64
    };
    let may = MAY_MISS * numbers.len() as f64 / 2.0;
    missing(Arm::Before) > may || missing(Arm::Changed) > may
}

/// About how many more blocks a test needs, if its statistic grows on as it did: in proportion to the number of
/// groups, its standard deviation to their root.
fn blocks_more(looks: &Looks, groups: usize) -> Option<u32> {
    let deviations = looks.deviations();
    if deviations <= 0.0 {
        return None;
    }
    let now = groups as f64;
    let more = (now * (DECIDES / deviations).powi(2) - now).ceil().max(1.0) * GROUP as f64;
    (more <= FORETOLD).then_some(more as u32)
}

/// Whether the sequential test rejects that the effect is this large, or smaller, or larger.
pub(super) fn is_rejected(
    design: &Design,
    scale: Scale,
    numbers: &[Option<f64>],
    side: Side,
    effect: f64,
) -> bool {
    let mut test = SizeTest::new(design, scale, side, effect);
    numbers.as_chunks::<GROUP>().0.iter().for_each(|group| test.add(group));
    !scale.is_possible(effect) || test.looks.is_rejected()
}

/// The effect, with the sizes that the sequential test does not reject: its inversion. The sign of a pair's difference
/// changes where its effect is taken back, so only the effects of the pairs can be limits.
fn effect(design: &Design, scale: Scale, numbers: &[Option<f64>]) -> Option<Effect> {
    let mut pairs = scale.of_pairs(design, numbers);
    let estimate = median(&pairs)?;
    pairs.retain(|it| it.is_finite());
    pairs.dedup();
    let rejects = |side, size| is_rejected(design, scale, numbers, side, size);
    // Between two neighbours the test hardly changes; where it is most cautious there, decides.
    let beside = |limit: f64, towards: f64| limit + 0.001 * (towards - limit);
    let step = pairs.last()?.abs().max(pairs.first()?.abs()).max(f64::MIN_POSITIVE);
    let larger = |at: usize| {
        let below = if at == 0 { pairs[0] - step } else { pairs[at - 1] };
        rejects(Side::Larger, beside(pairs[at], below))
    };
    let smaller = |at: usize| {
        let above = pairs.get(at + 1).copied().unwrap_or(pairs[at] + step);
        rejects(Side::Smaller, beside(pairs[at], above))
    };
    // The sizes that are not rejected need not be without gaps: the limits enclose all of them.
    let at_least = (0..pairs.len()).take_while(|at| larger(*at)).last().map(|at| pairs[at]);
    let at_most = (0..pairs.len()).rev().take_while(|at| smaller(*at)).last().map(|at| pairs[at]);
    // An early look may reject what the later numbers are about: then the limits reach as far as the estimate.
    let at_least = at_least.map(|it| it.min(estimate));
    let at_most = at_most.map(|it| it.max(estimate));
    Some(Effect { estimate, at_least, at_most })
}

#[cfg(test)]
mod tests;
