// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Any SQLite file and its log: every table of the schema, every row, every cell.
//!
//! The input is the length of the log, the file, and the log.

use super::halves;
use super::log::sealed;
use deburr_core::sqlite::{Database, Pass, Schema, Value};

/// Names of tables in the corpus.
const NAMES: [&str; 4] = ["t", "u", "event", "tick"];

pub(crate) fn read(data: &[u8]) -> bool {
    let (file, log) = halves(data);
    // Of an odd length it is read as it is.
    let log = if log.len() % 2 == 0 { sealed(file, log) } else { log.to_vec() };
    let log = (!log.is_empty()).then_some(&*log);
    let Ok(database) = Database::open(file, log) else { return false };
    let Ok(schema) = Schema::read(&database) else { return false };
    let pass = Pass::new(&database);
    let mut bytes = 0;
    for name in NAMES {
        let Ok(Some(table)) = schema.table(name) else { continue };
        let Ok(mut rows) = pass.rows(table.root) else { continue };
        let mut last = None;
        while let Ok(Some(key)) = rows.advance() {
            assert!(last.is_none_or(|last| last < key), "keys are in order");
            last = Some(key);
            let mut held = 0;
            for column in 0..=rows.columns() {
                held += match rows.get(column) {
                    Value::Text(text) | Value::Blob(text) => text.len(),
                    Value::Null | Value::Integer(_) | Value::Real(_) => 0,
                };
            }
            assert!(held <= rows.bytes(), "the cells of a row are longer than the row");
            bytes += rows.bytes();
        }
    }
    assert!(bytes <= data.len() * 2, "{bytes} bytes of rows in a file of {}", data.len());
    bytes > 0
}
