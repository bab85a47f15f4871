// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows of a recording, without the file around them: from their cells to the report.
//!
//! The input is rows one after the other: the number of the table, then a cell for each of its columns. A cell is a tag
//! and a value, see [`Bytes::cell`].

use crate::{judged, store};
use deburr_core::recording::{Record, Sums};
use deburr_core::sqlite::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Rows of each table that a seed has at most.
const ROWS_PER_TABLE: usize = 4;
/// Bytes of a seed.
const SEED_BYTES: usize = 12 << 10;
const NULL: u8 = 0;
const BYTE: u8 = 1;
const INTEGER: u8 = 2;
const TEXT: u8 = 3;
const BLOB: u8 = 4;

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    fn length(&mut self) -> Option<usize> {
        Some(usize::from(u16::from_le_bytes(self.take(2)?.try_into().ok()?)))
    }

    fn cell(&mut self) -> Option<Value<'a>> {
        Some(match self.byte()? % 5 {
            BYTE => Value::Integer(self.byte()?.cast_signed().into()),
            INTEGER => Value::Integer(i64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            TEXT => {
                let length = self.length()?;
                Value::Text(self.take(length.min(self.0.len()))?)
            }
            BLOB => {
                let length = self.length()?;
                Value::Blob(self.take(length.min(self.0.len()))?)
            }
            _ => Value::Null,
        })
    }
}

pub(crate) fn read(data: &[u8]) -> bool {
    let mut bytes = Bytes(data);
    let tables = store::tables();
    let (mut records, mut sums) = (Vec::new(), Sums::default());
    while let Some(table) = bytes.byte() {
        let table = usize::from(table) % tables;
        let cells: Option<Vec<Value<'_>>> =
            (0..store::width(table)).map(|_| bytes.cell()).collect();
        let Some(record) = cells.and_then(|cells| store::record(table, cells)) else { continue };
        written_and_read(table, &record);
        // As the reader of recordings does, before anything is added up.
        let mut with = sums;
        if with.add(&record).is_ok() {
            sums = with;
            records.push(record);
        }
    }
    judged::records(&records);
    !records.is_empty()
}

/// What was read is written as a row from which the same is read.
fn written_and_read(table: usize, record: &Record) {
    store::with_row(record, |to, cells| {
        assert_eq!(to, table, "it is a row of another table: {record:?}");
        let back = store::record(to, cells);
        assert_eq!(back.as_ref(), Some(record));
    });
}

/// An input with some rows of each table of a recording.
///
/// # Errors
/// If the recording cannot be read.
pub fn seed(recording: &Path) -> Result<Vec<u8>, String> {
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    let mut seed = Vec::new();
    for record in store::read_file(recording)? {
        let row = store::with_row(&record, |table, cells| {
            let count = counts.entry(table).or_default();
            *count += 1;
            let mut row = vec![u8::try_from(table).ok()?];
            cells.into_iter().try_for_each(|cell| write(cell, &mut row))?;
            (*count <= ROWS_PER_TABLE).then_some(row)
        });
        let room = SEED_BYTES - seed.len();
        // The last record is the end, which has room in any case.
        let is_end = matches!(record, Record::End { .. });
        seed.extend(row.filter(|row| row.len() + 64 < room || is_end).unwrap_or_default());
    }
    Ok(seed)
}

fn write(cell: Value<'_>, to: &mut Vec<u8>) -> Option<()> {
    let mut long = |tag, bytes: &[u8]| {
        to.push(tag);
        to.extend(u16::try_from(bytes.len()).ok()?.to_le_bytes());
        to.extend(bytes);
        Some(())
    };
    match cell {
        Value::Text(text) => return long(TEXT, text),
        Value::Blob(bytes) => return long(BLOB, bytes),
        Value::Null | Value::Real(_) => to.push(NULL),
        Value::Integer(integer) => match i8::try_from(integer) {
            Ok(byte) => to.extend([BYTE, byte.cast_unsigned()]),
            Err(_) => {
                to.push(INTEGER);
                to.extend(integer.to_le_bytes());
            }
        },
    }
    Some(())
}
