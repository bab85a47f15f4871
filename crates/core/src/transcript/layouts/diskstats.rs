// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures of `/proc/diskstats`: counters since boot of each device. Two captures say what happened in between.

use super::iostat::{Iostat, Origin, Row};
use super::{Described, Parsed, Parser, Taken};
use crate::procfs::diskstats;
use crate::recording::DiskCounters;
use crate::transcript::MAX_ROWS;
use crate::transcript::engine::Context;
use crate::transcript::line::{Line, whole};
use crate::transcript::times;

/// Words of a line of the oldest kernels that are read: numbers of the device, its name, eleven counters.
const MIN_WORDS: usize = 14;

/// A device in a capture.
#[derive(Clone, Debug, PartialEq)]
struct Reading {
    line: u64,
    device: String,
    counters: DiskCounters,
}

/// The captures of one run.
#[derive(Debug, Default)]
pub(in crate::transcript) struct Captures {
    /// The devices of each capture.
    captures: Vec<Vec<Reading>>,
    /// Time of each, seconds since midnight of the first day.
    times_s: Vec<Option<f64>>,
    rows: usize,
    dropped: u64,
}

struct Open {
    time_s: Option<f64>,
    /// Whether lines belong to the last capture.
    open: bool,
    all: Captures,
}

/// The line as the file has it, without the name that `grep` puts before it.
fn plain(line: &Line<'_>) -> Option<String> {
    let mut words = line.words.clone();
    if let Some((path, rest)) = words.first().and_then(|first| first.rsplit_once(':'))
        && path.ends_with("diskstats")
    {
        match rest.is_empty() {
            true => drop(words.remove(0)),
            false => words[0] = rest,
        }
    }
    let number = |word: &&str| whole::<u64>(word).is_some();
    let is_one = words.len() >= MIN_WORDS
        && words[..2].iter().all(number)
        && !number(&words[2])
        && words[3..].iter().all(number);
    is_one.then(|| words.join(" "))
}

pub(super) fn begins(line: &Line<'_>, context: &Context) -> Option<Box<dyn Parser>> {
    plain(line)?;
    Some(Box::new(Open { time_s: context.time_s, open: false, all: Captures::default() }))
}

impl Parser for Open {
    fn line(&mut self, line: &Line<'_>) -> Taken {
        if let Some(time_s) = times::alone(&line.words) {
            let before = self.all.times_s.iter().rev().find_map(|time| *time);
            self.time_s = Some(times::after(before, time_s));
            self.open = false;
            return Taken::Yes;
        }
        let Some(text) = plain(line) else { return Taken::No };
        let Some(read) = diskstats::parse(text.as_bytes()).ok().and_then(|mut all| all.pop())
        else {
            return Taken::Unread("a line of diskstats with a number that is too large");
        };
        let reading = Reading {
            line: line.number,
            device: String::from_utf8_lossy(&read.name).into_owned(),
            counters: read.counters,
        };
        // A device that was there already begins the next capture.
        let again = |last: &Vec<Reading>| last.iter().any(|it| it.device == reading.device);
        if !self.open || self.all.captures.last().is_none_or(again) {
            self.all.captures.push(vec![]);
            self.all.times_s.push(self.time_s.take());
            self.open = true;
        }
        if self.all.rows >= MAX_ROWS {
            self.all.dropped += 1;
        } else if let Some(last) = self.all.captures.last_mut() {
            self.all.rows += 1;
            last.push(reading);
        }
        Taken::Yes
    }

    fn blank(&mut self) {
        self.open = false;
    }

    fn end(self: Box<Self>) -> Parsed {
        Parsed::Diskstats(self.all)
    }
}

impl Captures {
    /// The times between the captures, where they are known.
    pub(in crate::transcript) fn times_s(&self) -> &[Option<f64>] {
        &self.times_s
    }

    /// Number of captures.
    pub(in crate::transcript) fn len(&self) -> usize {
        self.captures.len()
    }

    /// First and last line.
    pub(in crate::transcript) fn lines(&self) -> (u64, u64) {
        let mut lines = self.captures.iter().flatten().map(|it| it.line);
        let first = lines.next().unwrap_or(0);
        (first, lines.next_back().unwrap_or(first))
    }

    /// What happened between the captures, as iostat reports it. A device whose counters fall, or that was not in the
    /// capture before, has no row.
    pub(in crate::transcript) fn reports(&self, interval_s: f64) -> Iostat {
        let mut all = Iostat::of(Origin::Diskstats);
        for (pair, times) in self.captures.windows(2).zip(self.times_s.windows(2)) {
            all.report(times[1]);
            let length_s = match (times[0], times[1]) {
                (Some(from), Some(to)) if to > from => to - from,
                _ => interval_s,
            };
            for now in pair[1].iter().filter(|it| !is_partition(&it.device, &pair[1])) {
                let before = pair[0].iter().find(|it| it.device == now.device);
                if let Some(row) = before.and_then(|before| row(before, now, length_s)) {
                    all.row(&now.device, row);
                }
            }
        }
        all
    }

    pub(super) fn describe(&self) -> Described {
        Described::new(
            "/proc/diskstats",
            "cumulative counters",
            self.captures.len(),
            ["capture", "captures"],
        )
        .note(self.dropped > 0, format!("{} more rows are not used", self.dropped))
    }
}

/// Whether it is a partition of another device of the capture: `sda1` of `sda`, `nvme0n1p1` of `nvme0n1`. What it does is in
/// the counters of its disk.
fn is_partition(device: &str, all: &[Reading]) -> bool {
    let disk = device.trim_end_matches(|c: char| c.is_ascii_digit());
    let with_p = disk.strip_suffix('p').filter(|disk| disk.ends_with(|c: char| c.is_ascii_digit()));
    let disk = with_p.unwrap_or(disk);
    disk != device && all.iter().any(|it| it.device == disk)
}

/// What a device did between two readings; `None` if a counter fell.
fn row(before: &Reading, now: &Reading, length_s: f64) -> Option<Row> {
    let amount = |of: fn(&DiskCounters) -> u64| {
        of(&now.counters).checked_sub(of(&before.counters)).map(|amount| amount as f64)
    };
    let ios = [amount(|it| it.reads)?, amount(|it| it.writes)?];
    let spent_ms = [amount(|it| it.read_ns)? / 1e6, amount(|it| it.write_ns)? / 1e6];
    let each = |which: usize| (ios[which] > 0.0).then(|| spent_ms[which] / ios[which]);
    Some(Row {
        line: now.line,
        ios: ios.map(|ios| ios / length_s),
        bytes: [amount(|it| it.read_bytes)? / length_s, amount(|it| it.write_bytes)? / length_s],
        await_ms: [each(0), each(1)],
        queue: Some(amount(|it| it.depth_ns)? / 1e9 / length_s),
        // Kernels count in ticks: a device that is always busy may have a little more.
        util: Some((amount(|it| it.busy_ns)? / 1e7 / length_s).min(100.0)),
        ..Row::default()
    })
}
