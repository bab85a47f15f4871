// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An amount over time in a bounded number of bins: when all bins are used up, they become twice as wide.

/// Amounts in equal bins from the start of the window on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    width_ns: u64,
    max_bins: usize,
    bins: Vec<u64>,
}

impl Series {
    /// An empty series with bins of `width_ns` and at most `max_bins` of them.
    ///
    /// # Panics
    /// If `width_ns` or `max_bins` is 0.
    #[must_use]
    pub fn new(width_ns: u64, max_bins: usize) -> Self {
        assert!(width_ns > 0 && max_bins > 0, "a series needs bins");
        Self { width_ns, max_bins, bins: Vec::new() }
    }

    /// Spreads `amount` evenly over `[t0_ns, t1_ns)`; nothing of it is lost to rounding.
    pub fn add(&mut self, t0_ns: u64, t1_ns: u64, amount: u64) {
        if amount == 0 {
            return;
        }
        let last_ns = t1_ns.saturating_sub(1).max(t0_ns);
        while last_ns / self.width_ns >= self.max_bins as u64 {
            self.halve();
        }
        // Both are below max_bins, which is a usize.
        let (first, last) = ((t0_ns / self.width_ns) as usize, (last_ns / self.width_ns) as usize);
        if self.bins.len() <= last {
            self.bins.resize(last + 1, 0);
        }
        let length_ns = u128::from(last_ns - t0_ns + 1);
        let mut given = 0;
        for bin in first..=last {
            let until_ns = ((bin as u64 + 1).saturating_mul(self.width_ns) - t0_ns).into();
            let share = u128::from(amount) * length_ns.min(until_ns) / length_ns;
            // At most `amount`, which is a u64.
            let due = share as u64;
            self.bins[bin] = self.bins[bin].saturating_add(due - given);
            given = due;
        }
    }

    fn halve(&mut self) {
        self.width_ns = self.width_ns.saturating_mul(2);
        self.bins = self
            .bins
            .chunks(2)
            .map(|pair| pair.iter().fold(0, |sum: u64, &bin| sum.saturating_add(bin)))
            .collect();
    }

    /// Adds another series of the same initial width.
    pub fn merge(&mut self, other: &Self) {
        let width_ns = other.width_ns;
        for (bin, &amount) in other.bins.iter().enumerate() {
            let t0_ns = (bin as u64).saturating_mul(width_ns);
            self.add(t0_ns, t0_ns.saturating_add(width_ns), amount);
        }
    }

    /// Width of a bin, in nanoseconds.
    #[must_use]
    pub fn width_ns(&self) -> u64 {
        self.width_ns
    }

    /// Amounts of the bins, from the start of the window to the last bin with an amount.
    #[must_use]
    pub fn bins(&self) -> &[u64] {
        &self.bins
    }

    /// Amounts in wider bins. `width_ns` must be a multiple of [`Series::width_ns()`].
    #[must_use]
    pub fn in_bins_of(&self, width_ns: u64) -> Vec<u64> {
        let each = usize::try_from(width_ns / self.width_ns).unwrap_or(usize::MAX).max(1);
        let sum = |bins: &[u64]| bins.iter().fold(0, |sum: u64, &bin| sum.saturating_add(bin));
        self.bins.chunks(each).map(sum).collect()
    }

    /// Sum of all bins.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.bins.iter().fold(0, |sum, &bin| sum.saturating_add(bin))
    }

    /// Start, end and amount of the bin with the largest amount; the earliest of equal ones.
    #[must_use]
    pub fn fullest(&self) -> Option<(u64, u64, u64)> {
        let (bin, &amount) =
            self.bins.iter().enumerate().rev().max_by_key(|&(_, amount)| amount)?;
        let t0_ns = bin as u64 * self.width_ns;
        Some((t0_ns, t0_ns.saturating_add(self.width_ns), amount))
    }
}

#[cfg(test)]
mod tests {
    use super::Series;
    use proptest::prelude::*;

    #[test]
    fn an_amount_is_split_by_overlap() {
        let mut series = Series::new(1_000, 8);
        series.add(500, 2_500, 200);
        assert_eq!(series.bins(), [50, 100, 50]);
        assert_eq!(series.fullest(), Some((1_000, 2_000, 100)));
    }

    #[test]
    fn bins_double_when_they_are_used_up() {
        let mut series = Series::new(10, 4);
        for t in 0..16 {
            series.add(t * 10, t * 10 + 10, 1);
        }
        assert_eq!((series.width_ns(), series.bins()), (40, &[4, 4, 4, 4][..]));
        assert_eq!(series.in_bins_of(80), [8, 8]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_bins_stay_bounded(
            adds in prop::collection::vec((any::<u64>(), any::<u64>(), 0..u64::from(u32::MAX)), 0..40),
        ) {
            let mut series = Series::new(100, 16);
            for &(t0, length, amount) in &adds {
                series.add(t0, t0.saturating_add(length), amount);
            }
            prop_assert_eq!(series.total(), adds.iter().map(|add| add.2).sum::<u64>());
            prop_assert!(series.bins().len() <= 16);
            let mut merged = Series::new(100, 16);
            merged.merge(&series);
            prop_assert_eq!(merged.total(), series.total());
        }
    }
}
