// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How often experiments are judged wrongly, by simulated ones with a fixed seed. The tables are in `docs/method.md`:
//! `make rates` simulates many and writes them, `cargo test` simulates some and compares.

use super::design::{Arm, Design, GROUP, Limits};
use super::effect::{Direction, MinimalEffect};
use super::experiment::{FACTORS, PERIODS};
use super::judge::{Guard, Question, Side, decide, is_rejected};
use super::period::{PeriodBlock, judge_periods, order};
use super::verdict::Verdict;
use crate::stats::Random;
use crate::text::Unit;
use std::fmt::Write as _;

/// Experiments of each row, unless `SIMULATIONS` says so.
const RUNS: u32 = 20;
/// The minimal effect of all experiments.
const MINIMAL: f64 = 0.3;
/// Blocks of an experiment at most.
const BLOCKS: usize = 24;
/// Interval that is set at first, in nanoseconds.
const INTERVAL_NS: f64 = 5e9;

/// What happens on a host besides the change.
#[derive(Clone, Copy)]
enum Noise {
    White,
    /// Successive blocks are alike: correlation 0.7.
    Correlated,
    /// Twice the level at the end, or half.
    Drift,
    /// Twice the level from some block on, or half.
    Step,
    /// Student's t with 3 degrees of freedom.
    HeavyTails,
    /// One block has a hundred times the level.
    WildBlock,
    /// Blocks with the change vary three times as much, around the same median.
    ChangedVaries,
    /// One block in ten has no number.
    Missing,
    /// Of the blocks with the change, the largest of each four has no number, in every second four.
    WorstMissing,
}

use Noise::{
    ChangedVaries, Correlated, Drift, HeavyTails, Missing, Step, White, WildBlock, WorstMissing,
};

const NOISES: [(Noise, &str); 9] = [
    (White, "independent, normal"),
    (Correlated, "correlated, 0.7 from block to block"),
    (Drift, "drifts to twice or half of it"),
    (Step, "jumps to twice or half of it"),
    (HeavyTails, "heavy tails (t with 3 degrees)"),
    (WildBlock, "one block is 100 times as large"),
    (Missing, "one block in ten has no number"),
    (WorstMissing, "the worst changed blocks have no number"),
    (ChangedVaries, "changed blocks vary three times as much"),
];
/// Part by which the change lowers the measure, standard deviation of the blocks in parts of their level.
const EFFECTS: [(f64, f64); 4] = [(0.0, 0.3), (MINIMAL, 0.3), (0.6, 0.3), (0.9, 0.5)];

/// The numbers of an experiment in which the change lowers the measure by that part.
fn numbers(
    noise: Noise,
    (fall, deviation): (f64, f64),
    design: &Design,
    chance: &mut Random,
) -> Vec<Option<f64>> {
    let mut state = chance.normal();
    let up = if chance.uniform() < 0.5 { 2.0f64 } else { 0.5 };
    let at = chance.below(BLOCKS as u64) as usize;
    let mut numbers: Vec<Option<f64>> = design
        .arms()
        .enumerate()
        .map(|(block, arm)| {
            let normal = chance.normal();
            let mut around = match noise {
                Correlated => state,
                HeavyTails => {
                    let squares: f64 = (0..3).map(|_| chance.normal().powi(2)).sum();
                    // Its variance is 3.
                    normal / (squares / 3.0).sqrt() / 3.0f64.sqrt()
                }
                _ => normal,
            };
            state = 0.7 * state + 0.51f64.sqrt() * normal;
            let level = match noise {
                Drift => up.powf(block as f64 / (BLOCKS - 1) as f64),
                Step if block > at => up,
                WildBlock if block == at => 100.0,
                _ => 1.0,
            };
            let changed = arm == Arm::Changed;
            if matches!(noise, ChangedVaries) && changed {
                around *= 3.0;
            }
            let factor = if changed { 1.0 - fall } else { 1.0 };
            let is_missing = matches!(noise, Missing) && chance.uniform() < 0.1;
            (!is_missing).then_some(level * factor * (1.0 + deviation * around).max(0.0))
        })
        .collect();
    if matches!(noise, WorstMissing) {
        let changed: Vec<usize> =
            (0..numbers.len()).filter(|at| design.arm(*at) == Some(Arm::Changed)).collect();
        for four in changed.chunks(GROUP).step_by(2) {
            let worst = four
                .iter()
                .max_by(|a, b| f64::total_cmp(&numbers[**a].unwrap(), &numbers[**b].unwrap()));
            worst.into_iter().for_each(|at| numbers[*at] = None);
        }
    }
    numbers
}

/// What came of many experiments, in percent of them.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rates {
    confirmed: f64,
    refuted: f64,
    /// Those of which one of the limits of the effect is wrong: at least more than it is, at most less.
    wrong_limits: [f64; 2],
    /// Mean number of blocks, no percentage.
    blocks: f64,
}

fn rates(noise: Noise, effect: (f64, f64), runs: u32) -> Rates {
    let mut chance = Random::new(3);
    let question = Question {
        unit: Unit::NsPerS,
        direction: Direction::Falls,
        minimal_effect: MinimalEffect::Share(MINIMAL),
        pilot: 1.0,
        guard: Guard::Pilot,
    };
    let [mut confirmed, mut refuted, mut low, mut high, mut blocks] = [0u64; 5];
    for _ in 0..runs {
        let design = Design::new(chance.bits(), Limits::default()).unwrap();
        let numbers = numbers(noise, effect, &design, &mut chance);
        let (verdict, _, groups) = decide(&design, &question, &numbers);
        confirmed += u64::from(verdict == Verdict::Confirmed);
        refuted += u64::from(verdict == Verdict::Refuted);
        blocks += (groups * GROUP) as u64;
        let seen = &numbers[..groups * GROUP];
        low += u64::from(is_rejected(&design, question.scale(), seen, Side::Larger, effect.0));
        high += u64::from(is_rejected(&design, question.scale(), seen, Side::Smaller, effect.0));
    }
    let percent = |count: u64| 100.0 * count as f64 / f64::from(runs);
    Rates {
        confirmed: percent(confirmed),
        refuted: percent(refuted),
        wrong_limits: [percent(low), percent(high)],
        blocks: blocks as f64 / f64::from(runs),
    }
}

/// What makes bursts, and how many others come between two of them, on average. Their times vary by 3 % of the period.
#[derive(Clone, Copy)]
enum Clock {
    /// The flusher, as set, and its work after which the timer is set anew.
    Follows,
    Stays,
    /// Another period at each block, from half to twice the first interval.
    AnyPeriod,
    /// No clock.
    Chance,
}

/// Part of the ticks that hurt.
const HURTS: f64 = 0.8;

const CLOCKS: [(Clock, f64, &str); 8] = [
    (Clock::Follows, 0.0, "follow the setting"),
    (Clock::Follows, 0.25, "follow the setting, one other for four of them"),
    (Clock::Follows, 0.5, "follow the setting, one other for two of them"),
    (Clock::Stays, 0.0, "keep their period"),
    (Clock::Stays, 0.25, "keep their period, one other for four of them"),
    (Clock::Stays, 0.5, "keep their period, one other for two of them"),
    (Clock::AnyPeriod, 0.0, "have any period from half to twice of it"),
    (Clock::Chance, 0.0, "come by chance"),
];

/// The distances of the bursts in a block.
fn distances(clock: Clock, others: f64, predicted_ns: f64, chance: &mut Random) -> Vec<f64> {
    let length_ns = PERIODS * predicted_ns;
    let period_ns = match clock {
        Clock::Follows => 1.03 * predicted_ns,
        Clock::Stays | Clock::Chance => INTERVAL_NS,
        Clock::AnyPeriod => INTERVAL_NS * 4f64.powf(chance.uniform() - 0.5),
    };
    let mut times = Vec::new();
    let mut at = period_ns * chance.uniform();
    while at < length_ns {
        if chance.uniform() < HURTS {
            times.push(at + 0.03 * period_ns * chance.normal());
        }
        if chance.uniform() < others {
            times.push(at + period_ns * chance.uniform());
        }
        at += match clock {
            Clock::Chance => period_ns * -(1.0 - chance.uniform()).ln(),
            _ => period_ns,
        };
    }
    times.sort_by(f64::total_cmp);
    times.windows(2).map(|two| two[1] - two[0]).collect()
}

/// Percentages of confirmed and refuted experiments on periods, and the mean number of blocks.
fn clock_rates(clock: Clock, others: f64, runs: u32) -> [f64; 3] {
    let mut chance = Random::new(4);
    let mut sums = [0.0; 3];
    for _ in 0..runs {
        let seed = chance.bits();
        let mut rounds: Vec<Vec<PeriodBlock>> = vec![];
        for round in 0..3 {
            let block = |at: usize| {
                let predicted_ns = FACTORS[at] * INTERVAL_NS;
                let distances_ns = distances(clock, others, predicted_ns, &mut chance);
                PeriodBlock { predicted_ns, distances_ns }
            };
            rounds.push(order(seed, round, FACTORS.len()).into_iter().map(block).collect());
        }
        let Some(judged) = judge_periods(&rounds) else { continue };
        let is = |wanted: Verdict| f64::from(u8::from(judged.verdict == wanted));
        sums[0] += 100.0 * is(Verdict::Confirmed);
        sums[1] += 100.0 * is(Verdict::Refuted);
        sums[2] += f64::from(judged.rounds) * FACTORS.len() as f64;
    }
    sums.map(|sum| sum / f64::from(runs))
}

/// The tables of `docs/method.md`, as cells: names, then numbers.
fn tables(runs: u32) -> Vec<(String, Vec<f64>)> {
    let mut rows = Vec::new();
    for effect in EFFECTS {
        for (noise, name) in NOISES {
            let it = rates(noise, effect, runs);
            let what =
                format!("| {:.0} % | {:.0} % | {name} |", 100.0 * effect.0, 100.0 * effect.1);
            let [low, high] = it.wrong_limits;
            rows.push((what, vec![it.confirmed, it.refuted, low, high, it.blocks]));
        }
    }
    for (clock, others, name) in CLOCKS {
        rows.push((format!("| {name} |"), clock_rates(clock, others, runs).into()));
    }
    rows
}

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/method.md");

/// The document, after `SIMULATIONS` experiments of each row were written into it, if that is set.
#[expect(clippy::disallowed_methods, reason = "the document is read, and written on demand")]
fn document() -> String {
    let mut document = std::fs::read_to_string(DOCUMENT).unwrap_or_default();
    let runs = std::env::var("SIMULATIONS").ok().and_then(|word| word.parse().ok());
    if let Some(runs) = runs {
        for (name, numbers) in tables(runs) {
            let mut row = name.clone();
            numbers.iter().for_each(|it| write!(row, " {it:.1} |").unwrap());
            println!("{row}");
            let lines =
                document.lines().map(|line| if line.starts_with(&name) { &row } else { line });
            document = lines.flat_map(|line| [line, "\n"]).collect();
        }
        std::fs::write(DOCUMENT, &document).unwrap();
    }
    document
}

/// The numbers of a row of the document.
fn kept(document: &str, name: &str) -> Vec<f64> {
    let row = document.lines().find_map(|line| line.strip_prefix(name));
    let row = row.unwrap_or_else(|| panic!("docs/method.md has no row `{name}`"));
    row.split('|').filter_map(|cell| cell.trim().parse().ok()).collect()
}

/// Percentages of some runs differ from those of many by chance: by no more than this, in all rows.
fn by_chance(percent: f64, runs: u32) -> f64 {
    let part = (percent / 100.0).clamp(0.02, 0.98);
    4.5 * 100.0 * (part * (1.0 - part) / f64::from(runs)).sqrt()
}

#[test]
fn the_tables_are_what_is_simulated() {
    let document = document();
    for (name, numbers) in tables(RUNS) {
        let kept = kept(&document, &name);
        assert_eq!(kept.len(), numbers.len(), "{name}: {kept:?}");
        let percentages = kept.len() - 1;
        for (kept, now) in kept.iter().zip(&numbers).take(percentages) {
            let slack = by_chance(*kept, RUNS);
            assert!((kept - now).abs() <= slack, "{name}: {kept} % in the document, now {now} %");
        }
    }
}

/// What `docs/method.md` promises holds in its tables. Half a point is chance.
#[test]
fn the_tables_keep_what_is_promised() {
    let document = document();
    for (at, (fall, deviation)) in EFFECTS.into_iter().enumerate() {
        for (noise, name) in NOISES {
            let what = format!("| {:.0} % | {:.0} % | {name} |", 100.0 * fall, 100.0 * deviation);
            let numbers = kept(&document, &what);
            // Where the change alters more than the level, the tests are not exact; and missing numbers cost power.
            if matches!(noise, ChangedVaries) {
                continue;
            }
            if at == 0 {
                assert!(numbers[0] <= 5.5, "{what}: {numbers:?}");
            } else if at == 1 {
                assert!(numbers[1] <= 5.5, "{what}: {numbers:?}");
            } else if !matches!(noise, Missing | WorstMissing) {
                assert!(numbers[0] >= 90.0 && numbers[1] <= 1.0, "{what}: {numbers:?}");
            }
            assert!(numbers[2] <= 5.5 && numbers[3] <= 5.5, "{what}: {numbers:?}");
        }
    }
    for (clock, others, name) in CLOCKS {
        let numbers = kept(&document, &format!("| {name} |"));
        let (follows, stays) = match clock {
            Clock::Follows => (others > 0.25 || numbers[0] >= 90.0, numbers[1] <= 5.5),
            Clock::Stays => (numbers[0] <= 5.5, others > 0.0 || numbers[1] >= 90.0),
            Clock::AnyPeriod | Clock::Chance => (numbers[0] <= 5.5, true),
        };
        assert!(follows && stays, "{name}: {numbers:?}");
    }
}
