// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lengths over time, in two panels over one axis: by number, which shows what is usual, and by the time that they took,
//! which shows what hurts.

use super::axis::{LEFT, RIGHT, TimePlot};
use super::markup::{Markup, class, none};
use super::png::{self, LEVELS};
use super::svg::{self, Anchor};
use super::{Cell, details, table};
use crate::recording::{WAIT_BUCKETS, WaitHist, bucket_range_ns};
use crate::text::units::{count, duration, share};
use crate::view::Heat;

/// Height of a class of lengths.
const ROW: f64 = 8.0;
const TITLE: f64 = 18.0;
const GAP: f64 = 8.0;
/// Smallest part of the strongest cell that is told apart from others.
const FAINTEST: f64 = 1e-3;
/// Waits from this length on are counted in the table.
const LONG_NS: u64 = 1_000_000;
/// Most lines of the table: in a longer one, several columns share a line.
const MOST_LINES: usize = 60;

/// One of the two panels.
struct Panel {
    title: String,
    /// As in the style sheet, for both themes.
    colour: [u8; 3],
    of: fn(&WaitHist) -> &[u64; WAIT_BUCKETS],
}

/// Writes a pair of heatmaps: `what` are long (`waits`, `requests`), `about` says whose.
pub(super) fn write(to: &mut Markup, heat: &Heat, window_ns: u64, about: &str, what: &str) {
    let used = |bucket: &usize| heat.columns.iter().any(|it| it.count[*bucket] > 0);
    let mut buckets = (0..WAIT_BUCKETS).filter(used);
    let Some(low) = buckets.next() else { return };
    let high = buckets.next_back().unwrap_or(low);
    let step = duration(heat.column_ns as f64);
    let most = |of: fn(&WaitHist) -> &[u64; WAIT_BUCKETS]| {
        heat.columns.iter().flat_map(of).max().copied().unwrap_or(0)
    };
    let panels = [
        Panel {
            title: format!(
                "by number: what is usual (strongest: {} {what} in {step})",
                count(most(|it| &it.count) as f64)
            ),
            colour: [0x1f, 0x7f, 0xbf],
            of: |it| &it.count,
        },
        Panel {
            title: format!(
                "by time: what hurts (strongest: {} in {step})",
                duration(most(|it| &it.ns) as f64)
            ),
            colour: [0xd8, 0x62, 0x0c],
            of: |it| &it.ns,
        },
    ];
    let panel = TITLE + (high - low + 1) as f64 * ROW + GAP;
    to.element("figure", &none(), |to| {
        to.prose("figcaption", &none(), &format!("{about}, in columns of {step}"));
        let described =
            format!("lengths of {what} over time: by number, and by the time that they took");
        let plot = TimePlot {
            label: &described,
            from_s: 0.0,
            seconds: window_ns as f64 / 1e9,
            top: TITLE,
            bottom: 2.0 * panel - GAP,
        };
        let tops = |i: usize| i as f64 * panel + TITLE;
        let images = |to: &mut Markup| {
            for (i, it) in panels.iter().enumerate() {
                image(to, heat, it, (low, high), (tops(i), window_ns));
            }
        };
        plot.write(to, images, |to| {
            for (i, it) in panels.iter().enumerate() {
                svg::text(to, (LEFT, tops(i) - 6.0), Anchor::Start, &it.title);
                bounds(to, (low, high), tops(i));
            }
        });
        details(to, "as a table", |to| numbers(to, heat, what));
    });
}

fn image(
    to: &mut Markup,
    heat: &Heat,
    panel: &Panel,
    (low, high): (usize, usize),
    (top, window_ns): (f64, u64),
) {
    let values = |bucket: usize| heat.columns.iter().map(move |it| (panel.of)(it)[bucket]);
    let most = (low..=high).flat_map(values).max().unwrap_or(0);
    // Long waits are at the top.
    let pixels: Vec<u8> =
        (low..=high).rev().flat_map(values).map(|value| level(value, most)).collect();
    let height = (high - low + 1) as f64 * ROW;
    let shown_s = heat.columns.len() as f64 * heat.column_ns as f64;
    let width = (RIGHT - LEFT) * shown_s / window_ns.max(1) as f64;
    let clip = class("heat")
        .and("x", LEFT)
        .and("y", svg::number(top))
        .and("width", svg::number(width))
        .and("height", svg::number(height))
        .and("preserveAspectRatio", "none")
        .and("href", png::data_address(heat.columns.len() as u32, &pixels, panel.colour));
    to.element("image", &clip, |_| {});
}

/// The axis of lengths.
fn bounds(to: &mut Markup, (low, high): (usize, usize), top: f64) {
    let height = (high - low + 1) as f64 * ROW;
    svg::line(to, "axis", (LEFT, top), (LEFT, top + height));
    svg::line(to, "axis", (LEFT, top + height), (RIGHT, top + height));
    // Every other bound has room for its text.
    for bucket in (low..=high + 1).step_by(2) {
        let y = top + height - (bucket - low) as f64 * ROW;
        let bound = match bucket_range_ns(bucket) {
            _ if bucket >= WAIT_BUCKETS => "longer".into(),
            (from, _) => duration(from as f64),
        };
        svg::text(to, (LEFT - 6.0, y + 4.0), Anchor::End, &bound);
    }
}

/// Strength of a cell, on a logarithmic scale.
fn level(value: u64, most: u64) -> u8 {
    if value == 0 || most == 0 {
        return 0;
    }
    let part = (value as f64 / most as f64).max(FAINTEST).ln() / FAINTEST.ln();
    // Between 1 and LEVELS - 1.
    1 + ((1.0 - part) * f64::from(LEVELS - 2)).round() as u8
}

fn numbers(to: &mut Markup, heat: &Heat, what: &str) {
    let each = heat.columns.len().div_ceil(MOST_LINES).max(1);
    let mut rows = Vec::new();
    for (i, columns) in heat.columns.chunks(each).enumerate() {
        let mut column = WaitHist::default();
        columns.iter().for_each(|it| column.merge(it));
        let (all, all_ns) = (column.total_count(), column.total_ns());
        let Some(longest) = (0..WAIT_BUCKETS).rfind(|&bucket| column.count[bucket] > 0) else {
            continue;
        };
        let long = |bucket: &usize| bucket_range_ns(*bucket).1 > LONG_NS;
        let long_ns: u64 = (0..WAIT_BUCKETS)
            .filter(long)
            .map(|bucket| column.ns[bucket])
            .fold(0, u64::saturating_add);
        let longest = match bucket_range_ns(longest) {
            (from, u64::MAX) => format!("{} or more", duration(from as f64)),
            (_, under) => format!("< {}", duration(under as f64)),
        };
        rows.push(vec![
            super::load::seconds(((i * each) as u64).saturating_mul(heat.column_ns)),
            Cell::Number(count(all as f64)),
            Cell::Number(duration(all_ns as f64)),
            Cell::Number(share(if all_ns == 0 { 0.0 } else { long_ns as f64 / all_ns as f64 })),
            Cell::Number(longest),
        ]);
    }
    let long = format!("in those of {} and more", duration(LONG_NS as f64));
    table(to, &["from", what, "time", &long, "the longest"], rows);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strengths_are_logarithmic_and_something_is_never_nothing() {
        assert_eq!([0, 1, 10, 100, 1000].map(|it| level(it, 1000)), [0, 1, 6, 10, 15]);
        assert_eq!([level(1, u64::MAX), level(u64::MAX, u64::MAX), level(0, 0)], [1, 15, 0]);
    }
}
