// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What happened when: the rows of a time line above a common axis.

use super::axis::{LEFT, RIGHT, TimePlot};
use super::markup::{Markup, class, none};
use super::svg::{self, Anchor};
use super::{Cell, details, table};
use crate::finding::{Chart, ChartKind, ChartRow};
use crate::text::escape::label;
use crate::text::units::{duration, share};
use std::fmt::Write as _;

/// Maximum number of rows and steps that are shown; no report has more.
const MOST_ROWS: usize = 8;
const MOST_STEPS: usize = 200;
/// Maximum width of the names of rows.
const NAME_COLUMNS: usize = 20;
const SHARE: f64 = 36.0;
const MARKS: f64 = 16.0;
const GAP: f64 = 8.0;

pub(super) fn chart(to: &mut Markup, chart: &Chart) {
    let rows = &chart.rows[..chart.rows.len().min(MOST_ROWS)];
    let steps = rows.iter().map(|row| row.values.len()).max().unwrap_or(0).min(MOST_STEPS);
    if steps == 0 {
        return;
    }
    let names: Vec<String> = rows.iter().map(|row| label(&row.name, NAME_COLUMNS)).collect();
    let bottom: f64 = rows.iter().map(|row| row_height(row) + GAP).sum();
    to.element("figure", &none(), |to| {
        to.prose("figcaption", &none(), &about(chart));
        let described = format!("time line of {}", names.join(", ").replace('`', ""));
        let seconds = steps as f64 * chart.step_s;
        let (top, from_s) = (0.0, chart.from_s);
        let plot = TimePlot { label: &described, from_s, seconds, top, bottom };
        plot.write(to, |to| shapes(to, rows, steps), |to| fixed(to, rows, &names));
        details(to, "as a table", |to| numbers(to, chart, (rows, &names), steps));
    });
}

fn about(chart: &Chart) -> String {
    let step = duration(chart.step_s * 1e9);
    if chart.rows.iter().any(|row| row.kind == ChartKind::Share) {
        let part = duration(chart.resolution_s * 1e9);
        format!("what happened when: a step is {step}, its height the busiest {part} of it")
    } else {
        format!("what happened when: a step is {step}")
    }
}

fn row_height(row: &ChartRow) -> f64 {
    if row.kind == ChartKind::Share { SHARE } else { MARKS }
}

/// The rows, each with where it begins and where its ground is.
fn placed(rows: &[ChartRow]) -> impl Iterator<Item = (&ChartRow, f64, f64)> {
    let mut top = 0.0;
    rows.iter().map(move |row| {
        let from = top;
        top += row_height(row) + GAP;
        (row, from, from + row_height(row))
    })
}

fn shapes(to: &mut Markup, rows: &[ChartRow], steps: usize) {
    let step_width = (RIGHT - LEFT) / steps as f64;
    for (row, top, ground) in placed(rows) {
        let (path, colour) = match row.kind {
            ChartKind::Share => (skyline(row, steps, ground, step_width), "c-busy"),
            ChartKind::Marks => (marks(row, steps, (top, ground), step_width), "c-mark"),
        };
        if !path.is_empty() {
            to.element("path", &class(colour).and("d", path), |_| {});
        }
    }
}

fn fixed(to: &mut Markup, rows: &[ChartRow], names: &[String]) {
    for ((_, top, ground), name) in placed(rows).zip(names) {
        let plain = name.replace('`', "");
        svg::text(to, (LEFT - 8.0, f64::midpoint(top, ground) + 4.0), Anchor::End, &plain);
        svg::line(to, "axis", (LEFT, ground), (RIGHT, ground));
    }
}

/// The outline of a row of shares: a step for each.
fn skyline(row: &ChartRow, steps: usize, ground: f64, step_width: f64) -> String {
    let mut path = String::new();
    for i in 0..steps {
        let value = row.values.get(i).copied().unwrap_or(0.0);
        let y = svg::number(ground - svg::visible(value) * SHARE);
        if path.is_empty() {
            path = format!("M{LEFT} {ground}");
        }
        // Writing to a String cannot fail.
        let _ = write!(path, "V{y}H{}", svg::number(LEFT + (i + 1) as f64 * step_width));
    }
    if !path.is_empty() {
        let _ = write!(path, "V{ground}z");
    }
    path
}

/// A line for each step in which an event happened.
fn marks(row: &ChartRow, steps: usize, (top, ground): (f64, f64), step_width: f64) -> String {
    let mut path = String::new();
    for (i, value) in row.values.iter().enumerate().take(steps) {
        if *value > 0.0 {
            let x = svg::number(LEFT + (i as f64 + 0.5) * step_width);
            let _ = write!(path, "M{x} {top}V{ground}");
        }
    }
    path
}

fn numbers(to: &mut Markup, chart: &Chart, (rows, names): (&[ChartRow], &[String]), steps: usize) {
    let value = |row: &ChartRow, step: usize| row.values.get(step).copied().unwrap_or(0.0);
    let mut lines = Vec::new();
    for step in (0..steps).filter(|step| rows.iter().any(|row| value(row, *step) > 0.0)) {
        let t_s = chart.from_s + step as f64 * chart.step_s;
        let mut line = vec![Cell::Number(format!("{} s", (t_s * 1e3).round() / 1e3))];
        for row in rows {
            let value = value(row, step);
            line.push(match row.kind {
                ChartKind::Share => Cell::Number(share(value)),
                ChartKind::Marks if value > 0.0 => Cell::Number("yes".into()),
                ChartKind::Marks => Cell::Number(String::new()),
            });
        }
        lines.push(line);
    }
    let mut headings = vec!["from"];
    headings.extend(names.iter().map(String::as_str));
    table(to, &headings, lines);
    to.tag("p", &class("aside"), "(steps in which nothing happened are left out)");
}
