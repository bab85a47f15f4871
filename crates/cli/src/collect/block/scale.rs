// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scales the bytes of sampled requests to the disk's own counters. Requests differ in size, so the bytes of one in
//! eight of them, times eight, are some percent off; the disk's counters include all requests.

use deburr_core::recording::{DevId, DiskCounters, IoOp};
use std::collections::BTreeMap;

/// Largest factor: a sample is not further off. If the counters ask for more, they count something else.
const MOST: f64 = 2.0;

/// Bytes of a disk in one direction in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bytes {
    /// Bytes of requests that stand only for themselves.
    pub(super) exact: u64,
    /// Bytes of sampled requests, times the number of requests that each stands for.
    pub(super) sampled: u64,
    /// Bytes of the same sampled requests, once: the disk transferred at least that.
    pub(super) followed: u64,
}

impl Bytes {
    /// Adds the bytes of a transfer that stands for `weight` transfers.
    pub(super) fn add(&mut self, bytes: u64, weight: u64) {
        if weight == 1 {
            self.exact += bytes;
        } else {
            self.sampled += bytes * weight;
            self.followed += bytes;
        }
    }

    pub(super) fn merge(&mut self, other: Bytes) {
        self.exact += other.exact;
        self.sampled += other.sampled;
        self.followed += other.followed;
    }

    /// The bytes that they stand for, with the sample scaled by `factor`.
    pub(super) fn scaled(&self, factor: f64) -> u64 {
        self.exact + (factor * self.sampled as f64).round() as u64
    }
}

/// The value of each disk's counters up to which all bytes were accounted for.
#[derive(Debug, Default)]
pub(super) struct CounterScale {
    reported: BTreeMap<(DevId, IoOp), u64>,
}

impl CounterScale {
    /// Takes the counters at the start.
    pub(super) fn begin<'a>(&mut self, disks: impl Iterator<Item = (DevId, &'a DiskCounters)>) {
        for (device, counters) in disks {
            for op in [IoOp::Read, IoOp::Write] {
                self.reported.extend(count(counters, op).map(|bytes| ((device, op), bytes)));
            }
        }
    }

    /// The factor for the sampled bytes of a second, from the counters at its end. Bytes that the counters did not
    /// include yet are made up for in the next second.
    pub(super) fn factor(
        &mut self,
        device: DevId,
        op: IoOp,
        counters: Option<&DiskCounters>,
        seen: Bytes,
    ) -> f64 {
        let Some(counted) = counters.and_then(|counters| count(counters, op)) else { return 1.0 };
        let before = self.reported.insert((device, op), counted);
        let Some(before) = before.filter(|_| seen.sampled > 0) else { return 1.0 };
        let due = counted.saturating_sub(before).saturating_sub(seen.exact);
        let factor = (due.max(seen.followed) as f64 / seen.sampled as f64).min(MOST);
        self.reported.insert((device, op), before.saturating_add(seen.scaled(factor)));
        factor
    }
}

fn count(counters: &DiskCounters, op: IoOp) -> Option<u64> {
    match op {
        IoOp::Read => Some(counters.read_bytes),
        IoOp::Write => Some(counters.write_bytes),
        IoOp::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: DevId = DevId { major: 7, minor: 0 };

    fn written(bytes: u64) -> DiskCounters {
        DiskCounters { write_bytes: bytes, ..DiskCounters::default() }
    }

    fn next(scale: &mut CounterScale, counted: u64, exact: u64, sampled: u64) -> f64 {
        let seen = Bytes { exact, sampled, followed: sampled / 8 };
        scale.factor(DISK, IoOp::Write, Some(&written(counted)), seen)
    }

    #[test]
    fn seconds_of_a_sample_sum_to_what_the_disk_counted() {
        let mut scale = CounterScale::default();
        scale.begin([(DISK, &written(1_000))].into_iter());
        let mut told = 0.0;
        // The counters lag behind in the second second.
        for (counted, exact, sampled) in [(2_000, 500, 480), (2_900, 0, 1_000), (4_000, 0, 960)] {
            let factor = next(&mut scale, counted, exact, sampled);
            told += exact as f64 + factor * sampled as f64;
        }
        assert!((told - 3_000.0).abs() < 2.0, "{told}");
    }

    #[test]
    fn what_was_followed_is_told_whatever_the_counters_say() {
        let mut scale = CounterScale::default();
        scale.begin([(DISK, &written(0))].into_iter());
        // The one request in eight that was followed happened to be the only one.
        assert!((next(&mut scale, 100, 0, 800) - 1.0 / 8.0).abs() < 1e-9);
        assert!((next(&mut scale, 100, 0, 80) - 1.0 / 8.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_no_sample_or_not_counted_stays() {
        let mut scale = CounterScale::default();
        assert!((next(&mut scale, 5_000, 0, 900) - 1.0).abs() < 1e-9, "a disk that appeared");
        assert!((next(&mut scale, 6_000, 2_000, 0) - 1.0).abs() < 1e-9, "all followed");
        let seen = Bytes { exact: 0, sampled: 7, followed: 1 };
        assert!((scale.factor(DISK, IoOp::Write, None, seen) - 1.0).abs() < 1e-9);
        let other = scale.factor(DISK, IoOp::Other, Some(&written(9)), seen);
        assert!((other - 1.0).abs() < 1e-9);
        // Unrelated counters cannot distort the bytes beyond the largest factor.
        assert!((next(&mut scale, 900_000_000, 0, 10) - MOST).abs() < 1e-9);
    }
}
