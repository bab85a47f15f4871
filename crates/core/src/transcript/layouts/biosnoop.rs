// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `biosnoop`: every request to a disk. A log may have millions of lines, so they are summed up as they come.

use super::{Described, Parsed, Parser, Taken, column};
use crate::recording::WaitHist;
use crate::transcript::engine::Context;
use crate::transcript::line::{Line, number, whole};
use std::collections::BTreeMap;

/// Originators that are told apart; later ones are summed up.
const MAX_WHO: usize = 1000;
/// Requests whose sectors are kept, the first ones.
const MAX_SECTORS: usize = 256;
/// Seconds for which requests are counted.
const MAX_SECONDS: usize = 100_000;

/// Who sent requests of which kind to which disk.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::transcript) struct Who {
    /// Name of the thread that sent them.
    pub(in crate::transcript) comm: String,
    /// The disk.
    pub(in crate::transcript) disk: String,
    /// `R`, `W`, ...
    pub(in crate::transcript) op: String,
}

/// The requests of one originator.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::transcript) struct Sum {
    /// Number of requests.
    pub(in crate::transcript) ios: u64,
    /// Their bytes.
    pub(in crate::transcript) bytes: u64,
    /// Their latency.
    pub(in crate::transcript) latency: WaitHist,
    /// The longest, in nanoseconds.
    pub(in crate::transcript) max_ns: u64,
}

/// A request with its place on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::transcript) struct Request {
    /// Its line.
    pub(in crate::transcript) line: u64,
    /// The disk.
    pub(in crate::transcript) disk: String,
    /// First sector.
    pub(in crate::transcript) sector: u64,
    /// Name of the thread that sent it.
    pub(in crate::transcript) comm: String,
}

/// The requests of one run.
#[derive(Debug, Default)]
pub(in crate::transcript) struct Requests {
    /// Number of requests.
    pub(in crate::transcript) ios: u64,
    /// The sums, by originator.
    pub(in crate::transcript) by: BTreeMap<Who, Sum>,
    /// The first requests.
    pub(in crate::transcript) first: Vec<Request>,
    /// Bytes that end in each second from the first request on.
    pub(in crate::transcript) seconds: Vec<u64>,
    /// Time of the first and of the last request, in seconds.
    pub(in crate::transcript) range_s: Option<(f64, f64)>,
    /// Requests of originators beyond the limit.
    pub(in crate::transcript) others: u64,
    columns: Columns,
    queue: bool,
}

#[derive(Debug, Default)]
struct Columns {
    n: usize,
    time: usize,
    comm: usize,
    disk: Option<usize>,
    op: Option<usize>,
    sector: Option<usize>,
    bytes: Option<usize>,
    latency: usize,
}

impl Columns {
    fn of(line: &Line<'_>) -> Option<Self> {
        let names: Vec<String> = line.words.iter().map(|&word| word.to_owned()).collect();
        let at = |all: &[&str]| column(&names, all);
        Some(Self {
            n: names.len(),
            time: at(&["TIME(s)"])?,
            comm: at(&["COMM"])?,
            disk: at(&["DISK"]),
            op: at(&["T"]),
            sector: at(&["SECTOR"]),
            bytes: at(&["BYTES"]),
            latency: at(&["LAT(ms)"])?,
        })
    }
}

pub(super) fn begins(line: &Line<'_>, _: &Context) -> Option<Box<dyn Parser>> {
    Columns::of(line).map(|_| Box::new(Requests::default()) as Box<dyn Parser>)
}

impl Requests {
    fn add(&mut self, line: &Line<'_>, comm: &str, more: usize) -> Taken {
        let columns = &self.columns;
        let at =
            |at: usize| line.words.get(if at > columns.comm { at + more } else { at }).copied();
        let text = |column: Option<usize>| column.and_then(at).unwrap_or("?");
        let (Some(time_s), Some(ms)) =
            (at(columns.time).and_then(number), at(columns.latency).and_then(number))
        else {
            return Taken::Unread("not a row of biosnoop: no number below `TIME(s)` or `LAT(ms)`");
        };
        if time_s < 0.0 || !(0.0..1e9).contains(&ms) {
            return Taken::Unread("not a row of biosnoop: a time that cannot be");
        }
        let bytes = columns.bytes.and_then(at).and_then(whole::<u64>).unwrap_or(0).min(1 << 40);
        let sector = columns.sector.and_then(at).and_then(whole);
        let (disk, op) = (text(columns.disk), text(columns.op));
        let ns = (ms * 1e6) as u64;
        if let (Some(sector), true) = (sector, self.first.len() < MAX_SECTORS) {
            let (disk, comm) = (disk.to_owned(), comm.to_owned());
            self.first.push(Request { line: line.number, disk, sector, comm });
        }
        let who = Who { comm: comm.to_owned(), disk: disk.to_owned(), op: op.to_owned() };
        let known = self.by.len() < MAX_WHO || self.by.contains_key(&who);
        if known {
            let sum = self.by.entry(who).or_default();
            sum.ios += 1;
            sum.bytes = sum.bytes.saturating_add(bytes);
            sum.latency.add(ns);
            sum.max_ns = sum.max_ns.max(ns);
        } else {
            self.others += 1;
        }
        self.ios += 1;
        let first_s = self.range_s.map_or(time_s, |range| range.0);
        self.range_s = Some((first_s, self.range_s.map_or(time_s, |range| range.1).max(time_s)));
        let second = (time_s - first_s).max(0.0) as usize;
        if second < MAX_SECONDS {
            if self.seconds.len() <= second {
                self.seconds.resize(second + 1, 0);
            }
            self.seconds[second] = self.seconds[second].saturating_add(bytes);
        }
        Taken::Yes
    }
}

impl Parser for Requests {
    fn line(&mut self, line: &Line<'_>) -> Taken {
        if let Some(columns) = Columns::of(line) {
            if self.ios > 0 && columns.n != self.columns.n {
                return Taken::No;
            }
            self.queue = line.words.contains(&"QUE(ms)");
            self.columns = columns;
            return Taken::Yes;
        }
        if line.words.first().and_then(|word| number(word)).is_none() {
            return Taken::No;
        }
        let Some(more) = line.words.len().checked_sub(self.columns.n) else {
            return Taken::Unread("a row of biosnoop with fewer columns than its header: cut off");
        };
        let comm = self.columns.comm;
        match more {
            0 => self.add(line, line.words[comm], 0),
            // A name with blanks.
            1..=8 => self.add(line, &line.words[comm..=comm + more].join(" "), more),
            _ => Taken::Unread("a row of biosnoop with more columns than its header"),
        }
    }

    fn end(self: Box<Self>) -> Parsed {
        Parsed::Biosnoop(*self)
    }
}

impl Requests {
    pub(super) fn describe(&self) -> Described {
        let layout = if self.queue {
            "with the time in the queue (QUE)"
        } else {
            "without the time in the queue"
        };
        let n = usize::try_from(self.ios).unwrap_or(usize::MAX);
        Described::new("biosnoop", layout, n, ["request", "requests"])
            .note(self.others > 0, "more than 1000 originators: later ones are only counted")
    }
}
