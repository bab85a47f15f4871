// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One JSON object per line, for the rows of all tables in the order in which the session saw them.

use super::schema::{self, Table};
use super::{Cell, SCHEMA, Sink, rfc3339};
use deburr_core::text::escape;
use serde_json::json;
use std::io::{self, BufWriter, Write};

/// Writes to a file or to standard output.
#[derive(Debug)]
pub(crate) struct Jsonl<W: Write> {
    to: BufWriter<W>,
    tables: Vec<Table>,
    line: String,
}

impl<W: Write> Jsonl<W> {
    /// Writes the first line, which names the schema.
    pub(crate) fn new(to: W) -> io::Result<Self> {
        let mut to = BufWriter::with_capacity(1 << 16, to);
        let head =
            json!({"table": "export", "schema": SCHEMA, "deburr": env!("CARGO_PKG_VERSION")});
        writeln!(to, "{head}")?;
        Ok(Self { to, tables: schema::tables(), line: String::new() })
    }
}

impl<W: Write + Send> Sink for Jsonl<W> {
    fn row(&mut self, table: usize, cells: &[Cell<'_>]) -> io::Result<()> {
        let table = &self.tables[table];
        self.line.clear();
        self.line += "{\"table\":\"";
        self.line += table.name;
        self.line.push('"');
        for (field, cell) in table.columns.iter().zip(cells) {
            self.line += ",\"";
            self.line += field.name;
            self.line += "\":";
            value(cell, &mut self.line);
        }
        self.line += "}\n";
        self.to.write_all(self.line.as_bytes())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn value(cell: &Cell<'_>, to: &mut String) {
    match cell {
        Cell::Null => *to += "null",
        Cell::Integer(number) => *to += &number.to_string(),
        // JSON has no other numbers than finite ones.
        Cell::Real(number) if number.is_finite() => *to += &number.to_string(),
        Cell::Real(_) => *to += "null",
        Cell::Text(text) => *to += &escape::json(&quoted(text)),
        Cell::Json(json) => *to += &escape::json(json),
        Cell::Time(unix_ns) => match rfc3339(*unix_ns) {
            Some(moment) => *to += &quoted(&moment),
            None => *to += "null",
        },
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
