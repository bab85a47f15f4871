// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report as one HTML page that needs nothing else: no other file, and nobody is asked for anything. It
//! says what the text says, in the same words, shows it in plots whose numbers are in tables, and holds the report's
//! JSON, so that it can be read back.

mod axis;
mod block_io;
mod blocks;
mod cpu_check;
mod embedded;
mod finding;
mod heat;
mod ledger;
mod load;
mod markup;
mod plots;
mod png;
mod profile;
mod prove;
mod size;
mod svg;
mod sweep;
mod threads;
mod time;

#[cfg(test)]
mod strangers;
#[cfg(test)]
pub(crate) mod tests;

pub use embedded::{InPage, MAX_PAGE_BYTES, PageError, is_page, read_page};
pub use size::MOST_BYTES as MOST_PAGE_BYTES;

use super::TextStyle;
use super::json::refuse_not_finite;
use super::names;
use super::page::Page;
use super::words::{asleep, profile as profile_words, report as words};
use crate::compare::document::Comparison;
use crate::cpu_check::document::Document;
use crate::finding::{Answer, Report};
use crate::host_diff::document::HostDiff;
use crate::prove::outcome::Outcome;
use crate::sweep::Sweep;
use crate::text::escape::{self, sentence};
use crate::transcript;
use crate::view::{Heat, Plots};
use markup::{Markup, class, none};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The report as an HTML page, with what happened when if that is known, and with the check of CPUs if there was one.
///
/// # Errors
/// If a number is not finite, as for [`json`](super::json).
pub fn html(
    report: &Report,
    plots: Option<&Plots>,
    check: Option<&Document>,
) -> Result<String, serde_json::Error> {
    refuse_not_finite(report)?;
    let json = compact(report)?;
    let check_json = check.map(compact).transpose()?;
    let title = words::headline(report);
    let pages = size::versions(report, plots).map(|shown| {
        let plots = shown.plots.as_ref();
        // Without plots over time there is nothing for the script to do.
        let script = plots.map(|_| SCRIPT);
        page(&title, script, |to| {
            header(to, &shown);
            to.element("main", &none(), |to| {
                if script.is_some() {
                    to.tag("p", &class("aside zoom").and("hidden", ""), ZOOM);
                }
                if let Some(check) = check {
                    to.prose("p", &class("note"), &sentence(&check.check.verdict.summary));
                    cpu_check::body(to, check);
                }
                body(to, &shown.report, plots);
            });
            if shown.has_json {
                to.data(embedded::REPORT, &json);
                if let Some(json) = &check_json {
                    to.data(embedded::CHECK, json);
                }
            }
        })
    });
    Ok(size::first_that_fits(&title, pages))
}

/// A check of CPUs as an HTML page.
///
/// # Errors
/// If it cannot be represented in JSON.
pub fn cpu_check_html(document: &Document) -> Result<String, serde_json::Error> {
    let json = compact(document)?;
    let title = sentence(&document.check.verdict.summary);
    Ok(size::of_document(&title, (embedded::CHECK, &json), |to| {
        to.element("header", &none(), |to| cpu_check::header(to, document));
        to.element("main", &none(), |to| cpu_check::body(to, document));
    }))
}

/// A load sweep as an HTML page.
///
/// # Errors
/// If it cannot be represented in JSON.
pub fn sweep_html(sweep: &Sweep) -> Result<String, serde_json::Error> {
    let json = compact(sweep)?;
    let title = super::sweep::headline(&sweep.setup);
    Ok(size::of_document(&title, (embedded::SWEEP, &json), |to| {
        to.element("header", &none(), |to| sweep::header(to, sweep));
        to.element("main", &none(), |to| sweep::body(to, sweep));
    }))
}

/// A comparison of two recordings as an HTML page.
///
/// # Errors
/// If it cannot be represented in JSON.
pub fn comparison_html(comparison: &Comparison) -> Result<String, serde_json::Error> {
    let json = compact(comparison)?;
    let write = |page: &mut Page, style| super::compare::write(page, comparison, style);
    Ok(of_blocks(&comparison.verdict.sentence, write, (embedded::COMPARISON, &json)))
}

/// A comparison of hosts as an HTML page.
///
/// # Errors
/// If it cannot be represented in JSON.
pub fn host_diff_html(diff: &HostDiff) -> Result<String, serde_json::Error> {
    let json = compact(diff)?;
    let write = |page: &mut Page, style| super::host_diff::write(page, diff, style);
    Ok(of_blocks(&super::host_diff::headline(diff), write, (embedded::HOST_DIFF, &json)))
}

/// An experiment as an HTML page.
///
/// # Errors
/// If it cannot be represented in JSON.
pub fn experiment_html(outcome: &Outcome) -> Result<String, serde_json::Error> {
    let json = compact(outcome)?;
    let write = |page: &mut Page, style| super::prove::write(page, outcome, style);
    Ok(of_blocks(&super::prove::headline(outcome), write, (embedded::EXPERIMENT, &json)))
}

/// What was read of transcripts as an HTML page.
///
/// # Errors
/// If it cannot be represented in JSON.
pub fn read_html(document: &transcript::Document) -> Result<String, serde_json::Error> {
    let json = compact(document)?;
    let write = |page: &mut Page, style| super::read::write(page, document, style);
    Ok(of_blocks("what was read", write, (embedded::READ, &json)))
}

/// Plots of a page that would be too large with all of them, and of one that would be too large even so.
const SOME_PLOTS: usize = 12;
const FEW_PLOTS: usize = 3;

/// A page of what is written for a terminal, with all details if there is room for them.
fn of_blocks(
    title: &str,
    write: impl Fn(&mut Page, TextStyle),
    (id, json): (&'static str, &str),
) -> String {
    let title = sentence(title);
    let versions: [(u8, usize, &[&str]); 6] = [
        (2, usize::MAX, &[]),
        (2, SOME_PLOTS, &[]),
        (2, FEW_PLOTS, &[]),
        (2, FEW_PLOTS, &[size::DOCUMENT]),
        (1, FEW_PLOTS, &[size::DOCUMENT, size::DETAILS]),
        (0, 0, &[size::DOCUMENT, size::DETAILS]),
    ];
    let pages = versions.into_iter().map(|(verbosity, plots, left_out)| {
        let mut written = Page::of_blocks(plots);
        write(&mut written, TextStyle { columns: 100, color: false, verbosity });
        let blocks = written.into_blocks();
        page(&title, None, |to| {
            let plots = blocks.lacks_plots.then_some(size::PLOTS);
            let all: Vec<&str> = plots.into_iter().chain(left_out.iter().copied()).collect();
            size::note(to, &all);
            to.element("main", &none(), |to| blocks::write(to, &blocks.all));
            if !left_out.contains(&size::DOCUMENT) {
                to.data(id, json);
            }
        })
    });
    size::first_that_fits(&title, pages)
}

fn compact(document: &impl Serialize) -> Result<String, serde_json::Error> {
    Ok(escape::json(&serde_json::to_string(document)?))
}

/// What the script says about itself.
const ZOOM: &str = "plots over time: drag over one to zoom all of them, double-click to go back; on the keyboard, with a \
                    plot selected, + - \u{2190} \u{2192} and Escape";

/// A whole document: its head, what `body` writes, and a script.
fn page(title: &str, script: Option<&'static str>, body: impl FnOnce(&mut Markup)) -> String {
    let mut to = Markup::default();
    to.fixed(embedded::DOCTYPE);
    to.newline();
    to.element("html", &none().and("lang", "en"), |to| {
        to.element("head", &none(), |to| {
            let meta = |to: &mut Markup, name, content: &str| {
                to.tag("meta", &none().and("name", name).and("content", content), "");
            };
            to.tag("meta", &none().and("charset", "utf-8"), "");
            let policy = none().and("http-equiv", "Content-Security-Policy");
            to.tag("meta", &policy.and("content", policy_text(script)), "");
            meta(to, "referrer", "no-referrer");
            meta(to, "viewport", "width=device-width, initial-scale=1");
            meta(to, "color-scheme", "light dark");
            meta(to, "generator", "deburr");
            to.tag("title", &none(), &title.replace('`', ""));
            // Browsers ask the server of a page without an icon.
            to.fixed("<link rel=\"icon\" href=\"data:,\">");
            to.element("style", &none(), |to| to.fixed(STYLE));
        });
        to.newline();
        to.element("body", &none(), |to| {
            body(to);
            if let Some(script) = script {
                to.element("script", &none(), |to| to.fixed(script));
            }
        });
    });
    to.newline();
    to.into_html()
}

/// What the page may do: show itself. Its style and its script are named by their hashes, so that no others apply.
fn policy_text(script: Option<&str>) -> String {
    let hash = |text: &str| format!("'sha256-{}'", base64(&Sha256::digest(text.as_bytes())));
    let (style, script) = (hash(STYLE), script.map_or("'none'".into(), hash));
    format!(
        "default-src 'none'; style-src {style}; script-src {script}; img-src data:; base-uri 'none'; form-action 'none'"
    )
}

/// Base64 (RFC 4648), with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let of = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let bits = of(0) << 16 | of(1) << 8 | of(2);
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// The answer: what was watched, the verdict, and for each question whether something was found.
fn header(to: &mut Markup, shown: &size::Shown) {
    let report = &shown.report;
    to.newline();
    to.element("header", &none(), |to| {
        to.prose("h1", &none(), &words::headline(report));
        to.prose("p", &class("aside"), &words::about(report));
        if let Some(entries) = asleep::entries(&report.target) {
            to.prose("p", &none(), &format!("entries: {entries}"));
        }
        for event in &report.window.events {
            to.element("p", &class("note"), |to| {
                to.tag("b", &none(), "note: ");
                to.words(&sentence(event));
            });
        }
        size::note(to, &shown.left_out);
        answers(to, report);
    });
}

/// The questions with their answers, in the words of the text.
fn answers(to: &mut Markup, report: &Report) {
    if report.questions.is_empty() {
        return;
    }
    to.element("ul", &class("answers").and("aria-label", "the answers in short"), |to| {
        for it in super::answers::shown(&report.questions) {
            let (kind, mark) = match it.answer {
                Answer::Found => ("found", "✗"),
                Answer::Info => ("info", "i"),
                Answer::Ok => ("clear", "✓"),
                Answer::Unknown => ("blind", "?"),
            };
            let words = super::answers::words(it);
            let about = report.findings.iter().position(|finding| it.codes.contains(&finding.code));
            to.element("li", &class(kind), |to| {
                to.tag("span", &class("mark").and("aria-hidden", "true"), mark);
                match about.filter(|_| matches!(it.answer, Answer::Found | Answer::Info)) {
                    Some(i) => {
                        to.tag("a", &none().and("href", format_args!("#finding-{i}")), &words);
                    }
                    None => to.text(&words),
                }
                // The mark in words, for who does not see it.
                let said = match it.answer {
                    Answer::Found => "found",
                    Answer::Info => "a remark",
                    Answer::Ok => "nothing found",
                    Answer::Unknown => "could not be checked",
                };
                to.tag("span", &class("what"), &format!(" {said}"));
            });
        }
    });
}

fn body(to: &mut Markup, report: &Report, plots: Option<&Plots>) {
    // As in the text: who lost too much says so before anything else.
    let own_losses_first = report.findings.iter().any(words::is_bad_observation);
    if own_losses_first {
        observer(to, report);
    }
    if !report.findings.is_empty() {
        section(to, "findings", |to| finding::all(to, &report.findings, plots));
    }
    if let Some(plots) = plots {
        over_time(to, report, plots);
    }
    if !report.ledger.is_empty() {
        section(to, "where the time went", |to| ledger::all(to, &report.ledger, plots));
    }
    if let Some(profile) = &report.profile {
        section(to, profile_words::TITLE, |to| profile::all(to, profile));
    }
    if let Some(io) = &report.block_io {
        section(to, "block devices", |to| block_io::all(to, io, plots));
    }
    for (title, checks) in words::checks(report) {
        if checks.is_empty() {
            continue;
        }
        section(to, title, |to| {
            to.element("dl", &class("checks"), |to| {
                for check in checks {
                    to.tag("dt", &none(), &check.label(60));
                    to.prose("dd", &none(), &check.about);
                }
            });
        });
    }
    if !own_losses_first {
        observer(to, report);
    }
}

/// The cost of observing, what was lost, and what could not be seen.
fn observer(to: &mut Markup, report: &Report) {
    section(to, "observer", |to| {
        let rows = |to: &mut Markup, rows: Vec<(&str, String)>| {
            to.element("dl", &class("facts"), |to| {
                for (name, text) in rows {
                    to.tag("dt", &none(), name);
                    to.prose("dd", &none(), &text);
                }
            });
        };
        let observer = &report.observer;
        let mut short = vec![
            ("cost", words::cost(observer, report.window.seconds)),
            ("lost", words::lost(observer)),
        ];
        short.extend(words::sources(observer, false).into_iter().map(|it| ("gaps", it)));
        rows(to, short);
        details(to, "what it saw of each source", |to| {
            to.element("ul", &none(), |to| {
                for source in words::sources(observer, true) {
                    to.prose("li", &none(), &source);
                }
            });
        });
    });
}

/// The load and the waits of what was watched.
fn over_time(to: &mut Markup, report: &Report, plots: &Plots) {
    if plots.load.is_none() && plots.waits.is_none() {
        return;
    }
    let whose = names::target(&report.target, &report.host.name);
    section(to, "over time", |to| {
        if let Some(load) = &plots.load {
            load::threads(to, load, plots, &whose);
        }
        // A finding about all that was watched shows them already.
        let known = |waits: &&Heat| !plots.of_findings.iter().flatten().any(|it| it == *waits);
        if let Some(waits) = plots.waits.as_ref().filter(known) {
            let about = format!("how long threads of {whose} waited for a CPU");
            heat::write(to, waits, plots.window_ns, &about, "waits");
        }
    });
}

/// A part of the page with a heading.
fn section(to: &mut Markup, title: &str, content: impl FnOnce(&mut Markup)) {
    to.newline();
    to.element("section", &none(), |to| {
        to.tag("h2", &none(), title);
        content(to);
    });
}

/// What is shown on request, with the mouse or the keyboard. Printed pages show it always.
fn details(to: &mut Markup, title: &str, content: impl FnOnce(&mut Markup)) {
    to.element("details", &none(), |to| {
        to.tag("summary", &none(), title);
        content(to);
    });
}

/// A cell of a table.
enum Cell {
    /// Words, aligned left.
    Words(String),
    /// A number, aligned right.
    Number(String),
    /// A bar for the share in the cell before, in a colour.
    Bar(f64, &'static str),
}

/// A table in a box of its own, which scrolls where the page is too narrow for it.
fn table(to: &mut Markup, headings: &[&str], rows: Vec<Vec<Cell>>) {
    let scrolls = class("table").and("tabindex", 0).and("role", "region");
    to.element("div", &scrolls.and("aria-label", headings.join(", ")), |to| {
        to.element("table", &none(), |to| {
            to.element("thead", &none(), |to| {
                to.element("tr", &none(), |to| {
                    for (i, heading) in headings.iter().enumerate() {
                        let number = matches!(
                            rows.first().and_then(|row| row.get(i)),
                            Some(Cell::Number(_))
                        );
                        let attributes = if number { class("n") } else { none() };
                        let element = if heading.is_empty() { "td" } else { "th" };
                        to.prose(element, &attributes, heading);
                    }
                });
            });
            to.element("tbody", &none(), |to| {
                for row in rows {
                    to.element("tr", &none(), |to| row.into_iter().for_each(|it| cell(to, it)));
                }
            });
        });
    });
}

fn cell(to: &mut Markup, cell: Cell) {
    match cell {
        Cell::Words(text) => to.prose("td", &none(), &text),
        Cell::Number(text) => to.prose("td", &class("n"), &text),
        Cell::Bar(share, colour) => {
            to.element("td", &class("b"), |to| svg::bar(to, share, colour));
        }
    }
}
