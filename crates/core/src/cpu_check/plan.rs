// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is measured, in which order and for how long.
//!
//! Nothing loads a CPU for more than half of the time: a step of the sweep is followed by a rest as long, and so
//! is each slot of the pair test. Slots are short, for their workers may have precedence over ordinary tasks.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

const MS: u64 = 1_000_000;

/// Slots of a round of the pair test: one alone, both, the other one alone, both.
pub const SLOTS: u64 = 4;
/// Longest slot: for so long an ordinary task may have to wait for a worker of the pair test.
pub const SLOT_NS: u64 = 10 * MS;
/// Slot of a first look at many pairs.
pub const SCREEN_SLOT_NS: u64 = 2 * MS;
/// Rounds of a first look.
pub const SCREEN_ROUNDS: u32 = 2;
/// Rounds of a pair with full slots.
pub const ROUNDS: u32 = 8;
/// Rounds of a confirmed pair with the second mix.
pub const CONFIRM_ROUNDS: u32 = 2;
/// Confirmed pairs that get them.
pub const CONFIRM_PAIRS: usize = 8;
/// A cache line that takes longer from one CPU to another was stuck: one of the two did not run meanwhile.
pub const STUCK_NS: u64 = 10_000;

/// How much time there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// For the sweep, rests included.
    pub sweep_ns: u64,
    /// Most steps of the sweep.
    pub steps: usize,
    /// Longest step.
    pub step_ns: u64,
    /// For the distances between CPUs.
    pub distances_ns: u64,
    /// For the pair test, rests included.
    pub pairs_ns: u64,
    /// For it in all, if pairs are not decided by then: others held them up, or had their CPUs.
    pub longest_pairs_ns: u64,
    /// Whether the pair test goes on until its time is over: what comes and goes is seen only so.
    pub fill: bool,
}

/// Within 15 s; 30 where the machine is disturbed.
pub const QUICK: Budget = Budget {
    sweep_ns: 5_000 * MS,
    steps: 12,
    step_ns: 400 * MS,
    distances_ns: 900 * MS,
    pairs_ns: 8_000 * MS,
    longest_pairs_ns: 23_000 * MS,
    fill: false,
};

/// About a minute on small machines, two on large ones.
pub const FULL: Budget = Budget {
    sweep_ns: 48_000 * MS,
    steps: 24,
    step_ns: 1_000 * MS,
    distances_ns: 20_000 * MS,
    pairs_ns: 40_000 * MS,
    longest_pairs_ns: 80_000 * MS,
    fill: true,
};

/// The sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// Workers of each step, ascending.
    pub workers: Vec<u32>,
    /// Length of a step, and of the rest after it.
    pub step_ns: u64,
}

/// Steps from 1 to twice the CPUs: all of them, or, on large machines, as many as there is time for, always with those
/// around a half, the whole and the double of the CPUs.
#[must_use]
pub fn sweep(cpus: usize, budget: &Budget) -> Sweep {
    let cpus = u32::try_from(cpus.max(1)).unwrap_or(u32::MAX / 2);
    let all = 2 * cpus;
    let mut workers: BTreeSet<u32> =
        [1, cpus / 2, cpus / 2 + 1, cpus - 1, cpus, cpus + 1, all].into();
    workers.retain(|&n| (1..=all).contains(&n));
    let steps = budget.steps.max(workers.len()) as u64;
    if u64::from(all) <= steps {
        workers.extend(1..=all);
    } else {
        // As many even places as fill what is left.
        let free = steps.saturating_sub(workers.len() as u64);
        let places = (1..=free).map(|i| i * u64::from(all) / (free + 1));
        // Below `all`, which is a u32.
        workers.extend(places.map(|n| n.max(1) as u32));
    }
    let each_ns = budget.sweep_ns / (2 * workers.len() as u64);
    Sweep { workers: workers.into_iter().collect(), step_ns: budget.step_ns.min(each_ns) }
}

/// All pairs of these CPUs.
#[must_use]
pub fn all_pairs(cpus: &[u32]) -> Vec<(u32, u32)> {
    let from = |(at, &a): (usize, &u32)| cpus[at + 1..].iter().map(move |&b| (a, b));
    cpus.iter().enumerate().flat_map(from).collect()
}

/// The same pairs in the order in which they are worth testing: first those that share a core according to the
/// kernel, then those between which a cache line got stuck, then the near ones. CPUs of one core are never far from
/// each other, so what a short budget leaves out is what matters least. A pair without a distance is as far as can be.
#[must_use]
pub fn by_worth(
    mut pairs: Vec<(u32, u32)>,
    told: &[Vec<u32>],
    distances_ns: &BTreeMap<(u32, u32), u64>,
) -> Vec<(u32, u32)> {
    let core: BTreeMap<u32, usize> =
        told.iter().enumerate().flat_map(|(i, cpus)| cpus.iter().map(move |&c| (c, i))).collect();
    pairs.sort_by_key(|&(a, b)| {
        let is_told = core.get(&a).is_some_and(|core_of_a| core.get(&b) == Some(core_of_a));
        let ns = distances_ns.get(&(a, b)).copied();
        let is_stuck = ns.is_some_and(|ns| ns >= STUCK_NS);
        (Reverse(is_told), Reverse(is_stuck), ns.unwrap_or(u64::MAX), (a, b))
    });
    pairs
}

/// Length of a round with slots of that length, rests included.
#[must_use]
pub fn round_ns(slot_ns: u64) -> u64 {
    2 * SLOTS * slot_ns
}

/// Longest slot with which there is time for [`ROUNDS`] of that many pairs, no shorter than that of a first look.
#[must_use]
pub fn slot_ns(pairs: usize, left_ns: u64) -> u64 {
    let slots = 2 * SLOTS * u64::from(ROUNDS) * pairs.max(1) as u64;
    (left_ns / slots).clamp(SCREEN_SLOT_NS, SLOT_NS)
}

/// Whether there is time for [`ROUNDS`] full rounds of that many pairs. If not, they get a first look with shorter
/// slots, and only those that hold each other up are tested further.
#[must_use]
pub fn needs_screening(pairs: usize, budget: &Budget) -> bool {
    pairs as u64 * u64::from(ROUNDS) * round_ns(SLOT_NS) > budget.pairs_ns
}
