// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The document of the format: its part about tables is what their declarations say. `UPDATE=1` writes it.

use crate::store::column::{Column, Columns};
use crate::store::encodings::COMPRESSED;
use crate::store::table::{TICK, Table, VERSION, all};
use std::fmt::Write as _;
use std::path::Path;

const DOCUMENT: &str = "../../docs/recording-format.md";
/// What the generated part is between.
const BEFORE: &str = "Every table below also has `seq`, its key.\n\n";
const AFTER: &str = "## Views\n";
const LINE_WIDTH: usize = 120;

/// A record whose fields are documented.
pub(crate) trait Documented {
    fn fields() -> Vec<Field>;
}

/// The columns of a field, and their meaning in lines.
#[derive(Clone)]
pub(crate) struct Field {
    pub(crate) columns: Vec<Column>,
    pub(crate) meaning: &'static [&'static str],
}

impl Field {
    /// A column of that type.
    pub(in crate::store) fn one<T: Columns>(
        name: &'static str,
        meaning: &'static [&'static str],
    ) -> Self {
        let mut columns = Vec::new();
        T::columns(name, &mut columns);
        Self { columns, meaning }
    }

    /// The meaning of a column: all lines if it is the only one, else those from its name to that of another one.
    pub(crate) fn meaning_of(&self, column: &Column) -> String {
        let begins = |line: &str, name: &str| line.trim().starts_with(&format!("`{name}`: "));
        let other = |line: &str| {
            self.columns.iter().any(|it| it.name != column.name && begins(line, it.name))
        };
        if self.columns.len() == 1 {
            return joined(self.meaning);
        }
        let from = self.meaning.iter().position(|line| begins(line, column.name));
        let lines = &self.meaning[from.unwrap_or(self.meaning.len())..];
        let to = lines.iter().position(|line| other(line)).unwrap_or(lines.len());
        let text = joined(&lines[..to]);
        text.strip_prefix(&format!("`{}`: ", column.name)).unwrap_or_default().to_owned()
    }
}

pub(crate) fn joined(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// A text in lines of at most [`LINE_WIDTH`] characters.
pub(crate) fn wrapped(text: &str) -> String {
    let (mut lines, mut width) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > LINE_WIDTH {
            lines.push('\n');
            width = 0;
        } else if width > 0 {
            lines.push(' ');
            width += 1;
        }
        lines.push_str(word);
        width += length;
    }
    lines
}

/// Type of a column as SQL shows it: lists are packed in the table, and JSON in its view.
fn kind(column: &Column) -> String {
    let kind = match column.kind {
        COMPRESSED => "blob".into(),
        packed if packed.starts_with("BLOB_OF_") => "text".into(),
        kind => kind.to_lowercase(),
    };
    kind + if column.required { "" } else { " or NULL" }
}

/// The section of a table.
fn section(table: &Table) -> String {
    let mut text = format!("### `{}`\n\n", table.name);
    let meaning = joined(table.meaning);
    assert!(!meaning.is_empty(), "`{}` has no comment", table.name);
    let heads = "| column | type | meaning |\n|---|---|---|\n";
    write!(text, "{}\n\n{heads}", wrapped(&meaning)).unwrap();
    let mut rows = Vec::new();
    if table.columns().first() == Some(&TICK) {
        rows.push((TICK, "range of time".to_owned()));
    }
    for field in (table.fields)() {
        rows.extend(field.columns.iter().map(|column| (*column, field.meaning_of(column))));
    }
    let columns: Vec<Column> = rows.iter().map(|(column, _)| *column).collect();
    assert_eq!(columns, table.columns(), "{}", table.name);
    for (column, meaning) in rows {
        assert!(!meaning.is_empty(), "`{}.{}` has no comment", table.name, column.name);
        writeln!(text, "| `{}` | {} | {meaning} |", column.name, kind(&column)).unwrap();
    }
    text + "\n"
}

#[test]
fn the_document_says_what_the_declarations_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENT);
    let found = std::fs::read_to_string(&path).unwrap();
    assert!(found.contains(&format!("Version: {VERSION}\n")), "version");
    let (before, rest) = found.split_once(BEFORE).unwrap();
    let (_, after) = rest.split_once(AFTER).unwrap();
    let sections: String = all().map(section).collect();
    let wanted = [before, BEFORE, &sections, AFTER, after].concat();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap();
    assert!(found == wanted, "{DOCUMENT} is not up to date: `make docs` writes it");
}

#[test]
fn a_field_of_several_columns_has_a_meaning_for_each() {
    let columns = vec![Column::new("what", "TEXT"), Column::or_null("file", "INTEGER")];
    let meaning = &[" `what`: `file`, or", " another word", " `file`: the file"];
    let field = Field { columns: columns.clone(), meaning };
    assert_eq!(field.meaning_of(&columns[0]), "`file`, or another word");
    assert_eq!(field.meaning_of(&columns[1]), "the file");
    assert_eq!(kind(&columns[1]), "integer or NULL");
    assert_eq!(wrapped(&"word ".repeat(30)).lines().count(), 2);
}
