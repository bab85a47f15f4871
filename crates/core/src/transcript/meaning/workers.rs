// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Workers that only count: do some of them share a core? And processes by CPU: are two on one?

use super::Case;
use crate::text::Unit;
use crate::text::units::{self, share};
use crate::transcript::document::{Statement, Weight};
use crate::transcript::engine::Section;
use crate::transcript::layouts::Parsed;
use crate::transcript::layouts::counts::Counts;
use crate::transcript::layouts::processes::{Processes, Row};
use std::collections::{BTreeMap, BTreeSet};

/// Counts from this part of the largest one on are those of workers that nobody disturbed.
const FULL: f64 = 0.9;
/// Workers that share a core evenly count equally, to this part.
const EQUAL: f64 = 0.05;
/// What each of `k` workers on one core does, in parts of `1 / k`: hyperthreads do some more than half each.
const AROUND: (f64, f64) = (0.85, 1.3);
/// Workers on one core at most.
const MOST_ON_ONE: usize = 8;

/// Workers that count equally little.
struct Sharing {
    /// Lines and counts, in ascending order of counts.
    members: Vec<(u64, u64)>,
    /// Mean count in parts of a full one.
    part: f64,
    /// Workers on one core.
    on_one: usize,
}

/// Groups of workers with equal counts well below the full one.
fn groups(sorted: &[(u64, u64)], full: f64) -> Vec<Vec<(u64, u64)>> {
    let mut groups: Vec<Vec<(u64, u64)>> = Vec::new();
    for &(line, count) in sorted.iter().filter(|(_, count)| (*count as f64) < FULL * full) {
        match groups.last_mut() {
            Some(group) if count as f64 <= group[0].1 as f64 * (1.0 + EQUAL) => {
                group.push((line, count));
            }
            _ => groups.push(vec![(line, count)]),
        }
    }
    groups
}

fn sharing(members: Vec<(u64, u64)>, full: f64) -> Result<Sharing, Vec<(u64, u64)>> {
    let mean = members.iter().map(|(_, count)| *count as f64).sum::<f64>() / members.len() as f64;
    let part = mean / full;
    let fits = |k: &usize| {
        let parts = part * *k as f64;
        members.len().is_multiple_of(*k) && parts >= AROUND.0 && parts <= AROUND.1
    };
    match (2..=MOST_ON_ONE).find(fits) {
        Some(on_one) => Ok(Sharing { members, part, on_one }),
        None => Err(members),
    }
}

pub(super) fn counts(case: &Case<'_>, section: &Section, of: &Counts) -> Option<Statement> {
    let mut sorted = of.counts.clone();
    sorted.sort_by_key(|(line, count)| (*count, *line));
    let most = sorted.last()?.1 as f64;
    // The median of the undisturbed ones, not the luckiest.
    let undisturbed: Vec<u64> = sorted
        .iter()
        .map(|(_, count)| *count)
        .filter(|count| *count as f64 >= FULL * most)
        .collect();
    let full = undisturbed[undisturbed.len() / 2] as f64;
    if sorted.len() < 2 || full <= 0.0 {
        return None;
    }
    let source = section.source_of((of.counts[0].0, of.counts[of.counts.len() - 1].0));
    let (mut shared, mut others) = (Vec::new(), Vec::new());
    for group in groups(&sorted, full) {
        match sharing(group, full) {
            Ok(sharing) => shared.push(sharing),
            Err(members) => others.extend(members),
        }
    }
    let n = units::counted(sorted.len() as u64, "worker", "workers");
    let (weight, title) = match (shared.as_slice(), others.len()) {
        ([], 0) => (Weight::RuledOut, format!("all of {n} did the same work: none shares a core")),
        ([], some) => {
            let title = format!(
                "{some} of {n} did less than the others, and not as workers do that share a core evenly"
            );
            (Weight::Open, title)
        }
        (some, _) => {
            let parts: Vec<String> = some.iter().map(in_words).collect();
            (Weight::Found, format!("of {n}, {}", parts.join("; ")))
        }
    };
    let mut statement = Statement::new("shared-core", weight, title);
    for group in &shared {
        let lines: Vec<String> =
            group.members.iter().take(8).map(|(line, _)| line.to_string()).collect();
        let source = section.source_of((
            group.members.iter().map(|member| member.0).min()?,
            group.members.iter().map(|member| member.0).max()?,
        ));
        statement = statement
            .number("work of each that shares", group.part, Unit::Ratio, &source)
            .note(format!("of what an undisturbed worker did; in the lines {}", lines.join(", ")));
    }
    if !others.is_empty() {
        let mean =
            others.iter().map(|(_, count)| *count as f64).sum::<f64>() / others.len() as f64 / full;
        let note = match shared.is_empty() {
            true => "of what an undisturbed worker did",
            false => "of what an undisturbed worker did; sharing a core does not explain that",
        };
        statement = statement
            .number(&format!("work of {} more", others.len()), mean, Unit::Ratio, &source)
            .note(note);
    }
    statement = statement
        .number("count of an undisturbed worker", full, Unit::Count, &source)
        .note(format!(
            "in {}; the median of {}",
            units::duration(of.seconds * 1e9),
            undisturbed.len()
        ));
    statement = placed(case, statement, sorted.len());
    Some(
        statement
            .cannot("whether they shared one CPU, or two CPUs that are threads of one core")
            .cannot("whether other programs ran on their CPUs meanwhile")
            .settled_by("deburr cpu-check"),
    )
}

fn in_words(group: &Sharing) -> String {
    let n = group.members.len();
    let cores = n / group.on_one;
    let each = format!("{n} did {} of the work of an undisturbed one, equally", share(group.part));
    match (group.on_one, cores) {
        (2, 1) => format!("{each}: two workers on one core"),
        (2, cores) => format!("{each}: two workers on each of {cores} cores"),
        (k, 1) => format!("{each}: {k} workers on one core"),
        (k, cores) => format!("{each}: {k} workers on each of {cores} cores"),
    }
}

/// What a table of processes says about the CPUs of as many workers.
fn placed(case: &Case<'_>, statement: Statement, workers: usize) -> Statement {
    let table = case.sections.iter().find_map(|section| match &section.parsed {
        Parsed::Processes(it) if !it.top => {
            let rows: Vec<&Row> = look(it, 0).collect();
            (rows.len() == workers && rows.iter().all(|row| row.cpu.is_some()))
                .then_some((section, rows))
        }
        _ => None,
    });
    let Some((section, rows)) = table else { return statement };
    let cpus: BTreeSet<u32> = rows.iter().filter_map(|row| row.cpu).collect();
    let note = match cpus.len() == rows.len() {
        true => {
            "each on a CPU of its own when looked at: what they share is below the CPUs that the system knows"
        }
        false => "some on the same CPU when looked at",
    };
    statement
        .number("CPUs that they were on", cpus.len() as f64, Unit::Count, &section.source())
        .note(note)
}

/// The runnable processes of one table.
fn look(of: &Processes, look: usize) -> impl Iterator<Item = &Row> {
    // Tables follow each other.
    let from = of.rows.partition_point(|row| row.look < look);
    let table = of.rows[from..].iter().take_while(move |row| row.look == look);
    table.filter(|row| row.runnable == Some(true))
}

/// Which runnable processes are on the same CPU.
pub(super) fn on_cpus(section: &Section, of: &Processes) -> Option<Statement> {
    if of.top || !of.rows.iter().any(|row| row.cpu.is_some()) {
        return None;
    }
    let mut worst: Option<(usize, BTreeMap<u32, Vec<&Row>>)> = None;
    for number in 0..of.looks.min(1000) {
        let mut by: BTreeMap<u32, Vec<&Row>> = BTreeMap::new();
        for row in look(of, number) {
            by.entry(row.cpu?).or_default().push(row);
        }
        let doubled = by.values().filter(|rows| rows.len() > 1).count();
        if worst.as_ref().is_none_or(|(most, _)| doubled > *most) {
            worst = Some((doubled, by));
        }
    }
    let (doubled, by) = worst?;
    let runnable = by.values().map(Vec::len).sum::<usize>();
    if runnable < 2 {
        return None;
    }
    let source = section.source();
    let looks = units::counted(of.looks as u64, "look", "looks");
    let (weight, title) = match doubled {
        0 => (
            Weight::Fact,
            format!("{runnable} runnable processes were each on a CPU of their own, in {looks}"),
        ),
        _ => (
            Weight::Open,
            format!(
                "{} had more than one of the {runnable} runnable processes, in {looks}",
                units::counted(doubled as u64, "CPU", "CPUs")
            ),
        ),
    };
    let statement = Statement::new("processes-by-cpu", weight, title)
        .number("CPUs with runnable processes", by.len() as f64, Unit::Count, &source)
        .cannot("which CPUs are threads of one core");
    Some(match of.looks {
        1 => statement.cannot("whether they move: that takes several looks"),
        _ => statement,
    })
}
