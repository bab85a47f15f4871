// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shapes of the plots: SVG within the page, coloured by the classes of its style sheet.

use super::markup::{Attributes, Markup, class, none};

/// Width of every plot, in its own units: pixels, unless the page is narrower.
pub(super) const WIDTH: f64 = 840.0;

/// A plot with a text for who does not see it.
pub(super) fn plot(to: &mut Markup, height: f64, label: &str, draw: impl FnOnce(&mut Markup)) {
    to.element("svg", &plot_attributes(height, label).and("class", "plot"), draw);
}

/// The attributes of a plot, besides its class. A document that somebody else made may have nothing to describe.
pub(super) fn plot_attributes(height: f64, label: &str) -> Attributes {
    let label = if label.is_empty() { "nothing" } else { label };
    none()
        .and("role", "img")
        .and("aria-label", label)
        .and("viewBox", format_args!("0 0 {WIDTH} {}", number(height)))
        .and("width", WIDTH)
        .and("height", number(height))
}

/// A bar of a share within a table, whose numbers stand beside it.
pub(super) fn bar(to: &mut Markup, share: f64, colour: &'static str) {
    let attributes = class("bar")
        .and("aria-hidden", "true")
        .and("viewBox", "0 0 100 1")
        .and("preserveAspectRatio", "none");
    let bar = class(colour).and("width", number(visible(share) * 100.0)).and("height", 1);
    to.element("svg", &attributes, |to| to.element("rect", &bar, |_| {}));
}

/// Colours of series; further ones begin again.
const COLOURS: [&str; 8] = ["v-0", "v-1", "v-2", "v-3", "v-4", "v-5", "v-6", "v-7"];

/// The colour of a series.
pub(super) fn colour(series: usize) -> &'static str {
    COLOURS[series % COLOURS.len()]
}

/// The colours of series with their names, in which identifiers are in backticks.
pub(super) fn legend(to: &mut Markup, names: impl Iterator<Item = (&'static str, String)>) {
    to.element("ul", &class("legend"), |to| {
        for (colour, name) in names {
            to.element("li", &none(), |to| {
                swatch(to, colour);
                to.words(&name);
            });
        }
    });
}

/// A sample of a colour for a legend.
pub(super) fn swatch(to: &mut Markup, colour: &'static str) {
    let attributes = class("swatch").and("viewBox", "0 0 10 10").and("width", 10).and("height", 10);
    to.element("svg", &attributes, |to| rect(to, colour, (0.0, 0.0), (10.0, 10.0)));
    to.text(" ");
}

/// A share within 0..1; what is more than nothing is wide enough to be seen.
pub(super) fn visible(share: f64) -> f64 {
    if share.is_nan() || share <= 0.0 { 0.0 } else { share.clamp(0.004, 1.0) }
}

/// A rectangle from its upper left corner; nothing if it has no area.
pub(super) fn rect(to: &mut Markup, colour: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
    if width <= 0.0 || height <= 0.0 {
        return;
    }
    let attributes = class(colour)
        .and("x", number(x))
        .and("y", number(y))
        .and("width", number(width))
        .and("height", number(height));
    to.element("rect", &attributes, |_| {});
}

/// A straight line.
pub(super) fn line(to: &mut Markup, colour: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let attributes = class(colour)
        .and("x1", number(x1))
        .and("y1", number(y1))
        .and("x2", number(x2))
        .and("y2", number(y2));
    to.element("line", &attributes, |_| {});
}

/// Where a text stands.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Text on a coloured shape.
pub(super) fn label(to: &mut Markup, (x, y): (f64, f64), text: &str) {
    let attributes = class("on").and("x", number(x)).and("y", number(y));
    to.tag("text", &attributes.and("text-anchor", "middle"), text);
}

/// Text in a plot.
pub(super) fn text(to: &mut Markup, at: (f64, f64), anchor: Anchor, text: &str) {
    place(to, none(), at, anchor, text);
}

/// Text in a plot, of a class.
pub(super) fn classed_text(
    to: &mut Markup,
    name: &'static str,
    at: (f64, f64),
    anchor: Anchor,
    text: &str,
) {
    place(to, class(name), at, anchor, text);
}

fn place(to: &mut Markup, with: Attributes, (x, y): (f64, f64), anchor: Anchor, text: &str) {
    let anchor = match anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    };
    let attributes = with.and("x", number(x)).and("y", number(y)).and("text-anchor", anchor);
    to.tag("text", &attributes, text);
}

/// What a pointer that rests on a shape shows.
pub(super) fn group(to: &mut Markup, title: &str, draw: impl FnOnce(&mut Markup)) {
    to.element("g", &Attributes::default(), |to| {
        to.tag("title", &none(), title);
        draw(to);
    });
}

/// A number of pixels, to a tenth.
pub(super) fn number(value: f64) -> f64 {
    if value.is_finite() { (value * 10.0).round() / 10.0 } else { 0.0 }
}

/// Times at which an axis from `from` over `seconds` has marks: at most about ten, at round numbers.
pub(super) fn ticks(from: f64, seconds: f64) -> Vec<f64> {
    // Beyond these there are no round numbers between two marks.
    if !(from.abs() < 1e9 && seconds > 1e-3 && seconds < 1e9 && seconds > from.abs() * 1e-6) {
        return vec![];
    }
    let rough = seconds / 8.0;
    let power = 10f64.powf(rough.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    let step = factors.iter().map(|it| it * power).find(|step| *step >= rough).unwrap_or(rough);
    let first = (from / step).ceil() as i64;
    (first..first + 12)
        .map(|i| i as f64 * step)
        .filter(|t| *t <= from + seconds * 1.000_001)
        .map(|t| (t * 1e6).round() / 1e6)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn marks_are_at_round_times() {
        assert_eq!(ticks(0.0, 30.0), [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0]);
        assert_eq!(ticks(1.5, 2.0), [1.5, 2.0, 2.5, 3.0, 3.5]);
        assert!(ticks(0.0, f64::NAN).is_empty() && ticks(0.0, 0.0).is_empty());
    }

    proptest! {
        #[test]
        fn there_are_few_marks_and_all_are_within(from in any::<f64>(), seconds in any::<f64>()) {
            let marks = ticks(from, seconds);
            prop_assert!(marks.len() <= 12);
            for t in marks {
                prop_assert!(t >= from - 1e-5 && t <= from + seconds * 1.001 + 1e-5);
            }
        }
    }
}
