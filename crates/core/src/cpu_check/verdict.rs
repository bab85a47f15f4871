// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Combines the measurements into a verdict.
//!
//! The pair test shows which CPUs slow each other down, and the sweep shows the effect. Each can be sufficient: if
//! workers on all n CPUs do n times the work of one, no cores are shared, even if the pair test was disturbed.

use super::document::{Class, CpuCheck, Cpus, Group, Verdict};
use super::pairs::{self, MIN_ROUNDS, Pair, PairClass};
use super::sweep::{self, Regime, Step};
use super::{HELD_UP, circumstances, quantile, share, sorted, speed, words};
use crate::recording::Mix;
use crate::view::{CpuCheckView, View};
use std::collections::BTreeMap;

/// If the machine does at least this part of the work of as many independent CPUs, nothing is shared permanently.
const WHOLE: f64 = 0.85;
/// If it does less than this part, a lower clock frequency under full load cannot be the only cause.
const LESS: f64 = 0.7;
/// Minimum part of the rounds with slowdowns from outside for [`Class::Foreign`].
const FOREIGN_SHARE: f64 = 0.1;
/// CPUs differ in speed if the slowest has less than this ratio of the speed of the fastest.
const EQUAL: f64 = 0.85;
/// Work per core, in cores, above which the sweep refutes their number: two siblings of a core do at most about a third
/// more than one.
const TOO_MUCH: f64 = 1.5;
/// CPU time of other tasks per used CPU, in CPUs, above which they are reported as a doubt.
const BUSY: f64 = 0.2;

/// Evaluates a check; `None` if the view has none.
#[must_use]
pub fn judge(view: &View) -> Option<CpuCheck> {
    let check = view.cpu_check();
    let setup = check.setup.as_ref()?;
    let distances: BTreeMap<_, _> =
        check.distances.list().iter().map(|d| ((d.a, d.b), d.one_way_ns)).collect();
    let mut pairs = pairs::pairs(setup, check.rounds.list(), &distances);
    let steps = sweep::steps(setup.cpus.len(), check.workers.list());
    let mut groups = groups(&setup.cpus, &mut pairs);
    let more = sweep::most_work(setup.cpus.len(), &steps) > TOO_MUCH * groups.len() as f64;
    // What the kernel tells is not at issue.
    let refuted = more && pairs.iter().any(|pair| pair.class.is_shared() && !pair.told);
    if refuted {
        // At least some of the pairs did not share during the sweep; which, it does not show.
        let surprising = pairs.iter_mut().filter(|pair| pair.class.is_shared() && !pair.told);
        surprising.for_each(|pair| pair.class = PairClass::Sometimes);
        groups = self::groups(&setup.cpus, &mut pairs);
    }
    let n = setup.cpus.len() as u64;
    let mut facts = Facts {
        cpus: circumstances::cpus(view, setup),
        groups,
        refuted,
        pairs_in_all: n * n.saturating_sub(1) / 2,
        alone: evenness_alone(check),
        pairs,
        steps,
    };
    let verdict = verdict(&facts);
    facts.groups.retain(|group| group.cpus.len() > 1);
    Some(CpuCheck {
        cpus: facts.cpus,
        verdict,
        groups: facts.groups,
        sweep: facts.steps,
        pairs: facts.pairs,
        pairs_in_all: facts.pairs_in_all,
    })
}

/// Evaluated measurements.
pub(super) struct Facts {
    pub(super) cpus: Cpus,
    /// Groups of CPUs that share permanently. Each CPU is in exactly one group.
    pub(super) groups: Vec<Group>,
    pub(super) pairs: Vec<Pair>,
    pub(super) pairs_in_all: u64,
    /// Whether the sweep did more work than the cores could that the pair test found, beyond what the kernel tells.
    pub(super) refuted: bool,
    pub(super) steps: Vec<Step>,
    /// Ratio of the usual speed alone of the slowest CPU to that of the fastest one.
    pub(super) alone: Option<f64>,
}

impl Facts {
    pub(super) fn used(&self) -> usize {
        self.cpus.used.len()
    }

    /// Ratio of the work with one worker per CPU to what as many cores would do.
    pub(super) fn wholeness(&self) -> Option<f64> {
        Some(sweep::capacity(self.used(), &self.steps)? / self.used().max(1) as f64)
    }

    pub(super) fn unclear(&self) -> usize {
        self.pairs.iter().filter(|pair| pair.class == PairClass::Unclear).count()
    }

    /// Whether the class of each tested pair is known, or there is only one CPU.
    fn pairs_are_known(&self) -> bool {
        self.used() <= 1 || (!self.pairs.is_empty() && self.unclear() == 0)
    }

    pub(super) fn hidden(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(|group| group.cpus.len() > 1 && !group.told)
    }

    /// Part of the rounds in which a worker was slowed down by something other than the two workers. A single such
    /// round counts as chance.
    pub(super) fn foreign_share(&self) -> f64 {
        let sum = |of: fn(&Pair) -> u64| self.pairs.iter().map(of).sum::<u64>();
        let held_up = Some(sum(|pair| pair.one_sided + pair.disturbed)).filter(|&times| times > 1);
        held_up.unwrap_or(0) as f64 / sum(|pair| pair.valid + pair.disturbed).max(1) as f64
    }

    /// Part of the rounds in which both workers were slowed down, over the pairs that do not share permanently.
    pub(super) fn sometimes_share(&self) -> f64 {
        let loose = || self.pairs.iter().filter(|pair| !pair.class.is_shared());
        let shared: u64 = loose().map(|pair| pair.shared).sum();
        shared as f64 / loose().map(|pair| pair.valid).sum::<u64>().max(1) as f64
    }

    fn has(&self, regimes: &[Regime]) -> bool {
        let within = self.steps.iter().filter(|step| step.workers as usize <= self.used());
        within.into_iter().any(|step| regimes.contains(&step.regime))
    }
}

/// The groups. A pair across two groups, whose own rounds alone would have made them one, is one that shares
/// occasionally.
fn groups(cpus: &[u32], pairs: &mut [Pair]) -> Vec<Group> {
    let groups = pairs::groups(cpus, pairs);
    for pair in pairs.iter_mut().filter(|pair| pair.class.is_shared()) {
        if !groups.iter().any(|group| group.contains(&pair.a) && group.contains(&pair.b)) {
            pair.class = PairClass::Sometimes;
        }
    }
    let shared = || pairs.iter().filter(|pair| pair.class.is_shared());
    let group = |cpus: Vec<u32>| {
        let inside: Vec<&Pair> = shared().filter(|pair| cpus.contains(&pair.a)).collect();
        let ratios = sorted(inside.iter().filter_map(|pair| pair.ratio.map(|ratio| ratio[1])));
        let sliced = inside.iter().filter(|pair| pair.class == PairClass::TimeSliced).count();
        Group {
            told: inside.iter().all(|pair| pair.told),
            time_sliced: 2 * sliced > inside.len(),
            ratio: quantile(&ratios, 0.5).unwrap_or(1.0),
            cpus,
        }
    };
    groups.into_iter().map(group).collect()
}

/// Ratio of the usual speed alone of the slowest CPU to that of the fastest one.
fn evenness_alone(check: &CpuCheckView) -> Option<f64> {
    let mut by_cpu: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for round in check.rounds.list().iter().filter(|round| round.mix == Mix::Adds) {
        for (cpu, run) in [(round.a, &round.a_alone), (round.b, &round.b_alone)] {
            by_cpu.entry(cpu).or_default().extend(speed(run).filter(|_| share(run) > 0.5));
        }
    }
    let settled = by_cpu.into_values().filter(|speeds| speeds.len() as u64 >= MIN_ROUNDS);
    let usual = sorted(settled.filter_map(|speeds| quantile(&sorted(speeds), 0.9)));
    Some(usual.first()? / usual.last()?)
}

fn verdict(facts: &Facts) -> Verdict {
    let class = class(facts);
    let wholeness = facts.wholeness();
    let groups = facts.groups.len() as u32;
    let usable_cores = match class {
        Class::Inconclusive => None,
        Class::Foreign if !facts.pairs_are_known() => None,
        // Unclear pairs may share too, so only the sweep shows the number of cores.
        _ if !facts.pairs_are_known() => {
            let most = sweep::most_work(facts.used(), &facts.steps);
            let by_sweep = (most.round() as u32).clamp(1, groups);
            // The groups are an upper bound and, where something outside slows CPUs down, the sweep is a lower one.
            let is_known = by_sweep == groups || facts.foreign_share() < FOREIGN_SHARE;
            wholeness.filter(|_| is_known).map(|_| by_sweep)
        }
        _ => Some(groups),
    };
    let even_workers =
        (!facts.steps.is_empty()).then(|| sweep::even_up_to(facts.used(), &facts.steps));
    let (held_up_speed, held_up_share) = held_up(facts, class);
    let confidence = confidence(facts, class, usable_cores);
    Verdict {
        class,
        usable_cores,
        even_workers,
        held_up_speed,
        held_up_share,
        confidence,
        summary: words::summary(facts, class, usable_cores),
        advice: words::advice(facts, class, usable_cores),
        doubts: doubts(facts),
    }
}

fn class(facts: &Facts) -> Class {
    let sliced = facts.hidden().filter(|group| group.time_sliced).count();
    let hidden = facts.hidden().count();
    if hidden > 0 {
        return if 2 * sliced >= hidden { Class::TimeSliced } else { Class::SharedCore };
    }
    let whole = facts.wholeness().map(|part| part >= WHOLE);
    let told = facts.groups.iter().any(|group| group.cpus.len() > 1);
    if !facts.pairs_are_known() && whole != Some(true) {
        return by_sweep(facts);
    }
    if facts.foreign_share() >= FOREIGN_SHARE {
        return Class::Foreign;
    }
    if told {
        return Class::SharedAsTold;
    }
    // The CPUs do not slow each other down: if they do less work together, something outside or the clock slows them
    // down.
    if whole == Some(false) && facts.has(&[Regime::Stopped, Regime::AllStopped]) {
        return Class::Foreign;
    }
    let falls = whole == Some(false) && facts.has(&[Regime::Slower, Regime::AllSlower]);
    if falls || facts.alone.is_some_and(|alone| alone < EQUAL) {
        return Class::Clock;
    }
    Class::Even
}

/// Class from the sweep alone, for unclear pairs: workers had all the CPU time they could have, but did much less work
/// in it than a lower clock frequency could explain.
fn by_sweep(facts: &Facts) -> Class {
    // What slows down a worker that is alone also slows down those of the sweep.
    if facts.foreign_share() >= FOREIGN_SHARE {
        return Class::Foreign;
    }
    let full = facts.steps.iter().find(|step| step.workers as usize == facts.used());
    let part = facts.wholeness().filter(|_| !facts.pairs.is_empty());
    match (full.map(|step| step.regime), part) {
        (Some(Regime::Stopped | Regime::AllStopped), Some(part)) if part < LESS => {
            Class::TimeSliced
        }
        (Some(Regime::Slower | Regime::AllSlower), Some(part)) if part < LESS => Class::SharedCore,
        _ => Class::Inconclusive,
    }
}

/// Ratio of its speed that a slowed-down worker keeps, and share of the time in which a worker is slowed down.
fn held_up(facts: &Facts, class: Class) -> (Option<f64>, f64) {
    match class {
        Class::SharedCore | Class::TimeSliced | Class::SharedAsTold => {
            let ratios = sorted(
                facts.groups.iter().filter(|group| group.cpus.len() > 1).map(|group| group.ratio),
            );
            (quantile(&ratios, 0.5).or_else(|| facts.wholeness()), 1.0)
        }
        Class::Foreign | Class::Even if facts.used() > 1 => {
            let lowest = facts.pairs.iter().filter_map(|pair| pair.ratio.map(|ratio| ratio[0]));
            let share = (facts.foreign_share() + facts.sometimes_share()).min(1.0);
            (lowest.min_by(f64::total_cmp).filter(|ratio| *ratio < HELD_UP), share)
        }
        Class::Clock => (facts.alone, 1.0),
        _ => (None, 0.0),
    }
}

fn confidence(facts: &Facts, class: Class, usable_cores: Option<u32>) -> f64 {
    if class == Class::Inconclusive {
        return 0.0;
    }
    // n valid rounds of a pair give n / (n + 1): 0.8 with the minimum of four.
    let valid = facts.pairs.iter().map(|pair| pair.valid).min().unwrap_or(0) as f64;
    let rounds = if facts.used() <= 1 { 0.9 } else { valid / (valid + 1.0) };
    let by_sweep = match (sweep::capacity(facts.used(), &facts.steps), usable_cores) {
        // Two siblings of a core do slightly more work together than one alone.
        (Some(work), Some(cores)) => {
            let off = (work / f64::from(cores.max(1)) - 1.0).abs();
            1.0 - (off - 0.3).clamp(0.0, 0.5)
        }
        _ => 0.8,
    };
    let known = 1.0 - facts.unclear() as f64 / (facts.pairs.len().max(1) as f64 * 2.0);
    let rounds = if facts.pairs_are_known() { rounds } else { rounds.max(0.7) };
    (rounds * by_sweep * known * 100.0).round() / 100.0
}

fn doubts(facts: &Facts) -> Vec<String> {
    let mut doubts = Vec::new();
    if facts.refuted {
        doubts.push(words::refuted(sweep::most_work(facts.used(), &facts.steps)));
    }
    if let Some(others) = facts.cpus.others
        && others > BUSY * facts.used() as f64
    {
        doubts.push(words::others(others));
    }
    if let Some(limit) = &facts.cpus.limit {
        doubts.push(words::limit(limit));
    }
    if facts.used() > 1 && !facts.cpus.realtime {
        doubts.push(words::NOT_REALTIME.into());
    }
    let untested = facts.pairs_in_all.saturating_sub(facts.pairs.len() as u64);
    if untested > 0 {
        doubts.push(words::untested(facts.pairs.len(), facts.pairs_in_all));
    }
    if facts.unclear() > 0 {
        doubts.push(words::unclear(facts.unclear()));
    }
    if (facts.used() as u32) < facts.cpus.online {
        doubts.push(words::not_all(&facts.cpus));
    }
    if !facts.cpus.offline.is_empty() {
        doubts.push(words::offline(&facts.cpus.offline));
    }
    if let Some(allowed) = facts.cpus.frequency_allowed.filter(|allowed| *allowed < 0.99) {
        doubts.push(words::frequency(allowed));
    }
    if facts.steps.is_empty() {
        doubts.push("the sweep was not done".into());
    }
    doubts
}
