// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A check of CPUs: the speed of each worker by the number of workers, with what limits them, and the pairs of CPUs.

use super::super::cpu_check as words;
use super::markup::{Markup, class, none};
use super::svg::{self, Anchor, WIDTH};
use super::{Cell, details, section, table};
use crate::cpu_check::document::{CpuCheck, Document};
use crate::cpu_check::sweep::{Regime, Step};
use crate::text::escape::sentence;

const LEFT: f64 = 44.0;
const TOP: f64 = 10.0;
const HEIGHT: f64 = 180.0;
const AXIS: f64 = 34.0;
/// Widest room for a step.
const STEP: f64 = 60.0;
/// Workers whose speeds differ by less are one dot.
const SAME: f64 = 0.01;

/// The summary and the circumstances, for a page that is about the check alone.
pub(super) fn header(to: &mut Markup, document: &Document) {
    to.prose("h1", &none(), &sentence(&document.check.verdict.summary));
    to.prose("p", &class("aside"), &words::circumstances(document));
}

/// The check, as parts of a page.
pub(super) fn body(to: &mut Markup, document: &Document) {
    let check = &document.check;
    section(to, "verdict", |to| {
        to.element("dl", &class("facts"), |to| {
            for (name, text) in words::conclusions(document) {
                to.tag("dt", &none(), name);
                to.prose("dd", &none(), &text);
            }
        });
    });
    if !check.sweep.is_empty() {
        section(to, "speed of the workers", |to| speeds(to, check));
    }
    if !check.pairs.is_empty() {
        section(to, "pairs of CPUs", |to| pairs(to, check));
    }
}

fn colour(regime: Regime) -> &'static str {
    match regime {
        Regime::Even => "r-even",
        Regime::Slower => "r-slower",
        Regime::Stopped => "r-stopped",
        Regime::AllSlower => "r-all-slower",
        Regime::AllStopped => "r-all-stopped",
        Regime::Competition => "r-others",
    }
}

fn speeds(to: &mut Markup, check: &CpuCheck) {
    let cpus = check.cpus.used.len();
    to.element("figure", &none(), |to| {
        to.tag("figcaption", &none(), words::SPEED);
        let regimes = words::regimes(cpus, &check.sweep);
        let described: Vec<&str> = regimes.iter().map(|(_, text)| text.as_str()).collect();
        svg::plot(to, TOP + HEIGHT + AXIS, &described.join("; "), |to| draw(to, check));
        to.element("ul", &class("regimes"), |to| {
            for (regime, text) in &regimes {
                to.element("li", &none(), |to| {
                    svg::swatch(to, colour(*regime));
                    to.words(text);
                });
            }
        });
        details(to, "as a table", |to| {
            let mut headings = words::STEP.to_vec();
            headings.push("speeds");
            let row = |step: &Step| {
                let mut cells: Vec<Cell> = words::step(step).map(Cell::Number).into();
                let speeds: Vec<String> = step.speeds.iter().map(|it| format!("{it:.2}")).collect();
                cells.push(Cell::Words(speeds.join(" ")));
                cells
            };
            table(to, &headings, check.sweep.iter().map(row).collect());
        });
    });
}

fn draw(to: &mut Markup, check: &CpuCheck) {
    let steps = &check.sweep;
    let width = ((WIDTH - LEFT - 10.0) / steps.len() as f64).min(STEP);
    let right = LEFT + width * steps.len() as f64;
    let y = |speed: f64| TOP + (1.0 - speed.clamp(0.0, 1.0)) * HEIGHT;
    for (i, step) in steps.iter().enumerate() {
        let corner = (LEFT + i as f64 * width, TOP);
        svg::rect(to, colour(step.regime), corner, (width, HEIGHT));
    }
    for speed in [0.0, 0.25, 0.5, 0.75, 1.0] {
        svg::line(to, "grid", (LEFT, y(speed)), (right, y(speed)));
        svg::text(to, (LEFT - 6.0, y(speed) + 4.0), Anchor::End, &format!("{speed:.2}"));
    }
    let cpus = check.cpus.used.len();
    if let Some(over) =
        steps.iter().position(|step| step.workers as usize > cpus).filter(|i| *i > 0)
    {
        let x = LEFT + over as f64 * width;
        svg::line(to, "limit", (x, TOP), (x, TOP + HEIGHT));
    }
    // Where there are many steps, not each has room for its number.
    let each = (26.0 / width).ceil().max(1.0) as usize;
    for (i, step) in steps.iter().enumerate() {
        let x = LEFT + (i as f64 + 0.5) * width;
        if i % each == 0 {
            let text = step.workers.to_string();
            svg::text(to, (x, TOP + HEIGHT + 15.0), Anchor::Middle, &text);
        }
        for dot in step.speeds.chunk_by(|a, b| (a - b).abs() < SAME) {
            let speed = dot.iter().sum::<f64>() / dot.len() as f64;
            let hint = format!("{} of {} workers: {speed:.2}", dot.len(), step.workers);
            svg::group(to, &hint, |to| {
                // The area is in proportion to the number.
                let radius = (3.5 * (dot.len() as f64).sqrt()).min(width / 2.0).max(2.0);
                let place = class("dot").and("cx", svg::number(x)).and("cy", svg::number(y(speed)));
                to.element("circle", &place.and("r", svg::number(radius)), |_| {});
            });
        }
    }
    let middle = (LEFT + right) / 2.0;
    svg::text(to, (middle, TOP + HEIGHT + 30.0), Anchor::Middle, "workers at a time");
}

fn pairs(to: &mut Markup, check: &CpuCheck) {
    to.tag("p", &none(), &words::tested(&check.pairs, check.pairs_in_all));
    let row = |pair: &&crate::cpu_check::pairs::Pair| {
        let [cpus, median, range, rounds, line, what] = words::cells(pair);
        vec![
            Cell::Number(cpus),
            Cell::Number(median),
            Cell::Bar(pair.ratio.map_or(0.0, |ratio| ratio[1]), "c-count"),
            Cell::Number(range),
            Cell::Number(rounds),
            Cell::Number(line),
            Cell::Words(what),
        ]
    };
    let [cpus, median, range, rounds, line, what] = words::PAIR;
    let rows = words::slowest_first(&check.pairs).iter().take(MOST_PAIRS).map(row).collect();
    table(to, &[cpus, median, "", range, rounds, line, what], rows);
    let more = check.pairs.len().saturating_sub(MOST_PAIRS);
    if more > 0 {
        let text = format!("and {more} more, none of them slower");
        to.tag("p", &class("aside"), &text);
    }
}

/// Pairs in the table.
const MOST_PAIRS: usize = 200;
