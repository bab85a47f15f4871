// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the rows of a recording to those of the exported tables.

use super::schema::{self, From, Table};
use super::{Cell, Sink};
use crate::store::{Plain, StoredRow, plain};
use deburr_core::recording::Record;
use deburr_core::sqlite::Value;
use std::io;

/// Why an export cannot go on.
#[derive(Debug)]
pub(crate) enum Broken {
    /// A cell of the recording that is not what its column holds: of which table, in which row.
    Damaged(String),
    /// A sink, by its place, could not write.
    Output(usize, io::Error),
}

/// Passes the rows of a recording to the sinks.
pub(crate) struct Rows {
    tables: Vec<Table>,
    sinks: Vec<Box<dyn Sink>>,
    start_unix_ns: Option<i64>,
    /// Rows so far, of each table.
    pub(crate) counts: Vec<u64>,
}

impl Rows {
    pub(crate) fn new(sinks: Vec<Box<dyn Sink>>) -> Self {
        let tables = schema::tables();
        let counts = vec![0; tables.len()];
        Self { tables, sinks, start_unix_ns: None, counts }
    }

    /// Writes a row of the recording. `record` is what it holds.
    pub(crate) fn take(&mut self, row: &StoredRow<'_>, record: &Record) -> Result<(), Broken> {
        if let Record::Meta(meta) = record {
            self.start_unix_ns = Some(meta.start_unix_ns);
        }
        let table = &self.tables[row.table];
        let cells: Option<Vec<Cell<'_>>> =
            table.columns.iter().map(|field| self.cell(field.from, row)).collect();
        let Some(cells) = cells else {
            let (name, seq) = (table.name, row.seq);
            return Err(Broken::Damaged(format!(
                "table `{name}`, row {seq}: text that is not UTF-8"
            )));
        };
        self.counts[row.table] += 1;
        for (at, sink) in self.sinks.iter_mut().enumerate() {
            sink.row(row.table, &cells).map_err(|error| Broken::Output(at, error))?;
        }
        Ok(())
    }

    /// Completes all outputs.
    pub(crate) fn finish(&mut self) -> Result<(), Broken> {
        for (at, sink) in self.sinks.iter_mut().enumerate() {
            sink.finish().map_err(|error| Broken::Output(at, error))?;
        }
        Ok(())
    }

    fn cell<'a>(&self, from: From, row: &StoredRow<'a>) -> Option<Cell<'a>> {
        let at = |place: usize| row.cells.get(place).copied().unwrap_or(Value::Null);
        Some(match from {
            From::Seq => Cell::Integer(row.seq),
            From::Cell(place, column) => match plain(&column, at(place))? {
                Plain::Null => Cell::Null,
                Plain::Integer(number) => Cell::Integer(number),
                Plain::Text(text) => Cell::Text(text.into()),
                Plain::Json(json) => Cell::Json(json),
            },
            From::Wall(place) => {
                let since = at(place).as_i64().filter(|ns| *ns >= 0);
                let moment =
                    since.zip(self.start_unix_ns).and_then(|(ns, start)| start.checked_add(ns));
                moment.map_or(Cell::Null, Cell::Time)
            }
        })
    }
}
