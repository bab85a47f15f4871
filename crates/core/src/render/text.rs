// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report as text for a terminal: the verdict, the findings, where the time went, what was ruled out and what could
//! not be checked, and the cost of observing.

use super::TextStyle;
use super::bars::bar;
use super::block_io;
use super::finding::{self, Detail, severity};
use super::names;
use super::page::{Colour, Page};
use super::table::{Column, Table};
use crate::finding::{
    EntityKind, Finding, Ledger, LedgerState, Observer, Report, Severity, SourceCoverage,
};
use crate::recording::{ObserverTick, Source};
use crate::text::escape::{label, sentence};
use crate::text::units::{self, bytes, counted, duration, share};
use std::collections::BTreeMap;

/// Number of findings that are shown with their evidence at verbosity 1; of the others only the claim is shown.
const DETAILED: usize = 2;
/// Maximum number of ledgers that are shown at verbosity 1.
const LEDGERS: usize = 3;

/// The report as text for a terminal.
///
/// No line is wider than `style.columns` (60 to 100), except commands, which are not
/// wrapped so that they can be pasted.
#[must_use]
pub fn text(report: &Report, style: TextStyle) -> String {
    let mut page = Page::new(style);
    headline(&mut page, report);
    findings(&mut page, &report.findings, style.verbosity);
    if let Some(io) = &report.block_io {
        block_io::write(&mut page, io, style.verbosity);
    }
    ledgers(&mut page, &report.ledger, style.verbosity);
    if style.verbosity == 0 {
        page.gap();
    }
    checks(&mut page, report, style.verbosity);
    observer(&mut page, &report.observer, report.window.seconds, style.verbosity);
    page.into_text()
}

fn findings(page: &mut Page, findings: &[Finding], verbosity: u8) {
    let mut advised = Vec::new();
    let mut without_evidence = 0;
    for (i, item) in findings.iter().enumerate() {
        let detail = match verbosity {
            0 => Detail::Claim,
            1 if i >= DETAILED || item.severity == Severity::Info => Detail::Claim,
            1 => Detail::Evidence,
            _ => Detail::All,
        };
        if detail == Detail::Claim && !item.evidence.is_empty() {
            without_evidence += 1;
        }
        page.gap();
        finding::write(page, item, detail, &mut advised);
    }
    if verbosity == 1 && without_evidence > 0 {
        let of = counted(without_evidence, "more finding", "more findings");
        page.paragraph(0, 2, Colour::Aside, &format!("(evidence for {of} with -v)"));
    }
}

/// What was watched, for how long, and the verdict.
fn headline(page: &mut Page, report: &Report) {
    let target = names::target(&report.target, &report.host.name);
    let watched = duration(report.window.seconds * 1e9);
    page.paragraph(
        0,
        2,
        Colour::Heading,
        &format!("watched {target} for {watched}: {}", verdict(report)),
    );
    let host = &report.host;
    let start = match report.window.start.strip_suffix('Z') {
        Some(utc) => format!("{} UTC", utc.replacen('T', " ", 1)),
        None => report.window.start.clone(),
    };
    let about = format!(
        "{start}, {}, kernel {}, {}, cgroup {}, deburr {}",
        report.window.source,
        host.kernel,
        counted(u64::from(host.cpus), "CPU", "CPUs"),
        host.cgroup,
        report.tool.version
    );
    page.paragraph(0, 2, Colour::Aside, &sentence(&about));
    for event in &report.window.events {
        page.labelled(0, (Colour::Heading, "note: "), 6, Colour::Plain, &sentence(event));
    }
}

/// The verdict in a few words, including checks that were not possible: omitting them would imply that they passed.
fn verdict(report: &Report) -> String {
    let of = |level| report.findings.iter().filter(|finding| finding.severity == level).count();
    let levels = [Severity::High, Severity::Medium, Severity::Low, Severity::Info];
    let counts: Vec<String> = levels
        .into_iter()
        .filter(|&level| of(level) > 0)
        .map(|level| format!("{} {}", of(level), severity(level)))
        .collect();
    let found = match (counts.as_slice(), report.findings.len()) {
        ([], _) => "nothing found".into(),
        (_, 1) => format!("{} finding", counts[0]),
        (_, n) => format!("{n} findings, {}", counts.join(", ")),
    };
    match report.not_checked.len() as u64 {
        0 => found,
        blind => format!("{found}; {} not possible", counted(blind, "check was", "checks were")),
    }
}

/// Explanation of the state "waiting for memory", shown where a ledger has any.
const MEMORY: &str = "waiting for memory: taking pages away, and reading pages back that were dropped in use because memory was \
                      short; the disk reads of that are here and not in block IO";

/// Writes where the wall time of the target and the victims went.
fn ledgers(page: &mut Page, ledgers: &[Ledger], verbosity: u8) {
    let shown = match verbosity {
        0 => 1,
        1 => LEDGERS,
        _ => usize::MAX,
    };
    for ledger in ledgers.iter().take(shown) {
        let all = duration(ledger.wall_ns as f64);
        let threads = counted(u64::from(ledger.threads), "thread", "threads");
        let title = match ledger.victim.kind {
            EntityKind::Host => {
                format!(
                    "where the time went in which the host's threads wanted to run ({all} of {threads})"
                )
            }
            _ => {
                let whose = names::entity(&ledger.victim);
                format!("where the time of {whose} went ({all} of {threads})")
            }
        };
        page.gap();
        page.paragraph(0, 2, Colour::Heading, &title);
        if verbosity == 0 {
            let shown = ledger.parts.iter().filter(|part| part.ns > 0).map(|part| {
                format!("{} {}", state(part.state), share(portion(part.ns, ledger.wall_ns)))
            });
            page.paragraph(2, 0, Colour::Plain, &shown.collect::<Vec<_>>().join(", "));
        } else {
            parts(page, ledger);
        }
        if ledger.excess_ns > 0 {
            let text = format!(
                "{} of this was counted twice by the observer: its threads did not exist for so long",
                duration(ledger.excess_ns as f64)
            );
            page.paragraph(2, 2, Colour::Plain, &text);
        }
    }
    let more = ledgers.len().saturating_sub(shown);
    if more > 0 {
        page.paragraph(0, 2, Colour::Aside, &format!("({more} more with -v)"));
    }
}

fn parts(page: &mut Page, ledger: &Ledger) {
    let mut table = Table::new(&[Column::Left(24), Column::Right, Column::Left(usize::MAX)]);
    let bar_columns = (page.columns() / 2).saturating_sub(10);
    let mut none = Vec::new();
    for part in &ledger.parts {
        if part.ns == 0 {
            none.push(state(part.state));
            continue;
        }
        let part_share = portion(part.ns, ledger.wall_ns);
        table.row([state(part.state).into(), share(part_share), bar(part_share, bar_columns)]);
    }
    table.write(page, 2);
    if ledger.parts.iter().any(|part| part.state == LedgerState::MemStall && part.ns > 0) {
        page.paragraph(2, 2, Colour::Aside, MEMORY);
    }
    if !none.is_empty() {
        page.paragraph(2, 2, Colour::Aside, &format!("none: {}", none.join(", ")));
    }
}

fn portion(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn state(state: LedgerState) -> &'static str {
    match state {
        LedgerState::OnCpu => "on CPU",
        LedgerState::Queued => "queued for a CPU",
        LedgerState::Throttled => "throttled by quota",
        LedgerState::QueuedOrThrottled => "queued or throttled",
        LedgerState::BlockIo => "block IO",
        LedgerState::MemStall => "waiting for memory",
        LedgerState::Uninterruptible => "other uninterruptible",
        LedgerState::Sleep => "asleep",
        LedgerState::Stopped => "stopped",
        LedgerState::Unattributed => "unattributed",
    }
}

/// What was ruled out, and what could not be checked.
fn checks(page: &mut Page, report: &Report, verbosity: u8) {
    let ruled_out = report.ruled_out.iter().map(|it| (&it.code, &it.name, sentence(&it.closest)));
    let not_checked = report.not_checked.iter().map(|it| {
        let missing: Vec<String> = it.missing.iter().map(|reason| sentence(reason)).collect();
        (&it.code, &it.name, missing.join("; "))
    });
    let sections: [(&str, Vec<_>); 2] =
        [("ruled out", ruled_out.collect()), ("could not check", not_checked.collect())];
    for (title, items) in sections {
        if items.is_empty() {
            continue;
        }
        if verbosity == 0 {
            let codes: Vec<String> =
                items.iter().map(|(code, name, _)| label(&format!("{code} {name}"), 40)).collect();
            page.labelled(
                0,
                (Colour::Heading, title),
                2,
                Colour::Plain,
                &format!(": {}", codes.join(", ")),
            );
            continue;
        }
        page.gap();
        page.line(0, Colour::Heading, title);
        let mut table = Table::new(&[Column::Left(30), Column::Left(usize::MAX)]);
        for (code, name, about) in items {
            table.row([label(&format!("{code} {name}"), 60), about]);
        }
        table.write(page, 2);
    }
}

/// The cost of observing, what was lost, and which sources were incomplete.
fn observer(page: &mut Page, observer: &Observer, seconds: f64, verbosity: u8) {
    let of_a_cpu = |ns: f64| {
        if seconds > 0.0 {
            format!(" ({} of a CPU)", units::percent(ns / (seconds * 1e9)))
        } else {
            String::new()
        }
    };
    let cpu_ns = observer.cpu_seconds * 1e9;
    let mut cost = format!("{}{}", duration(cpu_ns), of_a_cpu(cpu_ns));
    if let Some(ns) = observer.bpf_run_ns {
        cost += &format!(", BPF programs {}{}", duration(ns as f64), of_a_cpu(ns as f64));
    }
    if observer.bpf_runs > 0 {
        let timed = if observer.bpf_run_ns.is_none() { ", not timed" } else { "" };
        cost += &format!(" in {}{timed}", counted(observer.bpf_runs, "run", "runs"));
    }
    // Every process has resident memory: 0 means that the observer could not read its own cost.
    if observer.rss_bytes == 0 {
        cost = "not measured".into();
    } else {
        cost += &format!(", {} resident", bytes(observer.rss_bytes as f64));
    }
    if observer.bpf_map_bytes > 0 {
        cost += &format!(", {} of BPF maps", bytes(observer.bpf_map_bytes as f64));
    }
    let lost = lost(observer);
    if verbosity == 0 {
        page.labelled(
            0,
            (Colour::Heading, "observer"),
            2,
            Colour::Plain,
            &format!(": {cost}; lost {lost}"),
        );
        return;
    }
    page.gap();
    page.line(0, Colour::Heading, "observer");
    let mut table = Table::new(&[Column::Label(4), Column::Left(usize::MAX)]);
    table.row(["cost".into(), cost]);
    table.row(["lost".into(), lost]);
    let mut name = if verbosity >= 2 { "saw" } else { "gaps" };
    let active = |source: Source| {
        observer.coverage.get(source.label()).is_some_and(|sight| *sight == SourceCoverage::Whole)
    };
    for (source, sight) in &observer.coverage {
        // A fallback source that was not needed is no gap.
        let unneeded = source == Source::Schedstat.label() && active(Source::Sched);
        if verbosity >= 2 || (*sight != SourceCoverage::Whole && !unneeded) {
            table.row([name.into(), format!("{}: {}", label(source, 40), sentence(sight.text()))]);
            name = "";
        }
    }
    table.write(page, 2);
}

fn lost(observer: &Observer) -> String {
    let amount = |name: &str, n: u64| {
        format!("{} {}", label(name, 40), units::value(n as f64, ObserverTick::unit_of(name)))
    };
    let list = |map: &BTreeMap<String, u64>| {
        let some = map.iter().filter(|(_, n)| **n > 0);
        some.map(|(name, &n)| amount(name, n)).collect::<Vec<_>>().join(", ")
    };
    let (sources, detail) = (list(&observer.lost), list(&observer.lost_detail));
    match (sources.is_empty(), detail.is_empty()) {
        (true, true) => "nothing".into(),
        (false, false) => format!("{sources} ({detail})"),
        _ => sources + &detail,
    }
}
