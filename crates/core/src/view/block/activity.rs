// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How busy a device was: over time, and in bursts that averages hide. Also latency, and the counters of
//! `/proc/diskstats`.

use super::BoundedList;
use crate::recording::{DeviceBins, DeviceTick, DiskCounters, DiskReading, WaitHist};
use crate::stats::Span;
use crate::view::Series;

/// Maximum number of bins of a series: at first 100 ms each (two minutes), then merged in pairs.
const SERIES_BINS: u32 = 1200;
const SERIES_WIDTH_NS: u64 = 100_000_000;
/// A bin counts as busy if the device was busy for at least this percentage of it.
const BUSY_PERCENT: u64 = 90;
/// Minimum length of a [`BusyStretch`], because any single request makes a shorter busy stretch.
pub const MIN_BUSY_STRETCH_NS: u64 = 50_000_000;

/// A stretch of at least [`MIN_BUSY_STRETCH_NS`] in which every bin of 10 ms was busy (90 % or more of its time).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BusyStretch {
    /// Start of its first bin.
    pub t0_ns: u64,
    /// End of its last bin.
    pub t1_ns: u64,
    /// Integral over time of the number of requests queued or in the device.
    pub depth_ns: u64,
    /// Number of requests that completed.
    pub ios: u64,
    /// Bytes of these requests.
    pub bytes: u64,
    /// Busy share of the whole second in which the spell began, which is what an average shows.
    pub second_busy: f64,
}

impl BusyStretch {
    /// From when to when.
    #[must_use]
    pub fn span(&self) -> Span {
        Span::new(self.t0_ns, self.t1_ns)
    }

    /// Mean number of requests queued or in the device.
    #[must_use]
    pub fn depth(&self) -> f64 {
        self.depth_ns as f64 / (self.t1_ns - self.t0_ns).max(1) as f64
    }
}

/// Activity of a device, from the probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Activity {
    /// Wall time that the bins cover.
    pub seen_ns: u64,
    /// Time with at least one request queued or in the device.
    pub busy_ns: u64,
    /// `busy_ns` over time.
    pub busy: Series,
    /// Integral over time of the number of requests queued or in the device.
    pub depth: Series,
    /// Number of requests that completed.
    pub ios: Series,
    /// Bytes of these requests.
    pub bytes: Series,
    spells: BoundedList<BusyStretch>,
    open: Option<BusyStretch>,
}

fn series() -> Series {
    Series::new(SERIES_WIDTH_NS, SERIES_BINS)
}

impl Default for Activity {
    fn default() -> Self {
        Self {
            seen_ns: 0,
            busy_ns: 0,
            busy: series(),
            depth: series(),
            ios: series(),
            bytes: series(),
            spells: BoundedList::default(),
            open: None,
        }
    }
}

impl Activity {
    pub(super) fn push(&mut self, bins: &DeviceBins) {
        let span_ns = bins.t1_ns.saturating_sub(bins.t0_ns);
        let width_ns = span_ns / (bins.bins.len() as u64).max(1);
        if width_ns == 0 {
            return;
        }
        let busy_ns: u64 = bins.bins.iter().map(|bin| bin.busy_ns.min(width_ns)).sum();
        self.seen_ns += span_ns;
        self.busy_ns += busy_ns;
        let second_busy = busy_ns as f64 / span_ns as f64;
        for (at, bin) in bins.bins.iter().enumerate() {
            let t0_ns = bins.t0_ns + at as u64 * width_ns;
            let t1_ns = t0_ns + width_ns;
            self.busy.add(t0_ns, t1_ns, bin.busy_ns.min(width_ns));
            self.depth.add(t0_ns, t1_ns, bin.depth_ns);
            self.ios.add(t0_ns, t1_ns, bin.ios.into());
            self.bytes.add(t0_ns, t1_ns, bin.bytes);
            if bin.busy_ns < width_ns / 100 * BUSY_PERCENT {
                self.close();
                continue;
            }
            // Ticks do not meet exactly: a gap of up to one bin between them does not end a spell.
            if self.open.is_some_and(|open| t0_ns > open.t1_ns.saturating_add(width_ns)) {
                self.close();
            }
            let open = self.open.get_or_insert(BusyStretch {
                t0_ns,
                t1_ns,
                depth_ns: 0,
                ios: 0,
                bytes: 0,
                second_busy,
            });
            open.t1_ns = t1_ns.max(open.t1_ns);
            open.depth_ns = open.depth_ns.saturating_add(bin.depth_ns);
            open.ios += u64::from(bin.ios);
            open.bytes = open.bytes.saturating_add(bin.bytes);
        }
    }

    fn close(&mut self) {
        if let Some(spell) = self.open.take().filter(is_long) {
            self.spells.push(spell);
        }
    }

    /// The spells, in order of time.
    pub fn spells(&self) -> impl Iterator<Item = &BusyStretch> {
        self.spells.list().iter().chain(self.open.as_ref().filter(|spell| is_long(spell)))
    }

    /// Number of spells that were not kept, and number of all spells.
    pub(super) fn dropped_of(&self) -> (u64, u64) {
        self.spells.dropped_of()
    }

    /// Busy share of `seen_ns`.
    #[must_use]
    pub fn busy_share(&self) -> f64 {
        self.busy_ns as f64 / self.seen_ns.max(1) as f64
    }
}

fn is_long(spell: &BusyStretch) -> bool {
    spell.t1_ns - spell.t0_ns >= MIN_BUSY_STRETCH_NS
}

/// Latency of the requests of a device in one direction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latency {
    /// Time from the queueing of the bio to the creation of its request, for requests that waited. Not part of `total`.
    /// `None` = not measured.
    pub before: Option<WaitHist>,
    /// From creation to completion.
    pub total: WaitHist,
    /// Part from creation to issue.
    pub queue: WaitHist,
    /// Part from issue to completion: in the driver and the device.
    pub device_time: WaitHist,
    /// Longest latency from creation to completion, in nanoseconds.
    pub max_ns: u64,
    /// Lowest sampling rate of any tick: one in this many requests was measured.
    pub sampled_one_in: u32,
}

impl Latency {
    pub(super) fn push(&mut self, tick: &DeviceTick) {
        if let Some(before) = &tick.before {
            self.before.get_or_insert_default().merge(before);
        }
        self.total.merge(&tick.total);
        self.queue.merge(&tick.queue);
        self.device_time.merge(&tick.device_time);
        self.max_ns = self.max_ns.max(tick.max_ns);
        self.sampled_one_in = self.sampled_one_in.max(tick.sampled_one_in);
    }
}

/// Activity of a device from `/proc/diskstats`, the fallback for the probe.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskView {
    last: Option<(u64, DiskCounters)>,
    /// Time between the first and the last reading.
    pub seen_ns: u64,
    /// Number of reads and writes that completed.
    pub ios: Series,
    /// Bytes of these requests.
    pub bytes: Series,
    /// Time with a request in flight, which the kernel counts coarsely.
    pub busy: Series,
    /// Integral over time of the number of requests in flight.
    pub depth: Series,
    /// Latency, summed over the requests that completed.
    pub time: Series,
    /// The stretch of readings up to the last one in which requests were in flight and none completed.
    stuck: Option<Span>,
    longest_stuck: Option<Span>,
}

impl Default for DiskView {
    fn default() -> Self {
        Self {
            last: None,
            seen_ns: 0,
            ios: series(),
            bytes: series(),
            busy: series(),
            depth: series(),
            time: series(),
            stuck: None,
            longest_stuck: None,
        }
    }
}

impl DiskView {
    pub(super) fn push(&mut self, reading: &DiskReading) {
        let now = &reading.counters;
        if let Some((t0_ns, before)) = self.last
            && reading.t_ns > t0_ns
        {
            let t1_ns = reading.t_ns;
            self.seen_ns += t1_ns - t0_ns;
            // A counter that decreased was reset: it adds nothing for this interval.
            let since = |get: fn(&DiskCounters) -> u64| get(now).saturating_sub(get(&before));
            self.ios.add(t0_ns, t1_ns, since(|c| c.reads) + since(|c| c.writes));
            self.bytes.add(t0_ns, t1_ns, since(|c| c.read_bytes) + since(|c| c.write_bytes));
            self.busy.add(t0_ns, t1_ns, since(|c| c.busy_ns).min(t1_ns - t0_ns));
            self.depth.add(t0_ns, t1_ns, since(|c| c.depth_ns));
            self.time.add(t0_ns, t1_ns, since(|c| c.read_ns) + since(|c| c.write_ns));
            let none_ended = since(|c| c.reads) + since(|c| c.writes) + since(|c| c.flushes) == 0;
            let is_stuck = none_ended && before.in_flight > 0 && now.in_flight > 0;
            let from_ns = self.stuck.map_or(t0_ns, |stretch| stretch.t0_ns);
            self.stuck = is_stuck.then(|| Span::new(from_ns, t1_ns));
            let length = |stretch: Option<Span>| stretch.map_or(0, Span::length_ns);
            if length(self.stuck) > length(self.longest_stuck) {
                self.longest_stuck = self.stuck;
            }
        }
        self.last = Some((reading.t_ns, *now));
    }

    /// The longest stretch of readings in which requests were in flight and none completed.
    #[must_use]
    pub fn longest_stuck(&self) -> Option<Span> {
        self.longest_stuck
    }

    /// Busy share of `seen_ns`.
    #[must_use]
    pub fn busy_share(&self) -> f64 {
        self.busy.total() as f64 / self.seen_ns.max(1) as f64
    }
}
