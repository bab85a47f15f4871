// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much does the change move the measure? What an effect is, its estimate, and its undoing.

use super::design::{Arm, Design, GROUP};
use serde::{Deserialize, Serialize};

/// Where the hypothesis says that the change moves the measure. An effect is positive in this direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The change makes it smaller: a loss, a latency.
    Falls,
    /// The change makes it larger: requests per second.
    Rises,
}

/// The smallest effect that counts as one, fixed before the experiment starts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MinimalEffect {
    /// That much of what the measure is in the blocks as the host is, 0..1 (for a rise, above 1 too). Noise may be in
    /// proportion to the measure, as that of times and costs is.
    Share(f64),
    /// That amount, in the unit of the measure.
    Amount(f64),
}

impl MinimalEffect {
    /// The number: a part, or an amount.
    #[must_use]
    pub fn part(self) -> f64 {
        match self {
            Self::Share(it) | Self::Amount(it) => it,
        }
    }
}

/// An effect with its limits, in the terms of the minimal effect: a share of the measure as the host is, or an amount
/// in its unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Median of the effects of all pairs of a block as the host is and one with the change in the same group
    /// (Hodges & Lehmann 1963): a single wild block hardly moves it.
    pub estimate: f64,
    /// The effect is at least this, with a certainty of 95 % over all looks together. Absent: too few blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// The effect is at most this, with a certainty of 95 % over all looks together. Absent: too few blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
}

/// How effects are counted: in which direction, and as what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub(super) direction: Direction,
    pub(super) minimal: MinimalEffect,
}

impl Scale {
    /// The minimal effect as a number.
    pub(super) fn minimal(self) -> f64 {
        match self.minimal {
            MinimalEffect::Share(it) | MinimalEffect::Amount(it) => it,
        }
    }

    /// Whether there can be such an effect: nothing falls by more than the whole.
    pub(super) fn is_possible(self, effect: f64) -> bool {
        let is_share = matches!(self.minimal, MinimalEffect::Share(_));
        !is_share || self.undo(1.0, effect) > 0.0
    }

    /// What a block with the change would have measured without it, if the change has this effect.
    pub(super) fn undo(self, number: f64, effect: f64) -> f64 {
        let rise = match self.direction {
            Direction::Falls => -effect,
            Direction::Rises => effect,
        };
        match self.minimal {
            MinimalEffect::Share(_) => number / (1.0 + rise),
            MinimalEffect::Amount(_) => number - rise,
        }
    }

    /// The effect in a pair of blocks. `None` if it could be anything.
    fn of_pair(self, before: f64, changed: f64) -> Option<f64> {
        let rise = match self.minimal {
            MinimalEffect::Share(_) if before == 0.0 && changed == 0.0 => return None,
            MinimalEffect::Share(_) => changed / before - 1.0,
            MinimalEffect::Amount(_) => changed - before,
        };
        Some(match self.direction {
            Direction::Falls => -rise,
            Direction::Rises => rise,
        })
    }

    /// Effects of all pairs of blocks of the same group, ascending. Blocks without a number have none.
    pub(super) fn of_pairs(self, design: &Design, numbers: &[Option<f64>]) -> Vec<f64> {
        let of = |first: usize, wanted: Arm| {
            let places = first..(first + GROUP).min(numbers.len());
            places.filter(move |at| design.arm(*at) == Some(wanted)).filter_map(|at| numbers[at])
        };
        let mut effects = Vec::new();
        for first in (0..numbers.len()).step_by(GROUP) {
            for before in of(first, Arm::Before) {
                effects.extend(of(first, Arm::Changed).filter_map(|it| self.of_pair(before, it)));
            }
        }
        effects.sort_by(f64::total_cmp);
        effects
    }
}

/// The median of ascending numbers.
pub(super) fn median(ascending: &[f64]) -> Option<f64> {
    let n = ascending.len();
    let [low, high] = [ascending.get(n.checked_sub(1)? / 2)?, ascending.get(n / 2)?];
    // The mean of two equal infinities is not a number.
    Some(if low == high { *low } else { (low + high) / 2.0 })
}
