// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ways in which a field may be stored, as named in the declarations of tables.

use super::column::{Cell, Cells, Column, Columns, Result, Scalar, StoredAs};
use deburr_core::recording::{MOST_FACT_BYTES, Run};
use deburr_core::sqlite::Value;
use miniz_oxide::deflate::compress_to_vec_zlib;
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// As its type is stored ([`Columns`]).
pub(super) struct AsColumns;

/// As JSON.
pub(super) struct Json;

/// As JSON, or NULL for the default value, such as an empty list.
pub(super) struct JsonOrNull;

/// An `Option` as JSON, or NULL.
pub(super) struct OptionalJson;

/// A column that older recordings lack: there, the default value is read.
pub(super) struct DefaultIfAbsent;

/// A [`Run`] as `[wall_ns, cpu_ns, chunks, chunk_ns, gaps, gap_ns]`.
pub(super) struct RunList;

/// Text of [`MOST_FACT_BYTES`] at most, compressed (zlib, RFC 1950).
pub(super) struct Compressed;

/// Type of a column of compressed text.
pub(crate) const COMPRESSED: &str = "BLOB_OF_ZLIB";
/// Level of the compression, of 10: beyond it a snapshot takes twice the time and becomes 3 % shorter.
const LEVEL: u8 = 6;

impl<T: Columns> StoredAs<T> for AsColumns {
    fn columns(name: &'static str, to: &mut Vec<Column>) {
        T::columns(name, to);
    }

    fn write<'a>(value: &'a T, to: &mut Vec<Cell<'a>>) {
        value.write(to);
    }

    fn read(cells: &mut Cells<'_>) -> Result<T> {
        cells.read()
    }
}

/// Serialises data. It could fail only for maps with keys that JSON cannot have, and there are none.
fn json<T: Serialize>(value: &T) -> Cell<'static> {
    Cell::Text(serde_json::to_string(value).expect("plain data").into())
}

/// Reads a cell of JSON; `None` for NULL.
fn from_json<T: DeserializeOwned>(cells: &mut Cells<'_>) -> Result<Option<T>> {
    let read = match cells.next()? {
        Value::Null => return Ok(None),
        Value::Text(text) => serde_json::from_slice(text).map_err(|error| error.to_string()),
        _ => Err("expected JSON".into()),
    };
    read.map(Some).map_err(|error| cells.damage(&error))
}

impl<T: Serialize + DeserializeOwned> StoredAs<T> for Json {
    fn columns(name: &'static str, to: &mut Vec<Column>) {
        to.push(Column::json(name, true));
    }

    fn write<'a>(value: &'a T, to: &mut Vec<Cell<'a>>) {
        to.push(json(value));
    }

    fn read(cells: &mut Cells<'_>) -> Result<T> {
        from_json(cells)?.ok_or_else(|| cells.damage("expected JSON, found NULL"))
    }
}

impl<T: Serialize + DeserializeOwned + Default + PartialEq> StoredAs<T> for JsonOrNull {
    fn columns(name: &'static str, to: &mut Vec<Column>) {
        to.push(Column::json(name, false));
    }

    fn write<'a>(value: &'a T, to: &mut Vec<Cell<'a>>) {
        to.push(if *value == T::default() { Cell::Null } else { json(value) });
    }

    fn read(cells: &mut Cells<'_>) -> Result<T> {
        Ok(from_json(cells)?.unwrap_or_default())
    }
}

impl<T: Serialize + DeserializeOwned> StoredAs<Option<T>> for OptionalJson {
    fn columns(name: &'static str, to: &mut Vec<Column>) {
        to.push(Column::json(name, false));
    }

    fn write<'a>(value: &'a Option<T>, to: &mut Vec<Cell<'a>>) {
        to.push(value.as_ref().map_or(Cell::Null, json));
    }

    fn read(cells: &mut Cells<'_>) -> Result<Option<T>> {
        from_json(cells)
    }
}

impl<T: Scalar + Default> StoredAs<T> for DefaultIfAbsent {
    fn columns(name: &'static str, to: &mut Vec<Column>) {
        to.push(Column::or_null(name, T::KIND));
    }

    fn write<'a>(value: &'a T, to: &mut Vec<Cell<'a>>) {
        to.push(value.cell());
    }

    fn read(cells: &mut Cells<'_>) -> Result<T> {
        Ok(cells.read::<Option<T>>()?.unwrap_or_default())
    }
}

/// The text of compressed bytes; `None` if they are anything else, or more than [`MOST_FACT_BYTES`].
pub(super) fn decompressed(bytes: &[u8]) -> Option<String> {
    let text = decompress_to_vec_zlib_with_limit(bytes, MOST_FACT_BYTES).ok()?;
    String::from_utf8(text).ok()
}

impl StoredAs<String> for Compressed {
    fn columns(name: &'static str, to: &mut Vec<Column>) {
        to.push(Column::new(name, COMPRESSED));
    }

    fn write<'a>(text: &'a String, to: &mut Vec<Cell<'a>>) {
        to.push(Cell::Blob(compress_to_vec_zlib(text.as_bytes(), LEVEL)));
    }

    fn read(cells: &mut Cells<'_>) -> Result<String> {
        let text = match cells.next()? {
            Value::Blob(bytes) => decompressed(bytes),
            _ => None,
        };
        text.ok_or_else(|| cells.damage("expected compressed text"))
    }
}

impl StoredAs<Run> for RunList {
    fn columns(name: &'static str, to: &mut Vec<Column>) {
        to.push(Column::json(name, true));
    }

    fn write<'a>(run: &'a Run, to: &mut Vec<Cell<'a>>) {
        let list = [run.wall_ns, run.cpu_ns, run.chunks, run.chunk_ns, run.gaps, run.gap_ns];
        to.push(json(&list));
    }

    fn read(cells: &mut Cells<'_>) -> Result<Run> {
        let [wall_ns, cpu_ns, chunks, chunk_ns, gaps, gap_ns] =
            <Json as StoredAs<[u64; 6]>>::read(cells)?;
        Ok(Run { wall_ns, cpu_ns, chunks, chunk_ns, gaps, gap_ns })
    }
}
