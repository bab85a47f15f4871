// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A load sweep: the verdict, what was measured, and charts by rate.

use super::super::plot::letter;
use super::super::sweep as words;
use super::blocks::shown;
use super::markup::{Markup, class, none};
use super::section;
use super::svg::{self, Anchor, WIDTH, colour};
use crate::stats::Interval;
use crate::sweep::{Sweep, Variant, rate_text};
use crate::text::escape::sentence;
use crate::text::units::duration;

const LEFT: f64 = 80.0;
const RIGHT: f64 = WIDTH - 20.0;
const TOP: f64 = 12.0;
const HEIGHT: f64 = 200.0;
const AXIS: f64 = 36.0;

pub(super) fn header(to: &mut Markup, sweep: &Sweep) {
    to.prose("h1", &none(), &words::headline(&sweep.setup));
    to.prose("p", &class("aside"), &sentence(&words::conditions(&sweep.setup)));
}

pub(super) fn body(to: &mut Markup, sweep: &Sweep) {
    section(to, "verdict", |to| {
        for said in &sweep.verdict {
            to.prose("p", &none(), &sentence(said));
        }
        for note in &sweep.notes {
            to.element("p", &class("aside"), |to| {
                to.tag("b", &none(), "note: ");
                to.words(&sentence(note));
            });
        }
    });
    if sweep.points.is_empty() {
        return;
    }
    if sweep.setup.rates_per_s.len() > 1 {
        section(to, "by rate", |to| {
            legend(to, sweep);
            for (title, series) in words::series(sweep) {
                chart(to, sweep, title, &series);
            }
        });
    }
    if sweep.setup.is_of_command() {
        section(to, "wall time", |to| shown(to, &words::wall(sweep, true)));
    } else {
        let title = "latency, from when each request was due";
        section(to, title, |to| shown(to, &words::latency(sweep, true)));
    }
    section(to, "what it took", |to| shown(to, &words::cost(sweep, true)));
}

fn legend(to: &mut Markup, sweep: &Sweep) {
    let variants = sweep.setup.variants.iter().enumerate();
    let name =
        |(i, it): (usize, &Variant)| (colour(i), sentence(&format!("{} {}", letter(i), it.name)));
    svg::legend(to, variants.map(name));
}

/// Maps values to heights on a logarithmic scale.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn of(series: &words::Series) -> Option<Self> {
        let ends =
            |it: &Interval| [it.value, it.low.unwrap_or(it.value), it.high.unwrap_or(it.value)];
        let all = series.iter().flatten().flatten().flat_map(ends);
        let all: Vec<f64> = all.filter(|it| it.is_finite() && *it > 0.0).collect();
        let low = all.iter().copied().min_by(f64::total_cmp)?.ln();
        let high = all.iter().copied().max_by(f64::total_cmp)?.ln();
        // At least a factor of 2, so that nearly equal values do not appear far apart.
        let spare = ((2f64.ln() - (high - low)) / 2.0).max(0.05);
        Some(Self { low: low - spare, high: high + spare })
    }

    fn y(&self, value: f64) -> f64 {
        let part = (value.max(f64::MIN_POSITIVE).ln() - self.low) / (self.high - self.low);
        TOP + (1.0 - part.clamp(0.0, 1.0)) * HEIGHT
    }

    /// Values at equal distances.
    fn marks(&self) -> [f64; 5] {
        [0.0, 0.25, 0.5, 0.75, 1.0].map(|part| (self.low + (self.high - self.low) * part).exp())
    }
}

fn chart(to: &mut Markup, sweep: &Sweep, title: &str, series: &words::Series) {
    let Some(scale) = Scale::of(series) else { return };
    let rates = &sweep.setup.rates_per_s;
    let slot = (RIGHT - LEFT) / rates.len().max(1) as f64;
    to.element("figure", &none(), |to| {
        to.tag("figcaption", &none(), &format!("{title}, with 95 % intervals"));
        let described = format!("{title} of each variant; the numbers are in the tables below");
        svg::plot(to, TOP + HEIGHT + AXIS, &described, |to| {
            for value in scale.marks() {
                let y = scale.y(value);
                svg::line(to, "grid", (LEFT, y), (RIGHT, y));
                svg::text(to, (LEFT - 6.0, y + 4.0), Anchor::End, &duration(value));
            }
            for (i, rate) in rates.iter().enumerate() {
                let at = (LEFT + (i as f64 + 0.5) * slot, TOP + HEIGHT + 15.0);
                svg::text(to, at, Anchor::Middle, &rate_text(*rate));
            }
            let at = ((LEFT + RIGHT) / 2.0, TOP + HEIGHT + 31.0);
            svg::text(to, at, Anchor::Middle, "requests a second");
            for (variant, values) in series.iter().enumerate() {
                // Each variant has a place of its own in the slot, so that no interval hides another.
                let shift = (variant as f64 + 0.5) / series.len() as f64 - 0.5;
                let x = |i: usize| LEFT + (i as f64 + 0.5 + shift * 0.5) * slot;
                line(to, (variant, values), &scale, x);
            }
        });
    });
}

fn line(
    to: &mut Markup,
    (variant, values): (usize, &[Option<Interval>]),
    scale: &Scale,
    x: impl Fn(usize) -> f64,
) {
    let known: Vec<(usize, Interval)> = values
        .iter()
        .enumerate()
        .filter_map(|(i, it)| it.filter(|it| it.value > 0.0).map(|it| (i, it)))
        .collect();
    for pair in known.windows(2) {
        let [(i, a), (j, b)] = pair else { continue };
        let ends = ((x(*i), scale.y(a.value)), (x(*j), scale.y(b.value)));
        svg::line(to, &format!("line {}", colour(variant)), ends.0, ends.1);
    }
    for (i, it) in known {
        let hint = format!("{}: {}", letter(variant), duration(it.value));
        svg::group(to, &hint, |to| {
            if let (Some(low), Some(high)) = (it.low, it.high) {
                let colour = format!("line {}", colour(variant));
                svg::line(to, &colour, (x(i), scale.y(low)), (x(i), scale.y(high)));
            }
            let place = class(colour(variant)).and("cx", svg::number(x(i)));
            let place = place.and("cy", svg::number(scale.y(it.value))).and("r", 4);
            to.element("circle", &place, |_| {});
        });
    }
}
