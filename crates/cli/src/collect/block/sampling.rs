// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many requests the probe follows: all of them up to some rate, then one in so many, so that its cost stays below
//! 1 % of a CPU, including the reader's part.

/// CPU time that may be spent per second: 1 % of a CPU, less what a rising rate takes until it is known.
const BUDGET_NS: u64 = 8_000_000;
/// Cost of a request that is followed: some 450 ns in the programs and 350 in the reader, on a busy machine.
const FOLLOWED_NS: u64 = 900;
/// Cost of a request that is not followed, in the programs. It does not include what the kernel takes to call the
/// programs, which is the same however many requests are followed.
const OTHER_NS: u64 = 25;
/// The largest sampling interval: one in this many requests.
const RAREST: u64 = 256;

/// The sampling interval that keeps within the budget at that rate: a power of two.
fn affordable(requests_per_s: u64) -> u32 {
    let left_ns = BUDGET_NS.saturating_sub(requests_per_s.saturating_mul(OTHER_NS));
    if left_ns == 0 {
        return RAREST as u32;
    }
    let one_in = requests_per_s.saturating_mul(FOLLOWED_NS).div_ceil(left_ns);
    one_in.clamp(1, RAREST).next_power_of_two() as u32
}

/// Chooses the sampling interval.
#[derive(Debug)]
pub(super) struct Sampling {
    one_in: u32,
    fixed: bool,
}

impl Sampling {
    /// Begins with all requests, or stays at the interval that was asked for, rounded up to a power of two.
    pub(super) fn new(asked: Option<u32>) -> Self {
        Self { one_in: asked.unwrap_or(1).next_power_of_two(), fixed: asked.is_some() }
    }

    /// The sampling interval: one in this many requests is followed.
    pub(super) fn one_in(&self) -> u32 {
        self.one_in
    }

    /// Whether the interval may change, because none was asked for.
    pub(super) fn may_change(&self) -> bool {
        !self.fixed
    }

    /// Takes the number of requests (all, not only those followed) that ended in `ns`, and returns the new interval.
    /// Sampling becomes rarer at once, and denser again only when there is room to spare, so that it does not
    /// oscillate.
    pub(super) fn rate(&mut self, requests: u64, ns: u64) -> u32 {
        if ns == 0 || self.fixed {
            return self.one_in;
        }
        let per_s = u64::try_from(u128::from(requests) * 1_000_000_000 / u128::from(ns))
            .unwrap_or(u64::MAX);
        let wanted = affordable(per_s);
        let with_room = affordable(per_s.saturating_mul(3) / 2);
        if wanted > self.one_in {
            self.one_in = wanted;
        } else if with_room < self.one_in {
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
        assert_eq!(sampling.rate(8_000, S), 1);
        assert_eq!(sampling.rate(5_000, S / 10), 8);
        assert_eq!(sampling.rate(10_000_000, S), RAREST as u32);
        assert_eq!(sampling.rate(1_000, S), 128);
        assert_eq!(sampling.rate(1_000, S), 64);
        for _ in 0..10 {
            sampling.rate(1_000, S);
        }
        assert_eq!(sampling.one_in(), 1);
    }

    #[test]
    fn near_the_limit_it_stays() {
        let mut sampling = Sampling::new(None);
        for rate in [9_500, 8_000, 9_500, 8_000] {
            assert_eq!(sampling.rate(rate, S), 2);
        }
    }

    #[test]
    fn the_budget_holds_until_requests_that_are_not_followed_take_it_alone() {
        for per_s in (0..280_000).step_by(500) {
            let one_in = u64::from(affordable(per_s));
            assert!(per_s * OTHER_NS + per_s * FOLLOWED_NS / one_in <= BUDGET_NS, "{per_s}");
        }
        assert_eq!(affordable(u64::MAX), RAREST as u32);
    }

    #[test]
    fn what_was_asked_for_is_kept_to() {
        let mut sampling = Sampling::new(Some(5));
        assert_eq!((sampling.one_in(), sampling.rate(10_000_000, S)), (8, 8));
    }
}
