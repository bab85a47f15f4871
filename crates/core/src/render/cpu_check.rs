// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A check of CPUs for a terminal: the verdict, a chart of the workers' speeds, and the pairs that matter.

use super::TextStyle;
use super::page::{Colour, Page};
use super::table::{Column, Table};
use crate::cpu_check::document::Document;
use crate::cpu_check::pairs::{Pair, PairClass};
use crate::cpu_check::sweep::{Regime, Step};
use crate::procfs::cpu_list;
use crate::text::escape::sentence;
use crate::text::units;

/// Lines of the chart: tenths of the full speed, from 1.0 down to 0.1; lower speeds share the last line.
const LINES: usize = 10;
/// Columns left of the chart.
const MARGIN: usize = 12;
/// What the chart shows.
pub(super) const SPEED: &str =
    "speed of each worker: work in a second of its CPU time, 1.0 = the fastest";
/// Maximum number of pairs that are shown without -v.
const MAX_PAIRS: usize = 12;

/// The check as text for a terminal.
#[must_use]
pub fn cpu_check(document: &Document, style: TextStyle) -> String {
    let mut page = Page::new(style);
    let check = &document.check;
    page.paragraph(0, 2, Colour::Heading, &sentence(&check.verdict.summary));
    page.paragraph(0, 2, Colour::Aside, &circumstances(document));
    if style.verbosity > 0 {
        page.gap();
        chart(&mut page, check.cpus.used.len(), &check.sweep);
        pairs(&mut page, &check.pairs, check.pairs_in_all, style.verbosity > 1);
    }
    page.gap();
    verdict(&mut page, document);
    page.into_text()
}

/// When and where the check was, and what it could use.
pub(super) fn circumstances(document: &Document) -> String {
    let (host, cpus, window) = (&document.host, &document.check.cpus, &document.window);
    let mut parts = vec![
        format!("`{}`", sentence(&host.name)),
        sentence(&window.start.replace('T', " ").replace('Z', " UTC")),
        units::duration(window.seconds * 1e9),
        format!("kernel {}", sentence(&host.kernel)),
        format!(
            "{} ({})",
            units::counted(cpus.used.len() as u64, "CPU", "CPUs"),
            cpu_list::format(&cpus.used)
        ),
    ];
    if let Some(cores) = cpus.cores_told {
        parts.push(format!(
            "{} by the kernel's account",
            units::counted(cores.into(), "core", "cores")
        ));
    }
    parts.extend(cpus.hypervisor.map(|is| if is { "virtual" } else { "not virtual" }.to_owned()));
    parts.extend(cpus.steal.map(|steal| format!("steal {}", units::share(steal))));
    parts.push(format!("deburr {}", sentence(&document.tool.version)));
    parts.join(", ")
}

/// A chart of speed against the number of workers; each cell is the number of workers with that speed.
fn chart(page: &mut Page, cpus: usize, steps: &[Step]) {
    if steps.is_empty() {
        return;
    }
    page.paragraph(0, 2, Colour::Plain, &format!("{SPEED}; a number counts workers"));
    let room = page.columns().saturating_sub(MARGIN + 2);
    let cell = (room / steps.len()).clamp(4, 7);
    for line in 0..LINES {
        let label = match line {
            9 => "<0.2".into(),
            _ => format!(" {:.1}", 1.0 - line as f64 / 10.0),
        };
        let mut text = format!("{label:>width$} |", width = MARGIN - 2);
        for step in steps {
            let here = step.speeds.iter().filter(|speed| line_of(**speed) == line).count();
            let mark = if here == 0 { String::new() } else { here.to_string() };
            text += &format!("{mark:>cell$}");
        }
        page.line(0, Colour::Plain, text.trim_end());
    }
    page.line(0, Colour::Plain, &format!("{:>MARGIN$}{}", "+", "-".repeat(cell * steps.len() + 1)));
    for (i, name) in STEP.iter().enumerate() {
        let cells: String = steps.iter().map(|it| format!("{:>cell$}", step(it)[i])).collect();
        page.line(0, Colour::Plain, &format!("{name:>width$}  {cells}", width = MARGIN - 2));
    }
    page.gap();
    for (_, line) in regimes(cpus, steps) {
        page.paragraph(2, 2, Colour::Plain, &line);
    }
}

/// The numbers of a step: their names, and their texts.
pub(super) const STEP: [&str; 5] = ["workers", "evenness", "CPUs' work", "CPU share", "moves"];

pub(super) fn step(step: &Step) -> [String; 5] {
    [
        step.workers.to_string(),
        format!("{:.2}", step.evenness),
        match step.work {
            work if work >= 99.95 => format!("{work:.0}"),
            work => format!("{work:.1}"),
        },
        format!("{:.2}", step.share),
        step.migrations.to_string(),
    ]
}

fn line_of(speed: f64) -> usize {
    // Speeds from 0.95 on are on the first line, speeds below 0.15 on the last one.
    ((1.0 - speed) * 10.0).round().clamp(0.0, (LINES - 1) as f64) as usize
}

/// A sentence for each run of consecutive steps of the same regime.
pub(super) fn regimes(cpus: usize, steps: &[Step]) -> Vec<(Regime, String)> {
    let is_over = |step: &Step| step.workers as usize > cpus;
    let same = |a: &Step, b: &Step| a.regime == b.regime && is_over(a) == is_over(b);
    let sentence = |run: &[Step]| {
        let (first, last) = (run.first()?, run.last()?);
        let who = match (first.workers, last.workers) {
            (1, 1) => "1 worker".into(),
            (n, m) if n == m => format!("{n} workers"),
            (n, m) => format!("{n} to {m} workers"),
        };
        let slowest = run.iter().min_by(|a, b| a.evenness.total_cmp(&b.evenness))?;
        let level = run.iter().filter_map(|step| step.speeds.first()).copied().fold(1.0, f64::min);
        let gaps = units::share(slowest.slowest_gaps);
        let what = match first.regime {
            Regime::Even => "all at the same full speed".into(),
            Regime::Slower => format!(
                "the slowest has {:.2} of the fastest, in every piece of its work",
                slowest.evenness
            ),
            Regime::Stopped => format!(
                "the slowest has {:.2} of the fastest: it stands still for {gaps} of its time, which this kernel \
                 counts as running",
                slowest.evenness
            ),
            Regime::AllSlower => {
                format!("all slow alike, down to {level:.2}, in every piece of work")
            }
            Regime::AllStopped => {
                format!("all slow alike, down to {level:.2}: they stand still at times")
            }
            Regime::Competition => {
                "at full speed when they run; other tasks, or a limit, take their time".into()
            }
        };
        let over = if is_over(first) { ", more than CPUs" } else { "" };
        Some((first.regime, format!("{who}{over}: {what}")))
    };
    steps.chunk_by(same).filter_map(sentence).collect()
}

fn pairs(page: &mut Page, pairs: &[Pair], in_all: u64, all: bool) {
    if pairs.is_empty() {
        return;
    }
    page.gap();
    let by_ratio = slowest_first(pairs);
    let most = if all { usize::MAX } else { MAX_PAIRS };
    page.paragraph(0, 2, Colour::Plain, &tested(pairs, in_all));
    let mut table = Table::new(&[
        Column::Right,
        Column::Right,
        Column::Right,
        Column::Right,
        Column::Right,
        Column::Left(60),
    ]);
    table.heading(PAIR);
    for pair in by_ratio.iter().take(most) {
        table.row(cells(pair));
    }
    table.write(page, 2);
    if by_ratio.len() > most {
        let more = by_ratio.len() - most;
        page.line(2, Colour::Aside, &format!("and {more} more, none of them slower"));
    }
}

/// The pairs, those that slow each other down most first.
pub(super) fn slowest_first(pairs: &[Pair]) -> Vec<&Pair> {
    let mut by_ratio: Vec<&Pair> = pairs.iter().collect();
    by_ratio.sort_by(|a, b| {
        let key = |pair: &Pair| pair.ratio.map_or(2.0, |ratio| ratio[1]);
        key(a).total_cmp(&key(b)).then((a.a, a.b).cmp(&(b.a, b.b)))
    });
    by_ratio
}

/// What the table of pairs shows.
pub(super) fn tested(pairs: &[Pair], in_all: u64) -> String {
    format!(
        "speed that two CPUs keep when both compute ({} of {} tested)",
        units::count(pairs.len() as f64),
        units::counted(in_all, "pair", "pairs")
    )
}

/// The names of the cells of a pair, and their texts.
pub(super) const PAIR: [&str; 6] = ["CPUs", "median", "10-90 %", "rounds", "cache line", ""];

pub(super) fn cells(pair: &Pair) -> [String; 6] {
    let [low, mid, high] = pair.ratio.unwrap_or([f64::NAN; 3]);
    let number = |ratio: f64| if ratio.is_nan() { "?".into() } else { format!("{ratio:.2}") };
    [
        format!("{} {}", pair.a, pair.b),
        number(mid),
        format!("{}-{}", number(low), number(high)),
        format!("{}/{}", pair.valid, pair.rounds),
        pair.one_way_ns.map_or_else(String::new, |ns| units::duration(ns as f64)),
        what(pair),
    ]
}

fn what(pair: &Pair) -> String {
    let mut text = match pair.class {
        PairClass::Independent => "independent".to_owned(),
        PairClass::SharedCore => "share a core".into(),
        PairClass::TimeSliced => "run in turns on one CPU of the host".into(),
        PairClass::Sometimes => format!("shared one in {} rounds", pair.shared),
        PairClass::Unclear if pair.missed > 0 => {
            format!("cannot be told; a worker was late or had to wait in {}", pair.missed)
        }
        PairClass::Unclear => "cannot be told".into(),
    };
    if pair.class.is_shared() {
        text += if pair.told { ", as the kernel knows" } else { "" };
    }
    let held_up = pair.one_sided.saturating_add(pair.disturbed);
    if held_up > 0 {
        text += &format!("; held up by others in {held_up}");
    }
    text
}

fn verdict(page: &mut Page, document: &Document) {
    let mut table = Table::new(&[Column::Label(14), Column::Left(200)]);
    let mut last = "";
    for (label, text) in conclusions(document) {
        // A label stands at its first line. Each event has its own.
        let shown = if label == last && label != "happened" { "" } else { label };
        table.row([shown.into(), text]);
        last = label;
    }
    table.write(page, 0);
}

/// The verdict in numbers, the advice and the doubts, each with its name.
pub(super) fn conclusions(document: &Document) -> Vec<(&'static str, String)> {
    let verdict = &document.check.verdict;
    let number = |n: Option<u32>| n.map_or_else(|| "cannot be told".to_owned(), |n| n.to_string());
    let cpus = document.check.cpus.used.len();
    let usable = number(verdict.usable_cores);
    let of = units::counted(cpus as u64, "CPU", "CPUs");
    let mut rows = vec![("usable cores", format!("{usable} of {of}"))];
    if let Some(even) = verdict.even_workers {
        let most = if even as usize >= cpus { " (all CPUs)" } else { "" };
        let workers = units::counted(even.into(), "worker", "workers");
        rows.push(("even up to", format!("{workers}{most}")));
    }
    rows.push(("confidence", units::share(verdict.confidence)));
    rows.extend(verdict.advice.iter().map(|line| ("advice", sentence(line))));
    rows.extend(verdict.doubts.iter().map(|line| ("but", sentence(line))));
    rows.extend(document.window.events.iter().map(|event| ("happened", sentence(event))));
    rows
}
