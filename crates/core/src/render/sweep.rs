// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A load sweep as text: the verdict, tables of what was measured, and charts.

use super::TextStyle;
use super::page::{Colour, Page};
use super::plot::{MAX_SERIES, letter, plot};
use super::table::{Column, Table};
use crate::stats::Interval;
use crate::sweep::{Point, Setup, Sweep, Variant, Workload, rate_text};
use crate::text::escape::{sentence, width};
use crate::text::units::{bytes, count, duration, share};

/// Placeholder where nothing was measured.
const NONE: &str = "-";
/// An empty last column, which takes the rest of the line.
const END: Column = Column::Left(0);
/// Ratio of an interval's ends above which it is shown as `wide`, because it means nothing.
const WIDE: f64 = 100.0;
/// Maximum width of a variant's name in a table; with longer names, letters are used and explained above.
const NAME: usize = 22;
/// Maximum number of rates in a chart.
const MAX_RATES: usize = 200;
/// Width of a page that has room for names in its tables.
const WIDE_PAGE: usize = 100;

/// The sweep as text for a terminal.
#[must_use]
pub fn sweep_text(sweep: &Sweep, style: TextStyle) -> String {
    let mut page = Page::new(style);
    let setup = &sweep.setup;
    page.paragraph(0, 2, Colour::Heading, &headline(setup));
    page.paragraph(2, 2, Colour::Aside, &sentence(&conditions(setup)));
    page.gap();
    for said in &sweep.verdict {
        page.paragraph(2, 2, Colour::Plain, &sentence(said));
    }
    if !sweep.points.is_empty() {
        key(setup, &mut page);
        let names = has_names(setup, &page);
        if setup.is_of_command() {
            write(&mut page, "wall time", &wall(sweep, names), 2);
        } else {
            write(&mut page, "latency, from when each request was due", &latency(sweep, names), 2);
        }
        // For a command the first column is empty, and the gap after it is the indentation.
        let indent = if setup.is_of_command() { 0 } else { 2 };
        write(&mut page, "what it took", &cost(sweep, names), indent);
        charts(sweep, &mut page);
    }
    if !sweep.notes.is_empty() {
        page.gap();
        for note in &sweep.notes {
            page.labelled(0, (Colour::Aside, "note: "), 6, Colour::Aside, &sentence(note));
        }
    }
    page.into_text()
}

/// What was swept.
pub(super) fn headline(setup: &Setup) -> String {
    let words: Vec<_> = setup.command.iter().map(|word| crate::text::shell_quote(word)).collect();
    sentence(&format!("sweep of `{}`", words.join(" ")))
}

fn write(page: &mut Page, title: &str, table: &Table, indent: usize) {
    heading(page, title);
    table.write(page, indent);
}

/// The conditions of the measurement.
pub(super) fn conditions(setup: &Setup) -> String {
    let what = match &setup.driven {
        Workload::Http { url } => format!("GET `{url}`"),
        Workload::Tcp { address } => format!("lines echoed by `{address}`"),
        Workload::Command => "from its start to its end".into(),
    };
    let limit =
        setup.limit_cpus.map_or("no CPU limit".to_owned(), |cpus| format!("CPU limit {cpus}"));
    let how = if setup.is_of_command() {
        format!("{} repetitions", setup.repetitions)
    } else {
        format!(
            "{} x {} s each, after {} s of warm-up, open loop",
            setup.repetitions, setup.seconds, setup.warmup_s
        )
    };
    format!("{what}; {limit}; {how}; on `{}`, {} CPUs", setup.host.name, setup.host.cpus)
}

/// Whether rows of tables contain the names of variants; otherwise letters that are explained above.
fn has_names(setup: &Setup, page: &Page) -> bool {
    let fits = |variant: &Variant| width(&sentence(&variant.name)) + 2 <= NAME;
    let is_one = setup.variants.len() < 2;
    is_one || page.columns() >= WIDE_PAGE && setup.variants.iter().all(fits)
}

/// Writes the letters and names of the variants, a line each.
fn key(setup: &Setup, page: &mut Page) {
    if has_names(setup, page) {
        return;
    }
    page.gap();
    for (i, variant) in setup.variants.iter().enumerate() {
        page.paragraph(
            2,
            4,
            Colour::Plain,
            &sentence(&format!("{} = {}", letter(i), variant.name)),
        );
    }
}

/// The first two cells of a row: rate and variant.
fn start(sweep: &Sweep, point: &Point, has_names: bool) -> [String; 2] {
    // A document may be anybody's: its points may be of no variant.
    let variant = sweep.setup.variants.get(point.variant);
    let name = variant.map_or_else(|| NONE.to_owned(), |it| sentence(&it.name));
    let letter = letter(point.variant);
    let rate = point.rate_per_s.map_or(NONE.into(), rate_text);
    [
        rate,
        match sweep.setup.variants.len() {
            0..=1 => name,
            _ if !has_names => letter.to_string(),
            2..=MAX_SERIES => format!("{letter} {name}"),
            _ => name,
        },
    ]
}

/// Heading of the column of variants.
fn variant_heading(has_names: bool) -> &'static str {
    if has_names { "variant" } else { "" }
}

fn heading(page: &mut Page, text: &str) {
    page.gap();
    page.line(0, Colour::Heading, text);
}

/// Latency by rate and variant, whose names or letters are in the rows.
pub(super) fn latency(sweep: &Sweep, names: bool) -> Table {
    let mut columns = vec![Column::Right, Column::Left(NAME)];
    columns.extend([Column::Right; 7]);
    columns.push(END);
    let mut table = Table::new(&columns);
    table.heading([
        "rate/s",
        variant_heading(names),
        "answered",
        "mean",
        "p50",
        "p99",
        "95 % interval",
        "max",
        "failed",
    ]);
    for point in &sweep.points {
        let more = if point.at_least { ">" } else { "" };
        let late = if point.generator_late { "~" } else { "" };
        let ns =
            |it: Option<f64>| it.map_or(NONE.into(), |ns| format!("{late}{more}{}", duration(ns)));
        let answered = point.answered_per_s.zip(point.rate_per_s).map(|(it, rate)| it.value / rate);
        let value = |it: Option<Interval>| ns(it.map(|it| it.value));
        table.row(start(sweep, point, names).into_iter().chain([
            answered.map_or(NONE.into(), |it| share(it.min(1.0))),
            value(point.mean_ns),
            value(point.p50_ns),
            value(point.p99_ns),
            range(point.p99_ns, duration),
            ns(point.max_ns.map(|ns| ns as f64)),
            share(point.failed_share),
        ]));
    }
    table
}

/// Wall time of a command by variant.
pub(super) fn wall(sweep: &Sweep, names: bool) -> Table {
    let mut table =
        Table::new(&[Column::Left(NAME), Column::Right, Column::Right, Column::Right, END]);
    table.heading([variant_heading(names), "runs", "mean", "95 % interval"]);
    for point in &sweep.points {
        let [_, name] = start(sweep, point, names);
        table.row([
            name,
            count(point.repetitions as f64),
            point.wall_ns.map_or(NONE.into(), |it| duration(it.value)),
            range(point.wall_ns, duration),
        ]);
    }
    table
}

/// What it took, by rate and variant.
pub(super) fn cost(sweep: &Sweep, names: bool) -> Table {
    let of_command = sweep.setup.is_of_command();
    let mut columns = vec![Column::Right, Column::Left(NAME)];
    columns.extend([Column::Right; 7]);
    columns.push(END);
    let mut table = Table::new(&columns);
    let per = if of_command { "CPU time" } else { "CPU/request" };
    table.heading([
        if of_command { "" } else { "rate/s" },
        variant_heading(names),
        "CPUs",
        per,
        "95 % interval",
        "memory",
        "threads",
        "throttled",
        "switches/s",
    ]);
    for point in &sweep.points {
        let [rate, name] = start(sweep, point, names);
        let per = if of_command {
            let wall = point.wall_ns.map_or(f64::NAN, |it| it.value);
            Some(Interval { value: wall * point.cpus.value, low: None, high: None })
        } else {
            point.cpu_per_request_ns
        };
        let value = |it: Option<Interval>, unit: fn(f64) -> String| {
            it.map_or(NONE.into(), |it| unit(it.value))
        };
        table.row([
            if of_command { String::new() } else { rate },
            name,
            format!("{:.2}", point.cpus.value),
            value(per, duration),
            range(per, duration),
            value(point.memory_bytes, bytes),
            point.threads.map_or(NONE.into(), |threads| count(threads as f64)),
            value(point.throttled_share, share),
            value(point.switches_per_s, |it| count(it.round())),
        ]);
    }
    table
}

/// An interval as text: `12 to 15 ms`.
fn range(it: Option<Interval>, unit: fn(f64) -> String) -> String {
    let Some((low, high)) = it.and_then(|it| it.low.zip(it.high)) else { return NONE.into() };
    if high > low * WIDE {
        return "wide".into();
    }
    let (low, high) = (unit(low), unit(high));
    match (low.rsplit_once(' '), high.rsplit_once(' ')) {
        (Some((number, one)), Some((_, other))) if one == other => format!("{number} to {high}"),
        _ => format!("{low} to {high}"),
    }
}

fn charts(sweep: &Sweep, page: &mut Page) {
    let setup = &sweep.setup;
    if setup.rates_per_s.len() < 2 {
        return;
    }
    let slots: Vec<String> = setup.rates_per_s.iter().map(|rate| rate_text(*rate)).collect();
    let columns = page.columns() - 2;
    let charts = series(sweep).map(|(name, it)| (name, plot(&it, &slots, columns, duration)));
    let named = has_names(setup, page);
    let legend: Vec<String> = (0..setup.variants.len())
        .filter(|_| named)
        .map(|i| sentence(&format!("{} {}   ", letter(i), setup.variants[i].name)))
        .collect();
    for (name, lines) in charts {
        if lines.is_empty() {
            continue;
        }
        heading(page, name);
        for line in lines {
            page.line(2, Colour::Plain, &line);
        }
        page.paragraph(12, 0, Colour::Aside, &format!("{}: 95 % interval", legend.concat()));
    }
}

/// Values of each variant by rate.
pub(super) type Series = Vec<Vec<Option<Interval>>>;

/// What is charted by rate, with its title; all values are nanoseconds. Nothing of more variants than there are letters,
/// or of more rates than a chart has room for.
pub(super) fn series(sweep: &Sweep) -> [(&'static str, Series); 2] {
    let setup = &sweep.setup;
    let series = |of: fn(&Point) -> Option<Interval>| -> Series {
        if setup.variants.len() > MAX_SERIES || setup.rates_per_s.len() > MAX_RATES {
            return Vec::new();
        }
        let value = |variant: usize, rate: f64| {
            let mut points = sweep.points.iter();
            points.find(|it| it.variant == variant && it.rate_per_s == Some(rate)).and_then(of)
        };
        let rates = || setup.rates_per_s.iter();
        (0..setup.variants.len())
            .map(|variant| rates().map(|rate| value(variant, *rate)).collect())
            .collect()
    };
    [
        ("p99 latency by rate", series(|it| it.p99_ns)),
        ("CPU time for each request by rate", series(|it| it.cpu_per_request_ns)),
    ]
}
