// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The time axis that all plots over the window share: what is at one time is at one place in each of them. The script of
//! the page moves a cursor over all of them, and zooms them together.

use super::markup::{Markup, class};
use super::svg::{self, Anchor, WIDTH};

/// Where the time begins and ends, right of the names.
pub(super) const LEFT: f64 = 120.0;
pub(super) const RIGHT: f64 = WIDTH - 14.0;
/// Room for the times.
pub(super) const HEIGHT: f64 = 20.0;

/// A plot over time.
pub(super) struct TimePlot<'t> {
    /// What it shows, for who does not see it.
    pub(super) label: &'t str,
    /// Where its time begins, and how long it is.
    pub(super) from_s: f64,
    pub(super) seconds: f64,
    /// Where its lines at round times begin, and where they end above the times.
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl TimePlot<'_> {
    /// Writes it: `moving` draws what belongs to a time, `fixed` names and axes.
    pub(super) fn write(
        &self,
        to: &mut Markup,
        moving: impl FnOnce(&mut Markup),
        fixed: impl FnOnce(&mut Markup),
    ) {
        // Only a plot of the window, from its start on, can follow the others.
        let follows = self.from_s == 0.0 && self.seconds > 0.0;
        let attributes = svg::plot_attributes(self.bottom + HEIGHT, self.label);
        let attributes = match follows {
            true => attributes.and("data-seconds", svg::number(self.seconds * 1e3) / 1e3),
            false => attributes,
        };
        let kind = if follows { "plot time" } else { "plot" };
        to.element("svg", &attributes.and("class", kind), |to| {
            let ticks = svg::ticks(self.from_s, self.seconds);
            for x in ticks.iter().map(|t| self.at(*t)) {
                svg::line(to, "grid tick", (x, self.top), (x, self.bottom));
            }
            let (width, bottom) = (svg::number(RIGHT - LEFT), svg::number(self.bottom));
            let inner = class("span")
                .and("x", LEFT)
                .and("y", 0)
                .and("width", width)
                .and("height", bottom)
                .and("viewBox", format_args!("{LEFT} 0 {width} {bottom}"))
                .and("preserveAspectRatio", "none");
            to.element("svg", &inner, moving);
            fixed(to);
            for t in ticks {
                let at = (self.at(t), self.bottom + 16.0);
                svg::classed_text(to, "tick", at, Anchor::Middle, &format!("{t} s"));
            }
        });
    }

    /// Where a time is.
    fn at(&self, t_s: f64) -> f64 {
        at(t_s - self.from_s, self.seconds)
    }
}

/// Where a time is on an axis of that length.
pub(super) fn at(t_s: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { LEFT + (t_s / seconds).clamp(0.0, 1.0) * (RIGHT - LEFT) } else { LEFT }
}
