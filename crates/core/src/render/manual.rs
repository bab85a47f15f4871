// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Renders pages of this project's own documentation for a terminal: the subset of Markdown that they use.

use super::TextStyle;
use super::page::{Colour, Page};
use super::table::{Column, Table};
use crate::text::escape::{command, width};

/// Maximum width of each cell of a table, except the last.
const CELL_COLUMNS: usize = 30;

/// A Markdown page for a terminal: headings, paragraphs, lists, tables and code
/// blocks. Anything else is shown unchanged.
#[must_use]
pub fn manual(markdown: &str, style: TextStyle) -> String {
    let mut page = Page::new(style);
    let lines: Vec<String> = markdown.lines().map(command).collect();
    let mut rest: &[String] = &lines;
    while let Some(line) = rest.first() {
        let length = block(rest);
        let (lines, after) = rest.split_at(length);
        rest = after;
        if line.trim().is_empty() {
            page.gap();
        } else if let Some(title) = heading(line) {
            page.paragraph(0, 2, Colour::Heading, &plain(title));
        } else if line.starts_with("```") {
            for line in lines.iter().filter(|line| !line.starts_with("```")) {
                page.line(4, Colour::Plain, line.trim_end());
            }
        } else if line.starts_with('|') {
            table(&mut page, lines);
        } else {
            let text = lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
            match text.strip_prefix("- ") {
                Some(item) => {
                    page.labelled(0, (Colour::Plain, "- "), 2, Colour::Plain, &plain(item));
                }
                None => page.paragraph(0, 0, Colour::Plain, &plain(&text)),
            }
        }
    }
    page.into_text()
}

/// Number of lines of the block that begins with the first line.
fn block(lines: &[String]) -> usize {
    let first = lines[0].as_str();
    let ends = |line: &str| line.trim().is_empty() || heading(line).is_some();
    let more =
        |belongs: &dyn Fn(&str) -> bool| lines[1..].iter().take_while(|line| belongs(line)).count();
    if ends(first) {
        1
    } else if first.starts_with("```") {
        (more(&|line| !line.starts_with("```")) + 2).min(lines.len())
    } else if first.starts_with('|') {
        1 + more(&|line| line.starts_with('|'))
    } else {
        let other = |line: &str| ["- ", "|", "```"].iter().any(|start| line.starts_with(start));
        1 + more(&|line| !ends(line) && !other(line))
    }
}

fn heading(line: &str) -> Option<&str> {
    let title = line.trim_start_matches('#');
    (title.len() < line.len()).then(|| title.strip_prefix(' ')).flatten()
}

/// Text without the asterisks of emphasis; text in backticks is unchanged.
fn plain(text: &str) -> String {
    let mut shown = String::new();
    for (i, part) in text.split('`').enumerate() {
        if i > 0 {
            shown.push('`');
        }
        // An asterisk between spaces is not emphasis.
        if i % 2 == 0 {
            let kept = part.replace(" * ", " \0 ").replace('*', "").replace('\0', "*");
            shown.push_str(&kept);
        } else {
            shown.push_str(part);
        }
    }
    shown
}

fn table(page: &mut Page, lines: &[String]) {
    let cells = |line: &str| -> Vec<String> {
        line.trim().trim_matches('|').split('|').map(|cell| plain(cell.trim())).collect()
    };
    let is_rule = |line: &&String| line.chars().all(|c| "|-: ".contains(c));
    let rows: Vec<Vec<String>> =
        lines.iter().filter(|line| !is_rule(line)).map(|line| cells(line)).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |i: usize| rows.iter().filter_map(|row| row.get(i)).map(|cell| width(cell)).max();
    let cell_columns = CELL_COLUMNS.min(page.columns() / 3);
    let mut table = Table::new(
        &(0..columns)
            .map(|i| Column::Left(cell_columns.min(widest(i).unwrap_or(0))))
            .collect::<Vec<_>>(),
    );
    for (i, row) in rows.iter().enumerate() {
        if i == 0 {
            table.heading(row.iter().map(String::as_str));
        } else {
            table.row(row.iter().cloned());
        }
    }
    table.write(page, 2);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::name::is_hidden;
    use proptest::prelude::*;

    const STYLE: TextStyle = TextStyle { columns: 60, color: false, verbosity: 1 };

    #[test]
    fn blocks_are_laid_out() {
        let markdown = "# SCH001 name\n\nOne **bold** line that is\nbroken `a * b*` in the source, with 3 * 4 in it.\n\
            - item that goes on and on and on and on and\n  on and on\n- next\n\n```\n$ run  this\n```\n\n\
            | limit | why |\n|---|---|\n| `x` | because of *this* |\n";
        let text = "SCH001 name\n\nOne bold line that is broken `a * b*` in the source, with 3\n* 4 in it.\n\
            - item that goes on and on and on and on and on and on\n- next\n\n    $ run  this\n\n  \
            limit  why\n  `x`    because of this\n";
        assert_eq!(manual(markdown, STYLE), text);
    }

    #[test]
    fn the_pages_of_the_rules_fit() {
        for rule in crate::rules::RULES {
            for columns in [60, 80, 100] {
                let page = crate::rules::explain(rule.code).unwrap();
                let shown = manual(&page, TextStyle { columns, ..STYLE });
                for line in shown.lines() {
                    let code = line.starts_with("    ");
                    assert!(width(line) <= columns || code, "{}: {line}", rule.code);
                    assert!(
                        !line.contains("**") && !line.starts_with('|'),
                        "{}: {line}",
                        rule.code
                    );
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_is_shown_and_none_of_it_steers(markdown in r"(?s)([#|`*-]|```|\n|\x1b|[a-c ]|.){0,80}") {
            let shown = manual(&markdown, STYLE);
            prop_assert!(shown.lines().all(|line| !line.contains(is_hidden)), "{shown:?}");
            let letters = |text: &str| text.chars().filter(|c| "abc".contains(*c)).count();
            let fenced = markdown.contains("```");
            prop_assert!(fenced || letters(&shown) >= letters(&markdown));
        }
    }
}
