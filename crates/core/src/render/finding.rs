// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One finding on the page: the claim, the victim and its causes, the numbers, and what to do.

use super::bars::bar;
use super::chart;
use super::names;
use super::page::{Colour, Page};
use super::table::{Column, Table};
use crate::finding::{
    Cause, Cost, Entity, EntityKind, Evidence, FileTable, Finding, Fix, LossBasis, Severity,
    SizeClass,
};
use crate::text::escape::{command, identifier, label, sentence};
use crate::text::units::{bytes, count, counted, duration, share, value};

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

/// Width of the labels `victim`, `behind`, `confidence`.
const LABEL_COLUMNS: usize = 10;
/// Maximum width of a source, which can be the path of a file.
const SOURCE_COLUMNS: usize = 40;
/// Number of causes that are shown before the rest is summed up.
const CAUSES_SHOWN: usize = 5;
/// Rows of the table of files where only the claim is shown.
const FILES_SHOWN: usize = 3;
/// Minimum share of the loss for which a line about the unattributed remainder is shown.
const REMAINDER_MIN: f64 = 0.005;

/// The word for a severity.
pub(super) fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::High => "high",
        Severity::Medium => "medium",
        Severity::Low => "low",
        Severity::Info => "info",
    }
}

/// Writes a finding. `advised` collects the remedies that are on the page already.
pub(super) fn write<'a>(
    page: &mut Page,
    finding: &'a Finding,
    detail: Detail,
    advised: &mut Vec<&'a Fix>,
) {
    let tag = format!("{}[{}]: ", severity(finding.severity), label(&finding.code, 12));
    let ink = Colour::Severity(finding.severity);
    page.labelled(0, (ink, &tag), 2, Colour::Heading, &sentence(&finding.title));
    facts(page, finding, detail);
    if let Some(table) = &finding.files {
        files(page, table, detail);
    }
    if let Some(of) = finding.chart.as_ref().filter(|_| detail >= Detail::Evidence) {
        chart::write(page, of);
    }
    if detail >= Detail::Evidence {
        sizes(page, &finding.sizes);
        evidence(page, &finding.evidence);
        page.gap();
    }
    for fix in &finding.fix {
        if fix.command.is_some() && advised.contains(&fix) {
            let action = format!("{} (as above)", sentence(&fix.action));
            page.labelled(2, (Colour::Advice, "fix: "), 5, Colour::Plain, &action);
            continue;
        }
        advised.push(fix);
        page.labelled(2, (Colour::Advice, "fix: "), 5, Colour::Plain, &sentence(&fix.action));
        if let Some(text) = &fix.command {
            page.line(7, Colour::Plain, &command(text));
        }
        if let Some(risk) = &fix.risk {
            page.labelled(7, (Colour::Plain, "risk: "), 6, Colour::Plain, &sentence(risk));
        }
        if let Some(promise) = &fix.expect {
            let part = share(promise.left_at_most);
            let left = match promise.of {
                LossBasis::Second => format!("at most {part} of this loss is left"),
                LossBasis::Transfer => {
                    format!(
                        "each of its transfers waits for at most {part} of the time that it waits now"
                    )
                }
            };
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
}

fn facts(page: &mut Page, finding: &Finding, detail: Detail) {
    let fact = |page: &mut Page, name: &str, text: String| {
        let mut table = Table::new(&[Column::Label(LABEL_COLUMNS), Column::Left(usize::MAX)]);
        table.row([name.into(), text]);
        table.write(page, 2);
    };
    let nobody = matches!(
        finding.victim.kind,
        EntityKind::Host | EntityKind::Observer | EntityKind::Unknown
    );
    if !nobody {
        fact(page, "victim", described(&finding.victim, detail));
    }
    if finding.cost.lost_ns_per_s > 0 {
        fact(page, "loses", loss(&finding.cost));
    }
    if let Some(waits) = waits(&finding.cost) {
        fact(page, "waits", waits);
    }
    causes(page, finding, detail);
    fact(page, "confidence", share(finding.confidence));
}

/// An entity with its container, unit or cgroup, and its note.
fn described(entity: &Entity, detail: Detail) -> String {
    let mut text = names::entity(entity);
    let place = names::place(entity, detail == Detail::All).filter(|place| {
        *place != text && (entity.kind != EntityKind::Cgroup || detail == Detail::All)
    });
    if let Some(place) = place {
        text = format!("{text} in {place}");
    }
    match &entity.note {
        Some(note) => format!("{text}: {}", sentence(note)),
        None => text,
    }
}

fn loss(cost: &Cost) -> String {
    let lost = duration(cost.lost_ns_per_s as f64);
    let every = if cost.lost_ns_per_s > 1_000_000_000 {
        format!("{lost} in every second, over all its threads")
    } else {
        format!("{lost} of every second")
    };
    format!("{every}: {} of the time in which it wanted to run", share(cost.share))
}

fn waits(cost: &Cost) -> Option<String> {
    let parts = [
        cost.p50_ns.map(|ns| format!("half of them under {}", duration(ns as f64))),
        cost.p99_ns.map(|ns| format!("99 % under {}", duration(ns as f64))),
        cost.max_ns.map(|ns| format!("the longest {}", duration(ns as f64))),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn causes(page: &mut Page, finding: &Finding, detail: Detail) {
    let bar_columns = if page.columns() >= 80 { 10 } else { 5 };
    let known = |cause: &&Cause| cause.entity.kind != EntityKind::Unknown;
    let mut limit = if detail == Detail::All { usize::MAX } else { CAUSES_SHOWN };
    // Do not sum up a single cause: a line can name it.
    if finding.causes.iter().filter(known).count() == limit.saturating_add(1) {
        limit += 1;
    }
    let others: Vec<&Cause> = finding.causes.iter().filter(known).skip(limit).collect();
    let unknown = finding.causes.iter().filter(|cause| !known(cause));
    let mut rows: Vec<(f64, String, Option<String>)> = Vec::new();
    for cause in finding.causes.iter().filter(known).take(limit) {
        let own = same_process(&cause.entity, &finding.victim);
        let who = if own { "its own threads".into() } else { described(&cause.entity, detail) };
        let whom = cause.entity.whom.as_ref().filter(|_| !own).and_then(names::whom);
        rows.push((cause.share.get(), who, whom));
    }
    if !others.is_empty() {
        let part = others.iter().map(|cause| cause.share.get()).sum();
        rows.push((part, format!("{} others", others.len()), None));
    }
    rows.extend(unknown.map(|cause| (cause.share.get(), described(&cause.entity, detail), None)));
    let rest = 1.0 - finding.causes.iter().map(|cause| cause.share.get()).sum::<f64>();
    if !rows.is_empty() && rest >= REMAINDER_MIN {
        rows.push((rest, "not attributed".into(), None));
    }
    let runs = |cause: &Cause| {
        use EntityKind::{Irq, Kernel, Process, Thread, Unknown};
        matches!(cause.entity.kind, Process | Thread | Kernel | Irq | Unknown)
    };
    let mut name = if finding.causes.iter().all(runs) { "behind" } else { "because of" };
    let columns = [
        Column::Label(LABEL_COLUMNS),
        Column::Right,
        Column::Left(bar_columns),
        Column::Left(usize::MAX),
    ];
    let mut table = Table::new(&columns);
    for (part, who, whom) in rows {
        table.row([name.into(), share(part), bar(part, bar_columns), who]);
        name = "";
        if let Some(whom) = whom {
            table.row([String::new(), String::new(), String::new(), whom]);
        }
    }
    table.write(page, 2);
}

fn same_process(a: &Entity, b: &Entity) -> bool {
    a.kind == EntityKind::Process && b.kind == a.kind && a.pid.is_some() && a.pid == b.pid
}

/// The table of wait lengths: the number of waits of each class, and the time that they took.
fn sizes(page: &mut Page, sizes: &[SizeClass]) {
    let used = |class: &SizeClass| class.count > 0;
    let Some(first) = sizes.iter().position(used) else { return };
    let last = sizes.iter().rposition(used).unwrap_or(first);
    let all: u64 = sizes.iter().map(|class| class.count).fold(0, u64::saturating_add);
    let all_ns: u64 = sizes.iter().map(|class| class.ns).fold(0, u64::saturating_add);
    let of = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    // Range, counts, times and gaps take about 54 columns; the two bars share the rest.
    let bar_columns = (page.columns().saturating_sub(54) / 2).min(16);
    page.gap();
    use Column::{Left, Right};
    let mut table =
        Table::new(&[Right, Right, Right, Left(bar_columns), Right, Right, Left(bar_columns)]);
    table.heading(["length", "waits", "", "", "time", "", ""]);
    for class in &sizes[first..=last] {
        let (n, time) = (of(class.count, all), of(class.ns, all_ns));
        table.row([
            range(class),
            count(class.count as f64),
            share(n),
            bar(n, bar_columns),
            duration(class.ns as f64),
            share(time),
            bar(time, bar_columns),
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
    for row in files.rows.iter().take(shown) {
        let name = match row.is_path {
            true => identifier(&row.name, 3 * name_columns),
            false => sentence(&row.name),
        };
        table.row([
            name,
            if row.files > 0 { count(row.files as f64) } else { String::new() },
            count(row.ios as f64),
            share(row.ios_share),
            bytes(row.bytes as f64),
            share(row.bytes_share),
        ]);
    }
    page.gap();
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

/// Bounds of a class of lengths: `under 16 us`, `16 - 64 us`, `512 us - 1.0 ms`, `4.2 s or more`.
fn range(class: &SizeClass) -> String {
    let from = duration(class.from_ns as f64);
    match class.to_ns.map(|ns| duration(ns as f64)) {
        None => format!("{from} or more"),
        Some(to) if class.from_ns == 0 => format!("under {to}"),
        Some(to) => match (from.split_once(' '), to.split_once(' ')) {
            (Some((number, a)), Some((_, b))) if a == b => format!("{number} - {to}"),
            _ => format!("{from} - {to}"),
        },
    }
}

/// The evidence for the claim, grouped by source and part of the window.
fn evidence(page: &mut Page, evidence: &[Evidence]) {
    let origin = |item: &Evidence| {
        let source = label(&item.source, SOURCE_COLUMNS);
        // A value read at a single point in time has no range.
        match item.to_s > item.from_s {
            true => format!("from {source}, {}", seconds(item.from_s, item.to_s)),
            false => format!("from {source}"),
        }
    };
    let mut origins: Vec<String> = Vec::new();
    for item in evidence {
        let origin = origin(item);
        if !origins.contains(&origin) {
            origins.push(origin);
        }
    }
    let name_columns = page.columns() * 2 / 5;
    let mut table =
        Table::new(&[Column::Left(name_columns), Column::Right, Column::Left(usize::MAX)]);
    for group in &origins {
        table.caption(group);
        for item in evidence.iter().filter(|item| origin(item) == *group) {
            let note = item.note.as_deref().map(sentence).unwrap_or_default();
            let name = label(&item.name, 2 * name_columns);
            table.row([name, value(item.value, item.unit), note]);
        }
    }
    if !evidence.is_empty() {
        page.gap();
    }
    table.write(page, 4);
}

/// A part of the window: `0-30 s`.
fn seconds(from: f64, to: f64) -> String {
    let short = |s: f64| format!("{}", (s * 10.0).round() / 10.0);
    format!("{}-{} s", short(from), short(to))
}
