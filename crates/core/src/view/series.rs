// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An amount over time in a bounded number of bins: when all bins are used up, they become twice as wide.

/// Amounts in equal bins from the start of the window on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    width_ns: u64,
    max_bins: u32,
    /// Number of bins before the first one with an amount. They take no memory: most processes of a long recording
    /// lived for moments.
    before: u32,
    bins: Vec<u64>,
}

impl Series {
    /// An empty series with bins of `width_ns` and at most `max_bins` of them.
    ///
    /// # Panics
    /// If `width_ns` or `max_bins` is 0.
    #[must_use]
    pub fn new(width_ns: u64, max_bins: u32) -> Self {
        assert!(width_ns > 0 && max_bins > 0, "a series needs bins");
        Self { width_ns, max_bins, before: 0, bins: Vec::new() }
    }

    /// Spreads `amount` evenly over `[t0_ns, t1_ns)`; nothing of it is lost to rounding.
    pub fn add(&mut self, t0_ns: u64, t1_ns: u64, amount: u64) {
        if amount == 0 {
            return;
        }
        let last_ns = t1_ns.saturating_sub(1).max(t0_ns);
        while last_ns / self.width_ns >= u64::from(self.max_bins) {
            self.halve();
        }
        // Both are below max_bins, which is a u32.
        let (first, last) = ((t0_ns / self.width_ns) as u32, (last_ns / self.width_ns) as u32);
        self.make_room(first, last);
        let length_ns = u128::from(last_ns - t0_ns + 1);
        let mut given = 0;
        for bin in first..=last {
            let until_ns = ((u64::from(bin) + 1).saturating_mul(self.width_ns) - t0_ns).into();
            let share = u128::from(amount) * length_ns.min(until_ns) / length_ns;
            // At most `amount`, which is a u64.
            let due = share as u64;
            let sum = &mut self.bins[(bin - self.before) as usize];
            *sum = sum.saturating_add(due - given);
            given = due;
        }
    }

    /// Makes room for the bins `first..=last`.
    fn make_room(&mut self, first: u32, last: u32) {
        if self.bins.is_empty() {
            self.before = first;
        }
        let missing = self.before.saturating_sub(first) as usize;
        self.bins.splice(..0, std::iter::repeat_n(0, missing));
        self.before = self.before.min(first);
        let number = (last - self.before) as usize + 1;
        if self.bins.len() < number {
            self.bins.resize(number, 0);
        }
    }

    fn halve(&mut self) {
        self.width_ns = self.width_ns.saturating_mul(2);
        // Pairs begin with an even bin.
        let alone = self.bins.len().min(self.before as usize % 2);
        let (alone, pairs) = self.bins.split_at(alone);
        let sum = |bins: &[u64]| bins.iter().fold(0, |sum: u64, &bin| sum.saturating_add(bin));
        self.bins = alone.iter().copied().chain(pairs.chunks(2).map(sum)).collect();
        self.before /= 2;
    }

    /// Adds another series of the same initial width.
    pub fn merge(&mut self, other: &Self) {
        let width_ns = other.width_ns;
        for (bin, amount) in other.known() {
            let t0_ns = u64::from(bin).saturating_mul(width_ns);
            self.add(t0_ns, t0_ns.saturating_add(width_ns), amount);
        }
    }

    /// Adds its numbers to a list, for [`Series::take_from`].
    pub(super) fn put_into(&self, numbers: &mut Vec<u64>) {
        numbers.push(self.bins.len() as u64);
        if !self.bins.is_empty() {
            numbers.extend([self.width_ns, u64::from(self.before)]);
            numbers.extend(&self.bins);
        }
    }

    /// Makes an empty series the one of which these are the numbers, one by one.
    pub(super) fn take_from(&mut self, mut next: impl FnMut() -> u64) {
        let number = next();
        if number > 0 {
            // It was a u32.
            (self.width_ns, self.before) = (next(), next() as u32);
            self.bins = (0..number).map(|_| next()).collect();
        }
    }

    /// Width of a bin, in nanoseconds.
    #[must_use]
    pub fn width_ns(&self) -> u64 {
        self.width_ns
    }

    /// Amounts of the bins, from the start of the window to the last bin with an amount.
    #[must_use]
    pub fn bins(&self) -> Vec<u64> {
        let before = if self.bins.is_empty() { 0 } else { self.before as usize };
        std::iter::repeat_n(0, before).chain(self.bins.iter().copied()).collect()
    }

    /// The bins from the first to the last one with an amount: their numbers and amounts.
    pub fn known(&self) -> impl Iterator<Item = (u32, u64)> {
        (self.before..).zip(self.bins.iter().copied())
    }

    /// Amounts in wider bins. `width_ns` must be a multiple of [`Series::width_ns()`].
    #[must_use]
    pub fn in_bins_of(&self, width_ns: u64) -> Vec<u64> {
        let each = usize::try_from(width_ns / self.width_ns).unwrap_or(usize::MAX).max(1);
        let sum = |bins: &[u64]| bins.iter().fold(0, |sum: u64, &bin| sum.saturating_add(bin));
        self.bins().chunks(each).map(sum).collect()
    }

    /// Sum of all bins.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.bins.iter().fold(0, |sum, &bin| sum.saturating_add(bin))
    }

    /// Start, end and amount of the bin with the largest amount; the earliest of equal ones.
    #[must_use]
    pub fn fullest(&self) -> Option<(u64, u64, u64)> {
        let (bin, amount) =
            self.known().reduce(|most, next| if next.1 > most.1 { next } else { most })?;
        let t0_ns = u64::from(bin) * self.width_ns;
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
        assert_eq!((series.width_ns(), series.bins()), (40, vec![4; 4]));
        assert_eq!(series.in_bins_of(80), [8, 8]);
    }

    #[test]
    fn time_before_the_first_amount_takes_no_memory() {
        let mut series = Series::new(1, 1 << 20);
        series.add(1_000_000, 1_000_001, 1);
        assert!(series.bins.capacity() < 10, "{}", series.bins.capacity());
        assert_eq!(
            (series.bins().len(), series.fullest()),
            (1_000_001, Some((1_000_000, 1_000_001, 1)))
        );
    }

    proptest! {
        #[test]
        fn a_series_is_the_same_whenever_it_begins(
            adds in prop::collection::vec((0..100_000u64, 0..2_000u64, 1..1_000u64), 0..40),
        ) {
            let (mut series, mut from_start) = (Series::new(100, 16), Series::new(100, 16));
            from_start.add(0, 1, 1);
            for &(t0, length, amount) in &adds {
                series.add(t0, t0 + length, amount);
                from_start.add(t0, t0 + length, amount);
            }
            let mut bins = from_start.bins();
            bins[0] -= 1;
            bins.truncate(series.bins().len());
            prop_assert_eq!(series.bins(), bins);
            let mut numbers = Vec::new();
            series.put_into(&mut numbers);
            let (mut numbers, mut taken) = (numbers.into_iter(), Series::new(100, 16));
            taken.take_from(|| numbers.next().unwrap());
            prop_assert_eq!(taken, series);
        }

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
