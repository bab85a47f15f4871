// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Histograms of durations, as bcc and bpftrace print them: `runqlat`, `biolatency`, ...

use super::{Described, Parsed, Parser, Taken};
use crate::text::units;
use crate::transcript::MAX_ROWS;
use crate::transcript::engine::{Context, Section, cut};
use crate::transcript::line::{Command, Line, whole};

/// A row: how many durations are in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transcript) struct Bucket {
    /// From this duration on, in nanoseconds.
    pub(in crate::transcript) from_ns: u64,
    /// Up to this duration, exclusive.
    pub(in crate::transcript) to_ns: u64,
    /// Number of durations.
    pub(in crate::transcript) count: u64,
}

/// One histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::transcript) struct Histogram {
    /// Its first and last line.
    pub(in crate::transcript) lines: (u64, u64),
    /// What it is about, if there is one for each process or disk: `pid = 15919`.
    pub(in crate::transcript) key: Option<String>,
    /// The rows, in ascending order.
    pub(in crate::transcript) buckets: Vec<Bucket>,
}

/// What the durations are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::transcript) enum Measured {
    /// Waits for a CPU: `runqlat`.
    RunQueue,
    /// Requests to block devices: `biolatency`.
    BlockIo,
    /// The text does not say.
    #[default]
    Unknown,
}

/// The histograms of one run.
#[derive(Debug, Default)]
pub(in crate::transcript) struct Histograms {
    /// What they measure.
    pub(in crate::transcript) measured: Measured,
    /// The histograms, in the order of the text.
    pub(in crate::transcript) all: Vec<Histogram>,
    /// Unit of the text, in nanoseconds.
    unit_ns: u64,
    dropped: u64,
}

struct Reading {
    unit_ns: u64,
    key: Option<String>,
    open: Option<Histogram>,
    done: Histograms,
    buckets: usize,
}

/// Options of bcc's histograms that have a value.
pub(in crate::transcript) const WITH_VALUE: &[&str] =
    &["-p", "--pid", "-c", "--cgroup", "-d", "--disk"];

pub(super) fn begins(line: &Line<'_>, context: &Context) -> Option<Box<dyn Parser>> {
    if key(line).is_none() && unit_of(line).is_none() && map(line).is_none() {
        return None;
    }
    let tool = context.command.as_ref().map_or("", Command::tool);
    let of = |tool: &str| match tool {
        "runqlat" => Measured::RunQueue,
        "biolatency" => Measured::BlockIo,
        _ => Measured::Unknown,
    };
    let measured = match of(tool) {
        Measured::Unknown => context.tracing.map_or(Measured::Unknown, of),
        known => known,
    };
    let done = Histograms { measured, ..Histograms::default() };
    Some(Box::new(Reading { unit_ns: 0, key: None, open: None, done, buckets: 0 }))
}

/// The unit in a heading: `     usecs               : count     distribution`.
fn unit_of(line: &Line<'_>) -> Option<u64> {
    match *line.words.as_slice() {
        [unit, ":", "count", "distribution"] => unit_ns(unit),
        _ => None,
    }
}

fn unit_ns(unit: &str) -> Option<u64> {
    Some(match unit {
        "nsecs" | "ns" => 1,
        "usecs" | "us" => 1000,
        "msecs" | "ms" => 1_000_000,
        "secs" | "s" => 1_000_000_000,
        _ => return None,
    })
}

/// Unit and key of a map of bpftrace: `@usecs:`, `@usecs[1234, java]:`. The name of the map is the only place of the unit.
fn map(line: &Line<'_>) -> Option<(u64, Option<String>)> {
    let rest = line.text.trim_start().strip_prefix('@')?.strip_suffix(':')?;
    let (name, key) = match rest.split_once('[') {
        Some((name, key)) => (name, Some(cut(key.strip_suffix(']')?))),
        None => (rest, None),
    };
    let name = name.rsplit('_').next().unwrap_or(name);
    Some((unit_ns(name)?, key))
}

/// A number of bpftrace: `512K` is 512 times 1024.
fn scaled(word: &str) -> Option<u64> {
    let (digits, factor) = match word.as_bytes().last()? {
        b'K' => (&word[..word.len() - 1], 1 << 10),
        b'M' => (&word[..word.len() - 1], 1 << 20),
        b'G' => (&word[..word.len() - 1], 1 << 30),
        _ => (word, 1),
    };
    whole::<u64>(digits)?.checked_mul(factor)
}

/// Edges and count of a row of bpftrace: `[4, 8)   17 |@@@|`, `[1]   2 |@|`.
fn map_row(line: &Line<'_>) -> Option<(u64, u64, u64)> {
    let plain = line.text.split('|').next()?.trim();
    let (range, count) = plain.rsplit_once(char::is_whitespace)?;
    let range = range.trim().strip_prefix('[')?;
    let edges = match range.strip_suffix(']') {
        Some(one) => {
            let one = scaled(one)?;
            (one, one.checked_add(1)?)
        }
        None => {
            let (from, to) = range.strip_suffix(')')?.split_once(", ")?;
            (scaled(from)?, scaled(to)?)
        }
    };
    Some((edges.0, edges.1, whole(count)?))
}

/// What the next histogram is about: `pid = 15919`, `disk = 'sda'`.
fn key(line: &Line<'_>) -> Option<String> {
    const KEYS: &[&str] = &["pid", "tid", "tgid", "pidns", "disk", "flags", "cgroup"];
    let is_key = line.words.get(1) == Some(&"=") && line.words.len() >= 3;
    (is_key && KEYS.contains(&line.words[0])).then(|| cut(line.text.trim()))
}

impl Reading {
    fn close(&mut self) {
        let Some(open) = self.open.take().filter(|open| !open.buckets.is_empty()) else { return };
        self.done.all.push(open);
    }

    fn bucket(&mut self, line: &Line<'_>) -> Taken {
        if let Some((from, to, count)) = map_row(line) {
            return self.add(line.number, from, Some(to), count);
        }
        let [from, "->", to, ":", count, ..] = *line.words.as_slice() else {
            return Taken::Unread("a row of a histogram that is cut off");
        };
        let (Some(from), Some(to), Some(count)) =
            (whole::<u64>(from), whole::<u64>(to), whole(count))
        else {
            return Taken::Unread("not a row of a histogram: its numbers are whole");
        };
        self.add(line.number, from, to.checked_add(1), count)
    }

    /// Adds a row, with its edges in the unit of the text.
    fn add(&mut self, line: u64, from: u64, to: Option<u64>, count: u64) -> Taken {
        let Some(open) = &mut self.open else {
            return Taken::Unread(
                "a row of a histogram without its heading: the unit is not known",
            );
        };
        let edges =
            (from.checked_mul(self.unit_ns), to.and_then(|to| to.checked_mul(self.unit_ns)));
        let (Some(from_ns), Some(to_ns)) = edges else {
            return Taken::Unread("a row of a histogram beyond all durations");
        };
        if open.buckets.last().is_some_and(|last| last.to_ns > from_ns) || from_ns >= to_ns {
            return Taken::Unread("a row of a histogram that is not above the row before it");
        }
        if self.buckets >= MAX_ROWS {
            self.done.dropped += 1;
            return Taken::Yes;
        }
        self.buckets += 1;
        open.buckets.push(Bucket { from_ns, to_ns, count });
        open.lines.1 = line;
        Taken::Yes
    }
}

impl Parser for Reading {
    fn line(&mut self, line: &Line<'_>) -> Taken {
        if let Some(key) = key(line) {
            self.close();
            self.key = Some(key);
            return Taken::Yes;
        }
        if let Some(unit) = unit_of(line) {
            self.close();
            (self.unit_ns, self.done.unit_ns) = (unit, unit);
            let lines = (line.number, line.number);
            self.open = Some(Histogram { lines, key: self.key.take(), buckets: vec![] });
            return Taken::Yes;
        }
        if let Some((unit, key)) = map(line) {
            self.close();
            (self.unit_ns, self.done.unit_ns) = (unit, unit);
            let lines = (line.number, line.number);
            self.open = Some(Histogram { lines, key, buckets: vec![] });
            return Taken::Yes;
        }
        if line.words.get(1) == Some(&"->") || map_row(line).is_some() {
            return self.bucket(line);
        }
        Taken::No
    }

    fn end(mut self: Box<Self>) -> Parsed {
        self.close();
        Parsed::Histograms(self.done)
    }
}

impl Histogram {
    /// Number of durations.
    pub(in crate::transcript) fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, bucket| sum.saturating_add(bucket.count))
    }
}

impl Histograms {
    pub(super) fn describe(&self, section: &Section) -> Described {
        let tool = match (self.measured, section.command.tool()) {
            (Measured::RunQueue, _) => "runqlat",
            (Measured::BlockIo, _) => "biolatency",
            _ => "a histogram",
        };
        let layout = format!("histogram in units of {}", units::duration(self.unit_ns as f64));
        Described::new(tool, layout, self.all.len(), ["histogram", "histograms"])
            .note(
                self.measured == Measured::Unknown,
                "the text does not say what the durations are",
            )
            .note(self.dropped > 0, format!("{} more rows are not used", self.dropped))
    }
}
