// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reader of recordings. It is a part of the program, which is no library, and is compiled here a second time.
#![allow(
    dead_code,
    unused_imports,
    unused_qualifications,
    reason = "the writer's half is not used here"
)]

#[path = "../../crates/cli/src/store/bounds.rs"]
mod bounds;
#[path = "../../crates/cli/src/store/column.rs"]
mod column;
#[path = "../../crates/cli/src/store/encodings.rs"]
mod encodings;
#[path = "../../crates/cli/src/store/io_pace.rs"]
mod io_pace;
#[path = "../../crates/cli/src/store/opened.rs"]
mod opened;
#[path = "../../crates/cli/src/store/packed.rs"]
mod packed;
#[path = "../../crates/cli/src/store/reader.rs"]
mod reader;
#[path = "../../crates/cli/src/store/records/mod.rs"]
mod records;
#[path = "../../crates/cli/src/store/table.rs"]
mod table;
#[path = "../../crates/cli/src/store/values.rs"]
mod values;

use column::{Cell, Cells};
use deburr_core::recording::Record;
use deburr_core::sqlite::{Source, Value};
use opened::Opened;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use table::TICK;

/// The name of SQLite's companion of a file.
fn companion(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// The bytes of an input, at hand for longer than the input is.
#[derive(Debug)]
struct Held(Vec<u8>);

impl Source for Held {
    fn size(&self) -> u64 {
        self.0.as_slice().size()
    }

    fn read_exact_at(&self, to: &mut [u8], at: u64) -> Result<(), String> {
        self.0.as_slice().read_exact_at(to, at)
    }
}

/// The records of a recording, and of its log.
pub(crate) fn read(file: &[u8], log: Option<&[u8]>) -> Result<Vec<Record>, String> {
    let held = |bytes: &[u8]| -> Box<dyn Source> { Box::new(Held(bytes.to_vec())) };
    let opened = Opened { file: held(file), log: log.map(held), index: None };
    let reader = reader::Reader::of(opened, "input".into()).map_err(|error| error.to_string())?;
    let mut records = Vec::new();
    reader.for_each(|record| records.push(record.clone())).map_err(|error| error.to_string())?;
    Ok(records)
}

/// The records of a recording in a file.
pub(crate) fn read_file(path: &Path) -> Result<Vec<Record>, String> {
    let reader = reader::Reader::open(path).map_err(|error| error.to_string())?;
    let mut records = Vec::new();
    reader.for_each(|record| records.push(record.clone())).map_err(|error| error.to_string())?;
    Ok(records)
}

/// Number of tables.
pub(crate) fn tables() -> usize {
    table::all().count()
}

/// Number of cells that a row of a table is read from: the time range that rows share is two of them.
pub(crate) fn width(table: usize) -> usize {
    let columns = table::all().nth(table).map(table::Table::columns).unwrap_or_default();
    columns.len() + usize::from(columns.first() == Some(&TICK))
}

/// The record of a row.
pub(crate) fn record(table: usize, cells: Vec<Value<'_>>) -> Option<Record> {
    let table = table::all().nth(table)?;
    (table.read)(&mut Cells::new(table.name, 1, cells)).ok()
}

/// Passes the row of a record to `take`: the number of its table, and its cells.
pub(crate) fn with_row<T>(record: &Record, take: impl FnOnce(usize, Vec<Value<'_>>) -> T) -> T {
    let row = records::row(record);
    let table = table::all().position(|table| table.name == row.table);
    let range = row.tick.map(|(t0, t1)| [t0, t1].map(|t| Value::Integer(t.cast_signed())));
    let cells = row.cells.iter().map(|cell| match cell {
        Cell::Null => Value::Null,
        Cell::Integer(integer) => Value::Integer(*integer),
        Cell::Text(text) => Value::Text(text.as_bytes()),
        Cell::Blob(bytes) => Value::Blob(bytes),
    });
    take(
        table.expect("a table that is declared"),
        range.into_iter().flatten().chain(cells).collect(),
    )
}
