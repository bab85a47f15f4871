// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why one host is slower than another: what differs between their snapshots, ordered by what is known to matter.
//!
//! - [`compare`](self): which hosts agree on a fact, by content.
//! - [`knowledge`]: what is known to matter, why, and which side is slower: a table, one file for each area.
//! - [`rank`](self): how much a difference matters here, given the drivers in charge and what it follows from.
//! - [`Separation`]: which facts separate slow hosts from fast ones, and whether that may be chance.
//! - [`Explanation`]: what was measured to be slower, and which differences can be the reason; [`Plan`]: how to find
//!   out which one is.
//! - [`document`]: the result as data.
//!
//! A value that is not known (unreadable, timed out, left out of the snapshot) is neither
//! equal nor different: it is *not compared*.

mod change;
mod compare;
pub mod document;
mod drivers;
pub mod knowledge;
mod measured;
mod rank;
mod separate;
mod test_plan;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_plan;
mod value_text;

pub use drivers::Drivers;
pub use measured::{Explanation, ExtraTime, Measured, slow};
pub use separate::{Separation, Test};
pub use test_plan::{AfterTest, Group, Plan, PlannedChange, Step};

use crate::snapshot::{SlowRead, Snapshot, Tool};
use crate::text::units::duration;
use compare::{Row, rows};
use document::{Counts, Difference, ExpectedDifference, Host, HostDiff, NotCompared, SCHEMA};
use rank::Ranking;
use std::collections::BTreeSet;

/// Maximum number of hosts: more cannot be identified by one or two letters.
pub const MAX_HOSTS: usize = 676;

/// Minimum time of reading a file, in nanoseconds, that is reported as slow: on a busy host any file is a little slow.
pub const SLOW_NS: u64 = 20_000_000;
/// Most files that were slow on some of the hosts: each is held against each difference.
const MAX_SLOW_ON_SOME: usize = 100;
/// Maximum number of slow files that are named per host.
const MAX_SLOW: usize = 3;

/// A host to compare.
#[derive(Clone, Debug)]
pub struct HostInput<'a> {
    /// Its snapshot.
    pub snapshot: &'a Snapshot,
    /// What to call it if the snapshot has no host name: the snapshot's file.
    pub label: &'a str,
    /// Whether it is slow; `None` = not stated.
    pub slow: Option<bool>,
    /// Whether it is the golden host, which the others are to become like. At most one of the hosts.
    pub golden: bool,
}

/// Compares hosts, without judging the result: [`crate::rules::diff`] does both.
#[must_use]
pub fn diff(given: &[HostInput<'_>], measured: &[Measured], tool_version: &str) -> HostDiff {
    let snapshots: Vec<&Snapshot> = given.iter().map(|host| host.snapshot).collect();
    let ids: Vec<String> = (0..given.len()).map(id).collect();
    let drivers: Vec<Drivers> = snapshots.iter().map(|it| Drivers::of(it)).collect();
    let slow: Vec<Option<bool>> = given.iter().map(|host| host.slow).collect();
    let (mut counts, mut differing) = (Counts::default(), Vec::new());
    let (mut not_compared, mut aside) = (Vec::new(), Vec::new());
    for row in rows(&snapshots) {
        if !row.class.is_compared() {
            if row.camps.len() > 1 {
                let values = rank::held(&row.camps, &ids);
                aside.push(ExpectedDifference {
                    key: row.key.to_owned(),
                    class: row.class,
                    values,
                });
            }
            continue;
        }
        let known: usize = row.camps.iter().map(|camp| camp.hosts.len()).sum();
        if !row.unknown.is_empty() {
            not_compared.push(unknown(&row, &ids));
        }
        if known < 2 {
            continue;
        }
        counts.compared += 1;
        match row.camps.len() {
            1 => counts.same += 1,
            _ => differing.push(row),
        }
    }
    let ranking = Ranking {
        ids: &ids,
        drivers: &drivers,
        slow: &slow,
        golden: given.iter().position(|host| host.golden),
        rows: &differing,
    };
    let mut differences: Vec<_> = differing.iter().map(|row| ranking.difference(row)).collect();
    measured::support(&slow_on_some(given, &ids), &mut differences);
    let explanation = measured::explain(measured, &differing, &ids, &mut differences);
    let separation = separate::separate(&differing, &slow, &mut differences);
    differences.sort_by(|a, b| {
        let chance = |it: &Difference| it.test.as_ref().map(separate::rank);
        chance(a).cmp(&chance(b)).then_with(|| rank::order(a, b))
    });
    counts.different = differences.len() as u64;
    counts.not_compared = not_compared.len() as u64;
    counts.aside = aside.len() as u64;
    let hosts = given
        .iter()
        .enumerate()
        .map(|(at, host)| described(host, &ids[at], &drivers[at], outlier_in(&differing, at)))
        .collect();
    let mut diff = HostDiff {
        schema: SCHEMA.into(),
        tool: Tool { version: tool_version.into() },
        hosts,
        facts: counts,
        differences,
        not_compared,
        aside,
        measured: explanation,
        separation,
        plan: None,
        findings: vec![],
        ruled_out: vec![],
        not_checked: vec![],
        notes: notes(given, &ids),
    };
    diff.plan = test_plan::plan(&diff);
    diff
}

/// The letters that identify a host, by its index: `A` to `Z`, then `AA` to `ZZ`.
#[must_use]
pub fn id(at: usize) -> String {
    let letter = |n: usize| char::from(b'A' + (n % 26) as u8);
    match at / 26 {
        0 => letter(at).to_string(),
        more => format!("{}{}", letter(more - 1), letter(at)),
    }
}

fn described(given: &HostInput<'_>, id: &str, drivers: &Drivers, outlier_in: u64) -> Host {
    let snapshot = given.snapshot;
    Host {
        id: id.to_owned(),
        name: snapshot.host.name.clone().unwrap_or_else(|| given.label.to_owned()),
        kernel: snapshot.host.kernel.clone(),
        arch: snapshot.host.arch.clone(),
        taken: snapshot.taken.clone(),
        tool: snapshot.tool.clone(),
        slow: given.slow,
        idle_driver: drivers.idle.clone(),
        frequency_driver: drivers.frequency.clone(),
        outlier_in,
    }
}

/// Number of rows in which more than half of the hosts agree and this one differs from them.
fn outlier_in(rows: &[Row<'_>], host: usize) -> u64 {
    let stands_out = |row: &&Row<'_>| {
        let known: usize = row.camps.iter().map(|camp| camp.hosts.len()).sum();
        row.camps.first().is_some_and(|most| {
            2 * most.hosts.len() > known
                && !most.hosts.contains(&host)
                && row.camps.iter().any(|camp| camp.hosts.contains(&host))
        })
    };
    rows.iter().filter(stands_out).count() as u64
}

fn unknown(row: &Row<'_>, ids: &[String]) -> NotCompared {
    let reasons: BTreeSet<&str> = row.unknown.iter().map(|(_, why)| why.as_str()).collect();
    NotCompared {
        key: row.key.to_owned(),
        area: row.area,
        hosts: row.unknown.iter().map(|(host, _)| ids[*host].clone()).collect(),
        why: reasons.into_iter().collect::<Vec<_>>().join("; "),
    }
}

fn slow_file(slow: &SlowRead, id: &str) -> String {
    let took = duration(slow.wall_ns as f64);
    format!("on {id}, reading `{}` took {took}", slow.path.replace('`', "'"))
}

/// Files that were slow to read on some of the hosts only: their paths, and a sentence about each.
fn slow_on_some(given: &[HostInput<'_>], ids: &[String]) -> Vec<(String, String)> {
    let slow: Vec<BTreeSet<&str>> = given
        .iter()
        .map(|host| {
            let slow = host.snapshot.reading.slow.iter().filter(|it| it.wall_ns >= SLOW_NS);
            slow.map(|it| it.path.as_str()).collect()
        })
        .collect();
    let mut files = Vec::new();
    for (host, id) in given.iter().zip(ids) {
        for it in host.snapshot.reading.slow.iter().filter(|it| it.wall_ns >= SLOW_NS) {
            if !slow.iter().all(|paths| paths.contains(it.path.as_str())) {
                files.push((it.path.clone(), slow_file(it, id)));
            }
        }
    }
    files.truncate(MAX_SLOW_ON_SOME);
    files
}

fn notes(given: &[HostInput<'_>], ids: &[String]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut differ = |of: &dyn Fn(&Snapshot) -> &str, sentence: &str| {
        let values: BTreeSet<&str> = given.iter().map(|host| of(host.snapshot)).collect();
        if values.len() > 1 && !values.contains("") {
            let values: Vec<&str> = values.into_iter().collect();
            notes.push(format!("{sentence}: {}", values.join(", ")));
        }
    };
    differ(&|it| &it.host.arch, "these hosts have different architectures, and little in common");
    differ(
        &|it| &it.tool.version,
        "the snapshots were taken by different versions of deburr, which do not look at the same files",
    );
    for (host, id) in given.iter().zip(ids) {
        let reading = &host.snapshot.reading;
        if !reading.as_root {
            notes.push(format!("{id} was not taken as root: some of its files could not be read"));
        }
        let slow = reading.slow.iter().filter(|it| it.wall_ns >= SLOW_NS);
        notes.extend(slow.take(MAX_SLOW).map(|it| slow_file(it, id)));
    }
    notes
}

/// Incident 5: `fixtures/README.md` describes what was captured of it.
#[cfg(test)]
pub(crate) fn drift() -> [Snapshot; 2] {
    [
        include_bytes!("../../../../fixtures/snapshots/drift-healthy.json").as_slice(),
        include_bytes!("../../../../fixtures/snapshots/drift-slow.json"),
    ]
    .map(|document| Snapshot::parse(document).expect("a snapshot"))
}
