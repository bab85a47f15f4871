// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Experiments whose numbers are made up, on pages. They are kept in `fixtures/prove` for tests of the binary.

use super::super::golden::assert_kept;
use super::super::html::MOST_PAGE_BYTES;
use super::super::html::tests::plain_text;
use super::super::prove::tests::outcome;
use super::super::{check_page, experiment_html, json_document};
use super::*;
use crate::prove::design::{Design, Limits};
use crate::prove::experiment::{FACTORS, PERIODS, WAKES};
use crate::prove::judge::judge;
use crate::prove::outcome::{Change, Outcomes};
use crate::prove::period::{PeriodBlock, judge_periods, order};
use crate::stats::Random;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/prove");
const GONE: &str = "no process of the target was seen";

/// An experiment in which the measure falls by so much, on a host of harmless names. Two blocks have no number.
fn falls(part: f64) -> Outcome {
    let mut it = outcome();
    let question = it.plan.question.unwrap();
    let design = Design::new(11, Limits::default()).unwrap();
    let mut random = Random::new(5);
    let mut noisy = |ns: f64| ns * (0.75 + 0.5 * random.uniform());
    let number = |(at, arm): (usize, Arm)| {
        let ns =
            noisy(if arm == Arm::Changed { question.pilot * (1.0 - part) } else { question.pilot });
        (![2, 9].contains(&at)).then_some(ns)
    };
    let numbers: Vec<Option<f64>> = design.arms().enumerate().map(number).collect();
    let judged = judge(&design, &question, &numbers);
    let block = |((at, arm), value): ((usize, Arm), &Option<f64>)| Block {
        at_seconds: 1.0 + 6.1 * at as f64,
        seconds: 5.0,
        arm: Some(arm),
        value: *value,
        why_not: value.is_none().then(|| GONE.into()),
        ..Block::default()
    };
    let measured = judged.groups as usize * GROUP;
    it.blocks = design.arms().enumerate().zip(&numbers).map(block).take(measured).collect();
    let hypothesis = "`victim` (pid 4711) waits for CPUs that `spinner` uses".to_owned();
    let sentence = match judged.verdict {
        Verdict::Confirmed => format!("{hypothesis}: with the change, it falls"),
        _ => format!("it is not so that {hypothesis}"),
    };
    it.result =
        Some(Outcomes { verdict: judged.verdict, sentence, fall: Some(judged), period: None });
    it.plan.experiment.hypothesis = hypothesis;
    it.plan.experiment.test = Test::Lowers { set: vec!["pause:99=90%".into()], least_part: 0.25 };
    it.plan.starts = None;
    it.plan.changes.truncate(1);
    it.plan.changes[0].risk = "`spinner` is stopped for 90 % of the time".into();
    (it.plan.seed, it.notes) = (11, vec![]);
    it
}

/// An experiment with the clock of the flusher: bursts follow its setting, or stay as they are.
fn follows(they_do: bool) -> Outcome {
    let mut it = falls(0.5);
    let unit_ns = 10_000_000;
    let values: Vec<u64> = FACTORS.iter().map(|factor| (500.0 * factor).round() as u64).collect();
    let mut random = Random::new(3);
    let (mut rounds, mut blocks, mut at_seconds) = (vec![], vec![], 31.0);
    for round in 0..2 {
        let mut of_round = vec![];
        for at in order(7, round, values.len()) {
            let predicted_ns = (values[at] * unit_ns) as f64;
            let period_ns = if they_do { predicted_ns } else { 4e9 };
            let seconds = predicted_ns / 1e9 * PERIODS;
            let mut left_ns = seconds * 1e9;
            let distances_ns: Vec<f64> = std::iter::from_fn(|| {
                // Not every tick hurts.
                let ticks = if random.uniform() < 0.2 { 2.0 } else { 1.0 };
                let ns = (period_ns * ticks + 2e8 * (random.uniform() - 0.3)).round();
                left_ns -= ns;
                (left_ns > 0.0).then_some(ns)
            })
            .collect();
            let quiet = round == 0 && of_round.len() == 1;
            let distances_ns = if quiet { distances_ns[..1].to_vec() } else { distances_ns };
            let mut sorted = distances_ns.clone();
            sorted.sort_by(f64::total_cmp);
            blocks.push(Block {
                at_seconds,
                seconds,
                set_to: Some(values[at]),
                predicted_ns: Some(predicted_ns),
                value: sorted.get(sorted.len() / 2).copied().filter(|_| !quiet),
                why_not: quiet.then(|| "2 bursts of stalls of 10 ms and more".into()),
                distances_ns: distances_ns.clone(),
                ..Block::default()
            });
            at_seconds += seconds + 31.0;
            of_round.push(PeriodBlock { predicted_ns, distances_ns });
        }
        rounds.push(of_round);
    }
    let judged = judge_periods(&rounds).unwrap();
    blocks.truncate(judged.rounds as usize * values.len());
    it.blocks = blocks;
    let hypothesis = "`broker` (pid 815) stalls when the flusher wakes".to_owned();
    let sentence = match judged.verdict {
        Verdict::Confirmed => format!("{hypothesis}: their period follows the setting"),
        _ => {
            format!("it is not so that {hypothesis}: their period does not follow the setting")
        }
    };
    it.result =
        Some(Outcomes { verdict: judged.verdict, sentence, fall: None, period: Some(judged) });
    let experiment = &mut it.plan.experiment;
    (experiment.code, experiment.lever) = (Some("BLK001".into()), "clock".into());
    experiment.measure = Measure::StallPeriod;
    experiment.settle_seconds = 31.0;
    experiment.hypothesis = hypothesis;
    it.plan.changes = vec![Change {
        setting: WAKES.into(),
        from: "500".into(),
        to: values.iter().map(u64::to_string).collect(),
        risk: "dirty data are written earlier or later".into(),
    }];
    experiment.test = Test::Follows { setting: WAKES.into(), unit_ns, values };
    it.plan.question = None;
    it.plan.blocks = [4, 12];
    it.plan.seconds = [300.0, 900.0];
    it
}

/// An experiment of each kind, by the name of its file.
pub(in super::super) fn examples() -> [(&'static str, Outcome); 2] {
    [("falls", falls(0.7)), ("follows", follows(true))]
}

fn page_of(it: &Outcome) -> String {
    let page = experiment_html(it).unwrap();
    check_page(&page);
    assert!(page.len() < 100_000, "{} bytes", page.len());
    page
}

#[test]
fn examples_are_as_they_are_kept() {
    let kept = |(name, it): (&str, Outcome)| {
        assert_eq!(it.result.as_ref().unwrap().verdict, Verdict::Confirmed, "{name}");
        (format!("{name}.json"), json_document(&it).unwrap())
    };
    assert_kept(FOLDER, &examples().map(kept));
}

#[test]
fn arms_differ_in_shape_and_their_medians_are_lines() {
    let it = falls(0.7);
    let page = page_of(&it);
    assert_eq!(page.matches("role=\"img\"").count(), 1);
    assert_eq!(page.matches("<summary>as a table</summary>").count(), 1);
    let plot = page.split("role=\"img\"").nth(1).unwrap().split("</figure>").next().unwrap();
    // A group of shapes for each block.
    let groups: Vec<&str> = plot.split("<g>").skip(1).collect();
    assert_eq!(groups.len(), it.blocks.len());
    for (group, block) in groups.iter().zip(&it.blocks) {
        let (colour, is_round) = match block.arm.unwrap() {
            Arm::Before => ("v-0", true),
            Arm::Changed => ("v-1", false),
        };
        let mark = group.split("<path class=\"").nth(1).unwrap();
        assert!(mark.starts_with(colour), "{mark}");
        assert_eq!(mark.split("</path>").next().unwrap().contains(" 0 1 "), is_round, "{mark}");
        // What has no number has no line at its height.
        assert_eq!(group.contains("<line"), block.value.is_some());
        assert!(block.value.is_some() || group.contains(GONE), "{group}");
    }
    let text = plain_text(&page);
    let fall = it.result.as_ref().and_then(|it| it.fall.as_ref()).unwrap();
    for (arm, median) in [("as it was", fall.before), ("changed", fall.changed)] {
        let median = it.plan.experiment.measure.shown(median.unwrap());
        assert!(text.contains(&format!("{arm}, median {median}")), "{text}");
    }
    let missing: Vec<String> = (1..)
        .zip(&it.blocks)
        .filter(|(_, it)| it.value.is_none())
        .map(|(n, _): (u32, _)| n.to_string())
        .collect();
    assert_eq!(missing, ["3", "10"]);
    assert!(
        text.contains(&format!("no number in blocks 3 (changed), 10 (as it was): {GONE}")),
        "{text}"
    );
    let label = page.split("aria-label=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(
        label.starts_with("time that its threads wait for a CPU in every second of "),
        "{label}"
    );
    assert!(label.contains("with the change: "), "{label}");
    // The table has the same numbers.
    for (number, block) in (1..).zip(&it.blocks) {
        let cell = block.value.map_or(GONE.into(), duration);
        let row = format!("{number}{:.1} s5.0 s{}{cell}", block.at_seconds, done(block));
        assert!(text.contains(&row), "{row} is not in {text}");
    }
}

#[test]
fn distances_stand_beside_what_the_setting_predicts() {
    let it = follows(true);
    let page = page_of(&it);
    let text = plain_text(&page);
    let dots: usize = it.blocks.iter().map(|block| block.distances_ns.len()).sum();
    // One more in the legend, and a hollow one there and for each block without a number.
    let missing = it.blocks.iter().filter(|block| block.value.is_none()).count();
    let more = 1 + usize::from(missing > 0) + missing;
    let shown = page.matches("<path class=\"dot\"").count();
    assert!(shown <= dots + more && shown > dots / 2, "{shown} of {dots}");
    let ticks = page.matches("<line class=\"line v-1\"").count();
    assert_eq!(ticks, it.blocks.len() + 1);
    for block in &it.blocks {
        let (set_to, ns) = (block.set_to.unwrap(), block.predicted_ns.unwrap());
        let done = format!("set to {set_to}, predicted {}", duration(ns));
        assert!(text.contains(&done), "{done} is not in {text}");
    }
    assert!(!text.contains("one period for all blocks"));
    let refuted = page_of(&follows(false));
    assert!(plain_text(&refuted).contains("one period for all blocks, "), "{refuted}");
}

#[test]
fn a_plan_has_no_plot_and_names_are_inert() {
    let mut it = outcome();
    for block in &mut it.blocks {
        (block.value, block.why_not) = (None, Some("</title><img src=x>\u{1b}[2J".into()));
    }
    let page = page_of(&it);
    assert!(!page.contains("<img") && !page.contains('\u{1b}'));
    (it.result, it.blocks) = (None, vec![]);
    assert!(!page_of(&it).contains("role=\"img\""));
}

#[test]
fn of_more_blocks_than_an_experiment_has_the_first_are_shown() {
    let mut it = follows(true);
    it.blocks = it.blocks.iter().cycle().take(20_000).cloned().collect();
    let page = experiment_html(&it).unwrap();
    check_page(&page);
    assert!(page.len() <= MOST_PAGE_BYTES);
    assert!(plain_text(&page).contains("these are the first 160 of 20 000 blocks"));
    // One block with everything.
    it.blocks.truncate(1);
    it.blocks[0].distances_ns = (1..100_000).map(f64::from).collect();
    let page = experiment_html(&it).unwrap();
    assert!(plain_text(&page).contains("and 99 899 more"));
}
