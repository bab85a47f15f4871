// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The histogram of waits, twice over the same classes: by number it shows what is usual, by time what hurts.

use super::super::words::finding::{self as words, SizeRow};
use super::markup::{Markup, none};
use super::svg::{self, Anchor, WIDTH};
use super::{Cell, details, table};
use crate::finding::SizeClass;
use crate::text::units::share;

/// Height of a panel: its title, its highest bar with the share above it.
const TITLE: f64 = 16.0;
const BARS: f64 = 72.0;
const ABOVE: f64 = 16.0;
const PANEL: f64 = TITLE + ABOVE + BARS + 6.0;
/// Room for the bounds of the classes below the bars.
const AXIS: f64 = 20.0;
/// Room beside the first and the last class, for their bounds.
const SIDE: f64 = 30.0;
const MAX_CLASS: f64 = 130.0;

pub(super) fn sizes(to: &mut Markup, sizes: &[SizeClass]) {
    let rows = words::sizes(sizes);
    if rows.is_empty() {
        return;
    }
    if let [only] = rows.as_slice() {
        let text = format!("how long the waits were: all {} of them {}", only.waits, only.length);
        return to.tag("p", &none(), &text);
    }
    to.element("figure", &none(), |to| {
        to.tag("figcaption", &none(), "how long the waits were");
        svg::plot(to, 2.0 * PANEL + AXIS, &described(&rows), |to| draw(to, &rows));
        details(to, "as a table", |to| {
            let cells = |row: SizeRow| {
                vec![
                    Cell::Number(row.length),
                    Cell::Number(row.waits),
                    Cell::Number(share(row.waits_share)),
                    Cell::Number(row.time),
                    Cell::Number(share(row.time_share)),
                ]
            };
            let rows = rows.into_iter().map(cells).collect();
            table(to, &["length", "waits", "of all waits", "time", "of the time"], rows);
        });
    });
}

fn described(rows: &[SizeRow]) -> String {
    let most = |of: fn(&SizeRow) -> f64| rows.iter().max_by(|a, b| of(a).total_cmp(&of(b)));
    let (usual, hurts) = (most(|row| row.waits_share), most(|row| row.time_share));
    let said = |row: Option<&SizeRow>, of: fn(&SizeRow) -> f64| {
        row.map(|row| format!("{} ({})", row.length, share(of(row)))).unwrap_or_default()
    };
    format!(
        "histogram of the waits by length: most waits are {}, most time is in waits of {}",
        said(usual, |row| row.waits_share),
        said(hurts, |row| row.time_share)
    )
}

/// One of the two ways to look at the classes.
struct Panel {
    title: &'static str,
    colour: &'static str,
    of: fn(&SizeRow) -> f64,
    amount: fn(&SizeRow) -> &str,
}

fn draw(to: &mut Markup, rows: &[SizeRow]) {
    let panels = [
        Panel {
            title: "by number: what is usual",
            colour: "c-count",
            of: |row| row.waits_share,
            amount: |row| &row.waits,
        },
        Panel {
            title: "by time: what hurts",
            colour: "c-time",
            of: |row| row.time_share,
            amount: |row| &row.time,
        },
    ];
    let class_width = ((WIDTH - 2.0 * SIDE) / rows.len() as f64).min(MAX_CLASS);
    let left = |i: usize| SIDE + i as f64 * class_width;
    // Both panels have one scale, so that their bars can be compared.
    let all = rows.iter().flat_map(|row| [row.waits_share, row.time_share]);
    let highest = all.fold(0.0, f64::max);
    for (i, panel) in panels.iter().enumerate() {
        let top = i as f64 * PANEL;
        let ground = top + TITLE + ABOVE + BARS;
        svg::text(to, (0.0, top + 12.0), Anchor::Start, panel.title);
        svg::line(to, "axis", (left(0), ground), (left(rows.len()), ground));
        for (i, row) in rows.iter().enumerate() {
            let part = (panel.of)(row);
            let height = if highest > 0.0 { svg::visible(part / highest) * BARS } else { 0.0 };
            let hint = format!("{}: {}, {}", row.length, (panel.amount)(row), share(part));
            svg::group(to, &hint, |to| {
                let size = (class_width - 4.0, height.max(if part > 0.0 { 1.0 } else { 0.0 }));
                svg::rect(to, panel.colour, (left(i) + 2.0, ground - size.1), size);
                let middle = left(i) + class_width / 2.0;
                svg::text(to, (middle, ground - size.1 - 4.0), Anchor::Middle, &share(part));
            });
        }
    }
    let y = 2.0 * PANEL + 10.0;
    for (i, row) in rows.iter().enumerate() {
        svg::text(to, (left(i), y), Anchor::Middle, &row.from);
    }
    if let Some(to_text) = rows.last().and_then(|row| row.to.as_deref()) {
        svg::text(to, (left(rows.len()), y), Anchor::Middle, to_text);
    }
}
