// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which facts separate slow hosts from fast ones, and whether that may be chance.
//!
//! For each value of each fact that differs, the numbers of slow and of fast hosts that have it are
//! compared by Fisher's exact test: the probability of such a division if the fact has nothing to do with
//! slowness. Facts that divide the hosts in the same way count as one question; the probabilities are
//! corrected for the number of questions (Holm).

use super::compare::Row;
use super::document::Difference;
use crate::stats::{SIGNIFICANT, fisher, holm};
use crate::text::units::{counted, share};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of hosts of each kind that is recommended.
const MAX_NEEDED: u64 = 100;
/// Maximum number of facts that are named.
const MAX_NAMED: usize = 3;

/// What separates slow hosts from fast ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Separation {
    /// Number of slow hosts.
    pub slow: u64,
    /// Number of fast hosts.
    pub fast: u64,
    /// Number of different ways in which the facts divide the hosts: the number of questions.
    pub divisions: u64,
    /// Keys of the facts that separate slow hosts from fast ones best, most important first.
    pub best: Vec<String>,
    /// Whether that is significant: the corrected probability is below the limit that applies to all claims of deburr.
    pub significant: bool,
    /// Number of hosts of each kind that it would take for a perfect separation to be significant; absent if this one
    /// is, or if more than 100 would be needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed_of_each: Option<u64>,
    /// The result as a sentence.
    pub summary: String,
}

/// How a fact separates slow hosts from fast ones, by the value that does it best.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Test {
    /// Index of that value in the values of the difference, from 0.
    pub value: u64,
    /// Number of slow hosts that have it.
    pub slow_with: u64,
    /// Number of slow hosts on which the fact is known.
    pub slow_of: u64,
    /// Number of fast hosts that have it.
    pub fast_with: u64,
    /// Number of fast hosts on which the fact is known.
    pub fast_of: u64,
    /// Probability of this division, or a less likely one, if the fact has nothing to do with slowness.
    pub chance: f64,
    /// The probability corrected for the number of questions.
    pub corrected: f64,
}

/// For each host, whether it has a value; `None` = the fact is not known there.
type Division = Vec<Option<bool>>;

/// Tests every fact; `rows` and `differences` have the same facts in the same order.
pub(super) fn separate(
    rows: &[Row<'_>],
    slow: &[Option<bool>],
    differences: &mut [Difference],
) -> Option<Separation> {
    let count = |is: bool| slow.iter().filter(|it| **it == Some(is)).count() as u64;
    if count(true) == 0 || count(false) == 0 {
        return None;
    }
    let mut questions: BTreeMap<Division, f64> = BTreeMap::new();
    for row in rows {
        for at in 0..row.camps.len() {
            let division = division(row, at, slow.len());
            let chance = tested(&division, at, slow).chance;
            questions.insert(normal(division), chance);
        }
    }
    let corrected = holm(&questions.values().copied().collect::<Vec<f64>>());
    let corrected: BTreeMap<&Division, f64> = questions.keys().zip(corrected).collect();
    for (row, difference) in rows.iter().zip(differences.iter_mut()) {
        let tests = (0..row.camps.len()).map(|at| {
            let division = division(row, at, slow.len());
            let test = tested(&division, at, slow);
            Test { corrected: corrected.get(&normal(division)).copied().unwrap_or(1.0), ..test }
        });
        difference.test = tests.reduce(|a, b| if rank(&b) < rank(&a) { b } else { a });
    }
    Some(summary(differences, count(true), count(false), questions.len() as u64))
}

/// The probability for sorting: values that differ by rounding errors only are equal.
pub(super) fn rank(test: &Test) -> u64 {
    (test.chance * 1e12).round() as u64
}

fn division(row: &Row<'_>, camp: usize, hosts: usize) -> Division {
    let mut division = vec![None; hosts];
    for (at, it) in row.camps.iter().enumerate() {
        for &host in &it.hosts {
            division[host] = Some(at == camp);
        }
    }
    division
}

/// The normal form of a division: having a value and not having it are the same question.
fn normal(division: Division) -> Division {
    match division.iter().flatten().next() {
        Some(false) => division.into_iter().map(|it| it.map(|it| !it)).collect(),
        _ => division,
    }
}

fn tested(division: &Division, value: usize, slow: &[Option<bool>]) -> Test {
    let count = |of: bool, with: Option<bool>| {
        let is = |(it, slow): &(&Option<bool>, &Option<bool>)| {
            **slow == Some(of) && it.is_some() && with.is_none_or(|with| **it == Some(with))
        };
        division.iter().zip(slow).filter(is).count() as u64
    };
    let (slow_with, slow_of) = (count(true, Some(true)), count(true, None));
    let (fast_with, fast_of) = (count(false, Some(true)), count(false, None));
    let chance = fisher([slow_with, fast_with], [slow_of, fast_of]);
    Test { value: value as u64, slow_with, slow_of, fast_with, fast_of, chance, corrected: 1.0 }
}

impl Test {
    /// Whether all slow hosts have the value and no fast host does, or the other way round.
    #[must_use]
    pub fn is_perfect(&self) -> bool {
        let all = self.slow_with == self.slow_of && self.fast_with == 0;
        let none = self.slow_with == 0 && self.fast_with == self.fast_of;
        (all || none) && self.slow_of > 0 && self.fast_of > 0
    }

    /// The test in words.
    #[must_use]
    pub fn words(&self) -> String {
        format!(
            "{} of {} slow hosts and {} of {} fast ones have it; chance {}, {} among all that differs",
            self.slow_with,
            self.slow_of,
            self.fast_with,
            self.fast_of,
            share(self.chance),
            share(self.corrected)
        )
    }
}

/// Summarises the tests; `differences` may be in any order.
fn summary(differences: &[Difference], slow: u64, fast: u64, divisions: u64) -> Separation {
    let mut tested: Vec<(&Difference, &Test)> =
        differences.iter().filter_map(|it| Some((it, it.test.as_ref()?))).collect();
    tested.sort_by(|a, b| rank(a.1).cmp(&rank(b.1)).then_with(|| super::rank::order(a.0, b.0)));
    let best: Vec<(&Difference, &Test)> = match tested.first() {
        Some((_, first)) if first.chance < 1.0 => {
            tested.iter().take_while(|(_, test)| rank(test) == rank(first)).copied().collect()
        }
        _ => vec![],
    };
    let corrected = best.iter().map(|(_, test)| test.corrected).fold(1.0, f64::min);
    let significant = corrected < SIGNIFICANT;
    let enough = |n: &u64| fisher([*n, 0], [*n, *n]) * (divisions.max(1) as f64) < SIGNIFICANT;
    let needed = (1..=MAX_NEEDED).find(enough).filter(|_| !significant);
    let summary = words(&best, significant, corrected, divisions, needed);
    Separation {
        slow,
        fast,
        divisions,
        best: best.iter().map(|(it, _)| it.key.clone()).collect(),
        significant,
        needed_of_each: needed,
        summary,
    }
}

fn words(
    best: &[(&Difference, &Test)],
    significant: bool,
    corrected: f64,
    divisions: u64,
    needed: Option<u64>,
) -> String {
    let Some((_, test)) = best.first() else {
        return "nothing that differs has anything to do with which hosts are slow".into();
    };
    let names: Vec<String> = best
        .iter()
        .take(MAX_NAMED)
        .map(|(it, _)| format!("`{}`", it.key.replace('`', "'")))
        .collect();
    let mut text = names.join(", ");
    if best.len() > MAX_NAMED {
        text += &format!(" and {} more", best.len() - MAX_NAMED);
    }
    let does = if best.len() == 1 { "separates" } else { "each separate" };
    text += match test.is_perfect() {
        true => format!(" {does} all slow hosts from all fast ones"),
        false => format!(" {does} them best, and not all"),
    }
    .as_str();
    let ways = counted(divisions, "way", "ways");
    if significant {
        return format!(
            "{text}: no chance ({} among the {ways} in which the facts divide these hosts)",
            share(corrected)
        );
    }
    text += &format!(
        ": that may be chance ({} among the {ways} in which the facts divide these hosts)",
        share(corrected)
    );
    if let Some(n) = needed {
        text += &format!("; with {n} slow and {n} fast hosts it would not be");
    }
    text
}
