// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A CSV file (RFC 4180) for each table: comma, `"`, line feed, UTF-8, a line of names first.
//!
//! Texts are in quotes, so that an empty text is not taken for a null, which is nothing at all. A row is one line: hidden
//! characters are written out as in reports. What a spreadsheet would take for a formula gets a `'` in front.

use super::schema;
use super::{Cell, Make, Sink, rfc3339};
use deburr_core::text::escape;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};

/// Writes to files `TABLE.csv`.
#[derive(Debug)]
pub(crate) struct Csv {
    files: Vec<BufWriter<File>>,
    line: String,
}

impl Csv {
    /// Makes all files, and writes the names of their columns.
    pub(crate) fn new(make: Make<'_>) -> io::Result<Self> {
        let mut files = Vec::new();
        for table in schema::tables() {
            let mut file = BufWriter::new(make(&format!("{}.csv", table.name))?);
            let names: Vec<&str> = table.columns.iter().map(|field| field.name).collect();
            writeln!(file, "{}", names.join(","))?;
            files.push(file);
        }
        Ok(Self { files, line: String::new() })
    }
}

impl Sink for Csv {
    fn row(&mut self, table: usize, cells: &[Cell<'_>]) -> io::Result<()> {
        self.line.clear();
        for (at, cell) in cells.iter().enumerate() {
            if at > 0 {
                self.line.push(',');
            }
            match cell {
                Cell::Null => {}
                Cell::Integer(number) => self.line += &number.to_string(),
                Cell::Real(number) => self.line += &number.to_string(),
                Cell::Text(text) => quoted(&guarded(&escape::visible(text)), &mut self.line),
                Cell::Json(json) => quoted(&escape::json(json), &mut self.line),
                Cell::Time(unix_ns) => self.line += &rfc3339(*unix_ns).unwrap_or_default(),
            }
        }
        self.line.push('\n');
        self.files[table].write_all(self.line.as_bytes())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.files.iter_mut().try_for_each(BufWriter::flush)
    }
}

/// A text that no spreadsheet computes: one that begins like a formula, or with a `'`, gets a `'` in front. To undo it,
/// remove one `'` from the beginning of every text that has one.
fn guarded(text: &str) -> String {
    // The wide ones are what some spreadsheets take for the others.
    if text.starts_with(['=', '+', '-', '@', '\'', '＝', '＋', '－', '＠']) {
        format!("'{text}")
    } else {
        text.to_owned()
    }
}

fn quoted(text: &str, to: &mut String) {
    to.push('"');
    *to += &text.replace('"', "\"\"");
    to.push('"');
}
