// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The knee of a variant: the rate up to which it keeps up.

use super::{Point, Setup};
use serde::{Deserialize, Serialize};

/// The knee of one variant.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// Index of the variant.
    pub variant: usize,
    /// Highest rate up to which the variant kept up with every rate; absent if it kept up with none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub good_per_s: Option<f64>,
    /// Lowest rate with which it did not keep up; absent if it kept up with all rates that could be judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bad_per_s: Option<f64>,
    /// Why it did not keep up with `bad_per_s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<KneeReason>,
    /// Lowest rate that cannot be judged, because the generator itself did not keep up with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_per_s: Option<f64>,
}

/// Reason for which a service does not keep up with a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KneeReason {
    /// It answers requests at less than 95 % of the rate.
    Behind,
    /// More than 1 % of the requests fail.
    Failures,
    /// The 99th percentile of latency is above the accepted one.
    Latency,
}

/// A service that answers less than this share of the rate falls behind. Chance changes the share by far less: by one
/// request more or less at the ends of the window.
const KEEPS_UP: f64 = 0.95;
/// Highest share of failures that is accepted.
const FAILED: f64 = 0.01;
/// Without a value from the user, the accepted 99th percentile is this many times the lowest one that was measured, ...
pub(super) const P99_FACTOR: f64 = 10.0;
/// ... but at least this, about one time slice of the scheduler: on any host a thread occasionally waits that long.
pub(super) const P99_FLOOR_NS: f64 = 5e6;

/// Highest accepted 99th percentile of latency, in nanoseconds; `None` if no 99th percentile was measured.
pub(super) fn accepted_ns(setup: &Setup, points: &[Point]) -> Option<f64> {
    if let Some(accepted_ns) = setup.accepted_p99_ns {
        return Some(accepted_ns as f64);
    }
    let lowest =
        points.iter().filter_map(|point| point.p99_ns).map(|it| it.value).min_by(f64::total_cmp);
    lowest.map(|ns| (ns * P99_FACTOR).max(P99_FLOOR_NS))
}

/// The knee of each variant with at least one run; none for a command.
pub(super) fn knees(setup: &Setup, points: &[Point]) -> Vec<Knee> {
    let accepted_ns = accepted_ns(setup, points);
    let of = |variant: usize| {
        let mut knee =
            Knee { variant, good_per_s: None, bad_per_s: None, reason: None, unknown_per_s: None };
        let mut any = false;
        for point in points.iter().filter(|point| point.variant == variant) {
            let rate = point.rate_per_s?;
            any = true;
            match fault(point, rate, accepted_ns) {
                None => knee.good_per_s = Some(rate),
                Some(KneeReason::Failures) => {
                    (knee.bad_per_s, knee.reason) = (Some(rate), Some(KneeReason::Failures));
                    break;
                }
                Some(_) if point.generator_late => {
                    knee.unknown_per_s = Some(rate);
                    break;
                }
                reason => {
                    (knee.bad_per_s, knee.reason) = (Some(rate), reason);
                    break;
                }
            }
        }
        any.then_some(knee)
    };
    (0..setup.variants.len()).filter_map(of).collect()
}

/// Why a variant does not keep up with a rate; `None` if it does keep up.
fn fault(point: &Point, rate: f64, accepted_ns: Option<f64>) -> Option<KneeReason> {
    if point.failed_share > FAILED {
        return Some(KneeReason::Failures);
    }
    let answered = point.answered_per_s.map_or(0.0, |it| it.value);
    if answered < rate * KEEPS_UP {
        return Some(KneeReason::Behind);
    }
    let p99_ns = point.p99_ns.or(point.mean_ns)?.value;
    (p99_ns > accepted_ns?).then_some(KneeReason::Latency)
}
