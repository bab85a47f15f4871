// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The answers as text.

use super::document::{Document, LimitRow, Row, RuntimeRow, Verdict};
use deburr_core::finding::Unit;
use deburr_core::limits::effective::{AncestorVisibility, LimitSource};
use deburr_core::recording::{Confidence, Container, Parallelism};
use deburr_core::render::{self, Cell, Grid, Section, TextStyle};
use deburr_core::text::ticked;
use deburr_core::text::units;
use rustix::thread::CapabilitySet;
use std::collections::HashMap;

/// Maximum number of mismatches that are explained below the table.
const MAX_EXPLAINED: usize = 8;
/// Hex digits of a container id that are shown, as is usual.
const ID_DIGITS: usize = 12;

/// Why this process may not look into another one.
pub(super) fn forbidden() -> &'static str {
    let own = rustix::thread::capabilities(None);
    forbidden_to(own.is_ok_and(|own| own.effective.contains(CapabilitySet::SYS_PTRACE)))
}

/// The same text; `debugger` = this process has the privileges of a debugger.
fn forbidden_to(debugger: bool) -> &'static str {
    match debugger {
        true => {
            "the kernel refuses it to this user too, who has the privileges of a debugger (CAP_SYS_PTRACE): the process \
             belongs to an outer user namespace, or a security module shields it"
        }
        false => {
            "that takes the privileges of a debugger (root with CAP_SYS_PTRACE in its user namespace)"
        }
    }
}

/// The document as text for people.
pub(crate) fn text(document: &Document, style: TextStyle) -> String {
    let host = &document.host;
    let headline = format!(
        "`{}`: {}, cgroup {}",
        host.name,
        units::counted(host.cpus.into(), "CPU", "CPUs"),
        host.cgroup
    );
    let Some(others) = &document.others else {
        let texts = document.processes.iter().map(|row| process(row, style));
        return texts.collect::<Vec<_>>().join("\n");
    };
    let mut notes = vec![];
    if document.processes.is_empty() {
        notes.push("no process has a limit of its own or a runtime that is known".to_owned());
    }
    notes.extend(explanations(&document.processes));
    let rest = [
        (
            others.unlimited,
            "without a limit of its own or a runtime that is known",
            "without limits of their own or a runtime that is known",
        ),
        (others.kernel_threads, "kernel thread", "kernel threads"),
        (others.ended, "that ended", "that ended"),
        (others.too_many, "for lack of time", "for lack of time"),
    ];
    let rest: Vec<String> = rest
        .iter()
        .filter(|(n, ..)| *n > 0)
        .map(|&(n, one, many)| units::counted(n.into(), one, many))
        .collect();
    if !rest.is_empty() {
        notes.push(format!("not listed: {}", rest.join(", ")));
    }
    if others.forbidden > 0 {
        let whose = units::counted(others.forbidden.into(), "process", "processes");
        notes.push(format!("runtimes of {whose} may not be looked at: {}", forbidden()));
    }
    if others.not_read > 0 {
        let whose = units::counted(others.not_read.into(), "process", "processes");
        let why = others.given_up.as_ref().map_or(String::new(), |why| format!(": {why}"));
        notes.push(format!("runtimes of {whose} could not be looked at{why}"));
    }
    render::grid(&headline, &table(&document.processes), &notes, style)
}

fn table(rows: &[Row]) -> Grid {
    let mut grid = Grid::new(&[
        ("pid", 0),
        ("process", 20),
        ("may use", 0),
        ("by", 24),
        ("runtime", 14),
        ("believes", 0),
        ("fits", 12),
    ]);
    // Processes that differ only in their pid, such as workers, share one line, at the place of the first one.
    let mut lines: Vec<(&Row, Vec<Cell>, usize)> = Vec::new();
    let mut known = HashMap::new();
    for row in rows {
        let cells = cells(row);
        let at = *known.entry((row.comm.as_str(), cells.clone())).or_insert_with(|| {
            lines.push((row, cells, 0));
            lines.len() - 1
        });
        lines[at].2 += 1;
    }
    for (row, cells, alike) in lines {
        let name = match alike {
            1 => ticked(&row.comm),
            n => format!("{} and {} alike", ticked(&row.comm), n - 1),
        };
        let mut line = vec![Cell::Number(row.pid.to_string()), Cell::Text(name)];
        line.extend(cells);
        grid.row(line);
    }
    grid
}

/// The cells of a line, without those that identify the process.
fn cells(row: &Row) -> Vec<Cell> {
    let (cpus, by) = match &row.limit {
        Some(limit) => (may_use(limit), short_origin(row, limit)),
        None => ("?".into(), "not known".into()),
    };
    let (kind, believes) = match &row.runtime {
        Some(runtime) => (name(runtime), believes(runtime)),
        None => (String::new(), String::new()),
    };
    let fits = match row.verdict {
        Verdict::Fits => "yes",
        Verdict::Above => "no",
        Verdict::MayBeAbove => "perhaps not",
        _ if row.runtime.as_ref().is_some_and(|runtime| runtime.parallelism.is_empty()) => "?",
        _ => "",
    };
    vec![
        Cell::Number(cpus),
        Cell::Text(by),
        Cell::Text(kind),
        Cell::Number(believes),
        Cell::Text(fits.into()),
    ]
}

/// `4 CPUs`; `<=4 CPUs` if a level above may be tighter.
fn may_use(limit: &LimitRow) -> String {
    let at_most = if limit.sight == AncestorVisibility::Whole { "" } else { "<=" };
    format!("{at_most}{}", units::cpus(limit.cpus))
}

fn short_origin(row: &Row, limit: &LimitRow) -> String {
    match limit.bound_by {
        LimitSource::Quota => {
            let level = limit.quotas.iter().find(|quota| quota.binds);
            match (&row.container, level) {
                (Some(container), Some(level)) if level.own => {
                    format!("quota of {}", container_name(container))
                }
                (_, Some(level)) => {
                    let name = level.level.path.rsplit('/').next().unwrap_or_default();
                    let above = if level.own { "" } else { ", above it" };
                    format!("quota of {}{above}", ticked(name))
                }
                _ => "quota".into(),
            }
        }
        LimitSource::Cpuset => "cpuset".into(),
        LimitSource::Affinity => "affinity".into(),
        LimitSource::Online => "all CPUs".into(),
    }
}

fn container_name(container: &Container) -> String {
    let id =
        container.id.get(..ID_DIGITS).filter(|_| container.id.len() > 32).unwrap_or(&container.id);
    format!("{} {}", container.runtime, ticked(container.name.as_deref().unwrap_or(id)))
}

/// `Go 1.24.3`.
fn name(runtime: &RuntimeRow) -> String {
    match &runtime.version {
        Some(version) => format!("{} {}", runtime.kind.name(), version.trim_start_matches("go")),
        None => runtime.kind.name().into(),
    }
}

fn believes(runtime: &RuntimeRow) -> String {
    match runtime.parallelism.first() {
        Some(number) => match number.confidence {
            Confidence::Exact => number.value.to_string(),
            Confidence::Start => format!("{} at start", number.value),
            Confidence::Bound => format!("about {}", number.value),
        },
        None => "?".into(),
    }
}

/// Which processes have more threads than fit, why, and what to do. Equal explanations are merged.
fn explanations(rows: &[Row]) -> Vec<String> {
    let mut said: Vec<(String, Vec<u32>)> = Vec::new();
    for row in rows.iter().filter(|row| row.verdict == Verdict::Above) {
        let (Some(limit), Some(runtime)) = (&row.limit, &row.runtime) else { continue };
        let (Some(number), Some(belief)) = (runtime.parallelism.first(), &runtime.belief) else {
            continue;
        };
        let fix =
            belief.fix.first().map(|fix| format!("; fix: {}", fix.action)).unwrap_or_default();
        let text = format!(
            "{} {} on {}: {}{fix}",
            ticked(&row.comm),
            counts_on(number),
            may_use(limit),
            belief.because
        );
        match said.iter_mut().find(|(known, _)| *known == text) {
            Some((_, pids)) => pids.push(row.pid),
            None => said.push((text, vec![row.pid])),
        }
    }
    let more = said.len().saturating_sub(MAX_EXPLAINED);
    let mut texts: Vec<String> = said
        .into_iter()
        .take(MAX_EXPLAINED)
        .map(|(text, pids)| match pids.as_slice() {
            [pid] => format!("{text} (`deburr limits {pid}` says more)"),
            [pid, ..] => {
                format!("{text} ({} processes; `deburr limits {pid}` says more)", pids.len())
            }
            [] => text,
        })
        .collect();
    if more > 0 {
        texts.push(format!("and {more} more"));
    }
    texts
}

/// One process in depth.
fn process(row: &Row, style: TextStyle) -> String {
    let mut headline = format!(
        "{} (pid {}), {}",
        ticked(&row.comm),
        row.pid,
        units::counted(row.threads.into(), "thread", "threads")
    );
    if let Some(path) = &row.cgroup {
        headline += &format!(", in the cgroup {}", ticked(path));
    }
    if let Some(container) = &row.container {
        headline += &format!(" ({})", container_name(container));
    }
    let mut sections = Vec::new();
    if let Some(limit) = &row.limit {
        let heading = format!("may use {}: {}", may_use(limit), limit.origin);
        sections.push(Section { heading, rows: limit_rows(limit) });
    }
    if let Some(runtime) = &row.runtime {
        sections.push(runtime_section(row, runtime));
        let fixes = runtime.belief.iter().flat_map(|belief| &belief.fix);
        let rows: Vec<_> = fixes
            .flat_map(|fix| {
                let risk = fix.risk.iter().map(|risk| vec!["risk".into(), risk.clone()]);
                std::iter::once(vec!["fix".into(), fix.action.clone()]).chain(risk)
            })
            .collect();
        if !rows.is_empty() {
            sections.push(Section { heading: "to make it fit".into(), rows });
        }
    } else if row.notes.is_empty() {
        let rows =
            vec![vec!["runtime".into(), "none that is known by name or by its memory".into()]];
        sections.push(Section { heading: "believes nothing that can be seen".into(), rows });
    }
    if !row.notes.is_empty() {
        let rows = row.notes.iter().map(|note| vec!["note".into(), note.clone()]).collect();
        sections.push(Section { heading: "remarks".into(), rows });
    }
    render::sheet(&headline, &sections, style)
}

fn limit_rows(limit: &LimitRow) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut row = |name: &str, text: String| rows.push(vec![name.to_owned(), text]);
    for quota in &limit.quotas {
        let us = |us: u64| units::value(us as f64, Unit::Us);
        let mut text = format!(
            "{}: {}, {} in each {}",
            ticked(&quota.level.path),
            units::cpus(quota.cpus),
            us(quota.level.quota_us),
            us(quota.level.period_us)
        );
        if let Some(burst) = quota.level.burst_us.filter(|&burst| burst > 0) {
            text += &format!(", up to {} saved up for peaks", us(burst));
        }
        if let (Some(periods), Some(throttled)) = (quota.nr_periods, quota.nr_throttled) {
            text += &format!(
                "; ran out in {} of {} periods so far",
                units::count(throttled as f64),
                units::count(periods as f64)
            );
        }
        row("quota", text);
    }
    match &limit.sight {
        AncestorVisibility::Whole if limit.quotas.is_empty() => {
            row("quota", "none, up to the root".into());
        }
        AncestorVisibility::Whole => {}
        AncestorVisibility::Part(reason) | AncestorVisibility::None(reason) => {
            row("not in sight", reason.clone());
        }
    }
    if let Some(cpuset) = &limit.cpuset {
        row("cpuset", format!("CPUs {cpuset}"));
    }
    if let Some(affinity) = &limit.affinity {
        row("affinity", format!("CPUs {affinity}"));
    }
    for (cpus, threads) in &limit.affinity_of_threads {
        row(
            "",
            format!("{} on CPUs {cpus}", units::counted((*threads).into(), "thread", "threads")),
        );
    }
    rows
}

fn runtime_section(row: &Row, runtime: &RuntimeRow) -> Section {
    let fitting = runtime.belief.as_ref().map(|belief| belief.fitting);
    let verdict = verdict(row.verdict, fitting);
    let heading = match runtime.parallelism.first() {
        Some(number) => format!("{} {}{verdict}", name(runtime), counts_on(number)),
        None => format!("{} lets an unknown number of threads run at a time", name(runtime)),
    };
    let mut rows: Vec<Vec<String>> =
        runtime.parallelism.iter().map(|number| vec![number.name.clone(), worth(number)]).collect();
    rows.extend(runtime.unread.iter().map(|why| vec!["not read".into(), why.clone()]));
    rows.extend(runtime.belief.iter().map(|belief| vec!["why".into(), belief.because.clone()]));
    rows.extend(runtime.settings.iter().map(|(name, value)| vec![name.clone(), ticked(value)]));
    Section { heading, rows }
}

/// The verdict on a number of threads, as part of a sentence.
fn verdict(verdict: Verdict, fitting: Option<u32>) -> String {
    match (verdict, fitting) {
        (Verdict::Above, Some(n)) => format!(", and {}", units::counted(n.into(), "fits", "fit")),
        (Verdict::MayBeAbove, Some(n)) => {
            format!(", perhaps more than the {}", units::counted(n.into(), "that fits", "that fit"))
        }
        (Verdict::Fits, _) => ", which fits".into(),
        _ => String::new(),
    }
}

/// What a number means, as part of a sentence.
fn counts_on(number: &Parallelism) -> String {
    let about = match number.confidence {
        Confidence::Bound => "about ",
        Confidence::Exact | Confidence::Start => "",
    };
    let of = |one, many| format!("{about}{}", units::counted(number.value.into(), one, many));
    match number.name.as_str() {
        "processors" => format!("counts on {}", of("processor", "processors")),
        "worker_processes" => format!("has {}", of("worker", "workers")),
        "UV_THREADPOOL_SIZE" => format!("has {} for work that blocks", of("thread", "threads")),
        "pool threads" => format!("has {} in its pool", of("thread", "threads")),
        "CICompilerCount" => format!("compiles with {}", of("thread", "threads")),
        _ => format!("lets {} run at a time", of("thread", "threads")),
    }
}

/// A number, with its confidence and source.
fn worth(number: &Parallelism) -> String {
    let worth = match number.confidence {
        Confidence::Exact => "exact",
        Confidence::Start => "as it was started; the program may have changed it",
        Confidence::Bound => "counted: the pool may be larger or smaller",
    };
    format!("{} ({worth}; from: {})", number.value, number.source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_debuggers_privileges_is_not_told_to_get_them() {
        assert!(forbidden_to(false).starts_with("that takes the privileges"));
        let refused = forbidden_to(true);
        assert!(refused.contains("refuses it to this user too"), "{refused}");
        assert!(!refused.contains("that takes") && !refused.contains("root"), "{refused}");
    }

    #[test]
    fn one_fits_and_two_fit() {
        assert_eq!(verdict(Verdict::Above, Some(1)), ", and 1 fits");
        assert_eq!(verdict(Verdict::Above, Some(2)), ", and 2 fit");
        assert_eq!(verdict(Verdict::MayBeAbove, Some(1)), ", perhaps more than the 1 that fits");
        assert_eq!(verdict(Verdict::Fits, Some(1)), ", which fits");
    }
}
