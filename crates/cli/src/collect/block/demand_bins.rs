// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much each culprit asked of a device over time: units of 512 bytes in bins of 100 ms, for the busiest culprits.

use deburr_core::recording::{IoCulprit, IoPace, ProcId};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Culprits that are kept apart in a second; the others are merged. A device that more of them use at once shows no
/// rhythm of a single one.
const BUSIEST: usize = 4;

/// The bins that were not taken yet.
#[derive(Debug, Default)]
pub(super) struct DemandBins {
    /// Start of the first bin: a multiple of the bin's length.
    from_ns: u64,
    bins: BTreeMap<IoCulprit, Vec<u64>>,
}

/// The bins of a device from `t0_ns` to `t1_ns`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FinishedBins {
    pub(super) t0_ns: u64,
    pub(super) t1_ns: u64,
    /// The bins of each culprit, as many as fit; the last bin may be shorter.
    pub(super) sectors: BTreeMap<IoCulprit, Vec<u64>>,
}

impl DemandBins {
    /// Begins with the bin that `at_ns` lies in.
    pub(super) fn begin(at_ns: u64) -> Self {
        Self { from_ns: floor(at_ns), bins: BTreeMap::new() }
    }

    /// Adds a request that was created at `at_ns`; one from before the first bin counts in the first bin.
    pub(super) fn add(&mut self, at_ns: u64, by: IoCulprit, sectors: u64) {
        let bin = (at_ns.saturating_sub(self.from_ns) / IoPace::BIN_NS) as usize;
        let bins = self.bins.entry(by).or_default();
        if bins.len() <= bin {
            bins.resize(bin + 1, 0);
        }
        bins[bin] = bins[bin].saturating_add(sectors);
    }

    /// Takes the bins that end by `to_ns`; with `last`, also the one that it lies in.
    pub(super) fn take(&mut self, to_ns: u64, last: bool) -> Option<FinishedBins> {
        let t0_ns = self.from_ns;
        let t1_ns = if last { to_ns } else { floor(to_ns) };
        if t1_ns <= t0_ns {
            return None;
        }
        self.from_ns = t1_ns;
        let count = (t1_ns - t0_ns).div_ceil(IoPace::BIN_NS) as usize;
        let mut all: Vec<(IoCulprit, Vec<u64>)> = Vec::new();
        self.bins.retain(|&by, bins| {
            let rest = bins.split_off(count.min(bins.len()));
            let mut emitted = std::mem::replace(bins, rest);
            emitted.resize(count, 0);
            if emitted.iter().any(|&sectors| sectors > 0) {
                all.push((by, emitted));
            }
            !bins.is_empty()
        });
        all.sort_by_key(|(by, bins)| (Reverse(bins.iter().sum::<u64>()), *by));
        let mut paced = FinishedBins { t0_ns, t1_ns, sectors: BTreeMap::new() };
        for (at, (by, bins)) in all.into_iter().enumerate() {
            let by = if at < BUSIEST { by } else { IoCulprit::Process(ProcId::OTHERS) };
            let sums = paced.sectors.entry(by).or_insert_with(|| vec![0; count]);
            sums.iter_mut().zip(bins).for_each(|(sum, sectors)| *sum = sum.saturating_add(sectors));
        }
        (!paced.sectors.is_empty()).then_some(paced)
    }
}

fn floor(t_ns: u64) -> u64 {
    t_ns / IoPace::BIN_NS * IoPace::BIN_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn by(process: u32) -> IoCulprit {
        IoCulprit::Process(ProcId(process))
    }

    #[test]
    fn bins_are_told_when_they_are_over() {
        let mut pace = DemandBins::begin(1_130 * MS);
        pace.add(1_140 * MS, by(1), 5);
        pace.add(1_399 * MS, by(1), 7);
        pace.add(1_400 * MS, by(2), 9);
        let first = pace.take(1_450 * MS, false).expect("three bins");
        assert_eq!((first.t0_ns, first.t1_ns), (1_100 * MS, 1_400 * MS));
        assert_eq!(first.sectors, BTreeMap::from([(by(1), vec![5, 0, 7])]));
        assert_eq!(pace.take(1_490 * MS, false), None);
        let last = pace.take(1_490 * MS, true).expect("a part of a bin");
        assert_eq!((last.t0_ns, last.t1_ns), (1_400 * MS, 1_490 * MS));
        assert_eq!(last.sectors, BTreeMap::from([(by(2), vec![9])]));
    }

    #[test]
    fn those_with_little_are_one_and_nothing_is_lost() {
        let mut pace = DemandBins::begin(0);
        for process in 1..=20 {
            pace.add(u64::from(process) * 40 * MS, by(process), 1000 + u64::from(process));
        }
        let paced = pace.take(1_000 * MS, false).expect("ten bins");
        assert_eq!(paced.sectors.len(), BUSIEST + 1);
        assert!(paced.sectors.contains_key(&by(20)) && !paced.sectors.contains_key(&by(1)));
        let sum: u64 = paced.sectors.values().flatten().sum();
        assert_eq!(sum, (1..=20).map(|process| 1000 + process).sum::<u64>());
        assert!(paced.sectors.values().all(|bins| bins.len() == 10));
    }
}
