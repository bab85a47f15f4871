// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The schema: which tables there are, by their names, and where.

use super::row::MAX_COLUMNS;
use super::{Database, Fault, Pass, Result, Source, damaged};
use std::collections::BTreeMap;

/// More entries of a schema are not read.
const MAX_ENTRIES: usize = 2_000;

/// A column, as it is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type, such as `INTEGER`.
    pub kind: String,
}

/// A table of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The page where its tree begins.
    pub root: u32,
    /// Its columns. The first is the key.
    pub columns: Vec<Column>,
}

/// What a schema says about a name.
#[derive(Clone, Debug)]
enum Entry {
    Table {
        root: i64,
        sql: String,
    },
    /// Something else than a table: `view`, `index`, `trigger`.
    Other(String),
    /// Stated more than once.
    Twice,
}

/// The names of a schema.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    entries: BTreeMap<String, Entry>,
}

impl Schema {
    /// Reads the schema of a file.
    pub fn read<S: Source>(database: &Database<S>) -> Result<Self> {
        let pass = Pass::new(database);
        let mut rows = pass.rows(1)?;
        let mut schema = Self::default();
        while rows.advance()?.is_some() {
            if schema.entries.len() == MAX_ENTRIES {
                return Err(Fault::Limit(format!(
                    "`sqlite_schema` has more than {MAX_ENTRIES} entries"
                )));
            }
            let row = rows.current();
            let kind = row.text(0, "the type of an entry of its schema")?;
            let name = row.text(1, "the name of an entry of its schema")?.to_ascii_lowercase();
            let entry = match (kind, row.get(3).as_i64(), row.get(4).as_str()) {
                ("table", Some(root), Some(sql)) => Entry::Table { root, sql: sql.into() },
                _ => Entry::Other(kind.chars().take(20).collect()),
            };
            schema.entries.entry(name).and_modify(|entry| *entry = Entry::Twice).or_insert(entry);
        }
        Ok(schema)
    }

    /// The table of that name; `None` if there is none. What is called so but is no ordinary table, with a number as
    /// its key and nothing but stored columns, is an error.
    pub fn table(&self, name: &str) -> Result<Option<Table>> {
        let Some(entry) = self.entries.get(name) else { return Ok(None) };
        let no = |what: &str| damaged(format!("`{name}` is not a table{what}"));
        let (root, sql) = match entry {
            Entry::Twice => return no(" of its own: the name is there twice"),
            Entry::Other(kind) if kind == "view" => return no(", but a view"),
            Entry::Other(_) => return no(""),
            Entry::Table { root, sql } => (*root, sql),
        };
        let Some(columns) = columns(sql) else {
            return no(" of stored columns with a number as key");
        };
        match u32::try_from(root) {
            // The first page is that of the schema.
            Ok(root) if root > 1 => Ok(Some(Table { root, columns })),
            _ => no(""),
        }
    }

    /// Whether anything has that name.
    pub fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }
}

/// The columns of `CREATE TABLE name(key INTEGER PRIMARY KEY, a TYPE NOT NULL, b TYPE)`; `None` for anything else.
fn columns(sql: &str) -> Option<Vec<Column>> {
    let rest = words(sql, &["create", "table"])?;
    let (_, rest) = name(rest)?;
    let mut rest = symbol(rest, '(')?;
    let mut columns = Vec::new();
    loop {
        let (called, after) = name(rest)?;
        let (kind, after) = name(after)?;
        rest = if columns.is_empty() {
            if !kind.eq_ignore_ascii_case("integer") {
                return None;
            }
            words(after, &["primary", "key"])?
        } else {
            words(after, &["not", "null"]).unwrap_or(after)
        };
        if columns.len() == MAX_COLUMNS {
            return None;
        }
        columns.push(Column { name: called.to_ascii_lowercase(), kind: kind.into() });
        let Some(more) = symbol(rest, ',') else { break };
        rest = more;
    }
    let end = symbol(rest, ')')?;
    end.trim_ascii().is_empty().then_some(columns)
}

fn symbol(sql: &str, symbol: char) -> Option<&str> {
    sql.trim_ascii_start().strip_prefix(symbol)
}

/// A name, which may be quoted, and what follows it.
fn name(sql: &str) -> Option<(&str, &str)> {
    let sql = sql.trim_ascii_start();
    if let Some(quoted) = sql.strip_prefix('"') {
        return quoted
            .split_once('"')
            .filter(|(name, rest)| !name.is_empty() && !rest.starts_with('"'));
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = sql.find(|c| !is_part(c)).unwrap_or(sql.len());
    (end > 0).then(|| sql.split_at(end))
}

/// What follows those words.
fn words<'a>(sql: &'a str, expected: &[&str]) -> Option<&'a str> {
    expected.iter().try_fold(sql, |rest, word| {
        let (found, rest) = name(rest)?;
        found.eq_ignore_ascii_case(word).then_some(rest)
    })
}
