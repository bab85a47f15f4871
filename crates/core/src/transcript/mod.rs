// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transcripts: what people paste of the output of other tools. Text in; what it was taken for, what it means, and
//! records for the rules out.
//!
//! A [`Reader`] gets line after line. Each line goes to the parser of the section that it is in; what that parser does
//! not know may begin a section of another tool. Parsers find columns by their headers. A line that nobody knows is
//! named with its number, and nothing is guessed from it. Memory is bounded: what may be long is summed up, and every
//! list has a limit ([`MAX_ROWS`]).
//!
//! All files that are read together are taken for one host at one time: a partition table explains the sectors of
//! another file.

mod document;
mod engine;
mod layouts;
mod line;
mod meaning;
mod records;
mod times;

pub use document::{
    Document, Fact, FileRead, Judged, Number, READ_SCHEMA, SectionRead, SizeEstimate, Statement,
    Unread, Weight,
};
pub use engine::Reader;
pub use line::MAX_LINE_BYTES;

use crate::recording::Record;

/// Largest number of rows that are kept of one section; later ones are counted, and the document says so.
pub const MAX_ROWS: usize = 200_000;

/// What the text may not say, and the user knows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Given {
    /// Number of CPUs of the host.
    pub cpus: Option<u32>,
    /// Time between two reports of a tool, in seconds.
    pub interval_s: Option<f64>,
}

/// What was read of all files.
#[derive(Debug)]
pub struct Transcript {
    /// The document, without what the rules say.
    pub document: Document,
    /// The same samples as records; empty if none can be records.
    pub records: Vec<Record>,
    /// What became records: `iostat`, ...
    pub recorded_from: Vec<String>,
}

#[cfg(test)]
mod tests;
