// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Confidence of a finding: the product of named factors, each 0..1, listed in the evidence.

use crate::finding::{Evidence, Unit};
use crate::rules::observer::losses;
use crate::view::View;

/// A shorter window, in seconds, lowers the confidence: it may show a coincidence.
const SETTLED_WINDOW_S: f64 = 5.0;
/// Number of samples at which their factor is 0.5.
const HALF_DOUBT_SAMPLES: f64 = 5.0;

/// The factors so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Confidence {
    parts: Vec<(&'static str, f64)>,
}

impl Confidence {
    /// The factors that apply to every finding of a view: the length of the window, and the events that the observer
    /// lost.
    pub(super) fn of(view: &View) -> Self {
        let window_s = view.window_ns() as f64 / 1e9;
        Self::default()
            .with("window", 0.5 + 0.5 * (window_s / SETTLED_WINDOW_S).min(1.0))
            .with("losses", 1.0 - 0.5 * losses::worst_share(view).min(1.0))
    }

    /// Adds a factor, clamped to 0..1.
    pub(super) fn with(mut self, name: &'static str, part: f64) -> Self {
        self.parts.push((name, part.clamp(0.0, 1.0)));
        self
    }

    /// Adds the factor for the number of samples: n / (n + [`HALF_DOUBT_SAMPLES`]).
    pub(super) fn with_samples(self, samples: u64) -> Self {
        let samples = samples as f64;
        self.with("samples", samples / (samples + HALF_DOUBT_SAMPLES))
    }

    /// The product, rounded to two decimals.
    pub(super) fn value(&self) -> f64 {
        (self.parts.iter().map(|(_, part)| part).product::<f64>() * 100.0).round() / 100.0
    }

    /// Evidence line that lists the factors.
    pub(super) fn evidence(&self, view: &View) -> Evidence {
        let parts: Vec<_> =
            self.parts.iter().map(|(name, part)| format!("{name} {part:.2}")).collect();
        Evidence {
            name: "confidence".into(),
            value: self.value(),
            unit: Unit::Ratio,
            source: "deburr".into(),
            from_s: 0.0,
            to_s: view.window_ns() as f64 / 1e9,
            note: Some(format!("product of: {}", parts.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Confidence;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn doubts_only_add_up(parts in prop::collection::vec(-1.0..2.0f64, 0..6), more in -1.0..2.0f64) {
            let all = parts.iter().fold(Confidence::default(), |sum, &part| sum.with("part", part));
            prop_assert!((0.0..=1.0).contains(&all.value()));
            prop_assert!(all.clone().with("more", more).value() <= all.value());
        }

        #[test]
        fn more_samples_are_surer(few in 0..1000u64, more in 0..1000u64) {
            let sure = |samples| Confidence::default().with_samples(samples).value();
            prop_assert!(sure(few) <= sure(few + more));
        }
    }
}
