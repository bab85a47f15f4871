// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A row: the values in the bytes of a record.

use super::{Fault, Result, damaged};

/// A row of more columns than this is refused.
pub(super) const MAX_COLUMNS: usize = 100;

/// A cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// NULL, or a column that was added after the row was written.
    Null,
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// Text, which may be no UTF-8.
    Text(&'a [u8]),
    /// Bytes.
    Blob(&'a [u8]),
}

impl<'a> Value<'a> {
    /// The integer, if it is one.
    pub fn as_i64(self) -> Option<i64> {
        if let Self::Integer(integer) = self { Some(integer) } else { None }
    }

    /// The text, if it is text in UTF-8.
    pub fn as_str(self) -> Option<&'a str> {
        if let Self::Text(text) = self { std::str::from_utf8(text).ok() } else { None }
    }
}

/// The type of a cell, and where it begins in the record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    serial: u64,
    at: usize,
}

/// Finds the cells of a record.
pub(super) fn cells(record: &[u8], to: &mut Vec<Cell>) -> Result<()> {
    to.clear();
    let cut = || Fault::Damaged("a row ends too early".into());
    let (head_bytes, mut at) = varint(record).ok_or_else(cut)?;
    let head_bytes = usize::try_from(head_bytes).map_err(|_| cut())?;
    let head = record.get(..head_bytes).ok_or_else(cut)?;
    let mut body = head_bytes;
    while at < head_bytes {
        let (serial, bytes) = varint(&head[at..]).ok_or_else(cut)?;
        at += bytes;
        if to.len() == MAX_COLUMNS {
            return Err(Fault::Limit(format!("a row has more than {MAX_COLUMNS} columns")));
        }
        to.push(Cell { serial, at: body });
        body = length(serial)
            .and_then(|length| body.checked_add(length))
            .filter(|&end| end <= record.len())
            .ok_or_else(cut)?;
    }
    Ok(())
}

/// Number of bytes of a value of that type; `None` for a type that does not exist.
fn length(serial: u64) -> Option<usize> {
    match serial {
        0 | 8 | 9 => Some(0),
        1..=4 => Some(serial as usize),
        5 => Some(6),
        6 | 7 => Some(8),
        10 | 11 => None,
        serial => usize::try_from((serial - 12) / 2).ok(),
    }
}

impl Cell {
    /// The value in the record that the cell was found in.
    pub(super) fn value(self, record: &[u8]) -> Value<'_> {
        let bytes = length(self.serial).and_then(|length| record.get(self.at..self.at + length));
        let Some(bytes) = bytes else { return Value::Null };
        match self.serial {
            8 => Value::Integer(0),
            9 => Value::Integer(1),
            1..=6 => {
                let negative = bytes[0] >= 0x80;
                let start = if negative { -1i64 } else { 0 };
                let value = bytes.iter().fold(start, |value, &byte| value << 8 | i64::from(byte));
                Value::Integer(value)
            }
            7 => {
                bytes.try_into().map_or(Value::Null, |eight| Value::Real(f64::from_be_bytes(eight)))
            }
            serial if serial >= 12 && serial % 2 == 0 => Value::Blob(bytes),
            serial if serial >= 13 => Value::Text(bytes),
            _ => Value::Null,
        }
    }
}

/// SQLite's variable-length integer at the start of the bytes, and its length.
pub(super) fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (at, &byte) in bytes.iter().take(9).enumerate() {
        if at == 8 {
            return Some((value << 8 | u64::from(byte), 9));
        }
        value = value << 7 | u64::from(byte & 0x7f);
        if byte < 0x80 {
            return Some((value, at + 1));
        }
    }
    None
}

/// The values of a row, by column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) cells: &'a [Cell],
}

impl<'a> Record<'a> {
    pub(super) fn get(&self, column: usize) -> Value<'a> {
        self.cells.get(column).map_or(Value::Null, |cell| cell.value(self.bytes))
    }

    /// Text that must be there.
    pub(super) fn text(&self, column: usize, what: &str) -> Result<&'a str> {
        self.get(column).as_str().map_or_else(|| damaged(format!("{what} is not text")), Ok)
    }
}
