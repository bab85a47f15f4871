// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verdicts of given numbers, and that the error rates are exact over all orders.

use super::super::design::Limits;
use super::*;
use proptest::prelude::*;

fn falls(share: f64) -> Question {
    Question {
        unit: Unit::NsPerS,
        direction: Direction::Falls,
        minimal_effect: MinimalEffect::Share(share),
        pilot: 100.0,
        guard: Guard::Pilot,
    }
}

/// A design with these orders, by their index: 0 = ABBA, 1 = BAAB, ...
fn design(orders: &[usize]) -> Design {
    let most = orders.len() as u32;
    Design::of_orders(orders, Limits { least_groups: 2, most_groups: most })
}

/// The numbers of a design, from the number of the block and whether it is changed.
fn numbers(design: &Design, of: impl Fn(usize, bool) -> f64) -> Vec<Option<f64>> {
    design.arms().enumerate().map(|(at, arm)| Some(of(at, arm == Arm::Changed))).collect()
}

/// Noise of some percent that no arm knows of.
fn noisy(at: usize) -> f64 {
    1.0 + 0.01 * ((at * 7919) % 23) as f64
}

#[test]
fn a_large_effect_is_confirmed_by_eight_blocks() {
    let design = design(&[0, 3, 4, 1, 2, 5]);
    let all = numbers(&design, |at, changed| noisy(at) * if changed { 30.0 } else { 100.0 });
    let verdict = |blocks: usize| judge(&design, &falls(0.3), &all[..blocks]).verdict;
    assert_eq!(verdict(7), Verdict::Undecided { blocks_more: None });
    assert_eq!(verdict(8), Verdict::Confirmed);
    let found = judge(&design, &falls(0.3), &all);
    assert_eq!((found.verdict, found.groups), (Verdict::Confirmed, 2), "{found:?}");
    let [look] = found.looks[..] else { panic!("{found:?}") };
    assert!((look.no_effect.p - 1.0 / 36.0).abs() < 1e-12, "{look:?}");
    assert!((look.no_effect.limit - 1.0 / 36.0).abs() < 1e-12, "{look:?}");
    let effect = found.effect.unwrap();
    assert!((0.6..0.8).contains(&effect.estimate), "{effect:?}");
    assert!(effect.at_least.unwrap() > 0.5 && effect.at_most.unwrap() < 0.85, "{effect:?}");
    assert!(found.before.unwrap() > 99.0 && found.changed.unwrap() < 40.0, "{found:?}");
}

#[test]
fn no_effect_is_refuted_and_so_is_one_that_is_too_small() {
    let design = design(&[0, 3, 4, 1, 2, 5]);
    for (factor, least) in [(1.0, 0.3), (0.8, 0.5), (1.5, 0.1)] {
        let all = numbers(&design, |at, changed| {
            noisy(at) * if changed { 100.0 * factor } else { 100.0 }
        });
        let found = judge(&design, &falls(least), &all);
        assert_eq!(found.verdict, Verdict::Refuted, "{factor}: {found:?}");
        assert!(found.effect.unwrap().at_most.unwrap() < least, "{factor}: {found:?}");
    }
}

#[test]
fn an_amount_and_a_rise_are_judged_alike() {
    let design = design(&[5, 0, 4, 1, 2, 3]);
    let rise =
        |minimal_effect| Question { direction: Direction::Rises, minimal_effect, ..falls(0.1) };
    let all = numbers(&design, |at, changed| noisy(at) * if changed { 160.0 } else { 100.0 });
    for (minimal, wanted) in [
        (MinimalEffect::Amount(20.0), Verdict::Confirmed),
        (MinimalEffect::Share(0.2), Verdict::Confirmed),
        (MinimalEffect::Amount(120.0), Verdict::Refuted),
        (MinimalEffect::Share(1.2), Verdict::Refuted),
    ] {
        let found = judge(&design, &rise(minimal), &all);
        assert_eq!(found.verdict, wanted, "{minimal:?}: {found:?}");
    }
    let amount = Question { minimal_effect: MinimalEffect::Amount(20.0), ..falls(0.1) };
    assert_eq!(judge(&design, &amount, &all).verdict, Verdict::Refuted);
}

#[test]
fn a_symptom_that_is_not_there_or_goes_away_proves_nothing() {
    let design = design(&[0, 3, 4, 1, 2, 5]);
    let absent = numbers(&design, |_, changed| if changed { 1.0 } else { 10.0 });
    let reason =
        |all: &[Option<f64>], question: &Question| match judge(&design, question, all).verdict {
            Verdict::Inconclusive { reason } => reason,
            other => panic!("{other:?}"),
        };
    assert_eq!(reason(&absent, &falls(0.3)), Reason::SymptomAbsent);
    let gone =
        numbers(&design, |at, _| if at < 12 { 80.0 + (at * 7 % 11) as f64 * 9.0 } else { 3.0 });
    let strict = Question { minimal_effect: MinimalEffect::Share(0.05), ..falls(0.3) };
    assert_eq!(reason(&gone, &strict), Reason::SymptomGone { after_groups: 3 });
    let off = Question { guard: Guard::Off, ..falls(0.3) };
    assert_eq!(judge(&design, &off, &absent).verdict, Verdict::Confirmed);
}

#[test]
fn missing_numbers_count_against_what_is_tested() {
    let design = design(&[0, 3, 4, 1, 2, 5]);
    let mut all = numbers(&design, |at, changed| noisy(at) * if changed { 30.0 } else { 100.0 });
    // A block without and one with the change, of the first group.
    (all[0], all[1]) = (None, Some(f64::NAN));
    let found = judge(&design, &falls(0.3), &all);
    assert_eq!(found.verdict, Verdict::Confirmed, "{found:?}");
    assert!(found.groups > 2, "they cost blocks: {found:?}");
    assert_eq!((found.before_missing, found.changed_missing), (1, 1));
    // Numbers that are missing where the host is changed.
    let mut biased = numbers(&design, |at, changed| noisy(at) * if changed { 30.0 } else { 100.0 });
    for (number, _) in
        biased.iter_mut().zip(design.arms()).filter(|it| it.1 == Arm::Changed).step_by(2)
    {
        *number = None;
    }
    let reason = Reason::NumbersMissing;
    assert_eq!(judge(&design, &falls(0.3), &biased).verdict, Verdict::Inconclusive { reason });
}

#[test]
fn one_wild_block_changes_neither_verdict_nor_estimate_by_much() {
    let design = design(&[0, 3, 4, 1, 2, 5]);
    for wild in 0..24 {
        let all = numbers(&design, |at, changed| {
            noisy(at)
                * if at == wild {
                    1e7
                } else if changed {
                    30.0
                } else {
                    100.0
                }
        });
        let found = judge(&design, &falls(0.3), &all);
        assert_eq!(found.verdict, Verdict::Confirmed, "{wild}: {found:?}");
        assert!(found.effect.unwrap().estimate > 0.55, "{wild}: {found:?}");
    }
}

#[test]
fn what_cannot_be_asked_is_said() {
    for share in [0.0, -0.1, 1.0, f64::NAN] {
        let text = falls(share).check().unwrap_err().to_string();
        assert!(text.contains("minimal effect"), "{text}");
    }
    let rise = Question { direction: Direction::Rises, ..falls(2.0) };
    assert_eq!((rise.check(), falls(0.3).check()), (Ok(()), Ok(())));
    let nothing = Question { pilot: 0.0, ..falls(0.3) };
    assert!(nothing.check().unwrap_err().to_string().contains("was 0"));
    assert_eq!(Question { guard: Guard::Off, ..nothing }.check(), Ok(()));
}

/// All designs of three groups.
fn all_designs() -> impl Iterator<Item = Design> {
    (0..216).map(|n| design(&[n / 36, n / 6 % 6, n % 6]))
}

/// A number from few values, so that there are ties, or wild ones.
fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![4 => (0u8..6).prop_map(f64::from), 4 => 0.0..100.0f64, 1 => 0.0..1e9f64]
}

/// Twelve blocks: what each measures, and whether it has no number without and with the change.
fn blocks() -> impl Strategy<Value = Vec<(f64, bool, bool)>> {
    let missing = || prop::bool::weighted(0.1);
    prop::collection::vec((any_number(), missing(), missing()), 12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the numbers are, if the arms make no difference: of all orders, at most 5 % confirm, even if it depends
    /// on the arm whether a block has a number.
    #[test]
    fn no_effect_is_confirmed_by_at_most_one_order_in_twenty(
        blocks in blocks(),
    ) {
        let question = Question { guard: Guard::Off, ..falls(1e-9) };
        let mut confirmed = 0;
        for design in all_designs() {
            let numbers: Vec<Option<f64>> = blocks.iter().zip(design.arms()).map(|((number, a, b), arm)| {
                let is_missing = if arm == Arm::Before { *a } else { *b };
                (!is_missing).then_some(*number)
            }).collect();
            confirmed += u32::from(decide(&design, &question, &numbers).0 == Verdict::Confirmed);
        }
        prop_assert!(confirmed <= 10, "{confirmed} of 216");
    }

    /// An effect of exactly the minimal size is refuted by at most 5 % of the orders.
    #[test]
    fn the_minimal_effect_is_refuted_by_at_most_one_order_in_twenty(
        blocks in blocks(),
        share in 0.1..0.9f64, rises: bool,
    ) {
        let direction = if rises { Direction::Rises } else { Direction::Falls };
        let question = Question { guard: Guard::Off, direction, ..falls(share) };
        let mut refuted = 0;
        for design in all_designs() {
            let numbers: Vec<Option<f64>> = blocks.iter().zip(design.arms()).map(|((number, a, b), arm)| {
                let factor = if rises { 1.0 + share } else { 1.0 - share };
                match arm {
                    Arm::Before => (!a).then_some(*number),
                    Arm::Changed => (!b).then_some(*number * factor),
                }
            }).collect();
            refuted += u32::from(decide(&design, &question, &numbers).0 == Verdict::Refuted);
        }
        prop_assert!(refuted <= 10, "{refuted} of 216");
    }

    /// The limits enclose the estimate, and what the tests do not reject.
    #[test]
    fn limits_and_verdict_agree(
        orders in prop::collection::vec(0usize..6, 2..5), share in 0.1..0.9f64, level in 0.05..1.5f64,
        noise in prop::collection::vec(0.2..1.8f64, 16),
    ) {
        let design = design(&orders);
        let all = numbers(&design, |at, changed| 100.0 * noise[at] * if changed { level } else { 1.0 });
        let question = Question { guard: Guard::Off, ..falls(share) };
        let found = judge(&design, &question, &all);
        let effect = found.effect.unwrap();
        prop_assert!(effect.at_least.is_none_or(|it| it <= effect.estimate), "{found:?}");
        prop_assert!(effect.at_most.is_none_or(|it| it >= effect.estimate), "{found:?}");
        // A size that is not rejected is within the limits, give or take the step between two of them.
        let last = found.looks.last().unwrap();
        let slack = 0.05;
        prop_assert!(last.no_effect.rejected || effect.at_least.is_none_or(|it| it < slack), "{found:?}");
        let is_below = |it: f64| it < share - slack;
        prop_assert!(last.minimal_effect.rejected || !effect.at_most.is_some_and(is_below), "{found:?}");
    }

    /// Any numbers at all have a judgement.
    #[test]
    fn no_numbers_make_it_panic(
        seed: u64, most in 2u32..8,
        numbers in prop::collection::vec(prop::option::of(prop_oneof![any::<f64>(), Just(0.0)]), 0..40),
        amount: bool, rises: bool, size in 1e-3..0.99f64,
    ) {
        let design = Design::new(seed, Limits { least_groups: 2, most_groups: most }).unwrap();
        let direction = if rises { Direction::Rises } else { Direction::Falls };
        let minimal_effect = if amount { MinimalEffect::Amount(size) } else { MinimalEffect::Share(size) };
        let question = Question { direction, minimal_effect, guard: Guard::Off, ..falls(0.3) };
        let found = judge(&design, &question, &numbers);
        prop_assert!(found.looks.iter().all(|look| (0.0..=1.0).contains(&look.no_effect.p)));
        prop_assert!(found.groups <= most);
    }
}
