// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One finding on the page: the claim, the victim and its causes, the numbers, and what to do.

use super::bars::bar;
use super::chart;
use super::page::{Colour, Page};
use super::table::{Column, Table};
use super::words::finding as words;
use crate::finding::{Chart, Evidence, FileTable, Finding, Fix, SizeClass};
use crate::text::escape::{command, identifier, label, sentence};
use crate::text::units::{counted, share, value};

/// How much of a finding is shown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Detail {
    /// The claim and what to do about it.
    Claim,
    /// Also the lengths of the waits, and the evidence.
    Evidence,
    /// Also every cause, and the cgroup of every container.
    All,
}

/// What is on the page already: it is not shown again.
#[derive(Default)]
pub(super) struct Shown<'a> {
    fixes: Vec<&'a Fix>,
    files: Vec<&'a FileTable>,
    charts: Vec<&'a Chart>,
    evidence: Vec<&'a Evidence>,
}

/// Width of the labels `victim`, `behind`, `confidence`.
const LABEL_COLUMNS: usize = 10;
/// Rows of the table of files where only the claim is shown.
const FILES_SHOWN: usize = 3;

/// Whether there is nothing to tell of a finding, without its evidence, that its sentence does not say.
pub(super) fn is_said_in_its_sentence(finding: &Finding) -> bool {
    finding.cost.lost_ns_per_s == 0
        && finding.causes.is_empty()
        && finding.files.is_none()
        && finding.fix.is_empty()
        && finding.confirm.is_none()
}

/// Writes a finding whole: its sentence and its details, as [`details`] does.
pub(super) fn write<'a>(
    page: &mut Page,
    finding: &'a Finding,
    detail: Detail,
    shown: &mut Shown<'a>,
) {
    claim(page, finding);
    details(page, finding, detail, shown);
}

/// Writes the sentence of a finding.
pub(super) fn claim(page: &mut Page, finding: &Finding) {
    let tag = format!("{}: ", words::tag(finding));
    let ink = Colour::Severity(finding.severity);
    page.labelled(0, (ink, &tag), 2, Colour::Heading, &sentence(&finding.title));
}

/// Writes the heading of the details of a finding whose sentence is elsewhere on the page.
pub(super) fn heading(page: &mut Page, finding: &Finding) {
    let name = label(&format!("{} {}", finding.code, finding.name), 60);
    page.paragraph(0, 2, Colour::Severity(finding.severity), &name);
}

/// Writes the details of a finding, without what is in `shown`, which collects it.
pub(super) fn details<'a>(
    page: &mut Page,
    finding: &'a Finding,
    detail: Detail,
    shown: &mut Shown<'a>,
) {
    facts(page, finding, detail);
    if let Some(table) = &finding.files {
        if shown.files.contains(&table) {
            let text = format!("{}: as above", sentence(&table.of));
            page.paragraph(2, 2, Colour::Aside, &text);
        } else {
            files(page, table, detail);
            shown.files.push(table);
        }
    }
    if let Some(of) = finding.chart.as_ref().filter(|_| detail >= Detail::Evidence)
        && !shown.charts.contains(&of)
    {
        chart::write(page, of);
        shown.charts.push(of);
    }
    if detail >= Detail::Evidence {
        sizes(page, &finding.sizes);
        evidence(page, &finding.evidence, &mut shown.evidence);
        if !finding.fix.is_empty() || finding.confirm.is_some() {
            page.gap();
        }
    }
    for fix in &finding.fix {
        if fix.command.is_some() && shown.fixes.contains(&fix) {
            let action = format!("{} (as above)", sentence(&fix.action));
            page.labelled(2, (Colour::Advice, "fix: "), 5, Colour::Plain, &action);
            continue;
        }
        shown.fixes.push(fix);
        page.labelled(2, (Colour::Advice, "fix: "), 5, Colour::Plain, &sentence(&fix.action));
        if let Some(text) = &fix.command {
            page.line(7, Colour::Plain, &command(text));
        }
        if let Some(risk) = &fix.risk {
            page.labelled(7, (Colour::Plain, "risk: "), 6, Colour::Plain, &sentence(risk));
        }
        if let Some(promise) = &fix.expect {
            let left = words::promise(promise);
            page.labelled(7, (Colour::Plain, "expect: "), 8, Colour::Plain, &left);
        }
    }
    if let Some(confirm) = &finding.confirm {
        page.line(2, Colour::Advice, "confirm:");
        page.line(7, Colour::Plain, &command(&confirm.command));
        if let Some(expect) = &confirm.expect {
            page.labelled(7, (Colour::Plain, "expect: "), 8, Colour::Plain, &sentence(expect));
        }
    }
    if let Some(prove) = &finding.prove {
        let with = words::prove_with(finding);
        page.paragraph(
            2,
            2,
            Colour::Advice,
            &format!("prove, by an experiment that asks first{with}:"),
        );
        page.line(7, Colour::Plain, &command(prove));
    }
}

fn facts(page: &mut Page, finding: &Finding, detail: Detail) {
    let fact = |page: &mut Page, name: &str, text: String| {
        let mut table = Table::new(&[Column::Label(LABEL_COLUMNS), Column::Left(usize::MAX)]);
        table.row([name.into(), text]);
        table.write(page, 2);
    };
    for (name, text) in words::facts(finding, detail == Detail::All) {
        fact(page, name, text);
    }
    causes(page, finding, detail);
    fact(page, "confidence", share(finding.confidence));
}

fn causes(page: &mut Page, finding: &Finding, detail: Detail) {
    let bar_columns = if page.columns() >= 80 { 10 } else { 5 };
    let (mut name, rows) = words::causes(finding, detail == Detail::All);
    let columns = [
        Column::Label(LABEL_COLUMNS),
        Column::Right,
        Column::Left(bar_columns),
        Column::Left(usize::MAX),
    ];
    let mut table = Table::new(&columns);
    for row in rows {
        table.row([name.into(), share(row.share), bar(row.share, bar_columns), row.who]);
        name = "";
        if let Some(whom) = row.whom {
            table.row([String::new(), String::new(), String::new(), whom]);
        }
    }
    table.write(page, 2);
}

/// The table of wait lengths: the number of waits of each class, and the time that they took.
fn sizes(page: &mut Page, sizes: &[SizeClass]) {
    let rows = words::sizes(sizes);
    if rows.is_empty() {
        return;
    }
    // Range, counts, times and gaps take about 54 columns; the two bars share the rest.
    let bar_columns = (page.columns().saturating_sub(54) / 2).min(16);
    page.gap();
    use Column::{Left, Right};
    let mut table =
        Table::new(&[Right, Right, Right, Left(bar_columns), Right, Right, Left(bar_columns)]);
    table.heading(["length", "waits", "", "", "time", "", ""]);
    for row in rows {
        table.row([
            row.length,
            row.waits,
            share(row.waits_share),
            bar(row.waits_share, bar_columns),
            row.time,
            share(row.time_share),
            bar(row.time_share, bar_columns),
        ]);
    }
    table.write(page, 2);
}

/// The table of what the disk's IO was for, with transfers and bytes, because neither follows from the other.
fn files(page: &mut Page, files: &FileTable, detail: Detail) {
    use Column::{Left, Right};
    let shown = if detail == Detail::Claim { FILES_SHOWN } else { usize::MAX };
    // Counts and shares take about 44 columns.
    let name_columns = page.columns().saturating_sub(44).max(16);
    let mut table = Table::new(&[Left(name_columns), Right, Right, Right, Right, Right, Left(0)]);
    table.heading([sentence(&files.of).as_str(), "files", "IOs", "", "bytes", "", ""]);
    let rows = &files.rows[..shown.min(files.rows.len())];
    let folder = words::common_folder(rows);
    for row in rows {
        table.row(words::file(row, folder, name_columns));
    }
    page.gap();
    if !folder.is_empty() {
        let text = format!("below {}:", identifier(folder, 3 * name_columns));
        page.paragraph(2, 2, Colour::Plain, &text);
    }
    table.write(page, 2);
    let more = files.rows.len().saturating_sub(shown);
    if more > 0 {
        let rows = counted(more as u64, "more row", "more rows");
        page.paragraph(2, 2, Colour::Aside, &format!("({rows} with -v)"));
    }
    if detail == Detail::Claim {
        page.gap();
    }
}

/// The evidence for the claim, grouped by source and part of the window.
fn evidence<'a>(page: &mut Page, evidence: &'a [Evidence], shown: &mut Vec<&'a Evidence>) {
    let name_columns = page.columns() * 2 / 5;
    let mut table =
        Table::new(&[Column::Left(name_columns), Column::Right, Column::Left(usize::MAX)]);
    for (origin, items) in words::evidence(evidence) {
        table.caption(&origin);
        let (again, new): (Vec<_>, Vec<_>) =
            items.into_iter().partition(|item| shown.contains(item));
        for item in new {
            shown.push(item);
            let note = item.note.as_deref().map(sentence).unwrap_or_default();
            let name = label(&item.name, 2 * name_columns);
            table.row([name, value(item.value, item.unit), note]);
        }
        if !again.is_empty() {
            let names: Vec<_> = again.iter().map(|it| label(&it.name, 2 * name_columns)).collect();
            table.row(["as above".into(), String::new(), names.join(", ")]);
        }
    }
    if !evidence.is_empty() {
        page.gap();
    }
    table.write(page, 4);
}
