// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `iostat -x N`: what each device did in the interval before the report. Old layouts (`avgqu-sz`, `svctm`) and new ones.
//! What `sar -d` and captures of `/proc/diskstats` say is put into the same form.

use super::{Described, Parsed, Parser, Taken, column, owned};
use crate::transcript::MAX_ROWS;
use crate::transcript::engine::Context;
use crate::transcript::line::Line;
use crate::transcript::times;

/// Devices beyond this number are not told apart.
const MAX_DEVICES: usize = 1000;

/// What a device did in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::transcript) struct Row {
    /// Its line.
    pub(in crate::transcript) line: u64,
    /// Number of the report, from 0.
    pub(in crate::transcript) report: usize,
    /// Index of the device.
    pub(in crate::transcript) device: usize,
    /// Requests completed in a second: reads, writes.
    pub(in crate::transcript) ios: [f64; 2],
    /// Bytes in a second: reads, writes.
    pub(in crate::transcript) bytes: [f64; 2],
    /// Mean time of a request from its creation to its end, in ms: reads, writes; `None` where the layout has none.
    pub(in crate::transcript) await_ms: [Option<f64>; 2],
    /// Mean number of requests queued or in the device.
    pub(in crate::transcript) queue: Option<f64>,
    /// Percent of the time in which the device had a request.
    pub(in crate::transcript) util: Option<f64>,
}

/// What printed the reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::transcript) enum Origin {
    #[default]
    Iostat,
    /// `sar -d`, which does not tell reads from writes, except by their bytes.
    Sar,
    /// Captures of `/proc/diskstats`.
    Diskstats,
}

impl Origin {
    /// The tool, or the file.
    pub(in crate::transcript) fn name(self) -> &'static str {
        match self {
            Self::Iostat => "iostat",
            Self::Sar => "sar -d",
            Self::Diskstats => "/proc/diskstats",
        }
    }
}

/// The reports of one run.
#[derive(Clone, Debug, Default)]
pub(in crate::transcript) struct Iostat {
    /// Names of the devices.
    pub(in crate::transcript) devices: Vec<String>,
    /// The rows, without those that are averages since boot.
    pub(in crate::transcript) rows: Vec<Row>,
    /// Time of each report, seconds since midnight of the first day; empty without times.
    pub(in crate::transcript) times_s: Vec<Option<f64>>,
    /// Number of the first report that is an interval: 1 if the first is an average since boot.
    pub(in crate::transcript) first: usize,
    /// What they are from.
    pub(in crate::transcript) origin: Origin,
    old: bool,
    extended: bool,
    dropped: u64,
}

struct Reading {
    header: Vec<String>,
    cpu_header: Vec<String>,
    /// Whether the rows of the report have begun: the next header begins another.
    in_rows: bool,
    time_s: Option<f64>,
    all: Iostat,
}

pub(super) fn begins(line: &Line<'_>, context: &Context) -> Option<Box<dyn Parser>> {
    if !is_cpu_header(line) && !is_header(line) {
        return None;
    }
    // Whether the first report is an average since boot can be told only if the run begins here.
    let command = context.command.as_ref();
    let intervals_only = command.is_some_and(|command| command.has('y', "-y"));
    let all = Iostat { first: usize::from(!intervals_only), ..Iostat::default() };
    let time_s = context.time_s;
    Some(Box::new(Reading { header: vec![], cpu_header: vec![], in_rows: false, time_s, all }))
}

fn is_cpu_header(line: &Line<'_>) -> bool {
    line.words.first() == Some(&"avg-cpu:") && line.words.contains(&"%user")
}

fn is_header(line: &Line<'_>) -> bool {
    let first = line.words.first().map_or("", |word| word.trim_end_matches(':'));
    first == "Device" && (line.words.contains(&"r/s") || line.words.contains(&"tps"))
}

impl Reading {
    fn header(&mut self, line: &Line<'_>) {
        self.header = owned(&line.words);
        self.all.old = column(&self.header, &["avgqu-sz"]).is_some();
        self.all.extended = column(&self.header, &["%util"]).is_some();
        self.all.report(self.time_s.take());
        self.in_rows = true;
    }

    fn row(&mut self, line: &Line<'_>) -> Taken {
        if line.words.len() < self.header.len() {
            return Taken::Unread("a row of iostat with fewer columns than its header: cut off");
        }
        if line.words.len() > self.header.len() {
            return Taken::Unread("a row of iostat with more columns than its header");
        }
        let column = |names: &[&str]| column(&self.header, names);
        let at = |names: &[&str]| line.number_at(column(names)?);
        let bytes = |plain: &str, letter: &str| {
            let unit = |name: String, factor: f64| Some(at(&[&name])? * factor);
            unit(format!("{letter}kB/s"), 1024.0)
                .or_else(|| unit(format!("{letter}MB/s"), 1_048_576.0))
                .or_else(|| unit(format!("{letter}sec/s"), 512.0))
                .or_else(|| unit(format!("kB_{plain}/s"), 1024.0))
                .or_else(|| unit(format!("MB_{plain}/s"), 1_048_576.0))
                .unwrap_or(0.0)
        };
        let numbers = line.words[1..].iter().all(|word| super::super::line::number(word).is_some());
        if !numbers {
            return Taken::Unread("a row of iostat with something that is not a number");
        }
        let mean = at(&["await"]);
        let row = Row {
            line: line.number,
            ios: [at(&["r/s"]).unwrap_or(0.0), at(&["w/s"]).unwrap_or(0.0)],
            bytes: [bytes("read", "r"), bytes("wrtn", "w")],
            await_ms: [at(&["r_await"]).or(mean), at(&["w_await"]).or(mean)],
            queue: at(&["aqu-sz", "avgqu-sz"]),
            util: at(&["%util"]),
            ..Row::default()
        };
        if self.all.extended && !self.all.row(line.words[0], row) {
            return Taken::Unread("more than 1000 devices");
        }
        Taken::Yes
    }
}

impl Parser for Reading {
    fn line(&mut self, line: &Line<'_>) -> Taken {
        if is_cpu_header(line) {
            self.cpu_header = owned(&line.words);
            self.in_rows = false;
            return Taken::Yes;
        }
        if is_header(line) {
            self.header(line);
            return Taken::Yes;
        }
        // The row below `avg-cpu:` has one word less: the label is not repeated.
        let numbers = line.words.iter().all(|word| super::super::line::number(word).is_some());
        if !self.cpu_header.is_empty() && !self.in_rows && numbers {
            return match line.words.len() + 1 == self.cpu_header.len() {
                true => Taken::Yes,
                false => {
                    Taken::Unread("a row of iostat with fewer columns than its header: cut off")
                }
            };
        }
        if let Some(time_s) = times::alone(&line.words) {
            let before = self.all.times_s.iter().rev().find_map(|time| *time);
            self.time_s = Some(times::after(before, time_s));
            self.in_rows = false;
            return Taken::Yes;
        }
        if self.in_rows
            && line.words.len() > 2
            && super::super::line::number(line.words[1]).is_some()
        {
            return self.row(line);
        }
        Taken::No
    }

    fn end(self: Box<Self>) -> Parsed {
        Parsed::Iostat(self.all)
    }
}

impl Iostat {
    /// Without reports yet, of which the first is an average since boot.
    pub(super) fn since_boot() -> Self {
        Self { first: 1, ..Self::default() }
    }

    /// Without reports yet, of which each is an interval.
    pub(super) fn of(origin: Origin) -> Self {
        Self { origin, extended: true, ..Self::default() }
    }

    /// Begins a report.
    pub(super) fn report(&mut self, time_s: Option<f64>) {
        self.times_s.push(time_s);
    }

    /// Adds a device to the last report. `false`: there are too many devices.
    pub(super) fn row(&mut self, device: &str, row: Row) -> bool {
        let known = self.devices.iter().position(|name| name == device);
        let device = match known {
            Some(device) => device,
            None if self.devices.len() < MAX_DEVICES => {
                self.devices.push(device.to_owned());
                self.devices.len() - 1
            }
            None => return false,
        };
        let report = self.times_s.len().saturating_sub(1);
        if report >= self.first && self.rows.len() < MAX_ROWS {
            self.rows.push(Row { device, report, ..row });
        } else if report >= self.first {
            self.dropped += 1;
        }
        true
    }

    /// Number of reports that are intervals.
    pub(in crate::transcript) fn reports(&self) -> usize {
        self.times_s.len().saturating_sub(self.first)
    }

    pub(super) fn describe(&self) -> Described {
        let layout = match (self.extended, self.old) {
            (false, _) => "without -x: no times, no utilisation",
            (true, true) => "extended, old columns (avgqu-sz, svctm)",
            (true, false) => "extended, new columns (aqu-sz)",
        };
        Described::new("iostat", layout, self.reports(), ["report", "reports"])
            .note(
                self.first > 0 && !self.times_s.is_empty(),
                "the first report is an average since boot, and not used",
            )
            .note(self.dropped > 0, format!("{} more rows are not used", self.dropped))
    }
}
