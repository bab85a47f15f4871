// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Evaluation of wait histograms: percentiles, and how count and time are distributed over size classes.

use crate::finding::SizeClass;
use crate::recording::{WAIT_BUCKETS, WaitHist, bucket_of, bucket_range_ns};

/// Minimum length of a *long* wait. It is the bucket edge nearest to 1 ms: above the cost of a wake-up, and about a
/// quarter of the 2.8-4 ms that a competing thread may run before it is preempted.
pub const LONG_WAIT_NS: u64 = 1_024_000;

/// Edges of the size classes; each is the edge of a bucket.
const CLASS_EDGES_NS: [u64; 5] = [16_000, 128_000, LONG_WAIT_NS, 4_096_000, 16_384_000];

/// Upper bound of the bucket that contains the percentile `p` (0..1), at most `max_ns` unless that is 0. `None` with
/// fewer than 1 / (1 - p) samples, the number that it takes for one of them to lie above the percentile.
#[must_use]
pub fn percentile_ns(hist: &WaitHist, p: f64, max_ns: u64) -> Option<u64> {
    let total = hist.total_count();
    // 1 / (1 - 0.99) is 99.99999999999991 in binary.
    let needed = (1.0 / (1.0 - p)).round();
    if total == 0 || (total as f64) < needed {
        return None;
    }
    let rank = (p * total as f64).ceil().max(1.0) as u64;
    let mut seen = 0;
    for bucket in 0..WAIT_BUCKETS {
        seen += hist.count[bucket];
        if seen >= rank {
            let to_ns = bucket_range_ns(bucket).1;
            return Some(if max_ns > 0 { to_ns.min(max_ns) } else { to_ns });
        }
    }
    None
}

/// Number and total time of the waits of `from_ns` (the edge of a bucket) or longer.
#[must_use]
pub fn at_least(hist: &WaitHist, from_ns: u64) -> (u64, u64) {
    let first = bucket_of(from_ns);
    (hist.count[first..].iter().sum(), hist.ns[first..].iter().sum())
}

/// Number and total time of all waits in six size classes; empty classes at both ends are left out.
#[must_use]
pub fn size_classes(hist: &WaitHist) -> Vec<SizeClass> {
    let mut classes = Vec::with_capacity(CLASS_EDGES_NS.len() + 1);
    let mut from_ns = 0;
    for to_ns in CLASS_EDGES_NS.into_iter().map(Some).chain([None]) {
        let (count, ns) = at_least(hist, from_ns);
        let (count_above, ns_above) = to_ns.map_or((0, 0), |to_ns| at_least(hist, to_ns));
        classes.push(SizeClass { from_ns, to_ns, count: count - count_above, ns: ns - ns_above });
        from_ns = to_ns.unwrap_or(from_ns);
    }
    let Some(last) = classes.iter().rposition(|class| class.count > 0) else { return vec![] };
    classes.truncate(last + 1);
    let first = classes.iter().position(|class| class.count > 0).unwrap_or(0);
    classes.split_off(first)
}

/// Number and total time of all waits by bucket, from the first to the last one with waits.
#[must_use]
pub fn by_bucket(hist: &WaitHist) -> Vec<SizeClass> {
    let mut used = (0..WAIT_BUCKETS).filter(|&bucket| hist.count[bucket] > 0);
    let Some(first) = used.next() else { return vec![] };
    let last = used.next_back().unwrap_or(first);
    let class = |bucket: usize| {
        let (from_ns, to_ns) = bucket_range_ns(bucket);
        let to_ns = Some(to_ns).filter(|_| bucket + 1 < WAIT_BUCKETS);
        SizeClass { from_ns, to_ns, count: hist.count[bucket], ns: hist.ns[bucket] }
    };
    (first..=last).map(class).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::runqlat;
    use proptest::prelude::*;

    #[test]
    fn few_long_waits_carry_most_of_the_waiting_beside_a_noisy_neighbour() {
        let text = include_str!("../../../../fixtures/rules/SCH001/neighbour-runqlat.txt");
        let first_interval = text.split("usecs").nth(1).expect("a histogram");
        let mut hist = WaitHist::default();
        for (number, ns) in runqlat(first_interval) {
            (0..number).for_each(|_| hist.add(ns));
        }
        let (count, ns) = at_least(&hist, LONG_WAIT_NS);
        let by_count = count as f64 / hist.total_count() as f64;
        let by_time = ns as f64 / hist.total_ns() as f64;
        assert!((by_count - 0.036).abs() < 0.000_5, "{by_count}");
        assert!((by_time - 0.62).abs() < 0.005, "{by_time}");
    }

    #[test]
    fn a_percentile_needs_samples() {
        let mut hist = WaitHist::default();
        assert_eq!(percentile_ns(&hist, 0.5, 0), None);
        for _ in 0..99 {
            hist.add(10_000);
        }
        assert_eq!(percentile_ns(&hist, 0.5, 0), Some(16_000));
        assert_eq!(percentile_ns(&hist, 0.99, 0), None);
        hist.add(3_000_000);
        assert_eq!(percentile_ns(&hist, 0.99, 3_000_000), Some(16_000));
        hist.add(3_000_000);
        assert_eq!(percentile_ns(&hist, 0.99, 3_000_000), Some(3_000_000), "not above the longest");
    }

    #[test]
    fn class_edges_are_bucket_edges() {
        for edge_ns in CLASS_EDGES_NS {
            assert_eq!(bucket_range_ns(bucket_of(edge_ns)).0, edge_ns);
        }
    }

    proptest! {
        #[test]
        fn size_classes_hold_every_wait(waits in prop::collection::vec(0..20_000_000_000u64, 0..60)) {
            let mut hist = WaitHist::default();
            waits.iter().for_each(|&ns| hist.add(ns));
            for classes in [size_classes(&hist), by_bucket(&hist)] {
                prop_assert_eq!(classes.iter().map(|class| class.count).sum::<u64>(), hist.total_count());
                prop_assert_eq!(classes.iter().map(|class| class.ns).sum::<u64>(), hist.total_ns());
                for pair in classes.windows(2) {
                    prop_assert_eq!(pair[0].to_ns, Some(pair[1].from_ns));
                }
            }
        }

        #[test]
        fn merging_is_adding(
            a in prop::collection::vec(any::<u32>(), 0..30),
            b in prop::collection::vec(any::<u32>(), 0..30),
        ) {
            let hist = |waits: &[u32]| {
                let mut hist = WaitHist::default();
                waits.iter().for_each(|&ns| hist.add(ns.into()));
                hist
            };
            let mut merged = hist(&a);
            merged.merge(&hist(&b));
            prop_assert_eq!(merged, hist(&[a, b].concat()));
        }

        #[test]
        fn percentiles_rise_and_stay_below_the_longest_wait(
            waits in prop::collection::vec(1..10_000_000_000u64, 1..300),
        ) {
            let mut hist = WaitHist::default();
            waits.iter().for_each(|&ns| hist.add(ns));
            let max_ns = *waits.iter().max().unwrap();
            let values: Vec<_> =
                [0.5, 0.9, 0.99].iter().filter_map(|&p| percentile_ns(&hist, p, max_ns)).collect();
            prop_assert!(values.is_sorted());
            prop_assert!(values.iter().all(|&ns| ns <= max_ns));
        }
    }
}
