// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `runqslower`: each wait for a CPU that was longer than a limit; with `-P`, what ran before it ended.

use super::{Described, Parsed, Parser, Taken, column, owned};
use crate::transcript::MAX_ROWS;
use crate::transcript::engine::{Context, cut};
use crate::transcript::line::{Line, number, whole};

/// A wait.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::transcript) struct Wait {
    /// Its line.
    pub(in crate::transcript) line: u64,
    /// Name of the thread that waited.
    pub(in crate::transcript) comm: String,
    /// Its id.
    pub(in crate::transcript) tid: u32,
    /// How long, in microseconds.
    pub(in crate::transcript) us: f64,
    /// Name of the thread that ran on that CPU before.
    pub(in crate::transcript) before: Option<String>,
}

/// The waits of one run.
#[derive(Debug, Default)]
pub(in crate::transcript) struct Waits {
    /// The waits, in the order of the text.
    pub(in crate::transcript) rows: Vec<Wait>,
    header: Vec<String>,
    dropped: u64,
}

/// The columns, with `PREV COMM` and `PREV TID` as one word each.
fn header(line: &Line<'_>) -> Option<Vec<String>> {
    let joined = line.text.replace("PREV COMM", "PREV-COMM").replace("PREV TID", "PREV-TID");
    let names: Vec<&str> = joined.split_whitespace().collect();
    let has = |some: &[&str]| some.iter().any(|name| names.contains(name));
    (names.first() == Some(&"TIME") && has(&["COMM"]) && has(&["TID", "PID"]) && has(&["LAT(us)"]))
        .then(|| owned(&names))
}

pub(super) fn begins(line: &Line<'_>, _: &Context) -> Option<Box<dyn Parser>> {
    header(line).map(|_| Box::new(Waits::default()) as Box<dyn Parser>)
}

impl Parser for Waits {
    fn line(&mut self, line: &Line<'_>) -> Taken {
        if let Some(names) = header(line) {
            self.header = names;
            return Taken::Yes;
        }
        let time = line.words.first().is_some_and(|word| word.matches(':').count() == 2);
        if !time {
            return Taken::No;
        }
        let previous = column(&self.header, &["PREV-COMM"]);
        let Some(more) = line.words.len().checked_sub(self.header.len()) else {
            return Taken::Unread(
                "a row of runqslower with fewer columns than its header: cut off",
            );
        };
        // A name may have blanks: which of two is not known, if there are two.
        if more > 0 && previous.is_some() {
            return Taken::Unread("a row of runqslower with blanks in one of its two names");
        }
        let comm = column(&self.header, &["COMM"]).unwrap_or(1);
        let at = |names: &[&str]| {
            let at = column(&self.header, names)?;
            line.words.get(if at > comm { at + more } else { at }).copied()
        };
        let (Some(tid), Some(us)) =
            (at(&["TID", "PID"]).and_then(whole), at(&["LAT(us)"]).and_then(number))
        else {
            return Taken::Unread("not a row of runqslower");
        };
        if us < 0.0 || comm + more >= line.words.len() {
            return Taken::Unread("not a row of runqslower");
        }
        if self.rows.len() >= MAX_ROWS {
            self.dropped += 1;
            return Taken::Yes;
        }
        let before = at(&["PREV-COMM"]).map(cut);
        let comm = cut(&line.words[comm..=comm + more].join(" "));
        self.rows.push(Wait { line: line.number, comm, tid, us, before });
        Taken::Yes
    }

    fn end(self: Box<Self>) -> Parsed {
        Parsed::Runqslower(*self)
    }
}

impl Waits {
    pub(super) fn describe(&self) -> Described {
        let layout = match column(&self.header, &["PREV-COMM"]) {
            Some(_) => "with the thread that ran before",
            None => "without the thread that ran before",
        };
        Described::new("runqslower", layout, self.rows.len(), ["wait", "waits"])
            .note(self.dropped > 0, format!("{} more rows are not used", self.dropped))
    }
}
