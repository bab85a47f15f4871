// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How to find out which of the differences is the reason: the order of tests with the lowest expected cost.
//!
//! Each test changes something on the slow host, measures, and restores everything. Differences that depend on each
//! other are changed together. Independent ones are bisected: if the slow host becomes fast, the reason is among what
//! was changed, otherwise among the rest. The halves are of probability, not of number, and a change that needs a
//! reboot costs more than one that takes effect at once: among all such plans, the one with the lowest expected cost is
//! found by dynamic programming.

use super::document::{Change, Difference, HostDiff, TakesEffect};
use super::knowledge::LOW;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of groups that are tested, the most important ones.
const MAX_GROUPS: usize = 12;
/// Probability that the reason is none of them.
const NONE_OF_THEM: f64 = 0.1;
/// Additional weight that doubles the likelihood.
const DOUBLES: f64 = 10.0;

/// A plan of tests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Identifier of the host to test on.
    pub on: String,
    /// How to do the tests, and what their outcomes mean.
    pub how: String,
    /// The tests, beginning with the first; each names what follows.
    pub steps: Vec<Step>,
    /// Expected cost until the reason is found: 1 for a test whose change takes effect at once, 4 for one with a
    /// reboot, 10 for one in the firmware set-up.
    pub expected_cost: f64,
    /// Expected cost if the differences were tried one by one, most important first.
    pub one_by_one_cost: f64,
    /// Keys that matter and that cannot be changed by a command, a reboot or in the firmware set-up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_testable: Vec<String>,
    /// Keys that were left out because they matter less.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// A test: changes, a measurement, and what follows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Number of the test, from 1.
    pub number: u64,
    /// Groups that are changed together.
    pub groups: Vec<Group>,
    /// What it takes until the changes have an effect.
    pub reach: TakesEffect,
    /// What follows if the host is faster then.
    pub if_faster: AfterTest,
    /// What follows if it is as slow as before.
    pub if_not: AfterTest,
}

/// Differences that depend on each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Name of the group.
    pub name: String,
    /// The changes, most important first.
    pub changes: Vec<PlannedChange>,
}

/// A change of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedChange {
    /// Key of the fact that is changed.
    pub key: String,
    /// How to change it, and how to undo that.
    #[serde(flatten)]
    pub change: Change,
}

/// What follows after a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterTest {
    /// The test with this number.
    Step(u64),
    /// The reason is in the group with this name.
    Found(String),
    /// None of the groups is the reason by itself.
    NoneOfThem,
}

/// The plan for a slow host, the slowest measured one if known; `None` if no host is
/// slow, or if nothing can be changed.
pub(super) fn plan(diff: &HostDiff) -> Option<Plan> {
    let slowest = diff.measured.as_ref().map(|it| &it.slow);
    let slow = diff
        .hosts
        .iter()
        .filter(|host| host.slow == Some(true))
        .max_by_key(|host| Some(&host.id) == slowest)
        .map(|host| host.id.clone())?;
    let held = |it: &&Difference| it.values.iter().any(|held| held.hosts.contains(&slow));
    let matter = |it: &&Difference| {
        let best = diff.separation.as_ref().is_some_and(|it2| it2.best.contains(&it.key));
        (it.weight >= LOW || best) && it.follows.is_none() && !it.cannot_explain()
    };
    let (mut groups, mut not_testable) = (BTreeMap::new(), Vec::new());
    for it in diff.differences.iter().filter(held).filter(matter) {
        match it.change.as_ref().filter(|change| change.hosts.contains(&slow)) {
            None => not_testable.push(it.key.clone()),
            Some(change) => {
                let group: &mut Candidate = groups.entry(it.group.clone()).or_default();
                // The most important difference of a group decides: the others depend on it.
                group.odds = group.odds.max((it.importance() / DOUBLES).exp2());
                // Of a group, only the changes that are quickest to try.
                match group.reach {
                    Some(reach) if change.reach > reach => continue,
                    Some(reach) if change.reach < reach => group.changes.clear(),
                    _ => {}
                }
                group.reach = Some(change.reach);
                group.changes.push(PlannedChange { key: it.key.clone(), change: change.clone() });
            }
        }
    }
    // A difference without a change is tested along with a group that has one.
    let tested = |key: &String| {
        let of = diff.differences.iter().find(|it| it.key == *key);
        of.is_some_and(|it| groups.contains_key(&it.group))
    };
    not_testable.retain(|key| !tested(key));
    let mut candidates: Vec<(String, Candidate)> = groups.into_iter().collect();
    candidates.sort_by(|a, b| b.1.odds.total_cmp(&a.1.odds).then_with(|| a.0.cmp(&b.0)));
    let left_out: Vec<String> = candidates
        .iter()
        .skip(MAX_GROUPS)
        .flat_map(|(_, it)| it.changes.iter().map(|change| change.key.clone()))
        .collect();
    candidates.truncate(MAX_GROUPS);
    if candidates.is_empty() {
        return None;
    }
    let one_by_one_cost = one_by_one(&candidates);
    let (candidates, tree) = cheapest(candidates)?;
    let mut steps = Vec::new();
    tree.write(&candidates, (0, candidates.len(), true), &mut steps);
    Some(Plan {
        on: slow,
        how: "measure before the first test and after each; faster means that at least half of what the host is slower \
              is gone. Undo all changes of a test before the next one. Whether a part of a group is enough is the last \
              question: repeat its test with one change less at a time"
            .into(),
        expected_cost: tree.cost(),
        one_by_one_cost,
        steps,
        not_testable,
        left_out,
    })
}

/// The cheaper plan of two orders of the candidates: quick changes first, or the
/// highest ratio of likelihood to cost first.
fn cheapest(mut candidates: Vec<(String, Candidate)>) -> Option<(Vec<(String, Candidate)>, Tree)> {
    let price = |it: &Candidate| it.odds / cost(it.reach);
    candidates.sort_by(|a, b| {
        a.1.reach.cmp(&b.1.reach).then(b.1.odds.total_cmp(&a.1.odds)).then_with(|| a.0.cmp(&b.0))
    });
    let by_reach = (candidates.clone(), Tree::new(&candidates));
    candidates.sort_by(|a, b| price(&b.1).total_cmp(&price(&a.1)).then_with(|| a.0.cmp(&b.0)));
    let by_price = Tree::new(&candidates);
    [by_reach, (candidates, by_price)].into_iter().min_by(|a, b| a.1.cost().total_cmp(&b.1.cost()))
}

/// Expected cost if each candidate is tried by itself, most likely first.
fn one_by_one(candidates: &[(String, Candidate)]) -> f64 {
    let all: f64 = candidates.iter().map(|(_, it)| it.odds).sum();
    let (mut spent, mut expected) = (0.0, 0.0);
    for (_, it) in candidates {
        spent += cost(it.reach);
        expected += spent * it.odds / all * (1.0 - NONE_OF_THEM);
    }
    expected + NONE_OF_THEM * spent
}

#[derive(Clone, Debug, Default)]
struct Candidate {
    odds: f64,
    reach: Option<TakesEffect>,
    changes: Vec<PlannedChange>,
}

/// Cost of a test, in units of a test whose change takes effect at once.
fn cost(reach: Option<TakesEffect>) -> f64 {
    match reach {
        None | Some(TakesEffect::Now) => 1.0,
        Some(TakesEffect::Boot) => 4.0,
        Some(TakesEffect::Firmware) => 10.0,
    }
}

/// The best split of every range of candidates `from..to`, with and without the
/// possibility that none of them is the reason.
struct Tree {
    /// Prefix sums of the candidates' probabilities.
    before: Vec<f64>,
    /// `[none][from][to]`: expected cost, weighted by the probability of the range, and where to split it.
    best: [Vec<Vec<(f64, usize)>>; 2],
}

impl Tree {
    fn new(candidates: &[(String, Candidate)]) -> Self {
        let n = candidates.len();
        let all: f64 = candidates.iter().map(|(_, it)| it.odds).sum();
        let mut before = vec![0.0];
        for (_, it) in candidates {
            let last = before.last().copied().unwrap_or_default();
            before.push(last + it.odds / all * (1.0 - NONE_OF_THEM));
        }
        let empty = || vec![vec![(0.0, 0); n + 1]; n + 1];
        let mut tree = Self { before, best: [empty(), empty()] };
        for length in 1..=n {
            for from in 0..=n - length {
                for none in [false, true] {
                    let to = from + length;
                    tree.best[usize::from(none)][from][to] = tree.split(candidates, from, to, none);
                }
            }
        }
        tree
    }

    fn split(
        &self,
        of: &[(String, Candidate)],
        from: usize,
        to: usize,
        none: bool,
    ) -> (f64, usize) {
        // A last candidate that must be the reason needs no test.
        let last = if none { to } else { to - 1 };
        let here = self.mass(from, to, none);
        let mut best = (if last > from { f64::INFINITY } else { 0.0 }, to);
        let mut reach = None;
        for (at, (_, candidate)) in of.iter().enumerate().take(last).skip(from) {
            reach = reach.max(candidate.reach);
            let mid = at + 1;
            let total = here * cost(reach)
                + self.best[0][from][mid].0
                + self.best[usize::from(none)][mid][to].0;
            if total < best.0 - 1e-12 {
                best = (total, mid);
            }
        }
        best
    }

    fn mass(&self, from: usize, to: usize, none: bool) -> f64 {
        self.before[to] - self.before[from] + if none { NONE_OF_THEM } else { 0.0 }
    }

    /// Whether the range needs a test.
    fn is_open(from: usize, to: usize, none: bool) -> bool {
        to - from > usize::from(!none)
    }

    /// Expected cost of the plan.
    fn cost(&self) -> f64 {
        self.best[1][0][self.before.len() - 1].0
    }

    /// Writes the tests of a range to `steps`; returns what to do first.
    fn write(
        &self,
        of: &[(String, Candidate)],
        (from, to, none): (usize, usize, bool),
        steps: &mut Vec<Step>,
    ) -> AfterTest {
        if !Self::is_open(from, to, none) {
            return match of.get(from).filter(|_| to > from) {
                Some((name, _)) => AfterTest::Found(name.clone()),
                None => AfterTest::NoneOfThem,
            };
        }
        let mid = self.best[usize::from(none)][from][to].1;
        let (at, number) = (steps.len(), steps.len() as u64 + 1);
        let group = |(name, it): &(String, Candidate)| Group {
            name: name.clone(),
            changes: it.changes.clone(),
        };
        steps.push(Step {
            number,
            groups: of[from..mid].iter().map(group).collect(),
            reach: of[from..mid]
                .iter()
                .filter_map(|it| it.1.reach)
                .max()
                .unwrap_or(TakesEffect::Now),
            if_faster: AfterTest::NoneOfThem,
            if_not: AfterTest::NoneOfThem,
        });
        steps[at].if_faster = self.write(of, (from, mid, false), steps);
        steps[at].if_not = self.write(of, (mid, to, none), steps);
        AfterTest::Step(number)
    }
}
