// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Load and devices over time.

use super::super::words::report as words;
use super::axis::{self, LEFT, RIGHT, TimePlot};
use super::ledger::colour;
use super::markup::{Markup, class, none};
use super::svg::{self, Anchor};
use super::{Cell, details, heat, table};
use crate::recording::IoOp;
use crate::text::escape::identifier;
use crate::text::units::{duration, share};
use crate::view::{DevicePlot, LoadPlot, Plots};
use std::fmt::Write as _;

const STACK: f64 = 150.0;
const BUSY: f64 = 60.0;
const MARKS: f64 = 12.0;
const GAP: f64 = 7.0;
/// Room above the stack for the mark of its greatest value.
const ABOVE: f64 = 14.0;
/// Most lines of a table: longer ones are summed up.
const MOST_LINES: usize = 60;
const DEVICE_COLUMNS: usize = 40;

/// The threads of the target or the host by state, stacked.
pub(super) fn threads(to: &mut Markup, load: &LoadPlot, plots: &Plots, whose: &str) {
    let steps = load.states.iter().map(|(_, values)| values.len()).max().unwrap_or(0);
    let sum = |step: usize| load.states.iter().filter_map(|(_, it)| it.get(step)).sum::<f64>();
    let highest = (0..steps).map(sum).fold(0.0, f64::max);
    if highest <= 0.0 {
        return;
    }
    let step = duration(load.step_ns as f64);
    to.element("figure", &none(), |to| {
        let about = format!("threads of {whose} by what they do, in steps of {step}");
        to.prose("figcaption", &none(), &about);
        to.element("ul", &class("legend").and("aria-hidden", "true"), |to| {
            for (state, _) in &load.states {
                to.element("li", &none(), |to| {
                    svg::swatch(to, colour(*state));
                    to.text(words::state(*state));
                });
            }
        });
        let described = format!("number of threads over time, at most {highest:.1} at once");
        let bottom = ABOVE + STACK;
        let window_s = plots.window_ns as f64 / 1e9;
        let plot =
            TimePlot { label: &described, from_s: 0.0, seconds: window_s, top: ABOVE, bottom };
        let bands = |to: &mut Markup| {
            let mut ground = vec![0.0; steps];
            for (state, values) in &load.states {
                let path = band(&mut ground, values, load.step_ns, plots.window_ns, highest);
                to.element("path", &class(colour(*state)).and("d", path), |_| {});
            }
        };
        plot.write(to, bands, |to| {
            svg::line(to, "axis", (LEFT, bottom), (RIGHT, bottom));
            svg::text(to, (LEFT - 6.0, ABOVE + 4.0), Anchor::End, &format!("{highest:.1}"));
            svg::text(to, (LEFT - 6.0, bottom), Anchor::End, "0 threads");
            let cpus = f64::from(plots.cpus);
            if cpus > 0.0 && cpus < highest {
                let y = bottom - cpus / highest * STACK;
                svg::line(to, "limit", (LEFT, y), (RIGHT, y));
                svg::text(to, (LEFT - 6.0, y + 4.0), Anchor::End, &format!("{cpus} CPUs"));
            }
        });
        details(to, "as a table", |to| {
            let mut headings = vec!["from"];
            headings.extend(load.states.iter().map(|(state, _)| words::state(*state)));
            let each = steps.div_ceil(MOST_LINES).max(1);
            let lines = (0..steps).step_by(each).map(|from| {
                let mean = |values: &[f64]| {
                    let part = &values[from.min(values.len())..(from + each).min(values.len())];
                    part.iter().sum::<f64>() / each as f64
                };
                let mut line = vec![seconds((from as u64).saturating_mul(load.step_ns))];
                let cells =
                    load.states.iter().map(|(_, it)| Cell::Number(format!("{:.2}", mean(it))));
                line.extend(cells);
                line
            });
            table(to, &headings, lines.collect());
        });
    });
}

/// The outline of a state on top of those below it, which are in `ground`.
fn band(ground: &mut [f64], values: &[f64], step_ns: u64, window_ns: u64, highest: f64) -> String {
    let window_s = window_ns as f64 / 1e9;
    let x = |step: usize| svg::number(axis::at(step as f64 * step_ns as f64 / 1e9, window_s));
    let y = |value: f64| svg::number(ABOVE + STACK - value / highest * STACK);
    let mut path = format!("M{LEFT} {}", y(ground[0]));
    let value = |step: usize| values.get(step).copied().unwrap_or(0.0);
    for (step, below) in ground.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(path, "V{}H{}", y(below + value(step)), x(step + 1));
    }
    for (step, below) in ground.iter_mut().enumerate().rev() {
        let _ = write!(path, "V{}H{}", y(*below), x(step));
        *below += value(step);
    }
    path.push('z');
    path
}

/// How busy a device was, what happened meanwhile, and how long its requests took.
pub(super) fn device(to: &mut Markup, plot: &DevicePlot, window_ns: u64) {
    let window_s = window_ns as f64 / 1e9;
    let name = identifier(&plot.device, DEVICE_COLUMNS);
    let step = duration(plot.step_ns as f64);
    let bottom = BUSY + GAP + plot.marks.len() as f64 * (MARKS + GAP);
    to.element("figure", &none(), |to| {
        let about = format!(
            "how busy {name} was, in steps of {step}: the mean dark, the busiest step light; and what happened meanwhile"
        );
        to.prose("figcaption", &none(), &about);
        let described = format!("busy share of {name} over time").replace('`', "");
        let shapes = TimePlot { label: &described, from_s: 0.0, seconds: window_s, top: 0.0, bottom };
        let top = |row: usize| BUSY + GAP + row as f64 * (MARKS + GAP);
        let moving = |to: &mut Markup| {
            let (mean, most) = columns(plot, window_ns);
            for (colour, values) in [("c-busiest", most), ("c-busy", mean)] {
                let path = skyline(&values);
                if !path.is_empty() {
                    to.element("path", &class(colour).and("d", path), |_| {});
                }
            }
            for (i, (_, spans)) in plot.marks.iter().enumerate() {
                for span in spans {
                    let from = axis::at(span.t0_ns as f64 / 1e9, window_s);
                    let until = axis::at(span.t1_ns as f64 / 1e9, window_s);
                    svg::rect(to, "c-span", (from, top(i)), ((until - from).max(1.5), MARKS));
                }
            }
        };
        shapes.write(to, moving, |to| {
            svg::line(to, "axis", (LEFT, BUSY), (RIGHT, BUSY));
            svg::text(to, (LEFT - 6.0, BUSY / 2.0 + 4.0), Anchor::End, "busy");
            for (i, (name, _)) in plot.marks.iter().enumerate() {
                let ground = top(i) + MARKS;
                svg::text(to, (LEFT - 6.0, ground - 2.0), Anchor::End, name);
                svg::line(to, "grid", (LEFT, ground), (RIGHT, ground));
            }
        });
        details(to, "as a table", |to| numbers(to, plot, window_ns));
    });
    for (op, latency) in &plot.requests {
        let what = match op {
            IoOp::Read => "reads",
            IoOp::Write => "writes",
            IoOp::Other => "other requests",
        };
        let about = format!("how long {what} of {name} took");
        heat::write(to, latency, window_ns, &about, what);
    }
}

/// Columns of a pixel: the mean and the greatest of the steps in each.
fn columns(plot: &DevicePlot, window_ns: u64) -> (Vec<f64>, Vec<f64>) {
    let number = (RIGHT - LEFT) as usize;
    let steps = window_ns.div_ceil(plot.step_ns.max(1)) as usize;
    let (mut mean, mut most) = (Vec::with_capacity(number), Vec::with_capacity(number));
    for column in 0..number {
        let from = column * steps / number;
        let to = ((column + 1) * steps / number).max(from + 1);
        let known = &plot.busy[from.min(plot.busy.len())..to.min(plot.busy.len())];
        mean.push(known.iter().sum::<f64>() / (to - from) as f64);
        most.push(known.iter().copied().fold(0.0, f64::max));
    }
    (mean, most)
}

/// The outline of values of a pixel each.
fn skyline(values: &[f64]) -> String {
    let mut path = String::new();
    let mut at = 0.0;
    for (i, value) in values.iter().enumerate() {
        let height = (svg::visible(*value) * BUSY).round();
        if height != at {
            if path.is_empty() {
                let _ = write!(path, "M{LEFT} {BUSY}");
            }
            let _ = write!(path, "H{}V{}", LEFT + i as f64, BUSY - height);
            at = height;
        }
    }
    if !path.is_empty() {
        let _ = write!(path, "H{}V{BUSY}z", LEFT + values.len() as f64);
    }
    path
}

pub(super) fn seconds(t_ns: u64) -> Cell {
    Cell::Number(format!("{} s", (t_ns / 1_000_000) as f64 / 1e3))
}

fn numbers(to: &mut Markup, plot: &DevicePlot, window_ns: u64) {
    let steps = window_ns.div_ceil(plot.step_ns.max(1)) as usize;
    let each = steps.div_ceil(MOST_LINES).max(1);
    let mut lines = Vec::new();
    for from in (0..steps).step_by(each) {
        let known = &plot.busy[from.min(plot.busy.len())..(from + each).min(plot.busy.len())];
        let (t0_ns, t1_ns) = (
            (from as u64).saturating_mul(plot.step_ns),
            ((from + each) as u64).saturating_mul(plot.step_ns),
        );
        let mut line = vec![
            seconds(t0_ns),
            Cell::Number(share(known.iter().sum::<f64>() / each as f64)),
            Cell::Number(share(known.iter().copied().fold(0.0, f64::max))),
        ];
        for (_, spans) in &plot.marks {
            let within = spans.iter().filter(|it| it.t0_ns < t1_ns && it.t1_ns >= t0_ns).count();
            let text = if within > 0 { within.to_string() } else { String::new() };
            line.push(Cell::Number(text));
        }
        lines.push(line);
    }
    let mut headings = vec!["from", "busy", "busiest step"];
    headings.extend(plot.marks.iter().map(|(name, _)| *name));
    table(to, &headings, lines);
}
