// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vmstat N`: tasks that are runnable at the moment of the report, and CPU time in the interval before it.

use super::{Described, Parsed, Parser, Taken, column, owned};
use crate::transcript::MAX_ROWS;
use crate::transcript::engine::Context;
use crate::transcript::line::{Line, whole};

/// A report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::transcript) struct Row {
    /// Its line.
    pub(in crate::transcript) line: u64,
    /// `r`: tasks that run or wait for a CPU, counted at the moment of the report.
    pub(in crate::transcript) runnable: u32,
    /// `b`: tasks in uninterruptible sleep, counted at the moment of the report.
    pub(in crate::transcript) blocked: u32,
    /// `us`, `sy`, `id`, `wa` and `st`: percent of the CPU time since the report before, rounded to whole numbers.
    pub(in crate::transcript) user: f64,
    pub(in crate::transcript) system: f64,
    pub(in crate::transcript) idle: f64,
    pub(in crate::transcript) iowait: f64,
    pub(in crate::transcript) steal: Option<f64>,
}

/// The reports of one run.
#[derive(Debug, Default)]
pub(in crate::transcript) struct Vmstat {
    /// The reports, without those that are averages since boot.
    pub(in crate::transcript) rows: Vec<Row>,
    /// Whether the first report was left out.
    pub(in crate::transcript) since_boot: bool,
    /// Reports beyond [`MAX_ROWS`].
    pub(in crate::transcript) dropped: u64,
}

#[derive(Default)]
struct Reading {
    header: Vec<String>,
    /// `-y`: the first report is an interval, too.
    no_first: bool,
    seen: bool,
    all: Vmstat,
}

pub(super) fn begins(line: &Line<'_>, context: &Context) -> Option<Box<dyn Parser>> {
    if !is_banner(line) && !is_header(line) {
        return None;
    }
    let no_first = context.command.as_ref().is_some_and(|command| command.has('y', "--no-first"));
    Some(Box::new(Reading { no_first, ..Reading::default() }))
}

/// The line above the header, which groups its columns.
fn is_banner(line: &Line<'_>) -> bool {
    let first = line.words.first().map_or("", |word| word.trim_start_matches('-'));
    first.starts_with("procs") && line.text.contains("memory")
}

fn is_header(line: &Line<'_>) -> bool {
    line.begins(&["r", "b"]) && ["us", "sy", "id"].iter().all(|name| line.words.contains(name))
}

impl Parser for Reading {
    fn line(&mut self, line: &Line<'_>) -> Taken {
        if is_header(line) {
            self.header = owned(&line.words);
            return Taken::Yes;
        }
        if is_banner(line) {
            return Taken::Yes;
        }
        let counted = line.words.first().is_some_and(|word| whole::<u32>(word).is_some());
        if !counted || self.header.is_empty() {
            return Taken::No;
        }
        // The header names the time zone once, a row has a date and a time.
        let columns = self.header.iter().filter(|name| name.len() < 6).count();
        if line.words.len() < columns {
            return Taken::Unread("a row of vmstat with fewer columns than its header: cut off");
        }
        let percent = |names: &[&str]| line.number_at(column(&self.header, names)?);
        let count = |name: &str| whole(line.words.get(column(&self.header, &[name])?)?);
        let (Some(runnable), Some(blocked)) = (count("r"), count("b")) else {
            return Taken::Unread("not a row of vmstat: `r` and `b` are whole numbers");
        };
        let parts = (percent(&["us"]), percent(&["sy"]), percent(&["id"]));
        let (Some(user), Some(system), Some(idle)) = parts else {
            return Taken::Unread("not a row of vmstat: no numbers below `us`, `sy`, `id`");
        };
        let iowait = percent(&["wa"]).unwrap_or(0.0);
        let steal = percent(&["st"]);
        if [user, system, idle, iowait].iter().any(|part| !(0.0..=100.0).contains(part)) {
            return Taken::Unread("not a row of vmstat: more than 100 % of the CPU time");
        }
        if !self.seen && !self.no_first {
            (self.seen, self.all.since_boot) = (true, true);
            return Taken::Yes;
        }
        self.seen = true;
        if self.all.rows.len() >= MAX_ROWS {
            self.all.dropped += 1;
            return Taken::Yes;
        }
        let line = line.number;
        self.all.rows.push(Row { line, runnable, blocked, user, system, idle, iowait, steal });
        Taken::Yes
    }

    fn end(self: Box<Self>) -> Parsed {
        Parsed::Vmstat(self.all)
    }
}

impl Vmstat {
    pub(super) fn describe(&self) -> Described {
        Described::new("vmstat", "tasks and CPU time", self.rows.len(), ["row", "rows"])
            .note(self.since_boot, "the first row is an average since boot, and not used")
            .note(self.dropped > 0, format!("{} more rows are not used", self.dropped))
    }
}
