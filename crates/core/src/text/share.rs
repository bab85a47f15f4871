// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A part of a whole.

use serde::{Deserialize, Serialize};

/// A part of a whole, 0..1. A number outside of this range is an error of the code that computed it. It is rejected
/// when a value is created or deserialised, so it is never shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Share(f64);

/// Tolerance for rounding errors: sums of parts may exceed their whole by that much.
const ROUNDING: f64 = 1e-9;

impl Share {
    /// The whole: 1.
    pub const WHOLE: Self = Self(1.0);

    /// A share from a ratio; `None` if it is below 0, above 1, or not a number.
    #[must_use]
    pub fn new(ratio: f64) -> Option<Self> {
        (0.0..=1.0 + ROUNDING).contains(&ratio).then(|| Self(ratio.min(1.0)))
    }

    /// The share of `part` in `whole`. A whole that was measured separately may be smaller than its part; then the
    /// share is 1. If both are 0, the share is 0.
    #[must_use]
    pub fn of(part: u64, whole: u64) -> Self {
        Self(part as f64 / whole.max(part).max(1) as f64)
    }

    /// The share nearest to a ratio: clamped to 0..1; 0 if it is not a number.
    #[must_use]
    pub fn saturating(ratio: f64) -> Self {
        Self(if ratio.is_nan() { 0.0 } else { ratio.clamp(0.0, 1.0) })
    }

    /// The share as a number, 0..1.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }
}

impl From<Share> for f64 {
    fn from(share: Share) -> Self {
        share.0
    }
}

impl TryFrom<f64> for Share {
    type Error = String;

    fn try_from(ratio: f64) -> Result<Self, String> {
        Self::new(ratio).ok_or_else(|| format!("{ratio} is no share: 0 to 1"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_share_is_refused() {
        for ratio in [-0.1, 1.001, 4.3, f64::NAN, f64::INFINITY] {
            assert_eq!(Share::new(ratio), None);
            assert!(serde_json::from_str::<Share>(&ratio.to_string()).is_err());
        }
        assert_eq!(Share::new(1.0 + 1e-12), Some(Share::WHOLE));
        assert_eq!(serde_json::from_str::<Share>("0.5").unwrap(), Share(0.5));
        assert_eq!(serde_json::to_string(&Share(0.25)).unwrap(), "0.25");
    }

    proptest! {
        #[test]
        fn a_part_is_a_share_of_whatever_it_is_of(part: u64, whole: u64) {
            prop_assert!(Share::new(Share::of(part, whole).get()).is_some());
        }
    }
}
