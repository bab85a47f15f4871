// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which CPUs hold each other up: the rounds of the pair test, pair by pair.
//!
//! Two workers on CPUs of one core are both held up, both at once, and only while both compute. Whoever is held up while
//! the other one is not, or is held up alone, has to thank somebody else for it. What comes and goes is counted in
//! rounds: a machine whose CPUs are moved about shares a core now and then.

use super::{HELD_UP, is_sliced, quantile, share, sorted, speed};
use crate::recording::{CheckSetup, Mix, PairRound, Run};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Both keep less than this of what they do alone, on average: they share something. Two that share one core evenly
/// keep a half; one alone that is halved by somebody else makes three quarters.
pub const SHARED_BELOW: f64 = 0.72;
/// One alone has less than this of its usual speed: it was not alone.
const DISTURBED_BELOW: f64 = 0.85;
/// Part of a slot in which a worker must have had its CPU for the slot to count.
const MIN_SHARE: f64 = 0.9;
/// Part of a slot that must be left when a worker woke up late.
const MIN_PRESENT: f64 = 0.6;
/// Fewer rounds that count settle nothing.
pub const MIN_ROUNDS: u64 = 4;
/// A pair shares a core for good if it does so in this part of its rounds.
pub const STABLE_SHARE: f64 = 0.75;
/// Below this part of a few rounds it does not share for good, however those were chosen.
const LOOSE_SHARE: f64 = 0.25;
/// Between that and [`STABLE_SHARE`], so many rounds decide: five in eight of them, where it is three in four, are one
/// chance in ten.
const DECIDING_ROUNDS: u64 = 24;
/// It does so now and then from this part on, and more than once.
const SOMETIMES_SHARE: f64 = 0.02;

/// What a pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PairClass {
    /// Neither holds the other one up.
    Independent,
    /// Both get slower at once, and every chunk does: they are siblings of one core.
    SharedCore,
    /// Both stand still in turn and run at full speed in between: the hypervisor runs them on one CPU, one after the
    /// other.
    TimeSliced,
    /// They share now and then: the hypervisor moves them about.
    Sometimes,
    /// Too few rounds counted.
    Unclear,
}

impl PairClass {
    /// Whether the two share for good.
    #[must_use]
    pub fn is_shared(self) -> bool {
        matches!(self, Self::SharedCore | Self::TimeSliced)
    }
}

/// What came of the rounds of a pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// One CPU.
    pub a: u32,
    /// The other one.
    pub b: u32,
    /// What it is.
    pub class: PairClass,
    /// Whether the kernel is told that they share a core.
    pub told: bool,
    /// Rounds with the first mix.
    pub rounds: u64,
    /// Those that count: both were there, and alone while they should be.
    pub valid: u64,
    /// Of those that count: both were held up.
    pub shared: u64,
    /// Of those that count: one was held up, not by the other one.
    pub one_sided: u64,
    /// Not counted: a worker had not its usual speed while it was alone. Somebody else holds it up.
    pub disturbed: u64,
    /// Not counted: a worker woke up late or had to share its CPU with other tasks of this machine.
    pub missed: u64,
    /// What each keeps of its own speed while the other one computes, the mean of both, over the rounds that count:
    /// 10th percentile, median, 90th percentile. Absent if none counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<[f64; 3]>,
    /// The same of the length of a chunk: 1 = chunks are as short as alone. Median of the rounds in which they share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_ratio: Option<f64>,
    /// Median ratio with the second mix, where it was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<f64>,
    /// Time of a cache line from one to the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_way_ns: Option<u64>,
}

impl Pair {
    /// Whether more rounds could make something else of it: too few count, or they say neither that it shares for good
    /// nor that it does not.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        let part = self.shared as f64 / self.valid.max(1) as f64;
        let open = (LOOSE_SHARE..STABLE_SHARE).contains(&part);
        self.class != PairClass::Unclear && (!open || self.valid >= DECIDING_ROUNDS)
    }
}

/// What a round says.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Missed,
    Disturbed,
    Counts { ratio: f64, chunk: f64, one_sided: bool },
}

/// Each CPU's usual speed alone, by mix: the 90th percentile, which occasional disturbances do not reach.
type Usual = BTreeMap<(Mix, u32), f64>;

fn usual(rounds: &[PairRound]) -> Usual {
    let mut all: BTreeMap<(Mix, u32), Vec<f64>> = BTreeMap::new();
    for round in rounds {
        for (cpu, run) in [(round.a, &round.a_alone), (round.b, &round.b_alone)] {
            if let Some(speed) = speed(run) {
                all.entry((round.mix, cpu)).or_default().push(speed);
            }
        }
    }
    let high = |speeds: Vec<f64>| quantile(&sorted(speeds), 0.9);
    all.into_iter().filter_map(|(key, speeds)| Some((key, high(speeds)?))).collect()
}

fn outcome(round: &PairRound, usual: &Usual) -> Outcome {
    let there = |run: &Run, slots: u64| {
        let slot_ns = (round.slot_ns * slots).max(1) as f64;
        run.wall_ns as f64 >= MIN_PRESENT * slot_ns && share(run) >= MIN_SHARE
    };
    let (alone, together) = ([round.a_alone, round.b_alone], [round.a_together, round.b_together]);
    if !alone.iter().all(|run| there(run, 1)) || !together.iter().all(|run| there(run, 2)) {
        return Outcome::Missed;
    }
    let mut kept = [0.0; 2];
    let mut chunks = [1.0; 2];
    for (i, cpu) in [round.a, round.b].into_iter().enumerate() {
        let (Some(by_itself), Some(beside)) = (speed(&alone[i]), speed(&together[i])) else {
            return Outcome::Missed;
        };
        let best = usual.get(&(round.mix, cpu)).copied().unwrap_or(by_itself);
        if by_itself < DISTURBED_BELOW * best {
            return Outcome::Disturbed;
        }
        kept[i] = beside / by_itself;
        chunks[i] = alone[i].chunk_ns as f64 / together[i].chunk_ns.max(1) as f64;
    }
    let ratio = f64::midpoint(kept[0], kept[1]);
    let least = kept[0].min(kept[1]);
    Outcome::Counts {
        ratio,
        chunk: f64::midpoint(chunks[0], chunks[1]),
        one_sided: ratio >= SHARED_BELOW && least < HELD_UP,
    }
}

/// What came of each pair, in the order of their CPUs.
#[must_use]
pub fn pairs(
    setup: &CheckSetup,
    rounds: &[PairRound],
    distances_ns: &BTreeMap<(u32, u32), u64>,
) -> Vec<Pair> {
    let usual = usual(rounds);
    let mut by_pair: BTreeMap<(u32, u32), Vec<&PairRound>> = BTreeMap::new();
    for round in rounds {
        by_pair.entry((round.a, round.b)).or_default().push(round);
    }
    let told = |a: u32, b: u32| {
        let cores = setup.cores_told.as_deref().unwrap_or_default();
        cores.iter().any(|core| core.contains(&a) && core.contains(&b))
    };
    let pair = |((a, b), rounds): ((u32, u32), Vec<&PairRound>)| {
        let of = |mix: Mix| rounds.iter().filter(move |round| round.mix == mix);
        let outcomes: Vec<_> = of(Mix::Adds).map(|round| outcome(round, &usual)).collect();
        let confirmed = of(Mix::Divs).filter_map(|round| match outcome(round, &usual) {
            Outcome::Counts { ratio, .. } => Some(ratio),
            _ => None,
        });
        let mut pair = summed(a, b, &outcomes);
        pair.told = told(a, b);
        pair.confirmed = quantile(&sorted(confirmed), 0.5);
        pair.one_way_ns = distances_ns.get(&(a, b)).copied();
        pair
    };
    by_pair.into_iter().map(pair).collect()
}

fn summed(a: u32, b: u32, outcomes: &[Outcome]) -> Pair {
    let count = |is: fn(&Outcome) -> bool| outcomes.iter().filter(|o| is(o)).count() as u64;
    let ratios = sorted(outcomes.iter().filter_map(|outcome| match outcome {
        Outcome::Counts { ratio, .. } => Some(*ratio),
        _ => None,
    }));
    let shared: Vec<(f64, f64)> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::Counts { ratio, chunk, .. } if *ratio < SHARED_BELOW => Some((*ratio, *chunk)),
            _ => None,
        })
        .collect();
    let chunk_ratio = quantile(&sorted(shared.iter().map(|(_, chunk)| *chunk)), 0.5);
    let shared_ratio = quantile(&sorted(shared.iter().map(|(ratio, _)| *ratio)), 0.5);
    let (valid, shared) = (ratios.len() as u64, shared.len() as u64);
    let part = shared as f64 / valid.max(1) as f64;
    let class = match (shared_ratio, chunk_ratio) {
        _ if valid < MIN_ROUNDS => PairClass::Unclear,
        (Some(ratio), Some(chunk)) if part >= STABLE_SHARE => match is_sliced(ratio, chunk) {
            true => PairClass::TimeSliced,
            false => PairClass::SharedCore,
        },
        _ if shared > 1 && part >= SOMETIMES_SHARE => PairClass::Sometimes,
        _ => PairClass::Independent,
    };
    let at = |part: f64| quantile(&ratios, part);
    Pair {
        a,
        b,
        class,
        told: false,
        rounds: outcomes.len() as u64,
        valid,
        shared,
        one_sided: count(|o| matches!(o, Outcome::Counts { one_sided: true, .. })),
        disturbed: count(|o| matches!(o, Outcome::Disturbed)),
        missed: count(|o| matches!(o, Outcome::Missed)),
        ratio: at(0.1).zip(at(0.5)).zip(at(0.9)).map(|((low, mid), high)| [low, mid, high]),
        chunk_ratio,
        confirmed: None,
        one_way_ns: None,
    }
}

/// The pairs that hold each other up at a first look, worth testing further.
#[must_use]
pub fn suspects(rounds: &[PairRound]) -> Vec<(u32, u32)> {
    let usual = usual(rounds);
    let mut found = BTreeSet::new();
    for round in rounds {
        // A round that does not count is no reason to look away.
        let suspect = match outcome(round, &usual) {
            Outcome::Counts { ratio, .. } => ratio < HELD_UP,
            Outcome::Disturbed | Outcome::Missed => true,
        };
        if suspect {
            found.insert((round.a, round.b));
        }
    }
    found.into_iter().collect()
}

/// CPUs in groups of those that share for good, each CPU in one group.
#[must_use]
pub fn groups(cpus: &[u32], shared: impl IntoIterator<Item = (u32, u32)>) -> Vec<Vec<u32>> {
    let mut group: BTreeMap<u32, u32> = cpus.iter().map(|&cpu| (cpu, cpu)).collect();
    for (a, b) in shared {
        let (Some(&of_a), Some(&of_b)) = (group.get(&a), group.get(&b)) else { continue };
        let (keep, drop) = (of_a.min(of_b), of_a.max(of_b));
        group.values_mut().filter(|of| **of == drop).for_each(|of| *of = keep);
    }
    let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (cpu, of) in group {
        groups.entry(of).or_default().push(cpu);
    }
    groups.into_values().collect()
}
