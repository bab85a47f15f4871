// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The difference of two measurements of system calls as text for a terminal: what explains most seconds comes first.

use super::TextStyle;
use super::page::{Colour, Page};
use super::syscalls::subject;
use super::table::{Column, Table};
use crate::syscalls::{ChangeKind, Difference, RowChange, Side};
use crate::text::escape::{label, sentence};
use crate::text::units::{count, counted, duration};

/// Maximum number of rows without and with -v.
const ROWS: (usize, usize) = (12, 200);
/// Rows with a smaller share of the sum of all changes are omitted without -v.
const WORTH: f64 = 0.001;

/// The difference as text for a terminal.
#[must_use]
pub fn syscalls_diff_text(difference: &Difference, style: TextStyle) -> String {
    let mut page = Page::new(style);
    page.line(0, Colour::Heading, "system calls of B against those of A");
    for (name, it) in [("A: ", &difference.a), ("B: ", &difference.b)] {
        page.labelled(2, (Colour::Aside, name), 3, Colour::Plain, &side(it));
    }
    let (a, b) = (difference.a.calls_ns as f64, difference.b.calls_ns as f64);
    let sum = format!(
        "a run of B spends {} in system calls than one of A",
        match b - a {
            more if more >= 0.0 => format!("{} more", duration(more)),
            less => format!("{} less", duration(-less)),
        }
    );
    page.paragraph(2, 2, Colour::Plain, &sum);
    table(&mut page, "by call", &difference.syscalls, style.verbosity);
    table(&mut page, "by file", &difference.files, style.verbosity);
    if !difference.notes.is_empty() {
        page.gap();
        for note in &difference.notes {
            page.labelled(0, (Colour::Aside, "note: "), 6, Colour::Aside, &sentence(note));
        }
    }
    page.into_text()
}

fn side(it: &Side) -> String {
    let cpu = match it.user_ns.zip(it.system_ns) {
        Some((user, system)) => {
            format!(", user {}, system {}", duration(user as f64), duration(system as f64))
        }
        None => String::new(),
    };
    sentence(&format!(
        "{} on `{}`, kernel {}, {}: wall {}{cpu}, {}",
        subject(&it.subject),
        it.host,
        it.kernel,
        counted(it.runs, "run", "runs"),
        duration(it.wall_ns as f64),
        counted(it.calls.round() as u64, "call", "calls")
    ))
}

fn table(page: &mut Page, heading: &str, rows: &[RowChange], verbosity: u8) {
    let all: f64 = rows.iter().map(|row| row.seconds.abs()).sum();
    let least = if verbosity > 1 { 0.0 } else { all * WORTH };
    let most = if verbosity > 1 { ROWS.1 } else { ROWS.0 };
    let shown: Vec<_> = rows.iter().filter(|row| row.seconds.abs() >= least).take(most).collect();
    page.gap();
    page.line(0, Colour::Heading, heading);
    if shown.is_empty() {
        page.line(2, Colour::Plain, "no difference");
        return;
    }
    let mut columns = vec![Column::Right; 6];
    columns.push(Column::Left(200));
    let mut table = Table::new(&columns);
    table.heading(["B - A", "by count", "by cost", "calls A", "calls B", "mean A -> B", "what"]);
    for row in &shown {
        table.row(cells(row));
    }
    table.write(page, 2);
    if rows.len() > shown.len() {
        let rest: f64 = rows.iter().map(|row| row.seconds).sum::<f64>()
            - shown.iter().map(|row| row.seconds).sum::<f64>();
        let text = format!("{} more rows: {}", rows.len() - shown.len(), signed(rest));
        page.paragraph(2, 2, Colour::Aside, &text);
    }
}

fn cells(row: &RowChange) -> [String; 7] {
    let what = match row.kind {
        ChangeKind::New => " (only in B)",
        ChangeKind::Gone => " (only in A)",
        ChangeKind::Count | ChangeKind::Cost => "",
    };
    let mean = |calls: f64, ns: u64| if calls > 0.0 { duration(ns as f64) } else { "-".into() };
    [
        signed(row.seconds),
        signed(row.by_count_s),
        signed(row.by_cost_s),
        calls(row.calls_a),
        calls(row.calls_b),
        format!("{} -> {}", mean(row.calls_a, row.mean_ns_a), mean(row.calls_b, row.mean_ns_b)),
        format!("{}{what}", label(&row.name, 180)),
    ]
}

fn calls(calls: f64) -> String {
    count(if calls >= 10.0 { calls.round() } else { calls })
}

fn signed(seconds: f64) -> String {
    let text = duration(seconds.abs() * 1e9);
    match () {
        () if seconds > 0.0 => format!("+{text}"),
        () if seconds < 0.0 => format!("-{text}"),
        () => text,
    }
}
