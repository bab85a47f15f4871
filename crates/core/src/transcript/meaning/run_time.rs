// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `time`: how far are the runs apart, and in what is the time spent?

use super::Case;
use crate::text::Unit;
use crate::text::units::{self, duration, share};
use crate::transcript::document::{Statement, Weight};
use crate::transcript::engine::Section;
use crate::transcript::layouts::Parsed;
use crate::transcript::layouts::time::Run;

/// Runs of the same command that are this many times apart differ by more than chance.
const APART: f64 = 3.0;
/// Share of the time in the kernel from which the kernel is what takes it.
const MOSTLY: f64 = 0.8;
/// Runs that are told one by one.
const MAX_RUNS: usize = 12;

pub(super) fn statement(case: &Case<'_>) -> Option<Statement> {
    let mut runs: Vec<(&Section, &Run)> = Vec::new();
    for section in case.sections {
        if let Parsed::Time(it) = &section.parsed {
            runs.extend(it.runs.iter().map(|run| (section, run)));
        }
    }
    let by_time = |a: &&(&Section, &Run), b: &&(&Section, &Run)| a.1.real_s.total_cmp(&b.1.real_s);
    let (slow, fast) = (runs.iter().max_by(by_time)?, runs.iter().min_by(by_time)?);
    let apart = slow.1.real_s / fast.1.real_s.max(1e-6);
    let in_kernel = slow.1.system_s.map(|s| (s / slow.1.real_s.max(1e-6)).min(1.0));
    let mostly = in_kernel.filter(|part| *part >= MOSTLY);
    let kernel = mostly.map_or(String::new(), |part| {
        format!("; {} of the slowest run is CPU time in the kernel", share(part))
    });
    let n = units::counted(runs.len() as u64, "run", "runs");
    let (weight, title) = match runs.len() > 1 && apart >= APART {
        true => (
            Weight::Found,
            format!(
                "the slowest of {n} took {} times as long as the fastest: {} and {}{kernel}",
                units::count(apart.round()),
                duration(slow.1.real_s * 1e9),
                duration(fast.1.real_s * 1e9)
            ),
        ),
        false => {
            (Weight::Fact, format!("{n} took up to {}{kernel}", duration(slow.1.real_s * 1e9)))
        }
    };
    let mut statement = Statement::new("run-times", weight, title);
    for (section, run) in runs.iter().take(MAX_RUNS) {
        let part = |name: &str, s: Option<f64>| s.map(|s| format!("{name} {}", duration(s * 1e9)));
        let label = section.label.as_ref().map(|label| format!("\"{label}\""));
        let parts = [label, part("user", run.user_s), part("sys", run.system_s)];
        let note = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
        statement = statement
            .number("real", run.real_s * 1e9, Unit::Ns, &section.source_of(run.lines))
            .note(note);
    }
    statement =
        statement.cannot("whether it was the same command each time: the text does not say");
    Some(match mostly {
        Some(_) => {
            statement.cannot("in which system calls and files").settled_by("deburr syscalls -- CMD")
        }
        None => statement.settled_by("deburr -- CMD"),
    })
}
