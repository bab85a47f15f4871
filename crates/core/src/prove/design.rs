// SPDX-License-Identifier: Apache-2.0 OR MIT
//! In which blocks of an experiment is the host changed?
//!
//! Four blocks make a group: two as the host is (A), two with the change (B), in one of the six orders that four
//! blocks can have, each as likely as the others. So the arms are balanced after every group, a level that differs
//! between groups cancels out, and what drifts within one favours no arm on average. All six are drawn from, although
//! `AABB` is more exposed to drift than `ABBA`: drift costs power, never validity, and six orders give two groups a
//! smallest p-value of 1/36, where the four orders without runs give 1/16, which decides nothing.

use crate::stats::Random;
use serde::{Deserialize, Serialize};

/// Blocks of a group.
pub const GROUP: usize = 4;
/// Fewest groups after which there may be a verdict.
pub const LEAST: u32 = 2;
/// Most groups of a design: 160 blocks.
pub const MOST: u32 = 40;

/// What a block does to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arm {
    /// A: the host as it was.
    Before,
    /// B: the host with the change.
    Changed,
}

use Arm::{Before, Changed};

/// The orders of a group.
pub(super) const ORDERS: [[Arm; GROUP]; 6] = [
    [Before, Changed, Changed, Before],
    [Changed, Before, Before, Changed],
    [Before, Changed, Before, Changed],
    [Changed, Before, Changed, Before],
    [Before, Before, Changed, Changed],
    [Changed, Changed, Before, Before],
];

/// How many groups an experiment has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Groups before the first verdict: at least [`LEAST`].
    pub least_groups: u32,
    /// Groups after which the experiment ends without a verdict: at most [`MOST`].
    pub most_groups: u32,
}

impl Default for Limits {
    /// At least 8 blocks, at most 24.
    fn default() -> Self {
        Self { least_groups: LEAST, most_groups: 6 }
    }
}

/// Limits that no design can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an experiment of {} to {} groups (of {GROUP} blocks) is not possible: the least must be {LEAST} or more, and \
     the most between the least and {MOST}",
    .0.least_groups, .0.most_groups
)]
pub struct ImpossibleLimits(Limits);

/// The order of the arms of an experiment, drawn from a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Design {
    seed: u64,
    limits: Limits,
    /// For each group the index of its order in [`ORDERS`].
    orders: Vec<usize>,
}

impl Design {
    /// Draws the order of the arms. The same seed gives the same order; with more groups, the same and more.
    ///
    /// # Errors
    /// The limits are not possible.
    pub fn new(seed: u64, limits: Limits) -> Result<Self, ImpossibleLimits> {
        let most = limits.most_groups;
        if limits.least_groups < LEAST || most < limits.least_groups || most > MOST {
            return Err(ImpossibleLimits(limits));
        }
        let mut random = Random::new(seed);
        let orders = (0..most).map(|_| random.below(ORDERS.len() as u64) as usize).collect();
        Ok(Self { seed, limits, orders })
    }

    /// The seed that it was drawn from.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// How many groups it has.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The arms of all blocks, in order of time.
    pub fn arms(&self) -> impl Iterator<Item = Arm> + '_ {
        self.orders.iter().flat_map(|order| ORDERS[*order])
    }

    /// The arm of a block, counted from 0. `None` after the last one.
    #[must_use]
    pub fn arm(&self, block: usize) -> Option<Arm> {
        self.orders.get(block / GROUP).map(|order| ORDERS[*order][block % GROUP])
    }

    /// The index of the order of a group, counted from 0.
    pub(super) fn order(&self, group: usize) -> usize {
        self.orders[group]
    }

    /// A design with these orders, for tests.
    #[cfg(test)]
    pub(super) fn of_orders(orders: &[usize], limits: Limits) -> Self {
        Self { seed: 0, limits, orders: orders.to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn letters(arms: impl IntoIterator<Item = Arm>) -> String {
        arms.into_iter().map(|arm| if arm == Before { 'A' } else { 'B' }).collect()
    }

    #[test]
    fn the_orders_are_all_that_are_balanced() {
        let orders: BTreeSet<String> = ORDERS.into_iter().map(letters).collect();
        let wanted = ["AABB", "ABAB", "ABBA", "BAAB", "BABA", "BBAA"];
        assert_eq!(orders.into_iter().collect::<Vec<_>>(), wanted);
    }

    /// Orders come in opposite pairs, so what drifts in a straight line favours no arm on average.
    #[test]
    fn a_straight_drift_favours_no_arm() {
        let drift = |order: [Arm; GROUP]| -> i32 {
            order.iter().zip(0..).map(|(arm, at)| if *arm == Before { at } else { -at }).sum()
        };
        let drifts = ORDERS.map(drift);
        assert_eq!(drifts.iter().sum::<i32>(), 0);
        assert_eq!(drifts.map(|it| drifts.contains(&-it)), [true; 6]);
    }

    /// The order of a seed that a document names must stay what it was.
    #[test]
    fn a_seed_has_its_order() {
        let design = Design::new(7, Limits::default()).unwrap();
        assert_eq!(letters(design.arms()), "BABAABBAABBABABAAABBBABA");
        assert_eq!((design.arm(24), design.seed()), (None, 7));
    }

    #[test]
    fn limits_must_be_possible() {
        for (least, most, possible) in [
            (2, 6, true),
            (2, 2, true),
            (1, 6, false),
            (4, 3, false),
            (2, 40, true),
            (2, 41, false),
        ] {
            let limits = Limits { least_groups: least, most_groups: most };
            let design = Design::new(1, limits);
            assert_eq!(design.is_ok(), possible, "{limits:?}");
            if let Err(error) = design {
                let text = error.to_string();
                assert!(text.contains(&format!("{least} to {most} groups")), "{text}");
            }
        }
    }

    #[test]
    fn every_order_is_as_likely_as_the_others() {
        let mut counts = [0u32; 6];
        for seed in 0..6_000 {
            let design = Design::new(seed, Limits::default()).unwrap();
            (0..6).for_each(|at| counts[design.order(at)] += 1);
        }
        assert!(counts.iter().all(|count| (5_700..6_300).contains(count)), "{counts:?}");
    }

    proptest! {
        #[test]
        fn arms_are_balanced_after_each_group(seed: u64, most in LEAST..=MOST) {
            let limits = Limits { least_groups: LEAST, most_groups: most };
            let design = Design::new(seed, limits).unwrap();
            let arms: Vec<Arm> = design.arms().collect();
            prop_assert_eq!(arms.len(), GROUP * most as usize);
            for four in arms.chunks(GROUP) {
                prop_assert_eq!(four.iter().filter(|arm| **arm == Before).count(), GROUP / 2);
            }
            prop_assert!(arms.iter().enumerate().all(|(at, arm)| design.arm(at) == Some(*arm)));
            let shorter = Design::new(seed, Limits { most_groups: LEAST, ..limits }).unwrap();
            prop_assert!(shorter.arms().zip(&arms).all(|(one, other)| one == *other));
        }
    }
}
