// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verdicts of given periods, and that the error rates are exact over all orders.

use super::super::experiment::FACTORS;
use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const VALUES: [f64; 4] = [5e9, 3.5e9, 8.5e9, 6.5e9];

/// A round with these values, and the distances of bursts that come with each.
fn round(values: [f64; 4], distances: impl Fn(f64) -> Vec<f64>) -> Vec<PeriodBlock> {
    let block = |value: f64| PeriodBlock { predicted_ns: value, distances_ns: distances(value) };
    values.map(block).into()
}

/// Distances that are these multiples of a period.
fn ticks(period: f64, multiples: &[u8]) -> Vec<f64> {
    multiples.iter().map(|it| period * f64::from(*it)).collect()
}

fn verdict(rounds: &[Vec<PeriodBlock>]) -> Verdict {
    judge_periods(rounds).unwrap().verdict
}

#[test]
fn bursts_that_follow_are_confirmed_and_those_that_stay_are_refuted() {
    // Ticks that do not hurt, and work after which the timer is set anew.
    for late in [0.0, 0.1e9, 0.3e9] {
        let it = round(VALUES, |value| ticks(value + late, &[1, 1, 2, 1, 3]));
        let it = judge_periods(&[it]).unwrap();
        assert_eq!(it.verdict, Verdict::Confirmed, "{late}: {it:?}");
        assert!((it.independent.p - 1.0 / 24.0).abs() < 1e-9 && it.fit > 0.95, "{it:?}");
    }
    for stays in [5e9, 2e9, 3.1e9, 9e9] {
        let it = judge_periods(&[round(VALUES, |_| ticks(stays, &[1, 1, 2, 1]))]).unwrap();
        assert_eq!(it.verdict, Verdict::Refuted, "{stays}: {it:?}");
        assert!(it.fit_of_one > 0.95, "{it:?}");
        assert!((it.one_ns / stays - 1.0).abs() < 0.05, "its half fits as well: {it:?}");
    }
}

/// Of a busy machine, half of the distances may be anything.
#[test]
fn other_bursts_among_them_are_borne() {
    let noise = [0.31, 0.83, 0.47, 1.7, 0.62, 1.27, 0.28, 2.4];
    let round = |first: usize| {
        let mut at = first;
        let values = VALUES.map(|value| {
            let mut distances = ticks(value * 1.03, &[1, 2, 1, 1]);
            distances.extend((0..3).map(|more| noise[(at + more) % 8] * 1e9));
            at += 3;
            PeriodBlock { predicted_ns: value, distances_ns: distances }
        });
        Vec::from(values)
    };
    assert_eq!(verdict(&[round(0), round(1), round(2)]), Verdict::Confirmed);
}

#[test]
fn what_has_no_period_and_too_little_is_no_judgement() {
    assert_eq!(judge_periods(&[]), None);
    assert_eq!(judge_periods(&[round(VALUES, |_| vec![])]), None);
    assert_eq!(judge_periods(&[round([0.0; 4], |_| vec![1.0])]), None);
    assert_eq!(judge_periods(&[round(VALUES, |it| vec![it])[..3].to_vec()]), None);
    let none = round(VALUES, |_| vec![0.0, f64::NAN, -1.0]);
    let none = verdict(&[none.clone(), none.clone(), none]);
    assert!(matches!(none, Verdict::Inconclusive { .. }), "{none:?}");
    // Halves of the setting fit it; thirds of two and a half do not.
    let it = round(VALUES, |value| ticks(0.4 * value, &[1, 1, 2, 1]));
    let it = verdict(&[it.clone(), it.clone(), it]);
    assert!(matches!(it, Verdict::Inconclusive { .. }), "{it:?}");
}

#[test]
fn a_wild_block_and_a_missing_one_are_borne() {
    let follows = round(VALUES, |value| ticks(value, &[1, 2, 1]));
    for odd in [vec![0.3e9, 7.7e9, 1.1e9], vec![]] {
        for at in 0..4 {
            let mut first = follows.clone();
            first[at].distances_ns.clone_from(&odd);
            let it = judge_periods(&[first, follows.clone(), follows.clone()]).unwrap();
            assert_eq!(it.verdict, Verdict::Confirmed, "{odd:?} {at}: {it:?}");
        }
    }
    let halves = round(VALUES, |value| if value > 5e9 { vec![value; 3] } else { vec![] });
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
                assert!(distance > 0.12, "{times} * {one} is near {other}: {distance}");
            }
        }
    }
}

#[test]
fn all_orders_are_drawn_and_tested() {
    let tested: BTreeSet<String> = orders(4).iter().map(|order| format!("{order:?}")).collect();
    assert_eq!(tested.len(), 24);
    let mut drawn = std::collections::BTreeMap::new();
    for seed in 0..2_400 {
        *drawn.entry(order(seed, 1, 4)).or_insert(0) += 1;
    }
    assert_eq!(drawn.len(), 24);
    assert!(drawn.values().all(|count| (60..150).contains(count)), "{drawn:?}");
}

/// The part of all orders of two rounds with this verdict, where the distances are what `observed` says of the block and
/// its value.
fn part(wanted: Verdict, observed: impl Fn(usize, f64) -> Vec<f64>) -> f64 {
    let in_order = |order: Vec<usize>| order.into_iter().map(|at| VALUES[at]).collect::<Vec<f64>>();
    let all: Vec<Vec<f64>> = orders(4).into_iter().map(in_order).collect();
    let of = |order: &[f64], first: usize| -> Vec<PeriodBlock> {
        let block = |(at, value): (usize, &f64)| PeriodBlock {
            predicted_ns: *value,
            distances_ns: observed(first + at, *value),
        };
        order.iter().enumerate().map(block).collect()
    };
    let mut hits = 0;
    let pairs = all.iter().flat_map(|one| all.iter().map(move |other| (one, other)));
    for (one, other) in pairs.clone() {
        let judged = judge_periods(&[of(one, 0), of(other, 4)]);
        hits += u32::from(judged.is_some_and(|it| it.verdict == wanted));
    }
    f64::from(hits) / pairs.count() as f64
}

fn distances() -> impl Strategy<Value = Vec<Vec<f64>>> {
    prop::collection::vec(prop::collection::vec(0.1..12f64, 0..6), 8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    /// Whatever the distances are, if they do not depend on the setting, at most 5 % of all orders confirm.
    #[test]
    fn what_does_not_follow_is_confirmed_by_at_most_one_order_in_twenty(seconds in distances()) {
        let wrong = part(Verdict::Confirmed, |at, _| seconds[at].iter().map(|s| s * 1e9).collect());
        prop_assert!(wrong <= 0.05 + 1e-9, "{wrong}");
    }

    /// However far distances that follow are from their values, at most 5 % of all orders refute.
    #[test]
    fn what_follows_is_refuted_by_at_most_one_order_in_twenty(parts in distances()) {
        let follows = |at: usize, value: f64| parts[at].iter().map(|part| part * value / 4.0).collect();
        let wrong = part(Verdict::Refuted, follows);
        prop_assert!(wrong <= 0.05 + 1e-9, "{wrong}");
    }
}
