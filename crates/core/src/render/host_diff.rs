// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A comparison of hosts as text for a terminal: the hosts, what differs, most
//! important first, and what to do about it.

use super::TextStyle;
use super::finding;
use super::page::{Colour, Page};
use super::table::{Column, Table};
use super::words::finding::severity;
use crate::finding::{Area, Severity, Unit};
use crate::host_diff::document::{Change, Difference, HostDiff, TakesEffect, ValueOnHosts};
use crate::host_diff::{AfterTest, Plan, Step};
use crate::text::escape::{command, identifier, label, sentence};
use crate::text::units::{count, counted, duration, share};
use std::collections::BTreeSet;

/// Maximum number of differences that are shown in detail without -v.
const DETAILED: usize = 10;
/// Maximum probability (uncorrected) at which a difference counts as related to which hosts are slow.
const UNLIKELY: f64 = 0.05;
/// Maximum number of rows of a table of less important differences without -v.
const ROWS: usize = 20;
/// Maximum number of hosts that are named before the rest is counted.
const HOSTS: usize = 6;
/// Number of quick tests from which on a plan is told to save them.
const SAVED_MIN: f64 = 0.1;
/// Columns for the letter of a host. All of them have fewer.
const ID_COLUMNS: usize = 8;
/// Columns for the letters of hosts.
const HOST_COLUMNS: usize = 20;

/// The comparison as text for a terminal.
#[must_use]
pub fn host_diff(diff: &HostDiff, style: TextStyle) -> String {
    let mut page = Page::new(style);
    write(&mut page, diff, style);
    page.into_text()
}

/// Writes the comparison.
pub(super) fn write(page: &mut Page, diff: &HostDiff, style: TextStyle) {
    page.paragraph(0, 2, Colour::Heading, &headline(diff));
    hosts(page, diff, style.verbosity);
    // What separates them all is the title of a finding.
    let separation = diff
        .separation
        .as_ref()
        .filter(|it| it.slow.saturating_add(it.fast) > 2 && diff.separating().is_empty());
    let summaries =
        [diff.measured.as_ref().map(|it| &it.summary), separation.map(|it| &it.summary)];
    for summary in summaries.into_iter().flatten() {
        page.gap();
        page.paragraph(0, 2, Colour::Plain, &sentence(summary));
    }
    findings(page, diff, style.verbosity);
    // No other facts separate slow hosts from fast ones better.
    let best: BTreeSet<&str> =
        diff.separation.iter().flat_map(|it| &it.best).map(String::as_str).collect();
    let (matter, rest): (Vec<&Difference>, Vec<&Difference>) =
        diff.differences.iter().partition(|it| {
            it.severity >= Severity::Medium && !it.cannot_explain() && separates(it)
                || best.contains(it.key.as_str())
        });
    let detailed = match style.verbosity {
        0 => 0,
        1 => DETAILED,
        _ => usize::MAX,
    };
    let blocks: Vec<&[&Difference]> =
        matter[..matter.len().min(detailed)].chunk_by(|a, b| is_same_matter(a, b)).collect();
    for block in blocks {
        page.gap();
        differences(page, block);
    }
    let more: Vec<&Difference> = matter.into_iter().skip(detailed).chain(rest).collect();
    let (low, info): (Vec<&Difference>, Vec<&Difference>) =
        more.into_iter().partition(|it| it.severity > Severity::Info);
    let rows = if style.verbosity > 1 { usize::MAX } else { ROWS };
    let title = match detailed {
        0 => "differences",
        _ => "less important, or less is known of them",
    };
    table(page, title, &low, rows);
    match style.verbosity {
        0 | 1 if !info.is_empty() => {
            let n = counted(info.len() as u64, "difference that is", "differences that are");
            page.gap();
            page.paragraph(
                0,
                2,
                Colour::Aside,
                &format!("{n} not known to matter, or follow from those above (-v shows them)"),
            );
        }
        0 | 1 => {}
        _ => table(page, "not known to matter, or following from those above", &info, rows),
    }
    if let Some(it) = &diff.plan {
        plan(page, it, style.verbosity);
    }
    not_compared(page, diff, style.verbosity);
    aside(page, diff, style.verbosity);
    for note in &diff.notes {
        page.gap();
        page.labelled(0, (Colour::Heading, "note: "), 6, Colour::Plain, &sentence(note));
    }
}

/// Whether the difference may be related to which hosts are slow; with fewer than 6 hosts any difference may be.
fn separates(it: &Difference) -> bool {
    it.test
        .as_ref()
        .is_none_or(|test| test.chance <= UNLIKELY || test.slow_of.saturating_add(test.fast_of) < 6)
}

/// How many differences there are, and of which severity.
pub(super) fn headline(diff: &HostDiff) -> String {
    let of = |level: Severity| diff.differences.iter().filter(|it| it.severity == level).count();
    let levels = [Severity::High, Severity::Medium, Severity::Low];
    let parts: Vec<String> = levels
        .into_iter()
        .filter(|&level| of(level) > 0)
        .map(|level| format!("{} {}", of(level), severity(level)))
        .collect();
    let found = match (parts.is_empty(), diff.differences.len()) {
        (true, 0) => "no difference".to_owned(),
        (true, _) => "no difference that is known to matter".to_owned(),
        (false, 1) => format!("1 difference, {}", parts[0]),
        (false, n) => format!("{n} differences, {}", parts.join(", ")),
    };
    let facts = count(diff.facts.compared as f64);
    let of = if diff.hosts.len() > 2 {
        format!(" of {} hosts", diff.hosts.len())
    } else {
        String::new()
    };
    format!("{found}; {facts} facts{of} compared")
}

fn hosts(page: &mut Page, diff: &HostDiff, verbosity: u8) {
    use Column::Left;
    let mut table =
        Table::new(&[Left(3), Left(24), Left(26), Left(14), Left(14), Left(usize::MAX)]);
    table.heading(["", "host", "kernel", "idle driver", "freq. driver", ""]);
    let shown = if verbosity > 1 { usize::MAX } else { 2 * ROWS };
    for host in diff.hosts.iter().take(shown) {
        let slow = match host.slow {
            Some(true) => "slow, ",
            Some(false) => "fast, ",
            None => "",
        };
        let taken = host.taken.replace('T', " ").replace('Z', " UTC");
        let outlier = match host.outlier_in {
            0 => String::new(),
            n => format!(", against most in {n}"),
        };
        table.row([
            id(&host.id),
            label(&host.name, 24),
            label(&format!("{} {}", host.kernel, host.arch), 26),
            label(host.idle_driver.as_deref().unwrap_or("?"), 14),
            label(host.frequency_driver.as_deref().unwrap_or("?"), 14),
            sentence(&format!("{slow}{taken}{outlier}")),
        ]);
    }
    table.write(page, 0);
    if diff.hosts.len() > shown {
        page.line(0, Colour::Aside, &format!("and {} more hosts (-v)", diff.hosts.len() - shown));
    }
}

/// The findings of the rules. Of findings about drift only the claim, because the differences follow in detail.
fn findings(page: &mut Page, diff: &HostDiff, verbosity: u8) {
    let mut shown = finding::Shown::default();
    for it in &diff.findings {
        if it.severity == Severity::Info && verbosity < 2 {
            continue;
        }
        page.gap();
        if verbosity < 2 && it.area == Area::Host || verbosity == 0 {
            finding::claim(page, it);
            for slow in it.evidence.iter().filter(|it| it.unit == Unit::Ns) {
                let note = slow.note.as_deref().unwrap_or_default();
                let path = identifier(&slow.source, 2 * page.columns());
                let text = format!("{path} takes {} to read: {note}", duration(slow.value));
                page.paragraph(2, 2, Colour::Plain, &sentence(&text));
            }
            continue;
        }
        finding::write(page, it, finding::Detail::Evidence, &mut shown);
    }
    if verbosity > 1 {
        let quiet = diff.ruled_out.iter().map(|it| (&it.code, &it.name, sentence(&it.closest)));
        let blind = diff
            .not_checked
            .iter()
            .map(|it| (&it.code, &it.name, sentence(&it.missing.join("; "))));
        for (title, items) in
            [("ruled out", quiet.collect::<Vec<_>>()), ("could not check", blind.collect())]
        {
            if items.is_empty() {
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
}

/// Whether two differences concern the same thing, so that what they have in common is shown once.
fn is_same_matter(a: &Difference, b: &Difference) -> bool {
    a.what.is_some() && a.what == b.what && a.area == b.area && a.severity == b.severity
}

/// Writes differences that concern the same thing.
fn differences(page: &mut Page, block: &[&Difference]) {
    let Some(first) = block.first() else { return };
    let tag = format!("{}: ", severity(first.severity));
    let what = first.what.as_deref().unwrap_or("not known what it does");
    let title = format!("{} ({})", sentence(what), first.area.name());
    page.labelled(0, (Colour::Severity(first.severity), &tag), 2, Colour::Heading, &title);
    for it in block {
        page.paragraph(2, 2, Colour::Plain, &identifier(&it.key, 2 * page.columns()));
        let mut table = Table::new(&[Column::Left(HOST_COLUMNS), Column::Left(usize::MAX)]);
        for held in &it.values {
            table.row([hosts_of(&held.hosts), value(held, 300)]);
        }
        if !it.unknown_on.is_empty() {
            table.row([hosts_of(&it.unknown_on), "not known".into()]);
        }
        table.write(page, 4);
        let mut line = |name: &str, text: &str| {
            page.labelled(4, (Colour::Aside, name), name.len(), Colour::Plain, &sentence(text));
        };
        if !it.slows.is_empty() {
            let effects: Vec<&str> = it.effects.iter().map(|effect| effect.words()).collect();
            line("slows ", &format!("{}: {}", hosts_of(&it.slows), effects.join(", ")));
        }
        if let Some(test) =
            it.test.as_ref().filter(|test| test.slow_of.saturating_add(test.fast_of) > 2)
        {
            let value = it.values.get(test.value as usize).map_or("", |held| held.shown.as_str());
            line("separates ", &format!("`{}`: {}", value.replace('`', "'"), test.words()));
        }
        // Of all of it at most, nothing is said.
        if let Some(part) = it.explains.filter(|part| *part < 0.995) {
            line("explains ", &format!("{} of the extra time at most", share(part)));
        }
        for support in &it.supported_by {
            line("for it ", support);
        }
        for caution in &it.cautions {
            line("but ", caution);
        }
        if let Some(follows) = &it.follows {
            line("follows from ", follows);
        }
    }
    if let Some(why) = &first.why {
        page.labelled(2, (Colour::Aside, "why: "), 5, Colour::Plain, &sentence(why));
    }
    page.line(2, Colour::Plain, &format!("look: {}", command(&first.look)));
    let mut said: Vec<&Change> = Vec::new();
    for it in block.iter().filter_map(|it| it.change.as_ref()) {
        if !said.iter().any(|before| before.text == it.text) {
            change(page, it);
            said.push(it);
        }
    }
}

fn change(page: &mut Page, it: &Change) {
    let reach = match it.reach {
        TakesEffect::Now => "",
        TakesEffect::Boot => " (boot)",
        TakesEffect::Firmware => " (firmware)",
    };
    let name = format!("change on {}{reach}:", hosts_of(&it.hosts));
    if it.is_command {
        page.line(2, Colour::Advice, &name);
        page.line(7, Colour::Plain, &command(&it.text));
        page.line(7, Colour::Plain, &format!("undo: {}", command(&it.undo)));
    } else {
        page.labelled(
            2,
            (Colour::Advice, &format!("{name} ")),
            5,
            Colour::Plain,
            &sentence(&it.text),
        );
        page.labelled(7, (Colour::Plain, "undo: "), 6, Colour::Plain, &sentence(&it.undo));
    }
    if let Some(risk) = &it.risk {
        page.labelled(7, (Colour::Plain, "risk: "), 6, Colour::Plain, &sentence(risk));
    }
}

/// Writes the plan of tests.
fn plan(page: &mut Page, plan: &Plan, verbosity: u8) {
    page.gap();
    let names_of = |step: &Step| {
        let names: Vec<String> =
            step.groups.iter().map(|group| identifier(&group.name, 60)).collect();
        names.join(" and ")
    };
    if let (0, Some(first)) = (verbosity, plan.steps.first()) {
        let tests = counted(plan.steps.len() as u64, "test", "tests");
        let title = format!(
            "to find out which one it is, on {}: {tests}, first {} (how: without -q)",
            id(&plan.on),
            names_of(first)
        );
        page.paragraph(0, 2, Colour::Heading, &title);
        return;
    }
    let mut title = format!(
        "how to find out which one it is, on {}: {:.1} quick tests on average",
        id(&plan.on),
        plan.expected_cost
    );
    if plan.one_by_one_cost - plan.expected_cost >= SAVED_MIN {
        title += &format!(" (one by one: {:.1})", plan.one_by_one_cost);
    }
    page.paragraph(0, 2, Colour::Heading, &title);
    page.paragraph(2, 0, Colour::Plain, &sentence(&plan.how));
    for step in &plan.steps {
        let takes = match step.reach {
            TakesEffect::Now => "",
            TakesEffect::Boot => " (boot)",
            TakesEffect::Firmware => " (firmware)",
        };
        let text = format!(
            "{}{takes}; faster: {}, not: {}",
            names_of(step),
            next(&step.if_faster),
            next(&step.if_not)
        );
        page.labelled(2, (Colour::Advice, &format!("{}. ", step.number)), 3, Colour::Plain, &text);
        for it in step.groups.iter().flat_map(|group| &group.changes) {
            if it.change.is_command {
                page.line(5, Colour::Plain, &command(&it.change.text));
                page.line(5, Colour::Aside, &format!("undo: {}", command(&it.change.undo)));
            } else {
                page.paragraph(5, 2, Colour::Plain, &sentence(&it.change.text));
            }
        }
    }
    if !plan.not_testable.is_empty() {
        let keys: Vec<String> =
            plan.not_testable.iter().take(4).map(|key| identifier(key, 60)).collect();
        let more = match plan.not_testable.len() {
            0..=4 => String::new(),
            n => format!(" and {} more", n - 4),
        };
        page.paragraph(2, 2, Colour::Aside, &format!("cannot be tried: {}{more}", keys.join(", ")));
    }
}

fn next(next: &AfterTest) -> String {
    match next {
        AfterTest::Step(number) => format!("go on with {number}"),
        AfterTest::Found(name) => format!("it is {}", identifier(name, 60)),
        AfterTest::NoneOfThem => "none of them by itself".into(),
    }
}

/// A value on one line.
fn value(held: &ValueOnHosts, columns: usize) -> String {
    label(&held.shown, columns)
}

/// The letter of a host.
fn id(text: &str) -> String {
    label(text, ID_COLUMNS)
}

fn hosts_of(ids: &[String]) -> String {
    let mut text = ids.iter().take(HOSTS).map(|it| id(it)).collect::<Vec<_>>().join(" ");
    if ids.len() > HOSTS {
        text += &format!(" +{}", ids.len() - HOSTS);
    }
    text
}

/// Writes a table of differences, a row each, after a gap.
pub(super) fn table(page: &mut Page, title: &str, rows: &[&Difference], most: usize) {
    if rows.is_empty() {
        return;
    }
    page.gap();
    page.line(0, Colour::Heading, title);
    let half = page.columns().saturating_sub(8) / 2;
    let mut table = Table::new(&[Column::Left(6), Column::Left(half), Column::Left(usize::MAX)]);
    for it in rows.iter().take(most) {
        table.row([
            severity(it.severity).into(),
            label(&it.key, 2 * half),
            values(&it.values, half),
        ]);
    }
    table.write(page, 2);
    if rows.len() > most {
        page.line(2, Colour::Aside, &format!("and {} more (-v)", rows.len() - most));
    }
}

fn values(values: &[ValueOnHosts], columns: usize) -> String {
    let texts: Vec<String> = values
        .iter()
        .map(|held| format!("{}: {}", hosts_of(&held.hosts), value(held, columns)))
        .collect();
    texts.join("; ")
}

fn not_compared(page: &mut Page, diff: &HostDiff, verbosity: u8) {
    let all = &diff.not_compared;
    if all.is_empty() {
        return;
    }
    page.gap();
    if verbosity < 2 {
        let mut text =
            format!("{} could not be compared: ", counted(all.len() as u64, "fact", "facts"));
        let some: Vec<String> =
            all.iter().take(3).map(|it| format!("{} ({})", it.key, it.why)).collect();
        text += &some.join(", ");
        if all.len() > 3 {
            text += " and more (-v)";
        }
        page.paragraph(0, 2, Colour::Aside, &sentence(&text));
        return;
    }
    page.line(0, Colour::Heading, "could not be compared");
    let half = page.columns() / 2;
    let mut table = Table::new(&[Column::Left(half), Column::Left(8), Column::Left(usize::MAX)]);
    for it in all {
        table.row([label(&it.key, 2 * half), hosts_of(&it.hosts), sentence(&it.why)]);
    }
    table.write(page, 2);
}

fn aside(page: &mut Page, diff: &HostDiff, verbosity: u8) {
    let all = &diff.aside;
    if all.is_empty() || verbosity == 0 {
        return;
    }
    page.gap();
    if verbosity < 2 {
        let n = counted(all.len() as u64, "fact differs", "facts differ");
        let text = format!("{n} as they must or may: names, counters, addresses (-v shows them)");
        page.paragraph(0, 2, Colour::Aside, &text);
        return;
    }
    page.line(0, Colour::Heading, "differ as they must or may");
    let half = page.columns().saturating_sub(18) / 2;
    let mut table = Table::new(&[Column::Left(13), Column::Left(half), Column::Left(usize::MAX)]);
    for it in all {
        table.row([it.class.name().into(), label(&it.key, 2 * half), values(&it.values, half)]);
    }
    table.write(page, 2);
}
