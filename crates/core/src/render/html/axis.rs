// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The time axis that all plots over the window share: what is at one time is at one place in each of them.

use super::markup::Markup;
use super::svg::{self, Anchor, WIDTH};

/// Where the time begins and ends, right of the names.
pub(super) const LEFT: f64 = 120.0;
pub(super) const RIGHT: f64 = WIDTH - 14.0;
/// Room for the times.
pub(super) const HEIGHT: f64 = 20.0;

/// Lines at round times from `top` to `bottom`, and the times below them.
pub(super) fn time(to: &mut Markup, window_s: f64, (top, bottom): (f64, f64)) {
    for t in svg::ticks(0.0, window_s) {
        let x = at(t, window_s);
        svg::line(to, "grid", (x, top), (x, bottom));
        svg::text(to, (x, bottom + 16.0), Anchor::Middle, &format!("{t} s"));
    }
}

/// Where a time is.
pub(super) fn at(t_s: f64, window_s: f64) -> f64 {
    if window_s > 0.0 { LEFT + (t_s / window_s).clamp(0.0, 1.0) * (RIGHT - LEFT) } else { LEFT }
}
