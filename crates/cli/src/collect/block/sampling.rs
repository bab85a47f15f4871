// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many requests the probe looks at: all of them up to a rate, then one in so many, so that what it costs
//! stays below 1 % of a CPU.

/// Requests a second that may be looked at: at some 600 ns each, 1 % of a CPU.
const AFFORDABLE_PER_S: u64 = 16_000;
/// The rarest sample.
const RAREST: u32 = 64;

/// The decision.
#[derive(Debug)]
pub(super) struct Sampling {
    one_in: u32,
    fixed: bool,
}

impl Sampling {
    /// Begins with all of them, or keeps to what was asked for.
    pub(super) fn new(asked: Option<u32>) -> Self {
        Self { one_in: asked.unwrap_or(1).next_power_of_two(), fixed: asked.is_some() }
    }

    /// One in so many requests is looked at.
    pub(super) fn one_in(&self) -> u32 {
        self.one_in
    }

    /// Takes the requests (all, not only those looked at) that ended in `ns`. Sampling becomes rarer at once, and
    /// denser again only when there is room to spare, so that it does not swing.
    pub(super) fn rate(&mut self, requests: u64, ns: u64) -> u32 {
        if ns == 0 || self.fixed {
            return self.one_in;
        }
        let per_s = u64::try_from(u128::from(requests) * 1_000_000_000 / u128::from(ns))
            .unwrap_or(u64::MAX);
        let wanted =
            per_s.div_ceil(AFFORDABLE_PER_S).clamp(1, u64::from(RAREST)).next_power_of_two() as u32;
        let with_room = (per_s * 3 / 2)
            .div_ceil(AFFORDABLE_PER_S)
            .clamp(1, u64::from(RAREST))
            .next_power_of_two();
        if wanted > self.one_in {
            self.one_in = wanted;
        } else if with_room < u64::from(self.one_in) {
            self.one_in /= 2;
        }
        self.one_in
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn it_becomes_rarer_at_once_and_denser_step_by_step() {
        let mut sampling = Sampling::new(None);
        assert_eq!(sampling.rate(16_000, S), 1);
        assert_eq!(sampling.rate(10_000, S / 10), 8);
        assert_eq!(sampling.rate(10_000_000, S), RAREST);
        assert_eq!(sampling.rate(1_000, S), 32);
        assert_eq!(sampling.rate(1_000, S), 16);
        for _ in 0..10 {
            sampling.rate(1_000, S);
        }
        assert_eq!(sampling.one_in(), 1);
    }

    #[test]
    fn near_the_limit_it_stays() {
        let mut sampling = Sampling::new(None);
        for rate in [17_000, 15_000, 17_000, 15_000] {
            assert_eq!(sampling.rate(rate, S), 2);
        }
    }
}
