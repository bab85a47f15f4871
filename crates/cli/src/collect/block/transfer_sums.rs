// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transfers of a second, by what they were for, and how long the requests of each device took.

use super::scale::{Bytes, CounterScale};
use deburr_core::recording::{
    BlockRecord, CgroupId, DevId, DeviceTick, DiskCounters, FileId, IoOp, IoPurpose, IoTick,
    ProcId, RequestBin, WaitHist,
};
use deburr_core::stats::Span;
use std::collections::BTreeMap;

/// Rows of a second: transfers beyond that are counted without their file.
const ROWS: usize = 4000;

/// What the transfers of a row have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// The whole disk.
    pub(super) device: DevId,
    /// What the transfers were for.
    pub(super) what: IoPurpose,
    /// Direction.
    pub(super) op: IoOp,
    /// The process that submitted them.
    pub(super) submitter: Option<ProcId>,
    /// The cgroup that owns the pages.
    pub(super) owner: Option<CgroupId>,
    /// Reason of writeback, by the probe's numbers; 0 = none.
    pub(super) reason: u8,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    ios: u64,
    bytes: Bytes,
    total_ns: u64,
    max_ns: u64,
}

#[derive(Debug, Default)]
struct Times {
    before: WaitHist,
    total: WaitHist,
    queue: WaitHist,
    device_time: WaitHist,
    max_ns: u64,
    /// The largest weight of the second: at the least, one in this many requests was followed.
    one_in: u32,
}

/// Times of a request, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestTimes {
    /// From creation to completion.
    pub(super) total_ns: u64,
    /// From when its bio was queued to creation; `None` = not seen.
    pub(super) before_ns: Option<u64>,
    /// From creation to issue to the driver; `None` = the issue was not seen.
    pub(super) queue_ns: Option<u64>,
    /// Number of requests that it stands for.
    pub(super) weight: u32,
    /// When it completed, since the start of the window.
    pub(super) done_ns: u64,
}

/// The sums of the current second.
#[derive(Debug, Default)]
pub(super) struct Tally {
    rows: BTreeMap<Key, Sum>,
    times: BTreeMap<(DevId, IoOp), Times>,
    /// Latency of requests by the bin in which they completed, by number from the start of the window.
    bins: BTreeMap<(u64, DevId, IoOp), WaitHist>,
    /// Scales the bytes of a sample to the counters of the disk.
    pub(super) scale: CounterScale,
    /// Whether the time before a request is created is measured.
    before: bool,
    /// Transfers of the session that found no row of their own.
    pub(super) folded: u64,
}

impl Tally {
    /// Starts empty. `before` = the time before a request is created is measured.
    pub(super) fn new(before: bool) -> Self {
        Self { before, ..Self::default() }
    }

    /// Adds a transfer that stands for `weight` transfers.
    pub(super) fn transfer(&mut self, mut key: Key, bytes: u64, total_ns: u64, weight: u32) {
        let weight = u64::from(weight);
        let is_file = matches!(key.what, IoPurpose::File(_));
        if is_file && self.rows.len() >= ROWS && !self.rows.contains_key(&key) {
            key.what = IoPurpose::File(FileId::OTHERS);
            self.folded += weight;
        }
        let sum = self.rows.entry(key).or_default();
        sum.ios += weight;
        sum.bytes.add(bytes, weight);
        sum.total_ns += total_ns * weight;
        sum.max_ns = sum.max_ns.max(total_ns);
    }

    pub(super) fn request(&mut self, device: DevId, op: IoOp, took: RequestTimes) {
        let times = self.times.entry((device, op)).or_default();
        times.total.add(took.total_ns);
        let bin = (took.done_ns / RequestBin::BIN_NS, device, op);
        self.bins.entry(bin).or_default().add(took.total_ns);
        if let Some(before_ns) = took.before_ns.filter(|&ns| ns >= DeviceTick::BEFORE_NS) {
            times.before.add(before_ns);
        }
        if let Some(queue_ns) = took.queue_ns {
            times.queue.add(queue_ns);
            times.device_time.add(took.total_ns - queue_ns.min(took.total_ns));
        }
        times.max_ns = times.max_ns.max(took.total_ns);
        times.one_in = times.one_in.max(took.weight);
    }

    /// Takes the records of the second. `counters` yields the present counters of a disk.
    pub(super) fn take<'a>(
        &mut self,
        Span { t0_ns, t1_ns }: Span,
        counters: impl Fn(DevId) -> Option<&'a DiskCounters>,
        reason: impl Fn(u8) -> String,
    ) -> Vec<BlockRecord> {
        let mut seen: BTreeMap<(DevId, IoOp), Bytes> = BTreeMap::new();
        for (key, sum) in &self.rows {
            seen.entry((key.device, key.op)).or_default().merge(sum.bytes);
        }
        let mut factor_of = |((device, op), seen): ((DevId, IoOp), Bytes)| {
            ((device, op), self.scale.factor(device, op, counters(device), seen))
        };
        let factors: BTreeMap<(DevId, IoOp), f64> = seen.into_iter().map(&mut factor_of).collect();
        let rows = std::mem::take(&mut self.rows).into_iter().map(|(key, sum)| {
            BlockRecord::Io(IoTick {
                t0_ns,
                t1_ns,
                device: key.device,
                what: key.what,
                op: key.op,
                submitter: key.submitter,
                owner: key.owner,
                reason: (key.reason != 0).then(|| reason(key.reason)),
                ios: sum.ios,
                bytes: sum.bytes.scaled(factors[&(key.device, key.op)]),
                total_ns: sum.total_ns,
                max_ns: sum.max_ns,
            })
        });
        let looked_before = self.before;
        let times = std::mem::take(&mut self.times).into_iter().map(|((device, op), times)| {
            BlockRecord::DeviceTick(DeviceTick {
                t0_ns,
                t1_ns,
                device,
                op,
                total: times.total,
                queue: times.queue,
                device_time: times.device_time,
                max_ns: times.max_ns,
                before: looked_before.then_some(times.before),
                sampled_one_in: times.one_in,
            })
        });
        let bins = std::mem::take(&mut self.bins).into_iter().map(|((bin, device, op), total)| {
            let t0_ns = bin * RequestBin::BIN_NS;
            let t1_ns = t0_ns + RequestBin::BIN_NS;
            BlockRecord::Requests(RequestBin { t0_ns, t1_ns, device, op, total })
        });
        rows.chain(times).chain(bins).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: DevId = DevId { major: 7, minor: 0 };

    fn key(file: u32) -> Key {
        Key {
            device: DISK,
            what: IoPurpose::File(FileId(file)),
            op: IoOp::Write,
            submitter: Some(ProcId(1)),
            owner: None,
            reason: 0,
        }
    }

    #[test]
    fn transfers_of_one_kind_are_one_row_scaled_by_their_weight() {
        let mut tally = Tally::new(true);
        tally.transfer(key(1), 4096, 100, 8);
        tally.transfer(key(1), 8192, 300, 1);
        let took = RequestTimes {
            total_ns: 300,
            before_ns: Some(5000),
            queue_ns: Some(100),
            weight: 8,
            done_ns: 250_000_000,
        };
        tally.request(DISK, IoOp::Write, took);
        let records = tally.take(Span::new(0, 1), |_| None, |_| String::new());
        let [BlockRecord::Io(io), BlockRecord::DeviceTick(times), BlockRecord::Requests(bin)] =
            &*records
        else {
            panic!("{records:?}")
        };
        assert_eq!((bin.t0_ns, bin.t1_ns), (200_000_000, 300_000_000));
        assert_eq!((bin.device, bin.op, &bin.total), (DISK, IoOp::Write, &times.total));
        assert_eq!((io.ios, io.bytes, io.total_ns, io.max_ns), (9, 8 * 4096 + 8192, 1100, 300));
        assert_eq!(io.reason, None);
        let sums = [&times.total, &times.queue, &times.device_time].map(WaitHist::total_ns);
        assert_eq!((sums, times.sampled_one_in), ([300, 100, 200], 8));
        assert_eq!(
            times.before.as_ref().map(WaitHist::total_ns),
            Some(5000),
            "not part of the whole"
        );
        assert!(tally.take(Span::new(1, 2), |_| None, |_| String::new()).is_empty());
    }

    #[test]
    fn a_hundred_thousand_files_are_bounded_rows_and_no_byte_is_lost() {
        let mut tally = Tally::default();
        for file in 1..=100_000 {
            tally.transfer(key(file), 4096, 100, 1);
        }
        let records = tally.take(Span::new(0, 1), |_| None, |_| String::new());
        assert!(records.len() <= ROWS + 1);
        let bytes: u64 = records
            .iter()
            .map(|record| match record {
                BlockRecord::Io(io) => io.bytes,
                _ => 0,
            })
            .sum();
        assert_eq!(bytes, 100_000 * 4096);
        assert_eq!(tally.folded, 100_000 - ROWS as u64);
    }
}
