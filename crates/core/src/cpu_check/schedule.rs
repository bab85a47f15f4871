// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plan of a check: what is measured, in which order and for how long.
//!
//! No measurement loads a CPU for more than half of the time: each step of the sweep and each slot of the pair test is
//! followed by a rest of the same length. Slots are short, because their workers may run before ordinary tasks.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

const MS: u64 = 1_000_000;

/// Number of slots in a round of the pair test: one worker alone, both, the other one alone, both.
pub const SLOTS: u64 = 4;
/// Longest slot. An ordinary task may have to wait this long for a worker of the pair test.
pub const SLOT_NS: u64 = 10 * MS;
/// Length of a slot when many pairs are screened.
pub const SCREEN_SLOT_NS: u64 = 2 * MS;
/// Number of screening rounds for each pair.
pub const SCREEN_ROUNDS: u32 = 2;
/// Number of rounds with full slots for each pair.
pub const ROUNDS: u32 = 8;
/// Number of rounds with the second instruction mix for each pair to be confirmed.
pub const CONFIRM_ROUNDS: u32 = 2;
/// Maximum number of pairs to be confirmed.
pub const CONFIRM_PAIRS: usize = 8;
/// If a cache line takes at least this long from one CPU to another, one of the two CPUs was not running.
pub const STUCK_NS: u64 = 10_000;

/// Time limits of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Time for the sweep, including rests.
    pub sweep_ns: u64,
    /// Maximum number of steps of the sweep.
    pub steps: usize,
    /// Maximum length of a step.
    pub step_ns: u64,
    /// Time for the cache-line latencies between CPUs.
    pub distances_ns: u64,
    /// Time for the pair test, including rests.
    pub pairs_ns: u64,
    /// Maximum time for the pair test if pairs are still undecided after `pairs_ns`, because they were disturbed or
    /// other tasks used their CPUs.
    pub longest_pairs_ns: u64,
    /// Whether the pair test uses all of its time, which is needed to see intermittent effects.
    pub fill: bool,
}

/// Takes up to 15 s, or 30 s on a disturbed machine.
pub const QUICK: Budget = Budget {
    sweep_ns: 5_000 * MS,
    steps: 12,
    step_ns: 400 * MS,
    distances_ns: 900 * MS,
    pairs_ns: 8_000 * MS,
    longest_pairs_ns: 23_000 * MS,
    fill: false,
};

/// Takes about one minute on small machines, and two on large ones.
pub const FULL: Budget = Budget {
    sweep_ns: 48_000 * MS,
    steps: 24,
    step_ns: 1_000 * MS,
    distances_ns: 20_000 * MS,
    pairs_ns: 40_000 * MS,
    longest_pairs_ns: 80_000 * MS,
    fill: true,
};

/// Plan of the sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// Number of workers of each step, ascending.
    pub workers: Vec<u32>,
    /// Length of a step, and of the rest after it.
    pub step_ns: u64,
}

/// Plans steps from one worker to twice the number of CPUs: every number, or, on large machines, as many steps as there
/// is time for. One worker, and the numbers around half, all and twice the CPUs, are always included.
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
        // Evenly spaced numbers for the remaining steps.
        let free = steps.saturating_sub(workers.len() as u64);
        let places = (1..=free).map(|i| i * u64::from(all) / (free + 1));
        // Each is below `all`, which is a u32.
        workers.extend(places.map(|n| n.max(1) as u32));
    }
    let each_ns = budget.sweep_ns / (2 * workers.len() as u64);
    Sweep { workers: workers.into_iter().collect(), step_ns: budget.step_ns.min(each_ns) }
}

/// All pairs of CPUs.
#[must_use]
pub fn all_pairs(cpus: &[u32]) -> Vec<(u32, u32)> {
    let from = |(at, &a): (usize, &u32)| cpus[at + 1..].iter().map(move |&b| (a, b));
    cpus.iter().enumerate().flat_map(from).collect()
}

/// Sorts pairs by priority for testing: first those that share a core according to the kernel, then those with a stuck
/// cache line ([`STUCK_NS`]), then by cache-line latency. CPUs of one core have a low latency, so a short budget leaves
/// out the pairs that matter least. Pairs without a latency come last.
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

/// Length of a round with slots of this length, including rests.
#[must_use]
pub fn round_ns(slot_ns: u64) -> u64 {
    2 * SLOTS * slot_ns
}

/// Longest slot with which [`ROUNDS`] rounds of so many pairs fit into the remaining time, between [`SCREEN_SLOT_NS`]
/// and [`SLOT_NS`].
#[must_use]
pub fn slot_ns(pairs: usize, left_ns: u64) -> u64 {
    let slots = 2 * SLOTS * u64::from(ROUNDS) * pairs.max(1) as u64;
    (left_ns / slots).clamp(SCREEN_SLOT_NS, SLOT_NS)
}

/// Whether there is too little time for [`ROUNDS`] rounds with full slots of so many pairs. Then all pairs are screened
/// with shorter slots, and only those that slow each other down are tested further.
#[must_use]
pub fn needs_screening(pairs: usize, budget: &Budget) -> bool {
    pairs as u64 * u64::from(ROUNDS) * round_ns(SLOT_NS) > budget.pairs_ns
}
