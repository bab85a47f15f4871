// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Synthetic sweeps: knees, verdicts, and conclusions that must not be drawn.

use super::*;
use crate::testkit::sweep::{answer, setup, sweep};
use proptest::prelude::*;

#[test]
fn the_knee_is_between_the_last_good_and_the_first_bad_rate() {
    let sweep = sweep(&["P=1", "P=96"], &[100.0, 200.0, 400.0], |variant, rate, repetition| {
        let slow = variant == 1 && rate >= 200.0;
        answer(
            rate,
            if slow { 300.0 + f64::from(repetition) } else { 4.0 + f64::from(repetition) * 0.1 },
        )
    });
    let [first, second] = &sweep.knees[..] else { panic!("{:?}", sweep.knees) };
    assert_eq!((first.good_per_s, first.bad_per_s), (Some(400.0), None));
    assert_eq!((second.good_per_s, second.bad_per_s), (Some(100.0), Some(200.0)));
    assert_eq!(second.reason, Some(KneeReason::Latency));
    let verdict = sweep.verdict.join("\n");
    assert!(verdict.contains("`P=1` keeps up with every rate asked for, up to 400/s"), "{verdict}");
    assert!(
        verdict.contains("`P=96` keeps up with 100/s; at 200/s its p99 is 301 ms"),
        "{verdict}"
    );
    assert!(verdict.contains("at 200/s `P=96` against `P=1`: p99 x 73 ("), "{verdict}");
    assert!(verdict.contains("at 400/s `P=96` against `P=1`: p99 x 73 ("), "{verdict}");
}

#[test]
fn who_answers_too_few_is_behind_and_who_fails_fails() {
    let sweep = sweep(&["a", "b"], &[100.0, 200.0], |variant, rate, _| {
        let mut run = answer(rate, 5.0);
        let requests = run.requests.as_mut().unwrap();
        if rate > 100.0 && variant == 0 {
            requests.answered_in_window = requests.due * 9 / 10;
        } else if rate > 100.0 {
            requests.failed = requests.due / 20;
        }
        run
    });
    let reasons: Vec<_> = sweep.knees.iter().map(|knee| knee.reason).collect();
    assert_eq!(reasons, [Some(KneeReason::Behind), Some(KneeReason::Failures)]);
    assert!(sweep.verdict[0].contains("at 200/s it answers 90 %"), "{:?}", sweep.verdict);
    assert!(sweep.verdict[1].contains("at 200/s it fails 5.0 %"), "{:?}", sweep.verdict);
}

#[test]
fn a_rate_that_the_generator_did_not_reach_is_no_knee() {
    let sweep = sweep(&["a"], &[100.0, 200.0, 400.0], |_, rate, _| {
        let mut run = answer(rate, if rate > 100.0 { 900.0 } else { 5.0 });
        if rate > 100.0 {
            run.requests.as_mut().unwrap().generator_late_p99_ns = 800_000_000;
        }
        run
    });
    assert_eq!((sweep.knees[0].good_per_s, sweep.knees[0].bad_per_s), (Some(100.0), None));
    assert_eq!(sweep.knees[0].unknown_per_s, Some(200.0));
    assert!(sweep.verdict[0].contains("200/s cannot be judged"), "{:?}", sweep.verdict);
    assert!(
        sweep.notes.iter().any(|note| note.contains("`a` 200/s, `a` 400/s")),
        "{:?}",
        sweep.notes
    );
    // A delay of the generator that is small relative to a slow answer does not matter.
    let slow = self::sweep(&["a"], &[100.0, 200.0], |_, rate, _| {
        let mut run = answer(rate, if rate > 100.0 { 900.0 } else { 5.0 });
        run.requests.as_mut().unwrap().generator_late_p99_ns = 2_000_000;
        run
    });
    assert_eq!(slow.knees[0].bad_per_s, Some(200.0));
}

/// The generator is on time, but has no time to spare: it may have received answers of the service late.
#[test]
fn a_generator_without_time_to_spare_did_not_reach_the_rate() {
    let of = |busy_ns: u64| {
        let sweep = sweep(&["a"], &[100.0, 200.0], |_, rate, _| {
            let mut run = answer(rate, if rate > 100.0 { 900.0 } else { 5.0 });
            let requests = run.requests.as_mut().unwrap();
            requests.generator_busy_ns = Some(if rate > 100.0 { busy_ns } else { 1_000_000 });
            run
        });
        (sweep.knees[0].bad_per_s, sweep.knees[0].unknown_per_s)
    };
    assert_eq!(of(3_990_000_000), (None, Some(200.0)));
    assert_eq!(of(6_000_000_000), (None, Some(200.0)));
    assert_eq!(of(2_000_000_000), (Some(200.0), None));
}

#[test]
fn requests_that_waited_for_a_connection_are_told_of() {
    let sweep = sweep(&["a"], &[100.0], |_, rate, repetition| {
        let mut run = answer(rate, 5.0);
        run.requests.as_mut().unwrap().connections_exhausted = repetition == 1;
        run
    });
    assert!(
        sweep.notes.iter().any(|it| it.contains("in 1 of 3 runs") && it.contains("--connections"))
    );
}

#[test]
fn chance_is_no_difference() {
    let noisy = [4.0, 9.0, 6.0];
    let sweep = sweep(&["a", "b"], &[100.0], |variant, rate, repetition| {
        answer(rate, noisy[(repetition as usize + variant) % 3])
    });
    let last = sweep.verdict.last().unwrap();
    assert!(last.contains("`b` against `a`: no difference that chance"), "{last}");
}

#[test]
fn the_users_bound_is_the_knee() {
    let mut setup = setup(&["a"], &[100.0, 200.0]);
    setup.accepted_p99_ns = Some(20_000_000);
    let runs = [100.0, 200.0].map(|rate| answer(rate, rate / 8.0));
    let sweep = Sweep::new(setup, runs.to_vec(), false);
    assert_eq!((sweep.knees[0].good_per_s, sweep.knees[0].bad_per_s), (Some(100.0), Some(200.0)));
}

#[test]
fn a_command_is_judged_by_its_wall_time() {
    let mut setup = setup(&["a", "b"], &[]);
    setup.driven = Workload::Command;
    let mut runs = Vec::new();
    for repetition in 0..3 {
        for variant in 0..2 {
            let window_ns =
                (variant as u64 + 1) * 1_000_000_000 + u64::from(repetition) * 1_000_000;
            let run = answer(1.0, 1.0);
            runs.push(Run {
                variant,
                repetition,
                rate_per_s: None,
                window_ns,
                requests: None,
                latency: None,
                ..run
            });
        }
    }
    let sweep = Sweep::new(setup, runs, false);
    assert!(sweep.knees.is_empty());
    assert_eq!(sweep.verdict.len(), 1);
    assert!(
        sweep.verdict[0].starts_with("`b` against `a`: wall time x 2.0 (2.0 to 2.0)"),
        "{:?}",
        sweep.verdict
    );
}

#[test]
fn one_repetition_claims_no_difference_and_says_why() {
    let mut setup = setup(&["a", "b"], &[100.0]);
    setup.repetitions = 1;
    let runs = vec![answer(100.0, 4.0), Run { variant: 1, ..answer(100.0, 400.0) }];
    let sweep = Sweep::new(setup, runs, true);
    assert!(sweep.verdict.last().unwrap().contains("no difference"), "{:?}", sweep.verdict);
    assert!(sweep.notes.iter().any(|note| note.contains("--reps")), "{:?}", sweep.notes);
    assert!(sweep.notes.iter().any(|note| note.contains("interrupted")), "{:?}", sweep.notes);
}

#[test]
fn nothing_measured_is_a_document_that_says_so() {
    let sweep = Sweep::new(setup(&["a", "b"], &[100.0, 200.0]), Vec::new(), true);
    assert!(sweep.points.is_empty() && sweep.knees.is_empty() && sweep.verdict.is_empty());
    let style = crate::render::TextStyle { columns: 100, color: false, verbosity: 1 };
    let text = crate::render::sweep_text(&sweep, style);
    assert!(text.contains("nothing was measured"), "{text}");
    assert!(!text.contains("latency"), "no table without a row: {text}");
    assert!(!text.contains("keeps up"), "{text}");
}

/// Tables fit the terminal with names of any length.
#[test]
fn long_names_and_narrow_pages_have_letters() {
    let long = "JAVA_TOOL_OPTIONS=-XX:ActiveProcessorCount=32";
    let of = |names: &[&str], columns| {
        let sweep = sweep(names, &[100.0, 200.0], |_, rate, _| answer(rate, 4.0));
        let style = crate::render::TextStyle { columns, color: false, verbosity: 1 };
        crate::render::sweep_text(&sweep, style)
    };
    for (names, columns) in [(&[long, "unset"], 100), (&["P=1", "P=96"], 88)] {
        let text = of(names, columns);
        assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
        assert!(text.contains(&format!("A = {}", names[0])), "{text}");
        assert!(text.lines().any(|line| line.starts_with("     100  A  ")), "{text}");
    }
    assert!(of(&["P=1", "P=96"], 100).contains("     100  A P=1   "));
}

/// A service that accepts requests and never answers is neither slow nor a problem of the generator.
#[test]
fn silence_is_not_the_generators() {
    let sweep = sweep(&["a"], &[20.0], |_, rate, _| {
        let mut run = answer(rate, 5.0);
        let requests = run.requests.as_mut().unwrap();
        (requests.answered, requests.answered_in_window) = (0, 0);
        requests.unanswered = requests.due;
        requests.generator_late_p99_ns = 4_000_000;
        run.latency = None;
        run
    });
    assert!(!sweep.points[0].generator_late);
    assert_eq!(sweep.knees[0].bad_per_s, Some(20.0), "{:?}", sweep.knees);
    assert!(sweep.verdict[0].contains("at 20/s it answers 0 %"), "{:?}", sweep.verdict);
    assert!(sweep.notes.iter().any(|note| note.contains("not one request")), "{:?}", sweep.notes);
    // A generator that was late by a third of the window cannot judge the service.
    let late = self::sweep(&["a"], &[20.0], |_, rate, _| {
        let mut run = answer(rate, 5.0);
        let requests = run.requests.as_mut().unwrap();
        (requests.answered, requests.answered_in_window) = (0, 0);
        requests.generator_late_p99_ns = run.window_ns / 3;
        run.latency = None;
        run
    });
    assert_eq!((late.knees[0].bad_per_s, late.knees[0].unknown_per_s), (None, Some(20.0)));
    assert!(
        late.verdict[0].contains("it is not known what `a` keeps up with"),
        "{:?}",
        late.verdict
    );
}

/// With fewer than 100 requests there is no 99th percentile; the longest latency is used instead.
#[test]
fn lateness_of_a_few_requests_is_beside_the_longest() {
    let of = |late_ns: u64| {
        let sweep = sweep(&["a"], &[20.0], |_, rate, _| {
            let mut run = answer(rate, 50.0);
            run.latency.as_mut().unwrap().p99_ns = None;
            run.requests.as_mut().unwrap().generator_late_p99_ns = late_ns;
            run
        });
        sweep.points[0].generator_late
    };
    assert!(!of(3_000_000) && of(30_000_000));
}

proptest! {
    #[test]
    fn any_runs_have_a_document(
        runs in prop::collection::vec(
            (0..3usize, 0..3usize, 0..4u32, 0..1000u64, 0..2000u64, 0..u64::MAX / 4096, 0..10_000u64), 0..12),
        interrupted: bool,
    ) {
        let rates = [0.5, 100.0, 100_000.0];
        let runs: Vec<Run> = runs
            .into_iter()
            .map(|(variant, rate, repetition, due, answered, ns, periods)| {
                let mut run = answer(rates[rate], 1.0);
                (run.variant, run.repetition) = (variant, repetition);
                run.requests = Some(Requests { due, answered_in_window: answered, failed: due / 2, ..Requests::default() });
                let samples = (0..due).map(|i| Sample { ns: ns / (i + 1), answered: i % 3 != 0 });
                run.latency = Latency::of(samples.collect());
                run.window_ns = ns;
                run.throttling = Some(Throttling { periods, throttled: periods / 2, throttled_ns: ns });
                run
            })
            .collect();
        let sweep = Sweep::new(setup(&["a", "b\u{1b}[2J`", "c"], &rates), runs, interrupted);
        let text = crate::render::sweep_text(&sweep, crate::render::TextStyle { columns: 100, color: false, verbosity: 1 });
        prop_assert!(!text.contains('\x1b'));
        let document = crate::render::json_document(&sweep).unwrap();
        prop_assert_eq!(serde_json::from_str::<Sweep>(&document).unwrap().points.len(), sweep.points.len());
        for knee in &sweep.knees {
            if let (Some(good), Some(bad)) = (knee.good_per_s, knee.bad_per_s) {
                prop_assert!(good < bad);
            }
        }
    }
}

/// The sweep of the golden files: from 400/s on the second variant is slow and more throttled.
fn example() -> Sweep {
    sweep(
        &["GOMAXPROCS=1", "GOMAXPROCS=96"],
        &[100.0, 200.0, 400.0, 800.0],
        |variant, rate, repetition| {
            let step = f64::from(repetition) * 0.07 + 1.0;
            let bent = (variant == 1 && rate >= 400.0) || rate > 400.0;
            let base_ms = 3.0 + rate / 100.0;
            let mut run = answer(rate, if bent { base_ms * 60.0 * step } else { base_ms * step });
            run.cpu_ns = run.cpu_ns * if variant == 1 { 14 } else { 10 } / 10;
            run.threads = Some(if variant == 1 { 68 } else { 5 });
            if bent {
                run.throttling.as_mut().unwrap().throttled = 38 + u64::from(repetition);
            }
            if rate > 400.0 {
                let requests = run.requests.as_mut().unwrap();
                requests.answered_in_window = requests.due * 7 / 10;
                requests.unanswered = requests.due / 10;
                run.latency.as_mut().unwrap().at_least = true;
            }
            run
        },
    )
}

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/sweep");

#[test]
fn the_text_and_the_document_are_the_golden_ones() {
    let sweep = example();
    let text = |columns, color| {
        crate::render::sweep_text(&sweep, crate::render::TextStyle { columns, color, verbosity: 1 })
    };
    let mut command = example().setup;
    command.driven = Workload::Command;
    let runs = example().runs.into_iter().filter(|run| run.rate_per_s == Some(100.0));
    let runs = runs.map(|run| Run { rate_per_s: None, requests: None, latency: None, ..run });
    let command = Sweep::new(command, runs.collect(), false);
    let style = crate::render::TextStyle { columns: 100, color: false, verbosity: 1 };
    let kept = [
        ("example.txt", text(100, false)),
        ("example-60-columns.txt", text(60, false)),
        ("example-color.txt", text(100, true)),
        ("command.txt", crate::render::sweep_text(&command, style)),
        ("example.json", crate::render::json_document(&sweep).unwrap()),
    ];
    let kept = kept.map(|(name, text)| (name.to_owned(), text));
    crate::render::golden::assert_kept(FOLDER, &kept);
    assert!(text(100, false).lines().all(|line| line.chars().count() <= 100));
}
