// SPDX-License-Identifier: Apache-2.0 OR MIT
//! In which order the blocks of an experiment come. Chance decides, so that nothing that changes with time by itself can
//! look like an effect; and what chance could have decided otherwise is known exactly, so that a p-value is, too.

use serde::{Deserialize, Serialize};

/// State of the host in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arm {
    /// As it was.
    Before,
    /// Changed.
    Changed,
}

/// Blocks of a group: two of each arm, so that a slow change over groups falls on both arms alike.
pub const GROUP: usize = 4;

/// The orders within a group. Each is as likely as any other.
pub const ORDERS: [[Arm; GROUP]; 6] = {
    use Arm::{Before as A, Changed as B};
    [[A, B, B, A], [B, A, A, B], [A, B, A, B], [B, A, B, A], [A, A, B, B], [B, B, A, A]]
};

/// Numbers from a seed (`SplitMix64`, Steele et al. 2014): the same seed gives the same experiment.
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// A sequence of its own for each seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, below `limit`, which is small.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        ((u128::from(z) * limit as u128) >> 64) as usize
    }

    /// The order of the next group.
    pub fn order(&mut self) -> [Arm; GROUP] {
        ORDERS[self.below(ORDERS.len())]
    }

    /// Brings values into an order; each is as likely as any other.
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for last in (1..values.len()).rev() {
            values.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn each_order_is_balanced_and_as_likely_as_the_others() {
        for order in ORDERS {
            assert_eq!(order.iter().filter(|arm| **arm == Arm::Changed).count(), 2);
        }
        let mut draw = Draw::new(1);
        let mut seen = BTreeMap::new();
        for _ in 0..60_000 {
            *seen.entry(format!("{:?}", draw.order())).or_insert(0) += 1;
        }
        assert_eq!(seen.len(), ORDERS.len());
        assert!(seen.values().all(|n| (9_600..10_400).contains(n)), "{seen:?}");
    }

    #[test]
    fn all_permutations_are_as_likely() {
        let mut seen = BTreeMap::new();
        let mut draw = Draw::new(2);
        for _ in 0..24_000 {
            let mut values = [0, 1, 2, 3];
            draw.shuffle(&mut values);
            *seen.entry(values).or_insert(0) += 1;
        }
        assert_eq!(seen.len(), 24);
        assert!(seen.values().all(|n| (850..1150).contains(n)), "{seen:?}");
    }
}
