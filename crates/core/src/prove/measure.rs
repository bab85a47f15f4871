// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an experiment measures: one number for each of its blocks, from the observation of that block.

use crate::recording::{Stall, WaitHist};
use crate::stats::{self, Span};
use crate::text::units;
use crate::view::block::stalls;
use crate::view::{Group, View, waits};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Fewer distances of bursts have no median.
const LEAST_DISTANCES: usize = 2;
/// Part of the stalled time that the bursts that are left out have.
const SMALL: f64 = 0.03;

/// A number that an experiment holds against a change. Times are of the threads of the target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Measure {
    /// Time queued for a CPU behind others, without wake-up latency, in nanoseconds of each second.
    Queued,
    /// Time throttled by a CPU quota, in nanoseconds of each second.
    Throttled,
    /// Time waiting for block IO, in nanoseconds of each second.
    BlockIo,
    /// Time in block IO waits of 10 ms and more, in nanoseconds of each second.
    Stalled,
    /// Percentile of the waits for a CPU, in nanoseconds.
    Wait(Percentile),
    /// Percentile of the latency of all requests to block devices, in nanoseconds.
    IoLatency(Percentile),
    /// Median distance of the bursts of stalls, in nanoseconds.
    StallPeriod,
    /// Percentile of the time that a command takes, in nanoseconds.
    Probe(Percentile),
}

/// A percentile, 1 to 99.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percentile(u8);

impl Percentile {
    /// The median.
    pub const MEDIAN: Self = Self(50);

    /// As a part, 0..1.
    #[must_use]
    pub fn part(self) -> f64 {
        f64::from(self.0) / 100.0
    }

    /// The percentile of some values; `None` with so few that none of them lies above it.
    #[must_use]
    pub fn of(self, values: &[f64]) -> Option<f64> {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        let needed = (1.0 / (1.0 - self.part())).round();
        let rank = (self.part() * values.len() as f64).ceil() as usize;
        values.get(rank.max(1) - 1).copied().filter(|_| values.len() as f64 >= needed)
    }
}

/// Why a text is no measure.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("`{0}` is no measure: {MEASURES}")]
pub struct NoMeasure(String);

/// The measures, for messages and help.
pub const MEASURES: &str = "queued, throttled, block-io, stalled, wait:p99, io-latency:p99, stall-period, probe:p50 \
                            (p1 to p99 each)";

impl FromStr for Measure {
    type Err = NoMeasure;

    fn from_str(text: &str) -> Result<Self, NoMeasure> {
        let no_measure = || NoMeasure(text.to_owned());
        let (name, percentile) = match text.split_once(":p") {
            Some((name, number)) => {
                let digits = number.bytes().all(|byte| byte.is_ascii_digit());
                let number = number.parse().ok().filter(|it| digits && (1..=99).contains(it));
                (name, Some(Percentile(number.ok_or_else(no_measure)?)))
            }
            None => (text, None),
        };
        match (name, percentile) {
            ("queued", None) => Ok(Self::Queued),
            ("throttled", None) => Ok(Self::Throttled),
            ("block-io", None) => Ok(Self::BlockIo),
            ("stalled", None) => Ok(Self::Stalled),
            ("stall-period", None) => Ok(Self::StallPeriod),
            ("wait", Some(it)) => Ok(Self::Wait(it)),
            ("io-latency", Some(it)) => Ok(Self::IoLatency(it)),
            ("probe", it) => Ok(Self::Probe(it.unwrap_or(Percentile::MEDIAN))),
            _ => Err(no_measure()),
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queued => f.write_str("queued"),
            Self::Throttled => f.write_str("throttled"),
            Self::BlockIo => f.write_str("block-io"),
            Self::Stalled => f.write_str("stalled"),
            Self::StallPeriod => f.write_str("stall-period"),
            Self::Wait(it) => write!(f, "wait:p{}", it.0),
            Self::IoLatency(it) => write!(f, "io-latency:p{}", it.0),
            Self::Probe(it) => write!(f, "probe:p{}", it.0),
        }
    }
}

impl From<Measure> for String {
    fn from(measure: Measure) -> Self {
        measure.to_string()
    }
}

impl TryFrom<String> for Measure {
    type Error = NoMeasure;

    fn try_from(text: String) -> Result<Self, NoMeasure> {
        text.parse()
    }
}

impl Measure {
    /// What it is, in words: for a sentence that goes on with a number.
    #[must_use]
    pub fn words(&self) -> String {
        let text = match self {
            Self::Queued => "time that its threads wait for a CPU",
            Self::Throttled => "time that its threads are throttled",
            Self::BlockIo => "time that its threads wait for block IO",
            Self::Stalled => "time in its IO waits of 10 ms and more",
            Self::StallPeriod => "distance of its bursts of stalls",
            Self::Wait(it) => return format!("p{} of its waits for a CPU", it.0),
            Self::IoLatency(it) => return format!("p{} of the latency of block IO", it.0),
            Self::Probe(it) => return format!("p{} of the time that the command takes", it.0),
        };
        text.to_owned()
    }

    /// A number of it with its unit, in nanoseconds or nanoseconds of each second.
    #[must_use]
    pub fn shown(&self, ns: f64) -> String {
        let sign = if ns < 0.0 { "-" } else { "" };
        let time = units::duration(ns.abs());
        let per = if self.is_of_every_second() { " of every second" } else { "" };
        format!("{sign}{time}{per}")
    }

    /// Whether it is an amount of every second, and not a length.
    #[must_use]
    pub fn is_of_every_second(&self) -> bool {
        matches!(self, Self::Queued | Self::Throttled | Self::BlockIo | Self::Stalled)
    }

    /// Whether the number comes from a command that is run, and not from what was observed.
    #[must_use]
    pub fn is_of_probe(&self) -> bool {
        matches!(self, Self::Probe(_))
    }

    /// The number of the target in an observation.
    ///
    /// # Errors
    /// Why there is none.
    pub fn of(&self, view: &View) -> Result<f64, String> {
        let groups = view.groups();
        let target: Vec<&Group<'_>> =
            groups.list().iter().filter(|it| it.in_target && !it.is_observer()).collect();
        if target.is_empty() {
            return Err("no process of the target was seen".into());
        }
        let by_probe = |state: fn(&Group<'_>) -> Option<u64>| {
            let seen: Vec<u64> = target.iter().filter_map(|group| state(group)).collect();
            if seen.is_empty() {
                return Err("the scheduler probe saw no thread of the target".to_owned());
            }
            Ok(view.per_second(seen.iter().sum()) as f64)
        };
        let usage = |group: &Group<'_>| group.usage.clone();
        match self {
            Self::Queued => by_probe(|group| match (&group.usage, &group.delay) {
                (Some(usage), _) => Some(usage.contended_ns()),
                (None, delay) => delay.map(|it| it.delay_ns),
            }),
            Self::Throttled => by_probe(|group| Some(group.usage.as_ref()?.states.throttled_ns)),
            Self::BlockIo => by_probe(|group| Some(group.usage.as_ref()?.states.block_io_ns)),
            Self::Stalled => {
                let stalls: Vec<_> = stalls_of_target(view).collect();
                Ok(view.per_second(stalls::stall_ns(&stalls)) as f64)
            }
            Self::Wait(it) => {
                let mut all = WaitHist::default();
                let mut max_ns = 0;
                for usage in target.iter().filter_map(|group| usage(group)) {
                    all.merge(&usage.waits);
                    max_ns = max_ns.max(usage.wait_max_ns);
                }
                percentile(&all, *it, max_ns, "waits for a CPU")
            }
            Self::IoLatency(it) => {
                let mut all = WaitHist::default();
                let mut max_ns = 0;
                for latency in view.block().latency().values() {
                    all.merge(&latency.total);
                    max_ns = max_ns.max(latency.max_ns);
                }
                percentile(&all, *it, max_ns, "requests to block devices")
            }
            Self::StallPeriod => stall_period(view),
            Self::Probe(_) => Err("no command was run".into()),
        }
    }
}

fn percentile(hist: &WaitHist, it: Percentile, max_ns: u64, of: &str) -> Result<f64, String> {
    let found = waits::percentile_ns(hist, it.part(), max_ns);
    found.map(|ns| ns as f64).ok_or_else(|| {
        format!("{} {of} are too few for a percentile of {}", hist.total_count(), it.0)
    })
}

fn stalls_of_target(view: &View) -> impl Iterator<Item = &Stall> {
    let in_target = |id| {
        let facts = view.processes().get(&id).and_then(|it| it.facts.as_deref());
        facts.is_some_and(|it| it.in_target && !it.observer)
    };
    view.block().stalls().iter().filter(move |stall| in_target(stall.proc))
}

/// The distances of bursts of stalls, in nanoseconds, in the order of time. The smallest bursts, which together have
/// [`SMALL`] of the stalled time, are none of them: a clock is not to be missed because a few waits were a little long.
#[must_use]
pub fn burst_distances(view: &View) -> Vec<f64> {
    let mut spans: Vec<Span> = stalls_of_target(view).map(Stall::span).collect();
    spans.sort_by_key(|span| span.t0_ns);
    let stalled = |burst: &Span| -> u64 {
        let within =
            |it: &&Span| it.t0_ns >= burst.t0_ns && it.t0_ns < burst.t1_ns.max(burst.t0_ns + 1);
        spans.iter().filter(within).map(|it| it.t1_ns - it.t0_ns).sum()
    };
    let mut bursts: Vec<(u64, u64)> =
        stats::episodes(&spans).iter().map(|burst| (burst.t0_ns, stalled(burst))).collect();
    let most = SMALL * bursts.iter().map(|burst| burst.1 as f64).sum::<f64>();
    bursts.sort_by_key(|burst| burst.1);
    let mut small_ns = 0.0;
    bursts.retain(|burst| {
        small_ns += burst.1 as f64;
        small_ns > most
    });
    bursts.sort_unstable();
    bursts.windows(2).map(|two| (two[1].0 - two[0].0) as f64).collect()
}

fn stall_period(view: &View) -> Result<f64, String> {
    let mut distances = burst_distances(view);
    if distances.len() < LEAST_DISTANCES {
        let bursts = match stalls_of_target(view).next() {
            None => 0,
            Some(_) => distances.len() as u64 + 1,
        };
        let bursts = units::counted(bursts, "burst", "bursts");
        return Err(format!("{bursts} of stalls of 10 ms and more"));
    }
    distances.sort_by(f64::total_cmp);
    Ok(distances[distances.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measure_is_read_as_it_is_written() {
        let all = ["queued", "throttled", "block-io", "stalled", "stall-period", "wait:p99"];
        for text in all.into_iter().chain(["io-latency:p95", "probe:p50"]) {
            let measure: Measure = text.parse().unwrap();
            assert_eq!(measure.to_string(), text);
            assert!(!measure.words().is_empty());
        }
        assert_eq!("probe".parse(), Ok(Measure::Probe(Percentile::MEDIAN)));
        for bad in ["", "wait", "wait:p0", "wait:p100", "wait:p+9", "queued:p50", "p99", "probe:px"]
        {
            let error = bad.parse::<Measure>().unwrap_err().to_string();
            assert!(error.contains(bad) && error.contains("stall-period"), "{error}");
        }
    }

    #[test]
    fn a_percentile_needs_values_above_it() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(Percentile(50).of(&values), Some(50.0));
        assert_eq!(Percentile(99).of(&values), Some(99.0));
        assert_eq!(Percentile(99).of(&values[..99]), None);
        assert_eq!(Percentile(50).of(&[]), None);
        assert_eq!(Percentile(50).of(&[7.0, 1.0]), Some(1.0));
    }
}
