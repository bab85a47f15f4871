// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pseudorandom numbers: the same from the same seed on every machine.

/// SplitMix64 (Steele, Lea & Flood 2014). Not for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number between 0 and 1, of 53 bits; never 0 or 1.
    pub fn uniform(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// One of the numbers below `n`, each as likely as the others: what would make some likelier is drawn again. `n` must
    /// not be 0.
    pub fn below(&mut self, n: u64) -> u64 {
        let fair = u64::MAX - u64::MAX % n;
        loop {
            let bits = self.bits();
            if bits < fair {
                return bits % n;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs for seed 1234567 of the reference implementation (Vigna, `splitmix64.c`).
    #[test]
    fn it_is_the_published_generator() {
        let mut random = Random::new(1_234_567);
        let found: Vec<u64> = (0..3).map(|_| random.bits()).collect();
        assert_eq!(
            found,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn numbers_below_six_are_as_likely_as_each_other() {
        let mut random = Random::new(1);
        let mut counts = [0u32; 6];
        (0..60_000).for_each(|_| counts[random.below(6) as usize] += 1);
        assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
    }
}
