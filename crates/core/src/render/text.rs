// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report as text for a terminal. It answers before it explains: the verdict, the questions with their answers and
//! the sentence of each finding; then the findings in detail, where the time went, what was ruled out and what could
//! not be checked, and the cost of observing. What the observer lost comes first if it was too much.

use super::TextStyle;
use super::answers;
use super::bars::bar;
use super::block_io;
use super::finding::{self, Detail};
use super::page::{Colour, Page};
use super::profile;
use super::table::{Column, Table};
use super::words::{asleep, memory, portion, report as words};
use crate::finding::{Finding, Ledger, Report, Severity, SleepPart};
use crate::text::escape::{label, sentence};
use crate::text::units::{counted, share};

/// Number of findings that are shown with their evidence at verbosity 1; of the others only victim, causes and remedies
/// are shown.
const DETAILED: usize = 2;
/// Maximum number of ledgers that are shown at verbosity 1.
const LEDGERS: usize = 3;
/// At verbosity 1, parts of its sleep that take less of the time of a ledger are not shown, and not more than so many.
const LEAST_SLEEP: f64 = 0.01;
const SLEEPS: usize = 6;

/// The report as text for a terminal.
///
/// No line is wider than `style.columns` (60 to 100), except commands, which are not
/// wrapped so that they can be pasted.
#[must_use]
pub fn text(report: &Report, style: TextStyle) -> String {
    let mut page = Page::new(style);
    let own_losses_first = report.findings.iter().any(words::is_bad_observation);
    headline(&mut page, report);
    if own_losses_first {
        observer(&mut page, report, style.verbosity);
    }
    if !report.questions.is_empty() {
        page.gap();
        answers::questions(&mut page, &report.questions);
    }
    if !report.findings.is_empty() {
        page.gap();
        answers::sentences(&mut page, &report.findings);
    }
    findings(&mut page, &report.findings, style.verbosity);
    if let Some(io) = &report.block_io {
        block_io::write(&mut page, io, style.verbosity);
    }
    ledgers(&mut page, &report.ledger, style.verbosity);
    if let Some(profile) = &report.profile {
        profile::write(&mut page, profile, style.verbosity);
    }
    if style.verbosity == 0 {
        page.gap();
    }
    checks(&mut page, report, style.verbosity);
    if !own_losses_first {
        observer(&mut page, report, style.verbosity);
    }
    page.into_text()
}

fn findings(page: &mut Page, findings: &[Finding], verbosity: u8) {
    let mut shown = finding::Shown::default();
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
        if detail == Detail::Claim && finding::is_said_in_its_sentence(item) {
            continue;
        }
        page.gap();
        finding::heading(page, item);
        finding::details(page, item, detail, &mut shown);
    }
    if verbosity == 1 && without_evidence > 0 {
        let of = counted(without_evidence, "more finding", "more findings");
        page.paragraph(0, 2, Colour::Aside, &format!("(evidence for {of} with -v)"));
    }
}

/// What was watched, for how long, and the verdict.
fn headline(page: &mut Page, report: &Report) {
    page.paragraph(0, 2, Colour::Heading, &words::headline(report));
    page.paragraph(0, 2, Colour::Aside, &words::about(report));
    if let Some(entries) = asleep::entries(&report.target) {
        page.labelled(0, (Colour::Heading, "entries: "), 2, Colour::Plain, &entries);
    }
    for event in &report.window.events {
        page.labelled(0, (Colour::Heading, "note: "), 6, Colour::Plain, &sentence(event));
    }
}

/// Writes where the wall time of the target and the victims went.
fn ledgers(page: &mut Page, ledgers: &[Ledger], verbosity: u8) {
    let shown = match verbosity {
        0 => 1,
        1 => LEDGERS,
        _ => usize::MAX,
    };
    for ledger in ledgers.iter().take(shown) {
        page.gap();
        page.paragraph(0, 2, Colour::Heading, &words::ledger(ledger));
        if verbosity == 0 {
            let shown = ledger.parts.iter().filter(|part| part.ns > 0).map(|part| {
                format!("{} {}", words::state(part.state), share(portion(part.ns, ledger.wall_ns)))
            });
            page.paragraph(2, 0, Colour::Plain, &shown.collect::<Vec<_>>().join(", "));
        } else {
            parts(page, ledger);
            if let Some(text) = words::on_cpu(ledger) {
                page.paragraph(2, 4, Colour::Plain, &text);
            }
            if let Some(text) = memory::kinds(ledger) {
                page.paragraph(2, 4, Colour::Plain, &text);
            }
            sleeps(page, ledger, verbosity);
        }
        for remark in words::remarks(ledger) {
            page.paragraph(2, 2, Colour::Plain, &remark);
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
            none.push(words::state(part.state));
            continue;
        }
        let part_share = portion(part.ns, ledger.wall_ns);
        table.row([
            words::state(part.state).into(),
            share(part_share),
            bar(part_share, bar_columns),
        ]);
    }
    table.write(page, 2);
    if words::waits_for_memory(ledger) {
        page.paragraph(2, 2, Colour::Aside, words::MEMORY);
    }
    if !none.is_empty() {
        page.paragraph(2, 2, Colour::Aside, &format!("none: {}", none.join(", ")));
    }
}

/// Writes on what its threads slept.
fn sleeps(page: &mut Page, ledger: &Ledger, verbosity: u8) {
    let Some(kinds) = asleep::kinds(ledger) else { return };
    page.paragraph(2, 4, Colour::Plain, &kinds);
    let mut table = Table::new(&[Column::Left(16), Column::Right, Column::Left(usize::MAX)]);
    let of_all = |part: &SleepPart| portion(part.ns, ledger.wall_ns);
    let all = ledger.asleep.iter().filter(|part| verbosity > 1 || of_all(part) >= LEAST_SLEEP);
    let mut shown: Vec<&SleepPart> = all.collect();
    if verbosity <= 1 {
        shown.sort_by_key(|part| std::cmp::Reverse(part.ns));
        shown.truncate(SLEEPS);
        shown.sort_by_key(|part| (part.kind, std::cmp::Reverse(part.ns)));
    }
    for part in &shown {
        table.row([asleep::kind(part.kind).into(), share(of_all(part)), asleep::what(part)]);
    }
    table.write(page, 4);
    let more = ledger.asleep.len() - shown.len();
    if more > 0 {
        page.paragraph(4, 2, Colour::Aside, &format!("({more} more with -v)"));
    }
}

/// What was ruled out, and what could not be checked.
fn checks(page: &mut Page, report: &Report, verbosity: u8) {
    for (title, items) in words::checks(report) {
        if items.is_empty() {
            continue;
        }
        if verbosity == 0 {
            let codes: Vec<String> = items.iter().map(|check| check.label(40)).collect();
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
        let rows: Vec<(String, String)> = match title {
            words::UNCHECKED if verbosity == 1 => words::folded(&report.not_checked),
            _ => items.into_iter().map(|check| (check.label(60), check.about)).collect(),
        };
        for (name, about) in rows {
            table.row([name, about]);
        }
        table.write(page, 2);
    }
}

/// The cost of observing, what was lost, and which sources were incomplete.
fn observer(page: &mut Page, report: &Report, verbosity: u8) {
    let observer = &report.observer;
    let mut bad: Vec<String> = report
        .findings
        .iter()
        .filter(|it| words::is_bad_observation(it))
        .map(|it| label(&it.code, 12))
        .collect();
    bad.dedup();
    let title = match bad.is_empty() {
        true => "observer".to_owned(),
        false => format!("observer ({}: read what follows with care)", bad.join(", ")),
    };
    let cost = words::cost(observer, report.window.seconds);
    let lost = words::lost(observer);
    if verbosity == 0 {
        if !bad.is_empty() {
            page.gap();
        }
        page.labelled(
            0,
            (Colour::Heading, &title),
            2,
            Colour::Plain,
            &format!(": {cost}; lost {lost}"),
        );
        return;
    }
    page.gap();
    page.line(0, Colour::Heading, &title);
    let mut table = Table::new(&[Column::Label(4), Column::Left(usize::MAX)]);
    table.row(["cost".into(), cost]);
    table.row(["lost".into(), lost]);
    let mut name = if verbosity >= 2 { "saw" } else { "gaps" };
    for source in words::sources(observer, verbosity >= 2) {
        table.row([name.into(), source]);
        name = "";
    }
    table.write(page, 2);
}
