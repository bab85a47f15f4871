// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Histogram of waits with buckets in powers of two of a microsecond, by count and by time.

use serde::{Deserialize, Serialize};

/// Number of buckets. Bucket 0 is `[0, 1 us)`, bucket `i` is `[2^(i-1), 2^i) us`, the last one is open:
/// `[2^22 us = 4.19 s, ...)`.
pub const WAIT_BUCKETS: usize = 24;

/// Number of waits in each bucket, and their total time. Both matter: a few long waits can make up most of the time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitHist {
    /// Number of waits in each bucket.
    pub count: [u64; WAIT_BUCKETS],
    /// Sum of the waits in each bucket, in nanoseconds.
    pub ns: [u64; WAIT_BUCKETS],
}

/// Index of the bucket of a wait.
#[must_use]
pub fn bucket_of(wait_ns: u64) -> usize {
    let us = wait_ns / 1000;
    ((u64::BITS - us.leading_zeros()) as usize).min(WAIT_BUCKETS - 1)
}

/// Bounds of a bucket in nanoseconds, `[from, to)`; the last bucket ends at `u64::MAX`.
#[must_use]
pub fn bucket_range_ns(bucket: usize) -> (u64, u64) {
    let edge = |i: usize| if i == 0 { 0 } else { 1000u64 << (i - 1) };
    let to = if bucket + 1 >= WAIT_BUCKETS { u64::MAX } else { edge(bucket + 1) };
    (edge(bucket.min(WAIT_BUCKETS - 1)), to)
}

impl WaitHist {
    /// Adds one wait.
    pub fn add(&mut self, wait_ns: u64) {
        let bucket = bucket_of(wait_ns);
        self.count[bucket] += 1;
        self.ns[bucket] += wait_ns;
    }

    /// Adds another histogram.
    pub fn merge(&mut self, other: &Self) {
        for bucket in 0..WAIT_BUCKETS {
            self.count[bucket] += other.count[bucket];
            self.ns[bucket] += other.ns[bucket];
        }
    }

    /// Number of waits in all buckets.
    #[must_use]
    pub fn total_count(&self) -> u64 {
        self.count.iter().sum()
    }

    /// Sum of all waits, in nanoseconds.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.ns.iter().sum()
    }

    /// Whether the histogram holds no wait.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total_count() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wait_falls_into_the_bucket_whose_range_holds_it() {
        for ns in [0, 1, 999, 1000, 1999, 2000, 4_194_303_999, 4_194_304_000, u64::MAX] {
            let (from, to) = bucket_range_ns(bucket_of(ns));
            assert!(from <= ns && (ns < to || to == u64::MAX), "{ns} not in [{from}, {to})");
        }
        for bucket in 1..WAIT_BUCKETS {
            assert_eq!(bucket_range_ns(bucket - 1).1, bucket_range_ns(bucket).0);
        }
    }
}
