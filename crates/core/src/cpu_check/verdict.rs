// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the measurements mean together.
//!
//! The pair test says who holds whom up, the sweep says what comes of it. Each can stand alone: workers on all CPUs that do
//! as many times the work of one rule sharing out, whatever disturbed the pair test.

use super::document::{Class, CpuCheck, Cpus, Group, Verdict};
use super::pairs::{self, MIN_ROUNDS, Pair, PairClass};
use super::sweep::{self, Regime, Step};
use super::{HELD_UP, circumstances, quantile, share, sorted, speed, words};
use crate::recording::Mix;
use crate::view::{CpuCheckView, View};
use std::collections::BTreeMap;

/// The whole machine does at least this part of what its CPUs would do: nothing is shared for good.
const WHOLE: f64 = 0.85;
/// It does less than this: it is not the clock that falls when all compute.
const LESS: f64 = 0.7;
/// Held up from outside in this part of the rounds, it is worth saying.
const FOREIGN_SHARE: f64 = 0.1;
/// CPUs of which the slowest has less than this of the fastest one's speed differ.
const EQUAL: f64 = 0.85;
/// CPUs' worth of other tasks' time from which on they are named as a doubt, per CPU.
const BUSY: f64 = 0.2;

/// What a check says; `None` if the view holds none.
#[must_use]
pub fn judge(view: &View) -> Option<CpuCheck> {
    let check = view.cpu_check();
    let setup = check.setup.as_ref()?;
    let distances: BTreeMap<_, _> =
        check.distances.list().iter().map(|d| ((d.a, d.b), d.one_way_ns)).collect();
    let pairs = pairs::pairs(setup, check.rounds.list(), &distances);
    let steps = sweep::steps(setup.cpus.len(), check.workers.list());
    let n = setup.cpus.len() as u64;
    let mut facts = Facts {
        cpus: circumstances::cpus(view, setup),
        groups: groups(&setup.cpus, &pairs),
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

/// What was measured, summed up.
pub(super) struct Facts {
    pub(super) cpus: Cpus,
    /// Each CPU in one of them.
    pub(super) groups: Vec<Group>,
    pub(super) pairs: Vec<Pair>,
    pub(super) pairs_in_all: u64,
    pub(super) steps: Vec<Step>,
    /// Usual speed of the slowest CPU alone beside the fastest one's.
    pub(super) alone: Option<f64>,
}

impl Facts {
    pub(super) fn used(&self) -> usize {
        self.cpus.used.len()
    }

    /// Work with a worker on each CPU beside what as many cores would do.
    pub(super) fn wholeness(&self) -> Option<f64> {
        Some(sweep::capacity(self.used(), &self.steps)? / self.used().max(1) as f64)
    }

    pub(super) fn unclear(&self) -> usize {
        self.pairs.iter().filter(|pair| pair.class == PairClass::Unclear).count()
    }

    /// Whether each pair is known, or that there is none to know.
    fn pairs_are_known(&self) -> bool {
        self.used() <= 1 || (!self.pairs.is_empty() && self.unclear() == 0)
    }

    pub(super) fn hidden(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(|group| group.cpus.len() > 1 && !group.told)
    }

    /// Part of the rounds in which somebody was held up by no one of the two; once is chance.
    pub(super) fn foreign_share(&self) -> f64 {
        let sum = |of: fn(&Pair) -> u64| self.pairs.iter().map(of).sum::<u64>();
        let held_up = Some(sum(|pair| pair.one_sided + pair.disturbed)).filter(|&times| times > 1);
        held_up.unwrap_or(0) as f64 / sum(|pair| pair.valid + pair.disturbed).max(1) as f64
    }

    /// Part of the rounds in which both were held up, of the pairs that do not share for good.
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

fn groups(cpus: &[u32], pairs: &[Pair]) -> Vec<Group> {
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
    pairs::groups(cpus, shared().map(|pair| (pair.a, pair.b))).into_iter().map(group).collect()
}

/// Each CPU's usual speed alone: the slowest beside the fastest.
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
        // Pairs that could not be told may share too: then only the sweep tells.
        _ if !facts.pairs_are_known() => {
            wholeness.map(|part| ((part * facts.used() as f64).round() as u32).clamp(1, groups))
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
    // The CPUs do not hold each other up: if they do less together, somebody else holds them up, or the clock does.
    if whole == Some(false) && facts.has(&[Regime::Stopped, Regime::AllStopped]) {
        return Class::Foreign;
    }
    let falls = whole == Some(false) && facts.has(&[Regime::Slower, Regime::AllSlower]);
    if falls || facts.alone.is_some_and(|alone| alone < EQUAL) {
        return Class::Clock;
    }
    Class::Even
}

/// Where the pairs could not be told, workers that had all the CPU time they could have and did much less with it say
/// enough. With clocks alone it would be more.
fn by_sweep(facts: &Facts) -> Class {
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

/// Speed that is left to who is held up, and in which share of the time somebody is.
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
    // Of a pair, one round in five may be chance.
    let valid = facts.pairs.iter().map(|pair| pair.valid).min().unwrap_or(0) as f64;
    let rounds = if facts.used() <= 1 { 0.9 } else { valid / (valid + 1.0) };
    let by_sweep = match (sweep::capacity(facts.used(), &facts.steps), usable_cores) {
        // Siblings of a core do a bit more together than one alone.
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
