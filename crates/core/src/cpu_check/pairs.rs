// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Evaluates the rounds of the pair test, pair by pair: which CPUs slow each other down.
//!
//! Two workers on CPUs of one core are both slowed down, at the same time, and only while both compute. If only one of
//! them is slowed down, or one of them while it is alone, the cause is something else. Intermittent effects are counted
//! in rounds: if a hypervisor moves CPUs about, two of them occasionally share a core.

use super::{HELD_UP, is_sliced, quantile, share, sorted, speed};
use crate::recording::{CheckSetup, Mix, PairRound, Run};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Two workers share a core or a CPU of the host if together they keep less than this ratio of their speed alone, as
/// the mean of both. Two workers that share a core evenly keep 0.5. If only one is halved by something else, the mean
/// is 0.75.
pub const SHARED_BELOW: f64 = 0.72;
/// If the speed of a worker alone is less than this ratio of its usual speed, it was disturbed by something else.
const DISTURBED_BELOW: f64 = 0.85;
/// Minimum share of its wall time in which a worker must have had its CPU for the round to be valid.
const MIN_SHARE: f64 = 0.9;
/// Minimum part of a slot that must be left after a late wake-up of the worker for the round to be valid.
const MIN_PRESENT: f64 = 0.6;
/// Minimum number of valid rounds to classify a pair.
pub const MIN_ROUNDS: u64 = 4;
/// A pair shares permanently if it shares in at least this part of its rounds.
pub const STABLE_SHARE: f64 = 0.75;
/// Number of valid rounds from which on [`STABLE_SHARE`] of them is enough; with fewer, all must be shared. Of a pair
/// that shares in a quarter of its rounds by chance, 3 of 4 are shared in one case of twenty, 6 of 8 or 4 of 4 in one of 250.
const SURE_ROUNDS: u64 = 8;
/// Two groups of CPUs are one if at least this part of the rounds of all pairs between them is shared.
const ONE_GROUP_SHARE: f64 = 0.5;
/// A pair that shares in less than this part of its rounds does not share permanently, even if the rounds are few.
const LOOSE_SHARE: f64 = 0.25;
/// Number of rounds that decide a part between [`LOOSE_SHARE`] and [`STABLE_SHARE`]: if the true part is 3/4, so many
/// rounds show 5/8 with a probability of one in ten.
const DECIDING_ROUNDS: u64 = 24;
/// A pair shares occasionally if it shares in at least this part of its rounds, and in more than one round.
const SOMETIMES_SHARE: f64 = 0.02;

/// How two CPUs affect each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PairClass {
    /// Neither slows the other one down.
    Independent,
    /// Both become slower at the same time, in every chunk: they are siblings of one core.
    SharedCore,
    /// Both stop in turn and run at full speed in between: the hypervisor runs them in turns on one CPU.
    TimeSliced,
    /// They share occasionally: the hypervisor moves them about.
    Sometimes,
    /// Too few rounds are valid, or few and at odds.
    Unclear,
}

impl PairClass {
    /// Whether the two share permanently.
    #[must_use]
    pub fn is_shared(self) -> bool {
        matches!(self, Self::SharedCore | Self::TimeSliced)
    }
}

/// Result of the rounds of a pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// First CPU.
    pub a: u32,
    /// Second CPU.
    pub b: u32,
    /// Class of the pair.
    pub class: PairClass,
    /// Whether the two share a core according to the kernel.
    pub told: bool,
    /// Number of rounds with the first instruction mix ([`Mix::Adds`]).
    pub rounds: u64,
    /// Number of valid rounds: both workers ran, and were undisturbed while alone.
    pub valid: u64,
    /// Number of valid rounds in which both were slowed down.
    pub shared: u64,
    /// Number of valid rounds in which one was slowed down, but not by the other one.
    pub one_sided: u64,
    /// Number of invalid rounds in which a worker did not have its usual speed while alone: something else slowed it
    /// down.
    pub disturbed: u64,
    /// Number of invalid rounds in which a worker woke up late or shared its CPU with other tasks of this machine.
    pub missed: u64,
    /// Ratio of a worker's speed together with the other one to its speed alone, as the mean of both: 10th percentile,
    /// median and 90th percentile over the valid rounds. Absent without valid rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<[f64; 3]>,
    /// Ratio of the duration of a chunk alone to that of a chunk together, as the mean of both; 1 = no longer than
    /// alone. Median over the rounds in which they share; absent without such rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_ratio: Option<f64>,
    /// Median ratio with the second instruction mix ([`Mix::Divs`]); absent if not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<f64>,
    /// Time until a cache line written on one CPU is visible to the other one, in nanoseconds; absent if not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_way_ns: Option<u64>,
}

impl Pair {
    /// Whether further rounds are unlikely to change the class: enough rounds are valid, and they show clearly whether
    /// the pair shares permanently, or are numerous.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        let part = self.shared as f64 / self.valid.max(1) as f64;
        let open = (LOOSE_SHARE..STABLE_SHARE).contains(&part);
        self.class != PairClass::Unclear && (!open || self.valid >= DECIDING_ROUNDS)
    }
}

/// Result of a round.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Missed,
    Disturbed,
    Counts { ratio: f64, chunk: f64, one_sided: bool },
}

/// Usual speed of each CPU alone, by instruction mix: the 90th percentile, which occasional disturbances do not affect.
type UsualSpeeds = BTreeMap<(Mix, u32), f64>;

fn usual(rounds: &[PairRound]) -> UsualSpeeds {
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

fn outcome(round: &PairRound, usual: &UsualSpeeds) -> Outcome {
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

/// Evaluates the rounds of each pair. Pairs are ordered by CPU numbers.
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
        _ if part >= STABLE_SHARE && shared < valid && valid < SURE_ROUNDS => PairClass::Unclear,
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

/// Pairs to test further after screening: those that slow each other down in a round, or have an invalid round.
#[must_use]
pub fn suspects(rounds: &[PairRound]) -> Vec<(u32, u32)> {
    let usual = usual(rounds);
    let mut found = BTreeSet::new();
    for round in rounds {
        // An invalid round does not clear a pair.
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

/// Groups CPUs that share permanently, directly or through others. Each CPU is in exactly one group.
///
/// Who shares permanently with the same CPU shares with each other. A pair that says so by chance is therefore
/// contradicted by the other pairs between the two groups that it would join: all their rounds decide. The pairs that
/// share most clearly come first.
#[must_use]
pub fn groups(cpus: &[u32], pairs: &[Pair]) -> Vec<Vec<u32>> {
    let mut group: BTreeMap<u32, u32> = cpus.iter().map(|&cpu| (cpu, cpu)).collect();
    let mut links: Vec<&Pair> = pairs.iter().filter(|pair| pair.class.is_shared()).collect();
    let part = |pair: &Pair| pair.shared as f64 / pair.valid.max(1) as f64;
    links.sort_by(|x, y| part(y).total_cmp(&part(x)).then_with(|| y.valid.cmp(&x.valid)));
    let mut of_cpu: BTreeMap<u32, Vec<(u32, &Pair)>> = BTreeMap::new();
    for pair in pairs {
        of_cpu.entry(pair.a).or_default().push((pair.b, pair));
        of_cpu.entry(pair.b).or_default().push((pair.a, pair));
    }
    for link in links {
        let (Some(&of_a), Some(&of_b)) = (group.get(&link.a), group.get(&link.b)) else { continue };
        if of_a == of_b {
            continue;
        }
        let (keep, drop) = (of_a.min(of_b), of_a.max(of_b));
        let members = group.iter().filter(|(_, of)| **of == drop).map(|(cpu, _)| cpu);
        let (shared, valid) = members
            .flat_map(|cpu| of_cpu.get(cpu).into_iter().flatten())
            .filter(|(other, _)| group.get(other) == Some(&keep))
            .fold((0, 0), |(shared, valid), (_, pair)| (shared + pair.shared, valid + pair.valid));
        if shared as f64 >= ONE_GROUP_SHARE * valid as f64 {
            group.values_mut().filter(|of| **of == drop).for_each(|of| *of = keep);
        }
    }
    let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (cpu, of) in group {
        groups.entry(of).or_default().push(cpu);
    }
    groups.into_values().collect()
}
