// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of system calls as text for a terminal: the time of the command, then
//! calls and files, the most expensive first.

use super::TextStyle;
use super::finding::{self, Detail};
use super::page::{Colour, Page};
use super::table::{Column, Table};
use crate::syscalls::{CallRow, FileRow, Profile, Run, Subject, Times};
use crate::text::escape::{identifier, label, sentence};
use crate::text::shell_quote;
use crate::text::units::{count, counted, duration, share};

/// Placeholder where nothing was measured.
const NONE: &str = "-";
/// Maximum number of rows without and with -v.
const CALLS: (usize, usize) = (15, 200);
const FILES: (usize, usize) = (12, 100);
/// Maximum width of the name of a call, and of a path below its numbers.
const NAME: usize = 24;
const PATH: usize = 200;

/// The measurement as text for a terminal.
#[must_use]
pub fn syscalls_text(profile: &Profile, style: TextStyle) -> String {
    let mut page = Page::new(style);
    let setup = &profile.setup;
    let what = format!("system calls of {}", subject(&setup.subject));
    page.paragraph(0, 2, Colour::Heading, &sentence(&what));
    page.paragraph(2, 2, Colour::Aside, &sentence(&conditions(profile)));
    if !setup.runs.is_empty() {
        page.paragraph(2, 2, Colour::Plain, &sentence(&runs(&setup.runs)));
    }
    page.paragraph(2, 2, Colour::Plain, &sentence(&totals(profile)));
    if style.verbosity > 0 {
        let rows = |(few, all): (usize, usize)| if style.verbosity > 1 { all } else { few };
        calls(&mut page, profile, rows(CALLS));
        files(&mut page, profile, rows(FILES));
    }
    let mut shown = finding::Shown::default();
    for found in &profile.findings {
        page.gap();
        let detail = match style.verbosity {
            0 => Detail::Claim,
            1 => Detail::Evidence,
            _ => Detail::All,
        };
        finding::write(&mut page, found, detail, &mut shown);
    }
    if !profile.notes.is_empty() && style.verbosity > 0 {
        page.gap();
        for note in &profile.notes {
            page.labelled(0, (Colour::Aside, "note: "), 6, Colour::Aside, &sentence(note));
        }
    }
    page.into_text()
}

/// The observed command or processes, with names in backticks.
pub(super) fn subject(subject: &Subject) -> String {
    match subject {
        Subject::Command { command } => {
            let words: Vec<_> = command.iter().map(|word| shell_quote(word)).collect();
            identifier(&words.join(" "), 200)
        }
        Subject::Process { pid, comm } => format!("{} (pid {pid})", identifier(comm, NAME)),
        Subject::Comm { comm } => format!("processes named {}", identifier(comm, NAME)),
    }
}

fn conditions(profile: &Profile) -> String {
    let setup = &profile.setup;
    let how = match setup.runs.len() {
        0 => duration(setup.window_ns as f64),
        runs => counted(runs as u64, "run", "runs"),
    };
    format!(
        "{how} on `{}`, kernel {}, {}, {}, deburr {}",
        setup.host.name,
        setup.host.kernel,
        counted(setup.host.cpus.into(), "CPU", "CPUs"),
        setup.start.replace('T', " ").replace('Z', " UTC"),
        setup.tool.version
    )
}

/// The runs as text: `wall 52 ms (50 to 55 ms), user 12 ms, system 33 ms, exit status 0`.
fn runs(runs: &[Run]) -> String {
    let part = |name: &str, of: fn(&Run) -> u64| {
        let mean = runs.iter().map(of).sum::<u64>() as f64 / runs.len().max(1) as f64;
        let (least, most) = (runs.iter().map(of).min(), runs.iter().map(of).max());
        let spread = match least.zip(most) {
            Some((least, most)) if runs.len() > 1 => {
                format!(" ({} to {})", duration(least as f64), duration(most as f64))
            }
            _ => String::new(),
        };
        format!("{name} {}{spread}", duration(mean))
    };
    let mut ends: Vec<String> = runs
        .iter()
        .map(|run| match (run.exit_status, run.signal) {
            (Some(status), _) => format!("exit status {status}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "end not known".into(),
        })
        .collect();
    ends.dedup();
    [
        part("wall", |run| run.wall_ns),
        part("user", |run| run.user_ns),
        part("system", |run| run.system_ns),
        ends.join(", then "),
    ]
    .join(", ")
}

fn totals(profile: &Profile) -> String {
    let begun = match profile.processes {
        0 => String::new(),
        begun => format!(" of {}", counted(begun, "process that began", "processes that began")),
    };
    format!(
        "{}{begun}, {} failed; {} in them: {}",
        counted(profile.calls, "call", "calls"),
        count(profile.errors as f64),
        duration(profile.times.total_ns as f64),
        split(&profile.times)
    )
}

/// The parts of a time as text: `30 ms on a CPU, 20 ms blocked, 2.0 ms waiting for a CPU`.
fn split(times: &Times) -> String {
    let mut parts = vec![
        format!("{} on a CPU", duration(times.on_cpu_ns as f64)),
        format!("{} blocked", duration(times.blocked_ns as f64)),
    ];
    parts.extend(times.waiting_ns.map(|ns| format!("{} waiting for a CPU", duration(ns as f64))));
    parts.join(", ")
}

fn heading(page: &mut Page, text: &str) {
    page.gap();
    page.line(0, Colour::Heading, text);
}

fn calls(page: &mut Page, profile: &Profile, shown: usize) {
    if profile.syscalls.is_empty() {
        return;
    }
    heading(page, "by call");
    let several = profile.setup.runs.len() > 1;
    let mut columns = vec![Column::Left(NAME)];
    columns.extend([Column::Right; 9]);
    columns.push(Column::Left(0));
    let mut table = Table::new(&columns);
    let last = if several { "calls a run" } else { "waiting" };
    table.heading([
        "call", "calls", "failed", "total", "share", "mean", "p99", "max", "blocked", last,
    ]);
    for row in profile.syscalls.iter().take(shown) {
        table.row(call(row, profile.times.total_ns, several));
    }
    table.write(page, 2);
    rest(page, profile.syscalls.iter().skip(shown).map(|row| (row.calls, row.times.total_ns)));
}

fn call(row: &CallRow, all_ns: u64, several: bool) -> [String; 10] {
    let ns = |ns: Option<u64>| ns.map_or(NONE.into(), |ns| duration(ns as f64));
    // Calls that did not return have no duration.
    let none = row.calls == 0;
    let unless = |text: String| if none { NONE.into() } else { text };
    let calls = match (row.unfinished, row.under_way) {
        (0, 0) => count(row.calls as f64),
        (open, more) => format!("{}+{}", count(row.calls as f64), count((open + more) as f64)),
    };
    let last = match (several, row.spread) {
        (true, Some(it)) if it.calls_min == it.calls_max => count(it.calls_min as f64),
        (true, Some(it)) => {
            format!("{}-{}", count(it.calls_min as f64), count(it.calls_max as f64))
        }
        (true, None) => NONE.into(),
        (false, _) => ns(row.times.waiting_ns),
    };
    [
        label(&row.name, NAME),
        calls,
        count(row.errors as f64),
        unless(duration(row.times.total_ns as f64)),
        unless(share(row.times.total_ns as f64 / all_ns.max(1) as f64)),
        ns(row.mean_ns),
        ns(row.p99_ns),
        unless(duration(row.max_ns as f64)),
        unless(duration(row.times.blocked_ns as f64)),
        if none { NONE.into() } else { last },
    ]
}

/// Writes the sum of the rows that are not shown.
fn rest(page: &mut Page, rows: impl Iterator<Item = (u64, u64)>) {
    let (mut number, mut calls, mut ns) = (0, 0, 0);
    for (more_calls, more_ns) in rows {
        number += 1;
        calls += more_calls;
        ns += more_ns;
    }
    if number > 0 {
        let text = format!(
            "{} more: {}, {} (-v shows more)",
            count(f64::from(number)),
            counted(calls, "call", "calls"),
            duration(ns as f64)
        );
        page.paragraph(2, 2, Colour::Aside, &text);
    }
}

fn files(page: &mut Page, profile: &Profile, shown: usize) {
    if profile.files.is_empty() && profile.more_files.calls == 0 {
        return;
    }
    heading(page, "by file");
    let mut columns = vec![Column::Right; 5];
    columns.push(Column::Left(12));
    columns.push(Column::Left(PATH));
    let mut table = Table::new(&columns);
    table.heading(["total", "calls", "mean", "max", "blocked", "mostly", "file"]);
    for row in profile.files.iter().take(shown) {
        table.row(file(row));
    }
    table.write(page, 2);
    rest(page, profile.files.iter().skip(shown).map(|row| (row.calls, row.times.total_ns)));
    let more = profile.more_files;
    if more.calls > 0 {
        let text = format!(
            "files without a row: {}, {}",
            counted(more.calls, "call", "calls"),
            duration(more.ns as f64)
        );
        page.paragraph(2, 2, Colour::Aside, &text);
    }
}

fn file(row: &FileRow) -> [String; 7] {
    let most = row.ops.iter().max_by_key(|op| op.ns).map_or("", |op| op.op.as_str());
    let more = if row.complete { "" } else { "..." };
    [
        duration(row.times.total_ns as f64),
        count(row.calls as f64),
        duration(row.mean_ns as f64),
        duration(row.max_ns as f64),
        duration(row.times.blocked_ns as f64),
        label(most, 12),
        format!("{more}{}", label(&row.path, PATH)),
    ]
}
