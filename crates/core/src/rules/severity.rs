// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Severity of a loss of time, by what the victim lost and nothing else. Two thresholds must both be reached: an absolute
//! loss that is noticeable, and a share of the time in which the victim wanted to run that is above the noise of a busy
//! process. A victim that hardly runs never reaches the highest absolute loss: it is rated by what each of its turns
//! loses on average, with the measure that is used for tails.

use super::Limit;
use crate::finding::Severity;

pub(super) const LOW_LOST: Limit = Limit {
    name: "low_lost",
    value: 20.0,
    unit: "ms of each second",
    why: "less is what a healthy host does to anybody who wakes up often",
};
pub(super) const LOW_SHARE: Limit = Limit {
    name: "low_share",
    value: 0.10,
    unit: "of the time in which the victim wanted to run",
    why: "less makes nothing more than a tenth slower",
};
pub(super) const MEDIUM_LOST: Limit = Limit {
    name: "medium_lost",
    value: 30.0,
    unit: "ms of each second",
    why: "with 10 requests a second, each loses 3 ms on average",
};
pub(super) const MEDIUM_SHARE: Limit = Limit {
    name: "medium_share",
    value: 0.15,
    unit: "of the time in which the victim wanted to run",
    why: "above what random arrivals on a half-loaded host cost",
};
pub(super) const HIGH_LOST: Limit = Limit {
    name: "high_lost",
    value: 100.0,
    unit: "ms of each second",
    why: "a tenth of a CPU's time goes into waiting",
};
pub(super) const HIGH_SHARE: Limit = Limit {
    name: "high_share",
    value: 0.20,
    unit: "of the time in which the victim wanted to run",
    why: "everything takes a quarter longer on average, and the tail much more",
};
pub(super) const DOMINANT_SHARE: Limit = Limit {
    name: "dominant_share",
    value: 0.5,
    unit: "of the time in which the victim wanted to run",
    why: "what takes twice as long is `high` from `medium_lost` on, however little the victim runs, if `dominant_turn` \
          is reached too",
};
pub(super) const DOMINANT_TURN: Limit = Limit {
    name: "dominant_turn",
    value: 20.0,
    unit: "ms lost for each turn on a CPU, on average",
    why: "the same as `tail_high_added`: people notice a tenth of a second, and a request may wait five times",
};

/// The limits that [`of_turns`] uses, for the `limits` of rules.
pub(super) const LOSS_LIMITS: [Limit; 8] = [
    LOW_LOST,
    LOW_SHARE,
    MEDIUM_LOST,
    MEDIUM_SHARE,
    HIGH_LOST,
    HIGH_SHARE,
    DOMINANT_SHARE,
    DOMINANT_TURN,
];

/// Severity of a loss of `lost_ns_per_s` nanoseconds per second that is `share` (0..1) of the time in which the victim
/// wanted to run; `None` below the limits. What each of its turns loses is not known.
pub(super) fn of_loss(lost_ns_per_s: u64, share: f64) -> Option<Severity> {
    of_turns(lost_ns_per_s, share, None)
}

/// The same where it is known what each turn of the victim on a CPU loses on average (`per_turn_ns`).
pub(super) fn of_turns(
    lost_ns_per_s: u64,
    share: f64,
    per_turn_ns: Option<u64>,
) -> Option<Severity> {
    let lost_ms = lost_ns_per_s as f64 / 1e6;
    let reaches = |lost: &Limit, wanted: &Limit| lost_ms >= lost.value && share >= wanted.value;
    let turns = per_turn_ns.is_some_and(|ns| ns as f64 / 1e6 >= DOMINANT_TURN.value);
    let twice_as_long = turns && share >= DOMINANT_SHARE.value;
    if reaches(&HIGH_LOST, &HIGH_SHARE) || (twice_as_long && reaches(&MEDIUM_LOST, &MEDIUM_SHARE)) {
        Some(Severity::High)
    } else if reaches(&MEDIUM_LOST, &MEDIUM_SHARE) {
        Some(Severity::Medium)
    } else if reaches(&LOW_LOST, &LOW_SHARE) {
        Some(Severity::Low)
    } else {
        None
    }
}

/// How near a loss came to the lowest limits: 1 is at the limits, less is below.
pub(super) fn nearness(lost_ns_per_s: u64, share: f64) -> f64 {
    (lost_ns_per_s as f64 / 1e6 / LOW_LOST.value).min(share / LOW_SHARE.value)
}

/// One severity level lower, but no lower than `Info`.
pub(super) fn lowered(severity: Severity) -> Severity {
    match severity {
        Severity::High => Severity::Medium,
        Severity::Medium => Severity::Low,
        Severity::Low | Severity::Info => Severity::Info,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_time_and_share_must_be_lost() {
        assert_eq!(of_loss(900_000_000, 0.02), None, "a busy host-wide service loses a little");
        assert_eq!(of_loss(1_000_000, 0.9), None, "somebody who hardly ever runs");
        assert_eq!(of_loss(212_000_000, 0.21), Some(Severity::High));
        assert_eq!(of_loss(22_000_000, 0.12), Some(Severity::Low));
        assert_eq!(of_loss(22_000_000, 0.9), Some(Severity::Low), "little is little");
    }

    #[test]
    fn a_small_victim_is_badly_hit_if_its_turns_are() {
        // 2 requests a second wait 30 ms each, 10 wait 3.2 ms each, 3 000 wait 11 us each.
        assert_eq!(of_turns(60_000_000, 0.6, Some(30_000_000)), Some(Severity::High));
        assert_eq!(of_turns(32_000_000, 0.6, Some(3_200_000)), Some(Severity::Medium));
        assert_eq!(of_turns(32_000_000, 0.6, Some(11_000)), Some(Severity::Medium));
        assert_eq!(of_loss(32_000_000, 0.6), Some(Severity::Medium), "not known");
        assert_eq!(of_turns(22_000_000, 0.9, Some(22_000_000)), Some(Severity::Low));
        assert_eq!(of_turns(60_000_000, 0.4, Some(30_000_000)), Some(Severity::Medium));
        assert_eq!(of_turns(212_000_000, 0.6, Some(11_000)), Some(Severity::High), "much is much");
    }

    proptest! {
        #[test]
        fn losing_more_is_never_less_severe(
            lost in 0..300_000_000u64, more in 0..300_000_000u64,
            share in 0.0..1.0f64, up in 0.0..1.0f64,
            turn in 0..60_000_000u64, longer in 0..60_000_000u64,
        ) {
            let more = of_turns(lost + more, (share + up).min(1.0), Some(turn + longer));
            prop_assert!(of_turns(lost, share, Some(turn)) <= more);
            prop_assert!(of_loss(lost, share) <= of_turns(lost, share, Some(turn)), "knowing less is no reason for more");
        }

        #[test]
        fn what_is_reported_reaches_both_limits(
            lost in 0..300_000_000u64, share in 0.0..1.0f64, turn in prop::option::of(0..60_000_000u64),
        ) {
            prop_assert_eq!(of_turns(lost, share, turn).is_some(), nearness(lost, share) >= 1.0);
        }

        #[test]
        fn high_is_a_tenth_of_a_cpu_or_turns_that_take_twice_as_long(
            lost in 0..300_000_000u64, share in 0.0..1.0f64, turn in 0..60_000_000u64,
        ) {
            if of_turns(lost, share, Some(turn)) == Some(Severity::High) {
                prop_assert!(lost >= 100_000_000 || (share >= 0.5 && turn >= 20_000_000));
            }
        }
    }
}
