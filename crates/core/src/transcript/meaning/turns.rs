// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Does a task that only computes take turns with others? Then each of its waits is as long as the slices of the others on
//! its CPU: with `k` tasks, `k - 1` slices.
//!
//! A task that is always runnable runs, waits, runs, ...: the time of the capture divided by the number of waits is one
//! slice and one wait. Its share of a CPU (`top`) says how much of that is the slice. What is left must be where the
//! histogram has its waits: else the task also sleeps, and nothing is said.

use super::{Case, waits};
use crate::text::Unit;
use crate::text::units::{self, duration};
use crate::transcript::document::{Statement, Weight};
use crate::transcript::engine::Section;
use crate::transcript::layouts::Parsed;
use crate::transcript::layouts::histogram::{Bucket, Histograms, Measured, WITH_VALUE};
use crate::transcript::layouts::processes::Row;
use std::collections::BTreeSet;

/// Fewer waits say nothing about their usual length.
const MIN_WAITS: u64 = 20;
/// Share of the waits that are in one row of the histogram.
const ALIKE: f64 = 0.9;
/// Tolerance for the edges of rows, and for a number of tasks that should be whole.
const TOLERANCE: f64 = 0.05;

/// What a histogram says of a task that is always runnable.
struct Cycle {
    pid: u32,
    /// Number of waits.
    waits: u64,
    /// One slice and one wait, in nanoseconds.
    ns: f64,
    /// The row that holds nearly all waits.
    usual: Bucket,
    seconds: f64,
}

/// A slice that was measured: its length in nanoseconds, and of which file.
pub(super) type Slice = (f64, String);

fn cycle(case: &Case<'_>, section: &Section, of: &Histograms) -> Option<Cycle> {
    if of.measured != Measured::RunQueue || of.all.iter().any(|it| it.key.is_some()) {
        return None;
    }
    let pid = section.command.value(&["-p", "--pid"])?.parse().ok()?;
    let (interval_s, _) = case.interval_s(section, WITH_VALUE)?;
    let seconds = interval_s * of.all.len() as f64;
    let waits = of.all.iter().fold(0u64, |sum, it| sum.saturating_add(it.count()));
    let mut usual: Option<Bucket> = None;
    for bucket in of.all.iter().flat_map(|it| &it.buckets) {
        if usual.is_none_or(|most| bucket.count > most.count) {
            usual = Some(*bucket);
        }
    }
    let usual = usual?;
    let in_it = of.all.iter().flat_map(|it| &it.buckets).filter(|it| it.from_ns == usual.from_ns);
    let in_it = in_it.fold(0u64, |sum, it| sum.saturating_add(it.count));
    let alike = waits >= MIN_WAITS && in_it as f64 >= ALIKE * waits as f64;
    alike.then_some(Cycle { pid, waits, ns: seconds * 1e9 / waits as f64, usual, seconds })
}

impl Cycle {
    fn holds(&self, wait_ns: f64) -> bool {
        let (from, to) = (self.usual.from_ns as f64, self.usual.to_ns as f64);
        wait_ns >= from * (1.0 - TOLERANCE) && wait_ns <= to * (1.0 + TOLERANCE) && wait_ns > 0.0
    }
}

/// The process in a table of `top`, and its section.
fn in_top<'s>(case: &Case<'s>, pid: u32) -> Option<(&'s Section, &'s [Row], &'s Row)> {
    case.sections.iter().find_map(|section| match &section.parsed {
        Parsed::Processes(it) if it.top => {
            let row = it.rows.iter().find(|row| row.pid == pid && row.percent.is_some())?;
            Some((section, it.rows.as_slice(), row))
        }
        _ => None,
    })
}

/// Number of tasks on a CPU, if the cycle is that many slices.
fn tasks(cycle_ns: f64, slice_ns: f64) -> Option<f64> {
    let tasks = cycle_ns / slice_ns;
    let whole = tasks.round();
    ((2.0..=1000.0).contains(&whole) && (tasks - whole).abs() <= TOLERANCE * whole).then_some(whole)
}

/// The slice of a task whose waits and share of a CPU fit.
fn slice_ns(case: &Case<'_>, cycle: &Cycle) -> Option<f64> {
    let (.., row) = in_top(case, cycle.pid)?;
    let share = row.percent? / 100.0;
    let slice_ns = share * cycle.ns;
    (share > 0.0 && cycle.holds(cycle.ns - slice_ns) && tasks(cycle.ns, slice_ns).is_some())
        .then_some(slice_ns)
}

/// The slices of all tasks of which both a histogram and a table of `top` were read.
pub(super) fn slices(case: &Case<'_>) -> Vec<Slice> {
    let each = case.sections.iter().filter_map(|section| match &section.parsed {
        Parsed::Histograms(it) => {
            let cycle = cycle(case, section, it)?;
            Some((slice_ns(case, &cycle)?, section.source()))
        }
        _ => None,
    });
    each.take(100).collect()
}

pub(super) fn statement(
    case: &Case<'_>,
    section: &Section,
    of: &Histograms,
    slices: &[Slice],
) -> Option<Statement> {
    let cycle = cycle(case, section, of)?;
    let source = section.source();
    let by_top = slice_ns(case, &cycle);
    let (slice_ns, from) = match by_top {
        Some(slice_ns) => (slice_ns, None),
        // Of the other captures, if they agree.
        None => {
            let (first, from) = slices.first()?;
            let agree = slices.iter().all(|(other, _)| (other / first - 1.0).abs() <= TOLERANCE);
            let fits = agree && in_top(case, cycle.pid).is_none() && cycle.holds(cycle.ns - first);
            fits.then_some((*first, Some(from)))?
        }
    };
    let tasks = tasks(cycle.ns, slice_ns)?;
    let wait_ns = cycle.ns - slice_ns;
    let title = format!(
        "pid {} takes turns: it runs for {}, then waits for {}, which is {} of that length: {tasks:.0} tasks share its CPU",
        cycle.pid,
        duration(slice_ns),
        duration(wait_ns),
        units::counted(tasks as u64 - 1, "slice", "slices")
    );
    let usual = cycle.usual;
    let mut statement = Statement::new("takes-turns", Weight::Found, title)
        .number("slice and wait together", cycle.ns, Unit::Ns, &source)
        .note(format!(
            "{} divided by {}",
            duration(cycle.seconds * 1e9),
            units::counted(cycle.waits, "wait", "waits")
        ))
        .number("wait", wait_ns, Unit::Ns, &source)
        .note(format!(
            "the histogram has 9 in 10 or more of them from {} to {}",
            duration(usual.from_ns as f64),
            duration(usual.to_ns as f64)
        ))
        .number("slice", slice_ns, Unit::Ns, from.map_or(&source, |from| from));
    statement = match from {
        Some(_) => statement.note("measured in another capture; taken to be the same here"),
        None => statement.note("its share of a CPU times slice and wait together"),
    };
    if let Some((table, rows, row)) = in_top(case, cycle.pid) {
        statement = busy_tasks(statement, table, rows, row);
    }
    Some(
        statement
            .of_sizes(waits::sizes(of.all.iter()))
            .cannot("which tasks ran while it waited, and whether others had a larger weight")
            .settled_by(format!("deburr -d 30 -p {}", cycle.pid)),
    )
}

/// The tasks of the table that use as much of a CPU, and the CPUs that they are on.
fn busy_tasks(statement: Statement, table: &Section, rows: &[Row], row: &Row) -> Statement {
    let Some(percent) = row.percent else { return statement };
    let source = table.source();
    let alike = |other: &&Row| {
        let close = other.percent.is_some_and(|other| (other / percent - 1.0).abs() <= 0.2);
        other.look == row.look && close && other.runnable != Some(false)
    };
    let busy: Vec<&Row> = rows.iter().filter(alike).collect();
    let cpus: BTreeSet<u32> = busy.iter().filter_map(|row| row.cpu).collect();
    let statement = statement.number(
        "its share of a CPU",
        percent / 100.0,
        Unit::Ratio,
        &table.source_of((row.line, row.line)),
    );
    if cpus.is_empty() {
        return statement;
    }
    statement
        .number(
            "tasks like it, for each CPU",
            busy.len() as f64 / cpus.len() as f64,
            Unit::Count,
            &source,
        )
        .note(format!("{} on {} CPUs", busy.len(), cpus.len()))
}
