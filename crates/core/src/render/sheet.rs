// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Generic output: a headline with tables under headings, or a headline with a single table.

use super::TextStyle;
use super::page::{Colour, Page};
use super::table::{Column, Table};
use crate::text::escape::sentence;

/// Maximum width of each cell, except the last.
const CELL_COLUMNS: usize = 30;

/// A table under a heading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The heading.
    pub heading: String,
    /// Rows of cells, the same number in each row.
    pub rows: Vec<Vec<String>>,
}

/// A headline and sections, as text for a terminal.
#[must_use]
pub fn sheet(headline: &str, sections: &[Section], style: TextStyle) -> String {
    let mut page = Page::new(style);
    page.paragraph(0, 2, Colour::Heading, &sentence(headline));
    for section in sections {
        page.gap();
        page.line(0, Colour::Heading, &sentence(&section.heading));
        let cells = section.rows.iter().map(Vec::len).max().unwrap_or(0);
        let mut table = Table::new(&vec![Column::Left(CELL_COLUMNS); cells]);
        for row in &section.rows {
            table.row(row.iter().map(|cell| sentence(cell)));
        }
        table.write(&mut page, 2);
    }
    page.into_text()
}

/// A cell of a [`Grid`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Cell {
    /// Aligned left, wrapped if it is long.
    Text(String),
    /// Aligned right.
    Number(String),
}

/// A table with column headings. The cells of the first row determine how columns are aligned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    columns: Vec<(&'static str, usize)>,
    rows: Vec<Vec<Cell>>,
}

impl Grid {
    /// A grid without rows: the names of its columns, and the maximum width of texts in them.
    #[must_use]
    pub fn new(columns: &[(&'static str, usize)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row, with one cell for each column.
    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }
}

/// A headline, a grid and notes below it, as text for a terminal.
#[must_use]
pub fn grid(headline: &str, grid: &Grid, notes: &[String], style: TextStyle) -> String {
    let mut page = Page::new(style);
    page.paragraph(0, 2, Colour::Heading, &sentence(headline));
    if let Some(first) = grid.rows.first() {
        let column = |(cell, (_, width)): (&Cell, &(&str, usize))| match cell {
            Cell::Text(_) => Column::Left(*width),
            Cell::Number(_) => Column::Right,
        };
        let columns: Vec<Column> = first.iter().zip(&grid.columns).map(column).collect();
        let mut table = Table::new(&columns);
        table.heading(grid.columns.iter().map(|(name, _)| *name));
        for row in &grid.rows {
            table.row(row.iter().map(|(Cell::Text(text) | Cell::Number(text))| sentence(text)));
        }
        page.gap();
        table.write(&mut page, 0);
    }
    for note in notes {
        page.gap();
        page.paragraph(0, 2, Colour::Plain, &sentence(note));
    }
    page.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_align_wrap_and_are_safe() {
        let rows = vec![
            vec!["BTF".into(), "there".into()],
            vec!["cgroups".into(), format!("at `/\x1b[2J`, {}", "and on ".repeat(12))],
        ];
        let sections = [Section { heading: "facts".into(), rows }];
        let style = TextStyle { columns: 60, color: false, verbosity: 1 };
        let text = sheet("deburr on `host`", &sections, style);
        assert!(
            text.starts_with(
                "deburr on `host`\n\nfacts\n  BTF      there\n  cgroups  at `/\\x1b[2J`"
            )
        );
        assert!(text.lines().all(|line| line.len() <= 60) && !text.contains('\x1b'), "{text}");
    }
}
