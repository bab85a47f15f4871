// SPDX-License-Identifier: Apache-2.0 OR MIT
//! bpftrace's `writeback.bt`: when the flusher of a disk worked, why, and for how long.
//!
//! Its column PAGES is not what was written: it is `nr_pages` of the work, a budget of which the script prints some bits
//! only. Its time ends when the writes were submitted, not when the disk had done them.

use super::{Described, Parsed, Parser, Taken, column, owned};
use crate::transcript::MAX_ROWS;
use crate::transcript::engine::Context;
use crate::transcript::line::Line;
use crate::transcript::times;

/// One piece of work of the flusher.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::transcript) struct Work {
    /// Its line.
    pub(in crate::transcript) line: u64,
    /// Time of its end, seconds since midnight of the first day, in whole seconds.
    pub(in crate::transcript) time_s: f64,
    /// The disk: `8:0`.
    pub(in crate::transcript) device: String,
    /// Why: `periodic`, `background`, `sync`, ...
    pub(in crate::transcript) reason: String,
    /// Until its writes were submitted, in ms.
    pub(in crate::transcript) ms: f64,
}

/// The rows of one run.
#[derive(Debug, Default)]
pub(in crate::transcript) struct Passes {
    /// The rows, in the order of the text.
    pub(in crate::transcript) rows: Vec<Work>,
    dropped: u64,
}

#[derive(Default)]
struct Reading {
    header: Vec<String>,
    all: Passes,
}

fn is_header(line: &Line<'_>) -> bool {
    ["TIME", "DEVICE", "REASON", "ms"].iter().all(|name| line.words.contains(name))
}

pub(super) fn begins(line: &Line<'_>, _: &Context) -> Option<Box<dyn Parser>> {
    is_header(line).then(|| Box::new(Reading::default()) as Box<dyn Parser>)
}

impl Parser for Reading {
    fn line(&mut self, line: &Line<'_>) -> Taken {
        if is_header(line) {
            self.header = owned(&line.words);
            return Taken::Yes;
        }
        let at = |name: &str| line.words.get(column(&self.header, &[name])?).copied();
        let Some(of_day) = at("TIME").and_then(|word| times::of_day(word, None)) else {
            return Taken::No;
        };
        if line.words.len() != self.header.len() {
            return Taken::Unread(
                "a row of writeback.bt with other columns than its header: cut off",
            );
        }
        let (Some(device), Some(reason)) = (at("DEVICE"), at("REASON")) else {
            return Taken::Unread("not a row of writeback.bt");
        };
        let Some(ms) = at("ms").and_then(super::super::line::number).filter(|ms| *ms >= 0.0) else {
            return Taken::Unread("not a row of writeback.bt: no number below `ms`");
        };
        if self.all.rows.len() >= MAX_ROWS {
            self.all.dropped += 1;
            return Taken::Yes;
        }
        let before = self.all.rows.last().map(|row| row.time_s);
        let (device, reason) = (device.to_owned(), reason.to_owned());
        let time_s = times::after(before, of_day);
        self.all.rows.push(Work { line: line.number, time_s, device, reason, ms });
        Taken::Yes
    }

    fn end(self: Box<Self>) -> Parsed {
        Parsed::Writeback(self.all)
    }
}

impl Passes {
    pub(super) fn describe(&self) -> Described {
        Described::new("writeback.bt", "work of the flusher", self.rows.len(), ["row", "rows"])
            .note(true, "PAGES is a budget of which some bits are shown, and is not used")
            .note(self.dropped > 0, format!("{} more rows are not used", self.dropped))
    }
}
