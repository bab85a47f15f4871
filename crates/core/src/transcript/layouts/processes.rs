// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of processes: `top`, and `ps` with the CPU (PSR) that each was last on.

use super::{Described, Parsed, Parser, Taken, column, owned};
use crate::transcript::MAX_ROWS;
use crate::transcript::engine::{Context, cut};
use crate::transcript::line::{Line, number, whole};

/// A process at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::transcript) struct Row {
    /// Its line.
    pub(in crate::transcript) line: u64,
    /// Number of the table, from 0.
    pub(in crate::transcript) look: usize,
    /// Its pid.
    pub(in crate::transcript) pid: u32,
    /// Its name.
    pub(in crate::transcript) comm: String,
    /// Whether it runs or waits for a CPU (state `R`); `None` without that column.
    pub(in crate::transcript) runnable: Option<bool>,
    /// The CPU that it was last on; `None` without that column.
    pub(in crate::transcript) cpu: Option<u32>,
    /// Percent of one CPU, in the interval before (`top`); `None` without that column, or where it is an average over the
    /// life of the process (`ps`).
    pub(in crate::transcript) percent: Option<f64>,
}

/// The tables of one run.
#[derive(Debug, Default)]
pub(in crate::transcript) struct Processes {
    /// The rows.
    pub(in crate::transcript) rows: Vec<Row>,
    /// Number of tables.
    pub(in crate::transcript) looks: usize,
    /// Whether `top` printed them.
    pub(in crate::transcript) top: bool,
    header: Vec<String>,
    dropped: u64,
}

/// The columns that `watch` shows the order of: `Every 2.0s: ps -e -o pid,psr,comm,s`.
fn watched(line: &Line<'_>) -> Option<Vec<String>> {
    let at = line.words.iter().position(|word| *word == "ps" || word.ends_with("/ps"))?;
    let option =
        |word: &&&str| word.starts_with('-') && word.ends_with('o') && !word.starts_with("--");
    let after = line.words[at..].iter().position(|word| option(&word))?;
    let list = line.words.get(at + after + 1)?;
    let names = list.split(['|', ';', '>']).next()?.split(',');
    let names: Vec<String> = names.map(|name| name.trim_end_matches('=').to_uppercase()).collect();
    (line.begins(&["Every"]) && names.len() > 1).then_some(names)
}

fn is_header(line: &Line<'_>) -> bool {
    let has = |name: &str| line.words.contains(&name);
    let command = ["COMMAND", "CMD", "COMM"].into_iter().any(has);
    command && has("PID") && ["%CPU", "PSR", "P"].into_iter().any(has)
}

fn is_summary(line: &Line<'_>) -> bool {
    [
        "top - ", "top:", "Tasks:", "Threads:", "%Cpu", "Cpu(s):", "KiB ", "MiB ", "GiB ", "Mem:",
        "Swap:",
    ]
    .iter()
    .any(|begin| line.text.trim_start().starts_with(begin))
}

pub(super) fn begins(line: &Line<'_>, _: &Context) -> Option<Box<dyn Parser>> {
    let top = line.text.starts_with("top - ") || line.text == "top:";
    (top || is_header(line) || watched(line).is_some())
        .then(|| Box::new(Processes::default()) as Box<dyn Parser>)
}

impl Processes {
    fn row(&mut self, line: &Line<'_>) -> Taken {
        let of = |names: &[&str]| column(&self.header, names);
        let Some(command) = of(&["COMMAND", "CMD", "COMM"]) else { return Taken::No };
        // A name or a command line may have blanks in it; the columns around it have none.
        let Some(more) = line.words.len().checked_sub(self.header.len()) else {
            return Taken::Unread(
                "a row of a process table with fewer columns than its header: cut off",
            );
        };
        let at = |names: &[&str]| {
            let at = of(names)?;
            line.words.get(if at > command { at + more } else { at }).copied()
        };
        let Some(pid) = at(&["PID"]).and_then(whole) else { return Taken::No };
        if self.rows.len() >= MAX_ROWS {
            self.dropped += 1;
            return Taken::Yes;
        }
        let state = at(&["S", "STAT", "STATE"]);
        // The percentage of `ps` is of the whole life of a process.
        let percent = at(&["%CPU"]).and_then(number).filter(|_| self.top);
        self.rows.push(Row {
            line: line.number,
            look: self.looks.saturating_sub(1),
            pid,
            comm: cut(&line.words[command..=command + more].join(" ")),
            runnable: state.map(|state| state.starts_with('R')),
            cpu: at(&["PSR", "P"]).and_then(whole),
            percent,
        });
        Taken::Yes
    }
}

impl Parser for Processes {
    fn line(&mut self, line: &Line<'_>) -> Taken {
        if is_summary(line) {
            self.top = true;
            return Taken::Yes;
        }
        if let Some(names) = watched(line) {
            (self.header, self.looks) = (names, self.looks + 1);
            return Taken::Yes;
        }
        if is_header(line) {
            let names = owned(&line.words);
            self.top |= ["TIME+", "VIRT"].iter().any(|name| line.words.contains(name));
            (self.header, self.looks) = (names, self.looks + 1);
            return Taken::Yes;
        }
        if self.header.is_empty() { Taken::No } else { self.row(line) }
    }

    fn end(self: Box<Self>) -> Parsed {
        Parsed::Processes(*self)
    }
}

impl Processes {
    pub(super) fn describe(&self) -> Described {
        let tool = if self.top { "top" } else { "ps" };
        let layout = format!("{} columns", self.header.len());
        Described::new(tool, layout, self.rows.len(), ["process", "processes"])
            .note(self.looks > 1, format!("{} tables", self.looks))
            .note(self.dropped > 0, format!("{} more rows are not used", self.dropped))
    }
}
