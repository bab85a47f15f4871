// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A Parquet file for each table.
//!
//! The files are written here because the crate `parquet` takes 31 CPU-seconds of a cold release build and 67 of one for
//! tests, and brings a dozen libraries, for what a flat table needs little of. DuckDB reads them in a test.

mod encode;
mod file;
#[cfg(test)]
mod tests;
mod thrift;

use super::schema::{self, Field, Kind, Table};
use super::{Cell, Head, Make, SCHEMA, Sink, made};
use file::{Datum, File, Type};
use std::io::{self, BufWriter};

/// Memory of a table's rows that are not written yet. A row group is about as large.
const GROUP_BYTES: usize = 8 << 20;
/// The same for all tables together.
const ALL_BYTES: usize = 64 << 20;

/// Columns that tables of a recording have here, so that files of many hosts can be read as one.
const COMMON: [(&str, Type, bool); 2] =
    [("host", Type::Text, false), ("start_wall", Type::Micros, true)];

/// Writes to files `TABLE.parquet`.
#[derive(Debug)]
pub(crate) struct Parquet {
    files: Vec<Rows>,
    head: Option<Head>,
    /// Memory of all rows that are not written yet, about.
    unwritten: usize,
}

/// A file, and about how much memory its rows take.
#[derive(Debug)]
struct Rows {
    file: File<BufWriter<std::fs::File>>,
    /// Whether its rows begin with the columns that are [`COMMON`].
    is_common: bool,
    bytes: usize,
}

impl Parquet {
    /// Makes all files.
    pub(crate) fn new(make: Make<'_>) -> io::Result<Self> {
        let mut files = Vec::new();
        for table in schema::tables() {
            let to = BufWriter::new(make(&format!("{}.parquet", table.name))?);
            let is_common = ![made::FINDING, made::FACT].contains(&table.name);
            let common = COMMON.iter().copied().filter(|_| is_common);
            let columns: Vec<_> = common.chain(table.columns.iter().map(column)).collect();
            files.push(Rows { file: File::new(to, &columns, facts(&table))?, is_common, bytes: 0 });
        }
        Ok(Self { files, head: None, unwritten: 0 })
    }
}

impl Sink for Parquet {
    fn begin(&mut self, head: &Head) -> io::Result<()> {
        self.head = Some(head.clone());
        Ok(())
    }

    fn row(&mut self, table: usize, cells: &[Cell<'_>]) -> io::Result<()> {
        let rows = &mut self.files[table];
        let common = [
            self.head.as_ref().map_or(Datum::Text(""), |head| Datum::Text(&head.host)),
            self.head.as_ref().map_or(Datum::Null, |head| micros(head.start_unix_ns)),
        ];
        let common = common.into_iter().filter(|_| rows.is_common);
        let taken = rows.file.push(common.chain(cells.iter().map(datum)));
        rows.bytes += taken;
        self.unwritten += taken;
        if rows.bytes >= GROUP_BYTES {
            self.unwritten -= rows.bytes;
            rows.flush()?;
        }
        while self.unwritten >= ALL_BYTES {
            let largest = self.files.iter_mut().max_by_key(|rows| rows.bytes);
            let Some(largest) = largest.filter(|rows| rows.bytes > 0) else { break };
            self.unwritten -= largest.bytes;
            largest.flush()?;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.files.iter_mut().try_for_each(|rows| rows.file.finish())
    }
}

impl Rows {
    fn flush(&mut self) -> io::Result<()> {
        self.bytes = 0;
        self.file.flush()
    }
}

fn column(field: &Field) -> (&'static str, Type, bool) {
    let kind = match field.kind {
        Kind::Integer => Type::Integer,
        Kind::Real => Type::Real,
        Kind::Text | Kind::Json => Type::Text,
        Kind::Time => Type::Micros,
    };
    (field.name, kind, field.nullable)
}

/// What the footer says: the schema, and of each column the unit and what it holds.
fn facts(table: &Table) -> Vec<(String, String)> {
    let of = |field: &Field| {
        let (unit, holds) = (field.unit.word(), field.holds.word());
        let separator = if unit.is_empty() { "" } else { ", " };
        (format!("column.{}", field.name), format!("{unit}{separator}{holds}"))
    };
    let head =
        [("schema".to_owned(), SCHEMA.to_owned()), ("table".to_owned(), table.name.to_owned())];
    head.into_iter().chain(table.columns.iter().map(of)).collect()
}

fn datum<'a>(cell: &'a Cell<'_>) -> Datum<'a> {
    match cell {
        Cell::Null => Datum::Null,
        Cell::Integer(number) => Datum::Integer(*number),
        Cell::Real(number) => Datum::Real(*number),
        Cell::Text(text) | Cell::Json(text) => Datum::Text(text),
        Cell::Time(unix_ns) => micros(*unix_ns),
    }
}

fn micros(unix_ns: i64) -> Datum<'static> {
    Datum::Integer(unix_ns.div_euclid(1000))
}
