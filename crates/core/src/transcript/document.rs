// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The result of reading transcripts: the document `deburr.read/1`.

use crate::finding::{Finding, NotChecked, RuledOut, Tool};
use crate::text::Unit;
use serde::{Deserialize, Serialize};

/// Identifies the document's format.
pub const READ_SCHEMA: &str = "deburr.read/1";

/// What was read, and what it means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`READ_SCHEMA`].
    pub schema: String,
    /// The program.
    pub tool: Tool,
    /// The files, in the order in which they were given.
    pub files: Vec<FileRead>,
    /// Facts that hold for all files.
    pub known: Vec<Fact>,
    /// What the samples mean: what was found first, then what is open, what is known, what was ruled out.
    pub statements: Vec<Statement>,
    /// What the rules of `deburr report` say about the samples that are records, too; absent if none are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<Judged>,
}

/// What the rules say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// What was turned into records: `iostat`, `/proc/pressure/io`, ...
    pub from: Vec<String>,
    /// The records' range of time, in seconds.
    pub seconds: f64,
    /// Findings, worst first.
    pub findings: Vec<Finding>,
    /// Rules that found nothing.
    pub ruled_out: Vec<RuledOut>,
    /// Rules for which the text holds no data.
    pub not_checked: Vec<NotChecked>,
}

/// A file, and what it was taken for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRead {
    /// Its name as it was given; `-` is standard input.
    pub name: String,
    /// Number of its lines.
    pub lines: u64,
    /// The parts of it that were understood.
    pub sections: Vec<SectionRead>,
    /// Lines that were not understood, the first few.
    pub unread: Vec<Unread>,
    /// Number of lines that were not understood.
    pub unread_lines: u64,
}

/// A part of a file that one tool printed in one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SectionRead {
    /// The tool, or the file of the kernel: `vmstat`, `/proc/PID/cgroup`.
    pub tool: String,
    /// The layout: which columns, which unit.
    pub layout: String,
    /// First line, from 1.
    pub from_line: u64,
    /// Last line.
    pub to_line: u64,
    /// Number of samples, and what a sample is: `8 rows`, `3 histograms`.
    pub samples: String,
    /// The command that the text says was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Notes: what was left out, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Consecutive lines that were not understood.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unread {
    /// First line, from 1.
    pub from_line: u64,
    /// Last line.
    pub to_line: u64,
    /// The first line, cut to 100 characters.
    pub text: String,
    /// Why it was not read.
    pub reason: String,
}

/// A fact that the text, or the user, states once for everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// `cpus`, ...
    pub name: String,
    /// Its value.
    pub value: String,
    /// Where it is from: an option, or a place in a file.
    pub source: String,
}

/// How much a statement claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// A cause of latency, or the trace of one, is in the samples.
    Found,
    /// The samples hint at it, and are not enough for a claim.
    Open,
    /// What the samples say, without judgement.
    Fact,
    /// It was looked for, and is not in the samples.
    RuledOut,
}

/// Something that the samples say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Statement {
    /// Its kind, words joined by `-`.
    pub name: String,
    /// How much it claims.
    pub weight: Weight,
    /// The statement in a sentence.
    pub title: String,
    /// The numbers behind it.
    pub numbers: Vec<Number>,
    /// What these samples cannot say.
    pub cannot_say: Vec<String>,
    /// What would settle it: a longer capture, a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settle: Option<String>,
    /// The histogram that it is about, row by row without gaps; empty if it is about none, or if rows of it are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<SizeEstimate>,
}

/// The durations of a row of a histogram. Their time is an estimate: where in the row each of them is, is not known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeEstimate {
    /// Lower bound of the row, inclusive, in nanoseconds.
    pub from_ns: u64,
    /// Upper bound of the row, exclusive, in nanoseconds.
    pub to_ns: u64,
    /// Number of durations.
    pub count: u64,
    /// Share of the number of all durations, 0..1.
    pub count_share: f64,
    /// Sum of the durations in nanoseconds, as if each were in the middle of its row.
    pub ns: f64,
    /// Share of the time of all durations, 0..1, as if each were in the middle of its row.
    pub time_share: f64,
    /// The same with these at the lower bound of their row, and all others at the upper bound of theirs: the least it can be.
    pub time_share_least: f64,
    /// The same the other way round: the most it can be.
    pub time_share_most: f64,
}

/// A number and its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Number {
    /// What it measures.
    pub name: String,
    /// The number, in `unit`.
    pub value: f64,
    /// Unit.
    pub unit: Unit,
    /// The lines that it is computed from: `FILE:FROM-TO`.
    pub source: String,
    /// A remark: its bounds, how it was derived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Statement {
    /// A statement without numbers.
    pub(super) fn new(name: &str, weight: Weight, title: String) -> Self {
        Self {
            name: name.to_owned(),
            weight,
            title,
            numbers: Vec::new(),
            cannot_say: Vec::new(),
            settle: None,
            sizes: Vec::new(),
        }
    }

    /// Adds a number. What is not finite is not a number, and left out.
    #[must_use]
    pub(super) fn number(mut self, name: &str, value: f64, unit: Unit, source: &str) -> Self {
        if value.is_finite() {
            let (name, source) = (name.to_owned(), source.to_owned());
            self.numbers.push(Number { name, value, unit, source, note: None });
        }
        self
    }

    /// Adds a remark to the last number.
    #[must_use]
    pub(super) fn note(mut self, note: impl Into<String>) -> Self {
        if let Some(last) = self.numbers.last_mut() {
            last.note = Some(note.into());
        }
        self
    }

    /// Adds something that it cannot say.
    #[must_use]
    pub(super) fn cannot(mut self, what: &str) -> Self {
        self.cannot_say.push(what.to_owned());
        self
    }

    /// Adds the histogram that it is about.
    #[must_use]
    pub(super) fn of_sizes(mut self, sizes: Vec<SizeEstimate>) -> Self {
        self.sizes = sizes;
        self
    }

    /// Says what would settle it.
    #[must_use]
    pub(super) fn settled_by(mut self, what: impl Into<String>) -> Self {
        self.settle = Some(what.into());
        self
    }
}
