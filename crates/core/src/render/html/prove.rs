// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The blocks of an experiment: numbers by time, from zero on. Arms differ in shape, line and colour.

use super::super::prove_plot::{Level, Mark, ProvePlot, Shown, Sign};
use super::blocks::shown;
use super::details;
use super::markup::{Markup, class, none};
use super::svg::{self, Anchor, WIDTH};
use crate::text::units::duration;
use std::collections::BTreeSet;
use std::fmt::Write as _;

const LEFT: f64 = 80.0;
/// Room at the right for the numbers of lines.
const RIGHT: f64 = WIDTH - 76.0;
const TOP: f64 = 12.0;
const HEIGHT: f64 = 210.0;
const GROUND: f64 = TOP + HEIGHT;
/// Height of a row below the axis: values of the setting, missing numbers, and the time.
const ROW: f64 = 18.0;
/// Room between the axis and the first of them.
const BELOW: f64 = 7.0;
/// Half of a mark, and of a dot where a block has many.
const MARK: f64 = 4.5;
const DOT: f64 = 3.0;
/// Least width of a block.
const NARROW: f64 = 6.0;
/// Least distance of two texts, one below the other, and of two multiples.
const LINE: f64 = 14.0;
const BETWEEN: f64 = 7.0;
/// Most multiples of what is predicted.
const MULTIPLES: u32 = 12;
/// Room for a character of a label.
const CHARACTER: f64 = 7.5;
/// Dots at one place of this size are one dot.
const PLACE: f64 = 2.0;

/// The plot, and its table.
pub(super) fn write(to: &mut Markup, of: &ProvePlot) {
    to.element("figure", &none(), |to| {
        to.prose("figcaption", &none(), &of.caption);
        legend(to, of);
        let plot = Drawn::of(of);
        svg::plot(to, plot.bottom() + ROW + BELOW, &of.described.replace('`', ""), |to| {
            plot.draw(to);
        });
        for note in &of.notes {
            to.prose("p", &class("aside"), note);
        }
        details(to, "as a table", |to| shown(to, &of.table));
    });
}

fn legend(to: &mut Markup, of: &ProvePlot) {
    to.element("ul", &class("legend"), |to| {
        for (sign, name) in &of.legend {
            to.element("li", &none(), |to| {
                sample(to, of, *sign);
                to.words(&format!(" {name}"));
            });
        }
    });
}

/// A sample of a mark or a line.
fn sample(to: &mut Markup, of: &ProvePlot, sign: Sign) {
    let attributes = class("swatch")
        .and("aria-hidden", "true")
        .and("viewBox", "0 0 30 12")
        .and("width", 30)
        .and("height", 12);
    let (ends, middle) = ([2.0, 28.0], (15.0, 6.0));
    to.element("svg", &attributes, |to| match sign {
        Sign::Mark(mark, has_line) => {
            if has_line {
                level(to, mark, ends, middle.1);
            }
            put(to, mark, middle, size(mark), false);
        }
        Sign::Predicted => predicted(to, ends, middle.1, 1),
        Sign::Multiple => predicted(to, ends, middle.1, 2),
        Sign::Level => level(to, Mark::Plain, ends, middle.1),
        Sign::Missing => {
            // As many shapes as there are.
            let marks: &[Mark] = match of.blocks.iter().all(|it| it.mark == Mark::Plain) {
                true => &[Mark::Plain],
                false => &[Mark::Before, Mark::Changed],
            };
            for (i, mark) in marks.iter().enumerate() {
                put(to, *mark, (8.0 + 14.0 * i as f64, 6.0), MARK, true);
            }
        }
    });
}

fn size(mark: Mark) -> f64 {
    if mark == Mark::Plain { DOT } else { MARK }
}

fn colour(mark: Mark) -> &'static str {
    match mark {
        Mark::Before => svg::colour(0),
        Mark::Changed => svg::colour(1),
        Mark::Plain => "dot",
    }
}

/// A mark around a point; a hollow one says that there is no number.
fn put(to: &mut Markup, mark: Mark, (x, y): (f64, f64), half: f64, is_hollow: bool) {
    let outline = |half: f64, sweep: u8| {
        let (left, half, wide) =
            (svg::number(x - half), svg::number(half), svg::number(2.0 * half));
        let y = svg::number(y);
        match mark {
            // The inner outline runs the other way round, so that what is between is filled.
            Mark::Changed if sweep == 0 => {
                format!("M{left} {y}l{half} {half} {half} -{half} -{half} -{half}z")
            }
            Mark::Changed => format!("M{left} {y}l{half} -{half} {half} {half} -{half} {half}z"),
            _ => format!(
                "M{left} {y}a{half} {half} 0 1 {sweep} {wide} 0a{half} {half} 0 1 {sweep} -{wide} 0z"
            ),
        }
    };
    // A diamond is as large as a circle if it is somewhat longer.
    let half = if mark == Mark::Changed { half * 1.2 } else { half };
    let mut path = outline(half, 0);
    if is_hollow {
        path += &outline(half - 1.5, 1);
    }
    to.element("path", &class(colour(mark)).and("d", path), |_| {});
}

/// A line across all blocks. That of the changed ones is dashed.
fn level(to: &mut Markup, mark: Mark, [from, until]: [f64; 2], y: f64) {
    match mark {
        Mark::Before => svg::line(to, &format!("line {}", colour(mark)), (from, y), (until, y)),
        Mark::Changed => {
            let mut path = String::new();
            let mut x = from;
            while x < until {
                // Writing to a String cannot fail.
                let _ = write!(
                    path,
                    "M{} {}H{}",
                    svg::number(x),
                    svg::number(y),
                    svg::number((x + 6.0).min(until))
                );
                x += 10.0;
            }
            to.element(
                "path",
                &class(format_args!("line {}", colour(mark))).and("d", path),
                |_| {},
            );
        }
        Mark::Plain => svg::line(to, "limit", (from, y), (until, y)),
    }
}

/// What a setting predicts, or a multiple of it.
fn predicted(to: &mut Markup, [from, until]: [f64; 2], y: f64, multiple: u32) {
    let name = if multiple == 1 { "line v-1" } else { "v-1" };
    svg::line(to, name, (from, y), (until, y));
}

/// The plot with its scales.
struct Drawn<'p> {
    of: &'p ProvePlot,
    /// Number at the upper end of the axis, and the distance of its marks.
    top_ns: f64,
    step_ns: f64,
    /// Whether there is a row of the values of the setting, and one of missing numbers.
    has_settings: bool,
    has_missing: bool,
}

impl<'p> Drawn<'p> {
    fn of(of: &'p ProvePlot) -> Self {
        let (top_ns, step_ns) = scale(of.highest_ns);
        Self {
            of,
            top_ns,
            step_ns,
            has_settings: of.blocks.iter().any(|it| it.set_to.is_some()),
            has_missing: of.blocks.iter().any(|it| it.is_missing),
        }
    }

    fn row_of_missing(&self) -> f64 {
        GROUND + BELOW + if self.has_settings { ROW } else { 0.0 } + ROW / 2.0
    }

    /// Where the rows below the axis end.
    fn bottom(&self) -> f64 {
        let rows = u8::from(self.has_settings) + u8::from(self.has_missing);
        GROUND + f64::from(rows) * ROW + if rows > 0 { BELOW } else { 0.0 }
    }

    fn x(&self, seconds: f64) -> f64 {
        let part = if self.of.seconds > 0.0 { seconds / self.of.seconds } else { 0.0 };
        LEFT + if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 } * (RIGHT - LEFT)
    }

    fn y(&self, ns: f64) -> f64 {
        let part = if self.top_ns > 0.0 { ns / self.top_ns } else { 0.0 };
        GROUND - if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 } * HEIGHT
    }

    /// Where a block begins and ends.
    fn ends(&self, block: &Shown) -> [f64; 2] {
        let (from, until) = (self.x(block.from_s), self.x(block.until_s));
        let spare = ((NARROW - (until - from)) / 2.0).max(0.0);
        [from - spare, until + spare]
    }

    fn draw(&self, to: &mut Markup) {
        self.axes(to);
        for level in &self.of.levels {
            self::level(to, level.mark, [LEFT, RIGHT], self.y(level.ns));
        }
        for block in &self.of.blocks {
            svg::group(to, &block.hint, |to| self.block(to, block));
        }
        self.numbers_of_lines(to);
    }

    fn axes(&self, to: &mut Markup) {
        let marks = (0..=10).map(|i| f64::from(i) * self.step_ns);
        for ns in marks.take_while(|ns| *ns <= self.top_ns * 1.000_001) {
            let y = self.y(ns);
            svg::line(to, "grid", (LEFT, y), (RIGHT, y));
            let shown = if ns > 0.0 { duration(ns) } else { "0".into() };
            svg::text(to, (LEFT - 6.0, y + 4.0), Anchor::End, &shown);
            if self.step_ns <= 0.0 {
                break;
            }
        }
        for pair in self.of.blocks.windows(2).skip(self.of.group - 1).step_by(self.of.group) {
            let [before, after] = pair else { continue };
            let x = (self.ends(before)[1] + self.ends(after)[0]) / 2.0;
            svg::line(to, "grid", (x, TOP), (x, self.bottom()));
        }
        svg::line(to, "axis", (LEFT, GROUND), (RIGHT, GROUND));
        if self.has_settings {
            svg::text(to, (LEFT - 6.0, GROUND + BELOW + ROW - 5.0), Anchor::End, "set to");
        }
        if self.has_missing {
            svg::text(to, (LEFT - 6.0, self.row_of_missing() + 4.0), Anchor::End, "no number");
        }
        for t in svg::ticks(0.0, self.of.seconds) {
            let at = (self.x(t), self.bottom() + ROW - 4.0);
            svg::text(to, at, Anchor::Middle, &format!("{t} s"));
        }
    }

    fn block(&self, to: &mut Markup, block: &Shown) {
        let [from, until] = self.ends(block);
        let middle = (from + until) / 2.0;
        if let Some(ns) = block.predicted_ns.filter(|ns| *ns > 0.0) {
            let between = self.y(0.0) - self.y(ns);
            let multiples = if between >= BETWEEN { MULTIPLES } else { 1 };
            for multiple in (1..=multiples).take_while(|it| ns * f64::from(*it) <= self.top_ns) {
                predicted(to, [from, until], self.y(ns * f64::from(multiple)), multiple);
            }
        }
        match (block.mark, block.values_ns.as_slice()) {
            (Mark::Plain, all) => self.dots(to, all, [from, until]),
            (mark, all) => {
                for ns in all {
                    let y = self.y(*ns);
                    svg::line(to, colour(mark), (from, y), (until, y));
                    put(to, mark, (middle, y), MARK, false);
                }
            }
        }
        if block.is_missing {
            put(to, block.mark, (middle, self.row_of_missing()), MARK, true);
        }
        if let Some(value) = &block.set_to
            && value.len() as f64 * CHARACTER <= until - from
        {
            svg::text(to, (middle, GROUND + BELOW + ROW - 5.0), Anchor::Middle, value);
        }
    }

    /// A dot for each number, side by side in their order.
    fn dots(&self, to: &mut Markup, all: &[f64], [from, until]: [f64; 2]) {
        let mut taken = BTreeSet::new();
        for (i, ns) in all.iter().enumerate() {
            let x = from + (i as f64 + 0.5) / all.len() as f64 * (until - from);
            let y = self.y(*ns);
            if taken.insert([x, y].map(|it| (it / PLACE).round() as i64)) {
                put(to, Mark::Plain, (x, y), DOT, false);
            }
        }
    }

    /// What the lines across all blocks are at, beside them.
    fn numbers_of_lines(&self, to: &mut Markup) {
        let mut levels: Vec<&Level> = self.of.levels.iter().collect();
        levels.sort_by(|a, b| b.ns.total_cmp(&a.ns));
        let mut least = TOP;
        for level in levels {
            let y = (self.y(level.ns) + 4.0).max(least);
            svg::text(to, (RIGHT + 6.0, y), Anchor::Start, &level.shown);
            least = y + LINE;
        }
    }
}

/// The upper end of an axis from 0 on with room for this number, and the distance of its marks, which are round.
fn scale(highest_ns: f64) -> (f64, f64) {
    if !highest_ns.is_finite() || highest_ns <= 0.0 {
        return (0.0, 0.0);
    }
    let (minute_ns, hour_ns) = (60e9, 3600e9);
    let unit_ns = match highest_ns {
        ns if ns < 2.0 * minute_ns => 1.0,
        ns if ns < 2.0 * hour_ns => minute_ns,
        _ => hour_ns,
    };
    let rough = highest_ns / unit_ns / 4.0;
    let power = 10f64.powf(rough.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    let step = factors.iter().map(|it| it * power).find(|step| *step >= rough).unwrap_or(rough);
    let steps = (highest_ns / unit_ns / step * 1.05).ceil();
    (steps * step * unit_ns, step * unit_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn marks_are_at_round_numbers_and_the_highest_has_room() {
        assert_eq!(scale(1e8), (1.5e8, 5e7));
        assert_eq!(scale(7.3e9), (8e9, 2e9));
        assert_eq!(scale(300e9), (360e9, 120e9));
        assert_eq!(scale(f64::NAN), (0.0, 0.0));
    }

    proptest! {
        #[test]
        fn any_number_has_a_place_below_the_end_of_its_axis(ns in prop_oneof![0.1..1e20f64, any::<f64>()]) {
            let (top, step) = scale(ns);
            if ns.is_finite() && ns > 1e-300 && ns < 1e300 {
                prop_assert!(top >= ns && top <= 3.0 * ns && top / step <= 10.0, "{ns}: {top} {step}");
            }
        }
    }
}
