// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr export`: a recording for other programs (`docs/export.md`).
//!
//! The rows of a recording pass by one at a time, and every [`Sink`] writes them in its format: nothing is kept but the
//! last few. Units and meanings in time of all columns are in [`schema`].

mod csv;
mod jsonl;
mod made;
mod parquet;
mod perfetto;
mod rows;
pub(crate) mod schema;
#[cfg(test)]
mod tests;

pub(crate) use csv::Csv;
pub(crate) use jsonl::Jsonl;
pub(crate) use parquet::Parquet;
pub(crate) use perfetto::Perfetto;
pub(crate) use rows::{Broken, Rows};

use deburr_core::finding::Report;
use deburr_core::recording::Record;
use jiff::Timestamp;
use std::borrow::Cow;
use std::fs::File;
use std::io;

/// Identifier of the schema.
pub(crate) const SCHEMA: &str = "deburr.export/1";

/// A cell of an exported table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell<'a> {
    /// Not measured, or it does not apply.
    Null,
    /// A number. Those of 2^63 and more are negative, as in the recording.
    Integer(i64),
    /// A number with a fraction.
    Real(f64),
    /// Text, with all its characters.
    Text(Cow<'a, str>),
    /// JSON on one line.
    Json(Cow<'a, str>),
    /// A moment, in nanoseconds since the Unix epoch.
    Time(i64),
}

/// Whose recording it is.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) host: String,
    pub(crate) boot_id: Option<String>,
    pub(crate) start_unix_ns: i64,
    pub(crate) start_mono_ns: u64,
    pub(crate) recorded_by: String,
}

/// Where rows go. A format takes rows of tables, or records.
pub(crate) trait Sink: Send {
    /// Called before the first row of a recording.
    fn begin(&mut self, _head: &Head) -> io::Result<()> {
        Ok(())
    }

    /// Writes a row. `table` is its place in [`schema::tables`].
    fn row(&mut self, _table: usize, _cells: &[Cell<'_>]) -> io::Result<()> {
        Ok(())
    }

    /// Writes a record.
    fn record(&mut self, _record: &Record) -> io::Result<()> {
        Ok(())
    }

    /// Writes what the rules say, after all records.
    fn report(&mut self, _report: &Report) -> io::Result<()> {
        Ok(())
    }

    /// Writes what is left. Afterwards the output is complete.
    fn finish(&mut self) -> io::Result<()>;
}

/// Makes the file of that name among those that belong to one export.
pub(crate) type Make<'a> = &'a dyn Fn(&str) -> io::Result<File>;

/// A moment as RFC 3339 in UTC, always with nine digits after the second; `None` outside of the years 1 to 9999.
fn rfc3339(unix_ns: i64) -> Option<String> {
    let moment = Timestamp::from_nanosecond(unix_ns.into()).ok()?;
    Some(format!("{moment:.9}"))
}
