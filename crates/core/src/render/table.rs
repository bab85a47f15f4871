// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables without lines: columns aligned by display width, long cells wrapped within their column.

use super::page::{Colour, Page};
use super::wrap::wrap;
use crate::text::escape::width;

/// Number of spaces between columns.
const GUTTER: usize = 2;
/// Minimum width of the rest of the line for the last column; if there is less and its text is
/// longer, the last column is written below.
const LAST_MIN: usize = 24;

/// A column.
#[derive(Clone, Copy)]
pub(super) enum Column {
    /// Text, aligned left and wrapped at this width.
    Left(usize),
    /// Numbers, aligned right and never wrapped.
    Right,
    /// A label in a lighter colour. Exactly this wide, so that consecutive tables align.
    Label(usize),
}

/// Rows of escaped text.
#[derive(Clone)]
pub(super) struct Table {
    columns: Vec<Column>,
    rows: Vec<Row>,
}

#[derive(Clone)]
enum Row {
    /// One cell for each column; missing cells at the end are empty.
    Cells(Vec<String>),
    /// Names of columns.
    Heading(Vec<String>),
    /// A line across all columns, less indented, about the rows below it.
    Caption(String),
}

impl Row {
    fn cells(&self) -> &[String] {
        match self {
            Self::Cells(cells) | Self::Heading(cells) => cells,
            Self::Caption(_) => &[],
        }
    }
}

impl Table {
    pub(super) fn new(columns: &[Column]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(Row::Cells(cells.into_iter().collect()));
    }

    /// Adds a row of column names.
    pub(super) fn heading<'a>(&mut self, cells: impl IntoIterator<Item = &'a str>) {
        self.rows.push(Row::Heading(cells.into_iter().map(str::to_owned).collect()));
    }

    /// Adds a line across all columns, about the rows below it.
    pub(super) fn caption(&mut self, text: &str) {
        self.rows.push(Row::Caption(text.to_owned()));
    }

    /// Its columns.
    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The names of its columns; empty without any.
    pub(super) fn headings(&self) -> &[String] {
        let mut headings = self.rows.iter().filter(|row| matches!(row, Row::Heading(_)));
        headings.next().map_or(&[], Row::cells)
    }

    /// The cells of its rows, by the line above them, if there is one.
    pub(super) fn groups(&self) -> Vec<(Option<&str>, Vec<&[String]>)> {
        let mut groups = vec![(None, Vec::new())];
        for row in &self.rows {
            match (row, groups.last_mut()) {
                (Row::Caption(text), _) => groups.push((Some(text.as_str()), Vec::new())),
                (Row::Cells(cells), Some((_, rows))) => rows.push(cells.as_slice()),
                _ => {}
            }
        }
        groups.retain(|(_, rows)| !rows.is_empty());
        groups
    }

    /// Writes the rows, indented by `indent` columns.
    pub(super) fn write(&self, page: &mut Page, indent: usize) {
        if page.keeps(self) {
            return;
        }
        let Some(last) = self.columns.len().checked_sub(1) else { return };
        let widths: Vec<usize> = (0..last).map(|i| self.column_width(i)).collect();
        let before: usize = indent + widths.iter().map(|w| w + GUTTER).sum::<usize>();
        let room = page.columns().saturating_sub(before);
        let below = room < LAST_MIN && self.column_width(last) > room;
        for row in &self.rows {
            if let Row::Caption(text) = row {
                page.paragraph(indent.saturating_sub(GUTTER), GUTTER, Colour::Aside, text);
                continue;
            }
            let ink = |i: usize| match row {
                Row::Heading(_) => Colour::Aside,
                _ => self.ink(i),
            };
            let cell = |i: usize| row.cells().get(i).map_or("", String::as_str);
            let mut cells: Vec<Vec<String>> =
                (0..last).map(|i| wrap(cell(i), widths[i].max(1))).collect();
            if below {
                self.write_lines(page, indent, &widths, &cells, ink);
                if !cell(last).is_empty() {
                    page.paragraph(indent + GUTTER, 0, ink(last), cell(last));
                }
            } else {
                let mut widths = widths.clone();
                widths.push(room);
                cells.push(wrap(cell(last), room.max(1)));
                self.write_lines(page, indent, &widths, &cells, ink);
            }
        }
    }

    fn write_lines(
        &self,
        page: &mut Page,
        indent: usize,
        widths: &[usize],
        cells: &[Vec<String>],
        ink: impl Fn(usize) -> Colour,
    ) {
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        for y in 0..height {
            let mut line = String::new();
            let mut pending = 0;
            for (x, cell) in cells.iter().enumerate() {
                let text = cell.get(y).map_or("", String::as_str);
                let slack = widths[x].saturating_sub(width(text));
                let (left, right) =
                    if matches!(self.columns[x], Column::Right) { (slack, 0) } else { (0, slack) };
                if !text.is_empty() {
                    line.push_str(&" ".repeat(pending + left));
                    line.push_str(&page.painted(ink(x), text));
                    pending = 0;
                } else {
                    pending += left;
                }
                pending += right + GUTTER;
            }
            page.line(indent, Colour::Plain, &line);
        }
    }

    fn ink(&self, column: usize) -> Colour {
        if matches!(self.columns[column], Column::Label(_)) { Colour::Aside } else { Colour::Plain }
    }

    fn column_width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.cells().get(column));
        let widest = cells.map(|cell| width(cell)).max().unwrap_or(0);
        match self.columns[column] {
            Column::Left(limit) => widest.min(limit),
            Column::Label(exact) => exact,
            Column::Right => widest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::TextStyle;
    use super::*;

    fn shown(columns: usize, table: &Table) -> String {
        let mut page = Page::new(TextStyle { columns, color: false, verbosity: 1 });
        table.write(&mut page, 2);
        page.into_text()
    }

    #[test]
    fn columns_align_by_display_width() {
        let mut table = Table::new(&[Column::Left(20), Column::Right, Column::Left(99)]);
        table.row(["毛刺".into(), "9.0 us".into(), "x".into()]);
        table.row(["abcde".into(), "212 ms".into()]);
        table.row(["é".into(), "1 s".into(), "y".into()]);
        assert_eq!(shown(80, &table), "  毛刺   9.0 us  x\n  abcde  212 ms\n  é         1 s  y\n");
    }

    #[test]
    fn the_last_column_wraps_under_itself_and_goes_below_where_it_has_no_room() {
        let mut table = Table::new(&[Column::Left(40), Column::Left(99)]);
        let note = "a note that is rather long for the room that it has here";
        table.row(["a name".into(), note.into()]);
        assert_eq!(
            shown(60, &table),
            "  a name  a note that is rather long for the room that it\n          has here\n"
        );
        table.row(["a name of forty columns, which is a lot".into(), note.into()]);
        let text = shown(60, &table);
        assert!(text.contains("\n    a note that is rather long"), "{text}");
        assert!(text.lines().all(|line| width(line) <= 60), "{text}");
    }
}
