// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What happened when: a line of characters for each row, above a common time axis.
//!
//! Only full and half blocks, as for the bars: a plain Linux console has no finer ones.

use super::page::{Colour, Page};
use crate::finding::{Chart, ChartKind, ChartRow};
use crate::text::escape::{label, width};
use crate::text::units::duration;

/// Maximum width of the names of rows.
const NAME_COLUMNS: usize = 24;
/// Columns between two times on the axis.
const TICK_COLUMNS: usize = 10;
/// Minimum share of a step that is shown as a full block.
const FULL: f64 = 0.9;
/// Minimum share of a step that is shown as a half block; a smaller one is a dot.
const HALF: f64 = 0.1;
/// Maximum number of rows and steps that are shown; no report has more.
const MOST_ROWS: usize = 8;
const MOST_STEPS: usize = 200;

/// Writes a chart. If it is wider than the page, it continues below.
pub(super) fn write(page: &mut Page, chart: &Chart) {
    let rows = &chart.rows[..chart.rows.len().min(MOST_ROWS)];
    let steps = rows.iter().map(|row| row.values.len()).max().unwrap_or(0).min(MOST_STEPS);
    if steps == 0 {
        return;
    }
    let names: Vec<String> = rows.iter().map(|row| label(&row.name, NAME_COLUMNS)).collect();
    let name_columns = names.iter().map(|name| width(name)).max().unwrap_or(0);
    let room = page.columns().saturating_sub(4 + name_columns + 2).max(TICK_COLUMNS);
    page.gap();
    let step = duration(chart.step_s * 1e9);
    let about = if rows.iter().any(|row| row.kind == ChartKind::Share) {
        let part = duration(chart.resolution_s * 1e9);
        format!("a column is {step}: █ if {part} of it were at 90 %, ▄ at 10 %, · at less")
    } else {
        format!("a column is {step}")
    };
    page.paragraph(2, 2, Colour::Aside, &about);
    for from in (0..steps).step_by(room) {
        let to = steps.min(from + room);
        for (row, name) in rows.iter().zip(&names) {
            let strip: String = (from..to).map(|step| mark(row, step)).collect();
            let pad = " ".repeat(name_columns - width(name) + 2);
            page.line(4, Colour::Plain, format!("{name}{pad}{strip}").trim_end());
        }
        let pad = " ".repeat(name_columns + 2);
        let axis = axis(chart, from, to, room);
        page.line(4, Colour::Aside, &format!("{pad}{axis}"));
    }
}

fn mark(row: &ChartRow, step: usize) -> char {
    let value = row.values.get(step).copied().unwrap_or(0.0);
    match row.kind {
        _ if value.is_nan() || value <= 0.0 => ' ',
        ChartKind::Marks => '|',
        ChartKind::Share if value >= FULL => '█',
        ChartKind::Share if value >= HALF => '▄',
        ChartKind::Share => '·',
    }
}

/// The axis: times below the columns at which they begin, the first one with its unit.
fn axis(chart: &Chart, from: usize, to: usize, room: usize) -> String {
    let mut line = String::new();
    for step in (from..to).step_by(TICK_COLUMNS) {
        let t_s = chart.from_s + step as f64 * chart.step_s;
        let unit = if step == from { " s" } else { "" };
        let text = format!("{}{unit}", (t_s * 10.0).round() / 10.0);
        let at = step - from;
        if width(&line) > at || at + width(&text) > room {
            continue;
        }
        line.push_str(&" ".repeat(at - width(&line)));
        line.push_str(&text);
        // At least one space before the next time.
        line.push(' ');
    }
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::TextStyle;
    use super::*;
    use proptest::prelude::*;

    fn shown(chart: &Chart, columns: usize) -> String {
        let mut page = Page::new(TextStyle { columns, color: false, verbosity: 1 });
        write(&mut page, chart);
        page.into_text()
    }

    fn row(name: &str, kind: ChartKind, values: &[f64]) -> ChartRow {
        ChartRow { name: name.into(), kind, values: values.to_vec() }
    }

    #[test]
    fn rows_share_an_axis() {
        let busy: Vec<f64> = (0..24).map(|i| [0.0, 0.05, 0.5, 0.95][i % 4]).collect();
        let stalls: Vec<f64> = (0..24).map(|i| f64::from(u8::from(i % 4 == 3))).collect();
        let chart = Chart {
            from_s: 0.0,
            step_s: 0.5,
            resolution_s: 0.1,
            rows: vec![
                row("sda busy", ChartKind::Share, &busy),
                row("stalls", ChartKind::Marks, &stalls),
            ],
        };
        let text = shown(&chart, 80);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("  a column is 500 ms: █ if 100 ms of it"), "{text}");
        assert_eq!(
            lines[2..],
            [
                "    sda busy   ·▄█ ·▄█ ·▄█ ·▄█ ·▄█ ·▄█",
                "    stalls       |   |   |   |   |   |",
                "              0 s       5         10",
            ]
        );
    }

    proptest! {
        #[test]
        fn any_chart_fits_the_page(
            values in prop::collection::vec(any::<f64>(), 0..300), more in 0..300usize, columns in 0..120usize,
            step in any::<f64>(), from in any::<f64>(), name in any::<String>(),
        ) {
            let rows = vec![
                row(&name, ChartKind::Share, &values),
                row("x", ChartKind::Marks, &vec![1.0; more]),
            ];
            let text = shown(&Chart { from_s: from, step_s: step, resolution_s: step, rows }, columns);
            for line in text.lines() {
                prop_assert!(width(line) <= columns.clamp(60, 100), "{line}");
            }
        }
    }
}
