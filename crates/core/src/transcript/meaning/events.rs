// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `runqslower`: who waited long for a CPU, and what ran before; `strace -c`: which calls took the time.

use super::Case;
use crate::text::Unit;
use crate::text::ticked;
use crate::text::units::{self, count, duration, share};
use crate::transcript::document::{Statement, Weight};
use crate::transcript::engine::Section;
use crate::transcript::layouts::Parsed;
use crate::transcript::layouts::runqslower::{Wait, Waits};
use crate::transcript::layouts::strace::{Call, Calls};
use std::collections::BTreeMap;

/// Rows that are told one by one.
const MAX_ROWS: usize = 6;
/// Fewer long waits may be chance.
const MIN_WAITS: usize = 5;
/// A command that makes this many times as many calls does something else.
const APART: f64 = 10.0;
/// With fewer calls in the larger run, nothing is said.
const MIN_CALLS: u64 = 100;

pub(super) fn long_waits(section: &Section, of: &Waits) -> Option<Statement> {
    let mut by: BTreeMap<&str, Vec<&Wait>> = BTreeMap::new();
    for row in &of.rows {
        by.entry(&row.comm).or_default().push(row);
    }
    let sum = |rows: &[&Wait]| rows.iter().map(|row| row.us * 1000.0).sum::<f64>();
    let mut all: Vec<_> = by.iter().map(|(comm, rows)| (sum(rows), *comm, rows)).collect();
    all.sort_by(|(a, ..), (b, ..)| b.total_cmp(a));
    let (most_ns, comm, rows) = all.first()?;
    let least = of.rows.iter().map(|row| row.us).fold(f64::INFINITY, f64::min);
    let weight = if rows.len() >= MIN_WAITS { Weight::Found } else { Weight::Open };
    let title = format!(
        "{} waited {} for a CPU, {} and more each, {} in all",
        ticked(comm),
        units::counted(rows.len() as u64, "time", "times"),
        duration(least * 1000.0),
        duration(*most_ns)
    );
    let mut statement = Statement::new("long-waits", weight, title);
    for (ns, comm, rows) in all.iter().take(MAX_ROWS) {
        let lines =
            (rows.iter().map(|row| row.line).min()?, rows.iter().map(|row| row.line).max()?);
        let longest = rows.iter().map(|row| row.us).fold(0.0, f64::max);
        statement = statement
            .number(&format!("waits of {}", ticked(comm)), *ns, Unit::Ns, &section.source_of(lines))
            .note(format!(
                "{}, the longest {}",
                units::counted(rows.len() as u64, "wait", "waits"),
                duration(longest * 1000.0)
            ));
    }
    let mut before: BTreeMap<&str, f64> = BTreeMap::new();
    for row in rows.iter() {
        if let Some(name) = &row.before {
            *before.entry(name).or_default() += row.us * 1000.0;
        }
    }
    let mut before: Vec<(&str, f64)> = before.into_iter().collect();
    before.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    for (name, ns) in before.iter().take(3) {
        statement = statement
            .number(
                &format!("ran last before: {}", ticked(name)),
                ns / most_ns.max(1.0),
                Unit::Ratio,
                &section.source(),
            )
            .note(format!(
                "of the waiting of {}; it need not have run for all of it",
                ticked(comm)
            ));
    }
    Some(
        statement
            .cannot("what ran during the whole of each wait: one wait may be behind many")
            .cannot("how much shorter waits take in all: they are not in the text")
            .settled_by(format!("deburr -d 30 --comm {}", crate::text::shell_quote(comm))),
    )
}

/// The calls of a run, and how they differ from those of the others.
pub(super) fn calls(case: &Case<'_>, section: &Section, of: &Calls) -> Option<Statement> {
    let most = of.all.iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds))?;
    let seconds = of.all.iter().map(|call| call.seconds).sum::<f64>();
    let others = case.sections.iter().filter_map(|other| match &other.parsed {
        Parsed::Strace(it) if other.source() != section.source() => Some((other, it)),
        _ => None,
    });
    // The run that made the fewest calls, of those that are named here.
    let base = others.min_by_key(|(_, it)| it.all.iter().map(|call| call.calls).sum::<u64>());
    let worst = base.and_then(|(other, base)| {
        let apart = |call: &Call| {
            let there =
                base.all.iter().find(|own| own.name == call.name).map_or(0, |own| own.calls);
            (call.calls as f64 / there.max(1) as f64, there)
        };
        let more = of.all.iter().filter(|call| call.calls >= MIN_CALLS && apart(call).0 >= APART);
        let most = more.max_by(|a, b| a.seconds.total_cmp(&b.seconds))?;
        Some((other, most, apart(most).1))
    });
    let at = |call: &Call| section.source_of((call.line, call.line));
    let mut statement = match worst {
        Some((other, call, there)) => {
            let title = format!(
                "{} calls of {}, against {} in {}: the same command does something else",
                count(call.calls as f64),
                ticked(&call.name),
                count(there as f64),
                other.file
            );
            Statement::new("system-calls", Weight::Found, title)
        }
        None => {
            let title = format!(
                "most of the time in system calls is in {}: {}",
                ticked(&most.name),
                share((most.seconds / seconds.max(1e-9)).min(1.0))
            );
            Statement::new("system-calls", Weight::Fact, title)
        }
    };
    let mut rows: Vec<&Call> = of.all.iter().collect();
    rows.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    for call in rows.into_iter().take(MAX_ROWS) {
        let each = call.seconds * 1e9 / call.calls.max(1) as f64;
        statement =
            statement.number(&call.name, call.seconds * 1e9, Unit::Ns, &at(call)).note(format!(
                "{}, {} each, {} failed",
                units::counted(call.calls, "call", "calls"),
                duration(each),
                count(call.errors as f64)
            ));
    }
    Some(
        statement
            .cannot("on which files the calls were")
            .cannot("how long they took without strace, which stops the command at each; nor the time in which they slept, unless -w was given")
            .settled_by("deburr syscalls -- CMD"),
    )
}
