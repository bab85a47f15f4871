// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A Parquet file: a flat table of integers, floating-point numbers, texts and moments, each of which may be null.
//!
//! Rows are collected column by column, and leave memory as a row group. The footer, which readers need, comes last. The
//! format is that of <https://parquet.apache.org/docs/file-format/>.

use super::encode::{delta, plain_text, runs, width_below};
use super::thrift::{Struct, Value};
use std::collections::HashMap;
use std::io::{self, Write};

const MAGIC: &[u8; 4] = b"PAR1";

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Integer,
    Real,
    Text,
    /// Microseconds since the Unix epoch, in UTC. Many readers do not know nanoseconds.
    Micros,
}

/// A cell.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Datum<'a> {
    Null,
    /// A number, or a moment.
    Integer(i64),
    Real(f64),
    Text(&'a str),
}

/// A column of a file, and its rows that were not written yet.
#[derive(Debug)]
struct Column {
    name: &'static str,
    kind: Type,
    nullable: bool,
    /// For each row, 1 if it is not null.
    there: Vec<u32>,
    integers: Vec<i64>,
    reals: Vec<u8>,
    texts: Dictionary,
}

/// Texts, each once.
#[derive(Debug, Default)]
struct Dictionary {
    numbers: HashMap<String, u32>,
    /// The texts with their lengths, in the order of their numbers.
    bytes: Vec<u8>,
    /// The number of each row's text.
    rows: Vec<u32>,
}

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct File<W: Write> {
    to: W,
    at: u64,
    columns: Vec<Column>,
    rows: u64,
    all_rows: u64,
    groups: Vec<(Vec<Chunk>, u64)>,
    /// Names and values that the footer holds.
    facts: Vec<(String, String)>,
}

/// A column of a row group, in the file.
#[derive(Debug)]
struct Chunk {
    at: u64,
    bytes: u64,
    dictionary: Option<u64>,
    data: u64,
    rows: u64,
}

impl<W: Write> File<W> {
    /// Begins a file with these columns (name, type, whether cells may be null), and facts for its footer.
    pub(crate) fn new(
        mut to: W,
        columns: &[(&'static str, Type, bool)],
        facts: Vec<(String, String)>,
    ) -> io::Result<Self> {
        to.write_all(MAGIC)?;
        let columns = columns.iter().map(|&(name, kind, nullable)| Column {
            name,
            kind,
            nullable,
            there: vec![],
            integers: vec![],
            reals: vec![],
            texts: Dictionary::default(),
        });
        let at = MAGIC.len() as u64;
        Ok(Self { to, at, columns: columns.collect(), rows: 0, all_rows: 0, groups: vec![], facts })
    }

    /// Adds a row; a cell of another type than its column counts as null. Returns about how much memory it takes.
    pub(crate) fn push<'a>(&mut self, cells: impl IntoIterator<Item = Datum<'a>>) -> usize {
        let mut bytes = 0;
        let mut cells = cells.into_iter();
        for column in &mut self.columns {
            bytes += column.push(cells.next().unwrap_or(Datum::Null));
        }
        self.rows += 1;
        bytes
    }

    /// Writes the rows that are in memory as a row group.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut chunks = Vec::new();
        for column in &mut self.columns {
            let chunk = column.write(self.rows, self.at, &mut self.to)?;
            self.at += chunk.bytes;
            chunks.push(chunk);
        }
        self.groups.push((chunks, self.rows));
        self.all_rows += self.rows;
        self.rows = 0;
        Ok(())
    }

    /// Writes what is left, and the footer.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.flush()?;
        let footer = self.footer().end();
        self.to.write_all(&footer)?;
        self.to.write_all(&(footer.len() as u32).to_le_bytes())?;
        self.to.write_all(MAGIC)?;
        self.to.flush()
    }

    /// `FileMetaData`.
    fn footer(&self) -> Struct {
        let root = Struct::default()
            .with(4, Value::Text("row"))
            .with(5, Value::I32(self.columns.len() as i32));
        let schema = std::iter::once(root).chain(self.columns.iter().map(Column::element));
        let groups = self.groups.iter().map(|(chunks, rows)| {
            let bytes: u64 = chunks.iter().map(|chunk| chunk.bytes).sum();
            let chunks =
                chunks.iter().zip(&self.columns).map(|(chunk, column)| column.chunk(chunk));
            Struct::default()
                .with(1, list(chunks))
                .with(2, Value::I64(bytes.cast_signed()))
                .with(3, Value::I64(rows.cast_signed()))
        });
        let facts = self.facts.iter().map(|(name, value)| {
            Struct::default().with(1, Value::Text(name)).with(2, Value::Text(value))
        });
        Struct::default()
            .with(1, Value::I32(1))
            .with(2, list(schema))
            .with(3, Value::I64(self.all_rows.cast_signed()))
            .with(4, list(groups))
            .with(5, list(facts))
            .with(6, Value::Text(concat!("deburr version ", env!("CARGO_PKG_VERSION"))))
    }
}

fn list<'a>(structs: impl Iterator<Item = Struct>) -> Value<'a> {
    Value::List(structs.map(Value::Struct).collect())
}

/// Numbers of the format.
mod number {
    pub(super) const INT64: i32 = 2;
    pub(super) const DOUBLE: i32 = 5;
    pub(super) const BYTE_ARRAY: i32 = 6;
    pub(super) const PLAIN: i32 = 0;
    pub(super) const RLE: i32 = 3;
    pub(super) const DELTA_BINARY_PACKED: i32 = 5;
    pub(super) const RLE_DICTIONARY: i32 = 8;
    pub(super) const DATA_PAGE: i32 = 0;
    pub(super) const DICTIONARY_PAGE: i32 = 2;
    pub(super) const UTF8: i32 = 0;
    pub(super) const TIMESTAMP_MICROS: i32 = 10;
}

impl Column {
    fn push(&mut self, cell: Datum<'_>) -> usize {
        let bytes = match (self.kind, cell) {
            (Type::Integer | Type::Micros, Datum::Integer(number)) => {
                self.integers.push(number);
                8
            }
            (Type::Real, Datum::Real(number)) => {
                self.reals.extend(number.to_le_bytes());
                8
            }
            (Type::Text, Datum::Text(text)) => self.texts.push(text),
            _ if self.nullable => {
                self.there.push(0);
                return 4;
            }
            // Another value than none would be a lie, but a file with fewer values than rows could not be read.
            (Type::Text, _) => self.texts.push(""),
            (Type::Real, _) => {
                self.reals.extend(f64::NAN.to_le_bytes());
                8
            }
            (Type::Integer | Type::Micros, _) => {
                self.integers.push(i64::MIN);
                8
            }
        };
        if self.nullable {
            self.there.push(1);
        }
        bytes + 4
    }

    /// `SchemaElement`.
    fn element(&self) -> Struct {
        let (kind, converted) = match self.kind {
            Type::Integer => (number::INT64, None),
            Type::Real => (number::DOUBLE, None),
            Type::Text => (number::BYTE_ARRAY, Some(number::UTF8)),
            Type::Micros => (number::INT64, Some(number::TIMESTAMP_MICROS)),
        };
        let element = Struct::default()
            .with(1, Value::I32(kind))
            .with(3, Value::I32(self.nullable.into()))
            .with(4, Value::Text(self.name));
        let element = match converted {
            Some(converted) => element.with(6, Value::I32(converted)),
            None => element,
        };
        let nothing = || Value::Struct(Struct::default());
        match self.kind {
            // `LogicalType`: a text, or a moment in UTC, in microseconds.
            Type::Text => element.with(10, Value::Struct(Struct::default().with(1, nothing()))),
            Type::Micros => {
                let micros = Struct::default().with(2, nothing());
                let moment =
                    Struct::default().with(1, Value::Bool(true)).with(2, Value::Struct(micros));
                element.with(10, Value::Struct(Struct::default().with(8, Value::Struct(moment))))
            }
            Type::Integer | Type::Real => element,
        }
    }

    fn encoding(&self) -> i32 {
        match self.kind {
            Type::Integer | Type::Micros => number::DELTA_BINARY_PACKED,
            Type::Real => number::PLAIN,
            Type::Text => number::RLE_DICTIONARY,
        }
    }

    /// `ColumnChunk`.
    fn chunk(&self, chunk: &Chunk) -> Struct {
        let kind = match self.kind {
            Type::Integer | Type::Micros => number::INT64,
            Type::Real => number::DOUBLE,
            Type::Text => number::BYTE_ARRAY,
        };
        let mut encodings = vec![Value::I32(self.encoding()), Value::I32(number::RLE)];
        encodings.extend(chunk.dictionary.map(|_| Value::I32(number::PLAIN)));
        let meta = Struct::default()
            .with(1, Value::I32(kind))
            .with(2, Value::List(encodings))
            .with(3, Value::List(vec![Value::Text(self.name)]))
            // Not compressed.
            .with(4, Value::I32(0))
            .with(5, Value::I64(chunk.rows.cast_signed()))
            .with(6, Value::I64(chunk.bytes.cast_signed()))
            .with(7, Value::I64(chunk.bytes.cast_signed()))
            .with(9, Value::I64(chunk.data.cast_signed()));
        let meta = match chunk.dictionary {
            Some(at) => meta.with(11, Value::I64(at.cast_signed())),
            None => meta,
        };
        Struct::default().with(2, Value::I64(chunk.at.cast_signed())).with(3, Value::Struct(meta))
    }

    /// Writes the rows of a group at that place of the file, and forgets them.
    fn write(&mut self, rows: u64, at: u64, to: &mut impl Write) -> io::Result<Chunk> {
        let mut body = Vec::new();
        if self.nullable {
            let levels = runs(&self.there, 1);
            body.extend((levels.len() as u32).to_le_bytes());
            body.extend(levels);
            self.there.clear();
        }
        let mut bytes = Vec::new();
        let mut dictionary = None;
        match self.kind {
            Type::Integer | Type::Micros => body.extend(delta(&std::mem::take(&mut self.integers))),
            Type::Real => body.append(&mut self.reals),
            Type::Text => {
                let texts = std::mem::take(&mut self.texts);
                let count = texts.numbers.len();
                let head = Struct::default()
                    .with(1, Value::I32(count as i32))
                    .with(2, Value::I32(number::PLAIN));
                page(number::DICTIONARY_PAGE, 7, head, &texts.bytes, &mut bytes);
                dictionary = Some(at);
                let width = width_below(count);
                body.push(width as u8);
                body.extend(runs(&texts.rows, width));
            }
        }
        let data = at + bytes.len() as u64;
        let head = Struct::default()
            .with(1, Value::I32(rows as i32))
            .with(2, Value::I32(self.encoding()))
            .with(3, Value::I32(number::RLE))
            .with(4, Value::I32(number::RLE));
        page(number::DATA_PAGE, 5, head, &body, &mut bytes);
        to.write_all(&bytes)?;
        Ok(Chunk { at, bytes: bytes.len() as u64, dictionary, data, rows })
    }
}

/// Appends a page: `PageHeader`, and the body.
fn page(kind: i32, field: i16, head: Struct, body: &[u8], to: &mut Vec<u8>) {
    let length = body.len() as i32;
    let header = Struct::default()
        .with(1, Value::I32(kind))
        .with(2, Value::I32(length))
        .with(3, Value::I32(length))
        .with(field, Value::Struct(head));
    to.extend(header.end());
    to.extend(body);
}

impl Dictionary {
    /// Adds a row. Returns about how much memory it takes.
    fn push(&mut self, text: &str) -> usize {
        let next = self.numbers.len() as u32;
        let (number, bytes) = match self.numbers.get(text) {
            Some(number) => (*number, 4),
            None => {
                self.numbers.insert(text.to_owned(), next);
                plain_text(text, &mut self.bytes);
                (next, 2 * text.len() + 80)
            }
        };
        self.rows.push(number);
        bytes
    }
}
