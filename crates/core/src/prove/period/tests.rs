// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verdicts of given periods, and that the error rates are exact over all orders.

use super::super::experiment::FACTORS;
use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const VALUES: [f64; 4] = [5e9, 3.5e9, 8.5e9, 6.5e9];

/// A round with these values, and what is observed at each.
fn round(values: [f64; 4], observed: impl Fn(f64) -> Option<f64>) -> Vec<PeriodBlock> {
    let block = |value: f64| PeriodBlock { predicted_ns: value, observed_ns: observed(value) };
    values.map(block).into()
}

fn verdict(rounds: &[Vec<PeriodBlock>]) -> Verdict {
    judge_periods(rounds).unwrap().verdict
}

#[test]
fn a_period_that_follows_is_confirmed_and_one_that_stays_is_refuted() {
    let it = judge_periods(&[round(VALUES, |value| Some(value * 1.02 + 3e7))]).unwrap();
    assert_eq!(it.verdict, Verdict::Confirmed, "{it:?}");
    assert!((it.independent.p - 1.0 / 24.0).abs() < 1e-9 && it.misfit < 0.05, "{it:?}");
    for stays in [5e9, 2e9, 3.5e9, 9e9] {
        let it = judge_periods(&[round(VALUES, |_| Some(stays))]).unwrap();
        assert_eq!(it.verdict, Verdict::Refuted, "{stays}: {it:?}");
        assert!(it.spread < 1e-9, "{it:?}");
    }
}

#[test]
fn a_multiple_does_not_fit_and_too_little_is_no_judgement() {
    for times in [0.5, 2.0, 3.0] {
        let it = round(VALUES, |value| Some(times * value));
        let it = verdict(&[it.clone(), it.clone(), it]);
        assert!(matches!(it, Verdict::Inconclusive { .. }), "{times}: {it:?}");
    }
    assert_eq!(judge_periods(&[]), None);
    assert_eq!(judge_periods(&[round(VALUES, |_| None)]), None);
    assert_eq!(judge_periods(&[round(VALUES, |_| Some(0.0))]), None);
    assert_eq!(judge_periods(&[round([0.0; 4], |_| Some(1.0))]), None);
    assert_eq!(judge_periods(&[round(VALUES, Some)[..3].to_vec()]), None);
}

#[test]
fn a_wild_block_and_a_missing_one_are_borne() {
    let follows = round(VALUES, Some);
    for odd in [Some(30e9), None] {
        for at in 0..4 {
            let mut first = follows.clone();
            first[at].observed_ns = odd;
            let it = judge_periods(&[first, follows.clone()]).unwrap();
            assert_eq!(it.verdict, Verdict::Confirmed, "{odd:?} {at}: {it:?}");
        }
    }
    let halves = round(VALUES, |value| (value > 5e9).then_some(value));
    let reason = Reason::NumbersMissing;
    assert_eq!(
        verdict(&[halves.clone(), halves.clone(), halves]),
        Verdict::Inconclusive { reason }
    );
}

/// A period that stays what it is at one value, or its half, double or triple, fits no other value.
#[test]
fn no_value_is_near_a_multiple_of_another() {
    for (at, one) in FACTORS.iter().enumerate() {
        for other in FACTORS.iter().enumerate().filter(|it| it.0 != at).map(|it| it.1) {
            for times in [1.0, 2.0, 3.0] {
                let distance = (times * one / other).ln().abs().exp() - 1.0;
                assert!(distance > MISFIT, "{times} * {one} is near {other}: {distance}");
            }
        }
    }
}

#[test]
fn all_orders_are_drawn_and_tested() {
    let tested: BTreeSet<String> =
        orders(&[1.0, 2.0, 3.0, 4.0]).iter().map(|order| format!("{order:?}")).collect();
    assert_eq!(tested.len(), 24);
    let mut drawn = std::collections::BTreeMap::new();
    for seed in 0..2_400 {
        *drawn.entry(order(seed, 1, 4)).or_insert(0) += 1;
    }
    assert_eq!(drawn.len(), 24);
    assert!(drawn.values().all(|count| (60..150).contains(count)), "{drawn:?}");
}

/// The part of all orders of two rounds with this verdict, where the period is what `observed` says of the block and
/// its value.
fn part(wanted: Verdict, observed: impl Fn(usize, f64) -> Option<f64>) -> f64 {
    let all = orders(&VALUES);
    let of = |order: &[f64], first: usize| -> Vec<PeriodBlock> {
        order
            .iter()
            .enumerate()
            .map(|(at, value)| PeriodBlock {
                predicted_ns: *value,
                observed_ns: observed(first + at, *value),
            })
            .collect()
    };
    let mut hits = 0;
    for one in &all {
        for other in &all {
            let judged = judge_periods(&[of(one, 0), of(other, 4)]);
            hits += u32::from(judged.is_some_and(|it| it.verdict == wanted));
        }
    }
    f64::from(hits) / (all.len() * all.len()) as f64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Whatever the periods are, if they do not depend on the setting, at most 5 % of all orders confirm.
    #[test]
    fn what_does_not_follow_is_confirmed_by_at_most_one_order_in_twenty(
        periods in prop::collection::vec(prop::option::weighted(0.9, 2e9..12e9f64), 8),
    ) {
        let wrong = part(Verdict::Confirmed, |at, _| periods[at]);
        prop_assert!(wrong <= 0.05 + 1e-9, "{wrong}");
    }

    /// However far periods that follow are from their values, at most 5 % of all orders refute.
    #[test]
    fn what_follows_is_refuted_by_at_most_one_order_in_twenty(
        factors in prop::collection::vec(prop::option::weighted(0.9, 0.3..3.0f64), 8),
    ) {
        let wrong = part(Verdict::Refuted, |at, value| Some(factors[at]? * value));
        prop_assert!(wrong <= 0.05 + 1e-9, "{wrong}");
    }
}
