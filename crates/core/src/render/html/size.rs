// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A page has at most 500 kB, so that it can be attached to a ticket. Of a larger one the least important parts are left
//! out, one after the other, until it fits; the page says what they were.

use super::markup::{Markup, class, none};
use super::page;
use crate::finding::Report;
use crate::text::escape::label;
use crate::view::Plots;

/// Maximum size of a page in bytes.
pub const MOST_BYTES: usize = 500_000;

/// Findings whose heatmaps of waits are kept the longest.
const FIRST_HEATMAPS: usize = 3;
/// Findings that keep their evidence, and findings that are kept, where even the plots did not suffice.
const WITH_EVIDENCE: usize = 10;
const FINDINGS: usize = 30;
/// Devices, rows of their tables, ledgers and checks that are kept then.
const DEVICES: usize = 3;
const ROWS: usize = 10;
const LEDGERS: usize = 6;
const CHECKS: usize = 100;
/// Columns of the title of a page that holds nothing else.
const TITLE: usize = 200;

/// What of a report its page shows.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) report: Report,
    pub(super) plots: Option<Plots>,
    /// Whether the report is in the page as JSON.
    pub(super) has_json: bool,
    /// What is not shown, in words.
    pub(super) left_out: Vec<&'static str>,
}

/// A part that a page may lack: its name, and how it is left out. `false` if there is nothing of it.
type Part = (&'static str, fn(&mut Shown) -> bool);

/// The parts, least important first.
const PARTS: [Part; 12] = [
    ("heatmaps of requests to devices that explain no finding", heatmaps_of_other_devices),
    ("time lines of devices that explain no finding", other_devices),
    ("heatmaps of the waits of further findings", further_heatmaps),
    ("bars of threads", threads),
    ("all plots over time", all_plots),
    ("further devices, and further rows of their tables", tables),
    ("stacks of the profile", stacks),
    ("further ledgers", ledgers),
    ("evidence of further findings", evidence),
    ("the report as JSON, so that `deburr report` cannot read this page", json),
    ("further findings", findings),
    ("further checks", checks),
];

/// What is shown of a report: all of it, then ever less.
pub(super) fn versions(report: &Report, plots: Option<&Plots>) -> impl Iterator<Item = Shown> {
    let (report, plots) = (report.clone(), plots.cloned());
    let all = Shown { report, plots, has_json: true, left_out: Vec::new() };
    let mut parts = PARTS.into_iter();
    std::iter::successors(Some(all), move |before| {
        let mut next = before.clone();
        let (name, _) = parts.by_ref().find(|(_, leave_out)| leave_out(&mut next))?;
        next.left_out.push(name);
        Some(next)
    })
}

/// The first page that is not too large; if there is none, one that has a title and says so.
pub(super) fn first_that_fits(title: &str, mut pages: impl Iterator<Item = String>) -> String {
    let nothing = || {
        let title = label(title, TITLE);
        page(&title, None, |to| {
            to.element("main", &none(), |to| {
                to.prose("h1", &none(), &title);
                note(to, &["everything else"]);
            });
        })
    };
    pages.find(|it| it.len() <= MOST_BYTES).unwrap_or_else(nothing)
}

/// A page of a document that is shown as `body` writes it; the document is left out if the page would be too large.
pub(super) fn of_document(
    title: &str,
    (id, json): (&'static str, &str),
    body: impl Fn(&mut Markup),
) -> String {
    let pages = [true, false].into_iter().map(|has_json| {
        page(title, None, |to| {
            note(to, if has_json { &[] } else { &[DOCUMENT] });
            body(to);
            if has_json {
                to.data(id, json);
            }
        })
    });
    first_that_fits(title, pages)
}

/// What is left out of pages that are not of a report.
pub(super) const PLOTS: &str = "further plots";
pub(super) const DOCUMENT: &str = "the document as JSON";
pub(super) const DETAILS: &str = "details";

/// Says what is left out, if anything is.
pub(super) fn note(to: &mut Markup, left_out: &[&str]) {
    if left_out.is_empty() {
        return;
    }
    let (most, what) = (MOST_BYTES / 1000, left_out.join("; "));
    to.element("p", &class("note"), |to| {
        to.tag("b", &none(), "left out: ");
        to.words(&format!(
            "a page has at most {most} kB, and this one would have more. It lacks: {what}. `--json` prints all but the plots"
        ));
    });
}

/// The devices that explain a finding.
fn explaining(report: &Report) -> impl Iterator<Item = &str> {
    let devices = report.block_io.iter().flat_map(|io| &io.devices);
    devices.filter(|it| it.explained_by.is_some()).map(|it| it.device.as_str())
}

fn heatmaps_of_other_devices(shown: &mut Shown) -> bool {
    let Some(plots) = &mut shown.plots else { return false };
    let others = plots.devices.iter_mut();
    let others = others.filter(|it| explaining(&shown.report).all(|device| device != it.device));
    others.fold(false, |any, it| any | !std::mem::take(&mut it.requests).is_empty())
}

fn other_devices(shown: &mut Shown) -> bool {
    let Some(plots) = &mut shown.plots else { return false };
    let before = plots.devices.len();
    plots.devices.retain(|it| explaining(&shown.report).any(|device| device == it.device));
    plots.devices.len() < before
}

fn further_heatmaps(shown: &mut Shown) -> bool {
    let Some(plots) = &mut shown.plots else { return false };
    let further = plots.of_findings.iter_mut().skip(FIRST_HEATMAPS);
    further.fold(false, |any, it| any | it.take().is_some())
}

fn threads(shown: &mut Shown) -> bool {
    let Some(plots) = &mut shown.plots else { return false };
    plots.threads.iter_mut().fold(false, |any, it| any | it.take().is_some())
}

fn all_plots(shown: &mut Shown) -> bool {
    shown.plots.take().is_some()
}

fn tables(shown: &mut Shown) -> bool {
    let Some(io) = &mut shown.report.block_io else { return false };
    let mut any = cut(&mut io.devices, DEVICES);
    for table in io.devices.iter_mut().flat_map(|it| &mut it.tables) {
        any |= cut(&mut table.rows, ROWS);
    }
    any
}

fn stacks(shown: &mut Shown) -> bool {
    let Some(profile) = &mut shown.report.profile else { return false };
    let any = cut(&mut profile.sleeps, 0);
    profile.processes.iter_mut().fold(any, |any, it| any | cut(&mut it.stacks, 0))
}

fn ledgers(shown: &mut Shown) -> bool {
    cut(&mut shown.report.ledger, LEDGERS)
}

fn evidence(shown: &mut Shown) -> bool {
    let further = shown.report.findings.iter_mut().skip(WITH_EVIDENCE);
    further.fold(false, |any, it| {
        let is_there = !it.evidence.is_empty() || it.chart.is_some() || it.files.is_some();
        it.evidence.clear();
        (it.chart, it.files) = (None, None);
        any | is_there
    })
}

fn json(shown: &mut Shown) -> bool {
    std::mem::replace(&mut shown.has_json, false)
}

fn findings(shown: &mut Shown) -> bool {
    cut(&mut shown.report.findings, FINDINGS)
}

fn checks(shown: &mut Shown) -> bool {
    let quiet = cut(&mut shown.report.ruled_out, CHECKS);
    quiet | cut(&mut shown.report.not_checked, CHECKS)
}

/// Shortens a list; whether anything of it is gone.
fn cut<T>(list: &mut Vec<T>, most: usize) -> bool {
    let is_longer = list.len() > most;
    list.truncate(most);
    is_longer
}

#[cfg(test)]
mod tests {
    use super::super::super::golden::sample;
    use super::super::tests::{check, plain_text, plots};
    use super::super::{html, read_page};
    use super::*;

    /// A report of many findings, devices, ledgers and checks, and its plots.
    fn large(factor: usize) -> (Report, Plots) {
        let (mut report, mut plots) = (sample("rhythm"), plots());
        let most = |it: usize| it * factor;
        report.findings = report.findings.iter().cycle().take(most(4)).cloned().collect();
        report.ledger = report.ledger.iter().cycle().take(most(3)).cloned().collect();
        report.ruled_out = report.ruled_out.iter().cycle().take(most(10)).cloned().collect();
        let io = report.block_io.as_mut().expect("the sample has devices");
        let mut device = io.devices[0].clone();
        (device.device, device.explained_by) = ("minor".into(), None);
        io.devices.extend(std::iter::repeat_n(device, factor));
        let mut minor = plots.devices[0].clone();
        minor.device = "minor".into();
        plots.devices.extend(std::iter::repeat_n(minor, factor));
        plots.threads = plots.threads.iter().cycle().take(report.ledger.len()).cloned().collect();
        plots.of_findings = vec![plots.waits.clone(); report.findings.len()];
        (report, plots)
    }

    fn page_of(factor: usize) -> (Report, String) {
        let (report, plots) = large(factor);
        let page = html(&report, Some(&plots), None).unwrap();
        check(&page);
        assert!(page.len() <= MOST_BYTES, "{factor}: {} bytes", page.len());
        (report, page)
    }

    #[test]
    fn a_page_is_never_too_large_and_says_what_it_lacks() {
        let mut lacked = 0;
        for factor in [1, 4, 8, 16, 64, 256] {
            let (report, page) = page_of(factor);
            let text = plain_text(&page);
            let lacks = text.split_once("It lacks: ").and_then(|(_, it)| it.split_once(". --json"));
            let all: Vec<&str> = lacks.map_or(vec![], |(list, _)| list.split("; ").collect());
            // The more there is, the more is left out, and always the least important first.
            assert!(all.len() >= lacked, "{factor}: {all:?}");
            let parts = PARTS.iter().map(|(name, _)| name.replace('`', "")).take(all.len());
            assert!(parts.eq(all.iter().copied()), "{factor}: {all:?}");
            assert_eq!(text.contains("a page has at most 500 kB"), !all.is_empty());
            lacked = all.len();
            let is_whole = !all.iter().any(|name| name.contains("as JSON"));
            assert_eq!(read_page(page.as_bytes()).is_ok(), is_whole, "{factor}");
            // The worst is on every page.
            let title = report.findings[0].title.replace('`', "");
            assert!(text.contains(&title), "{factor}");
        }
        assert!(lacked == PARTS.len(), "the largest lacks {lacked} parts");
    }

    #[test]
    fn a_title_without_end_leaves_a_page() {
        let mut report = sample("rhythm");
        report.host.name = "x".repeat(MOST_BYTES);
        let page = html(&report, None, None).unwrap();
        check(&page);
        assert!(page.len() < MOST_BYTES && plain_text(&page).contains("left out: "));
    }

    #[test]
    fn a_document_that_is_too_large_is_left_out() {
        let json = format!("\"{}\"", "x".repeat(MOST_BYTES - 50_000));
        let body = |bytes: usize| move |to: &mut Markup| to.tag("p", &none(), &"y".repeat(bytes));
        let of = |bytes| of_document("t", ("deburr-sweep", &json), body(bytes));
        assert!(of(10).contains(&json) && !of(10).contains("left out"));
        assert!(!of(100_000).contains(&json) && of(100_000).contains(DOCUMENT));
        let nothing = of(MOST_BYTES);
        assert!(nothing.len() < 20_000 && nothing.contains("everything else"));
    }
}
