// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The comparisons, and their decision, all together.

use super::document::Change;
use crate::stats::{Interval, MIN_BLOCKS, SIGNIFICANT, Shift, holm, ratios, shift};

/// One comparison.
#[derive(Clone, Debug)]
pub(super) struct Tested {
    means: [f64; 2],
    /// The quantity itself; `None` if there are too few blocks.
    amount: Option<Shift>,
    /// The quantity for each unit of work; `None` if there was none, or it is one itself.
    by_work: Option<Shift>,
    /// The least difference that matters.
    least: f64,
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

impl Tested {
    /// An amount that grows with the work that is done: it differs only if it also does in proportion to that.
    pub(super) fn amount([a, b]: [&[f64]; 2], work: [&[f64]; 2], least: f64) -> Self {
        let by_work = match [ratios(a, work[0]), ratios(b, work[1])] {
            [Some(a), Some(b)] => shift(&a, &b),
            _ => None,
        };
        Self { means: [mean(a), mean(b)], amount: shift(a, b), by_work, least }
    }

    /// A share of the time.
    pub(super) fn share([a, b]: [&[f64]; 2], least: f64) -> Self {
        Self { means: [mean(a), mean(b)], amount: shift(a, b), by_work: None, least }
    }

    /// The mean of something, of which `amounts` are the sums and `numbers` the numbers. `least` is a part of the larger
    /// mean. `None` if nothing happened in one of the recordings.
    pub(super) fn mean(amounts: [&[f64]; 2], numbers: [&[f64]; 2], least: f64) -> Option<Self> {
        let [a, b] = [0, 1].map(|side| ratios(amounts[side], numbers[side]));
        let (a, b) = (a?, b?);
        // A few busy blocks do not say how others would be.
        let busy = |side: usize| numbers[side].iter().filter(|it| **it > 0.0).count() >= MIN_BLOCKS;
        let amount = if busy(0) && busy(1) { shift(&a, &b) } else { None };
        let means = [mean(&a), mean(&b)];
        Some(Self { means, amount, by_work: None, least: least * means[0].max(means[1]) })
    }

    /// The larger mean.
    pub(super) fn most(&self) -> f64 {
        self.means[0].max(self.means[1])
    }

    /// p-value: of an amount that differs by itself and in proportion to the work, the larger of the two. 1 if one is
    /// more and the other is less.
    fn p(&self) -> Option<f64> {
        let amount = self.amount?;
        Some(match self.by_work {
            None => amount.p,
            Some(by_work) if (amount.b > amount.a) == (by_work.b > by_work.a) => {
                amount.p.max(by_work.p)
            }
            Some(_) => 1.0,
        })
    }
}

/// What a comparison comes to.
#[derive(Clone, Debug)]
pub(super) struct Decided {
    pub(super) change: Change,
    pub(super) means: [f64; 2],
    pub(super) difference: Option<Interval>,
    pub(super) ratio: Option<Interval>,
    pub(super) ratio_by_work: Option<Interval>,
    pub(super) chance: Option<f64>,
    pub(super) detectable: Option<f64>,
}

/// Decides comparisons together, so that one or more of them are wrong at that level only. The order is kept. Also the
/// number of those that could be made.
pub(super) fn decide(all: &[&Tested]) -> (Vec<Decided>, usize) {
    let made: Vec<&Tested> = all.iter().copied().filter(|it| it.amount.is_some()).collect();
    let adjusted = holm(&made.iter().filter_map(|it| it.p()).collect::<Vec<f64>>());
    let alone: Vec<f64> = made.iter().filter_map(|it| it.amount.map(|it| it.p)).collect();
    let mut decisions = adjusted.into_iter().zip(holm(&alone));
    let level = SIGNIFICANT / made.len().max(1) as f64;
    let decided = all.iter().map(|it| match it.amount {
        Some(amount) => decided(it, amount, decisions.next().unwrap_or((1.0, 1.0)), level),
        None => Decided {
            change: Change::NotComparable,
            means: it.means,
            difference: None,
            ratio: None,
            ratio_by_work: None,
            chance: None,
            detectable: None,
        },
    });
    (decided.collect(), made.len())
}

fn decided(it: &Tested, amount: Shift, (chance, alone): (f64, f64), level: f64) -> Decided {
    let change = if (amount.b - amount.a).abs() < it.least {
        Change::Alike
    } else if chance < SIGNIFICANT {
        if amount.b > amount.a { Change::Grown } else { Change::Shrunk }
    } else if alone < SIGNIFICANT && it.by_work.is_some() {
        Change::OtherLoad
    } else {
        Change::Alike
    };
    Decided {
        change,
        means: it.means,
        difference: Some(amount.difference()),
        ratio: amount.ratio(),
        ratio_by_work: it.by_work.and_then(|it| it.ratio()),
        chance: Some(chance),
        detectable: Some(amount.detectable(level).max(it.least)).filter(|it| it.is_finite()),
    }
}
