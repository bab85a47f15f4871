// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Histograms of lengths, twice over the same classes: by number they show what is usual, by time what hurts. Several
//! series have a bar each in every class.

use super::super::lengths::{self, Bar, Lengths, Panel};
use super::blocks::shown;
use super::details;
use super::markup::{Markup, none};
use super::svg::{self, Anchor, WIDTH};
use crate::finding::SizeClass;

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
/// Room that the value of a bar takes, and the bound of a class.
const VALUE: f64 = 42.0;
const BOUND: f64 = 52.0;

/// The waits of the victim of a finding.
pub(super) fn sizes(to: &mut Markup, sizes: &[SizeClass]) {
    if let Some(only) = lengths::only_class(sizes) {
        return to.tag("p", &none(), &only);
    }
    if let Some(lengths) = lengths::of_victim(sizes) {
        write(to, &lengths);
    }
}

/// The plot, and its table.
pub(super) fn write(to: &mut Markup, of: &Lengths) {
    to.element("figure", &none(), |to| {
        to.prose("figcaption", &none(), &of.caption);
        if !of.series.is_empty() {
            let names = of.series.iter().enumerate();
            svg::legend(to, names.map(|(i, name)| (svg::colour(i), name.clone())));
        }
        let height = of.panels.len() as f64 * PANEL + AXIS;
        svg::plot(to, height, &of.described.replace('`', ""), |to| draw(to, of));
        details(to, "as a table", |to| shown(to, &of.table));
    });
}

fn draw(to: &mut Markup, of: &Lengths) {
    let class_width = ((WIDTH - 2.0 * SIDE) / of.bounds.len().max(1) as f64).min(MAX_CLASS);
    let left = |i: usize| SIDE + i as f64 * class_width;
    for (i, panel) in of.panels.iter().enumerate() {
        let top = i as f64 * PANEL;
        let ground = top + TITLE + ABOVE + BARS;
        svg::text(to, (0.0, top + 12.0), Anchor::Start, panel.title);
        svg::line(to, "axis", (left(0), ground), (left(of.bounds.len()), ground));
        bars(to, panel, ground, class_width);
    }
    let y = of.panels.len() as f64 * PANEL + 10.0;
    // As many bounds as there is room for, from the first on.
    let step = (BOUND / class_width).ceil().max(1.0) as usize;
    for (i, (from, _)) in of.bounds.iter().enumerate().step_by(step) {
        svg::text(to, (left(i), y), Anchor::Middle, from);
    }
    let end = of.bounds.last().and_then(|(_, to)| to.as_deref());
    if let Some(end) = end.filter(|_| of.bounds.len().is_multiple_of(step)) {
        svg::text(to, (left(of.bounds.len()), y), Anchor::Middle, end);
    }
}

/// The bars of a panel that stand on `ground`.
fn bars(to: &mut Markup, panel: &Panel, ground: f64, class_width: f64) {
    let series = panel.bars.iter().map(Vec::len).max().unwrap_or(0).max(1);
    // What belongs together is nearer than what does not.
    let gap = 4.0 * series as f64;
    let width = (class_width - gap) / series as f64;
    let has_values = width >= VALUE;
    let height = |value: f64| match panel.highest > 0.0 {
        true => svg::visible(value / panel.highest) * BARS,
        false => 0.0,
    };
    let colour = |i: usize| match (series, panel.is_time) {
        (1, false) => "c-count",
        (1, true) => "c-time",
        _ => svg::colour(i),
    };
    for (class, bars) in panel.bars.iter().enumerate() {
        for (i, bar) in bars.iter().enumerate() {
            let x = SIDE + class as f64 * class_width + gap / 2.0 + i as f64 * width;
            let high = height(bar.value).max(if bar.value > 0.0 { 1.0 } else { 0.0 });
            svg::group(to, &bar.hint, |to| {
                svg::rect(to, colour(i), (x, ground - high), (width, high));
                let top = range(to, bar, (x + width / 2.0, ground), height).max(high);
                if has_values {
                    let at = (x + width / 2.0, ground - top - 4.0);
                    svg::text(to, at, Anchor::Middle, &bar.shown);
                }
            });
        }
    }
    if !has_values {
        highest(to, panel, ground, height);
    }
}

/// The range that the value of a bar can be in. Returns its upper end.
fn range(to: &mut Markup, bar: &Bar, (x, ground): (f64, f64), height: impl Fn(f64) -> f64) -> f64 {
    let Some([least, most]) = bar.bounds.map(|bounds| bounds.map(&height)) else { return 0.0 };
    svg::line(to, "range", (x, ground - least), (x, ground - most));
    most
}

/// What the highest bar is, where bars are too narrow for their values.
fn highest(to: &mut Markup, panel: &Panel, ground: f64, height: impl Fn(f64) -> f64) {
    let all = panel.bars.iter().flatten();
    let Some(most) = all.max_by(|x, y| x.value.total_cmp(&y.value)) else { return };
    let y = ground - height(most.value);
    svg::line(to, "grid", (SIDE, y), (WIDTH - SIDE, y));
    svg::text(to, (WIDTH - SIDE, y - 4.0), Anchor::End, &most.shown);
}
