// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two recordings side by side, as text for a terminal: the verdict, the findings, and what each process loses.

use super::TextStyle;
use super::bars::bar;
use super::compare_plots::Plots;
use super::names;
use super::page::{Colour, Page};
use super::table::{Column, Table};
use super::words::finding::severity;
use super::words::report::state;
use crate::compare::document::{
    Change, Comparison, Configuration, FindingPair, Loss, LossChange, MeasureOf, ProcessPair,
    ProcessSide, QuotaSide, Recording, Told,
};
use crate::compare::sizes::{self, SizePair};
use crate::compare::{measure_varies_too_much, times, varies_too_much};
use crate::finding::{RowKind, Severity};
use crate::host_diff::document::Difference;
use crate::stats::Interval;
use crate::text::escape::{identifier, label, sentence};
use crate::text::units::{bytes, count, counted, cpus, duration, share};

/// Maximum number of processes in the table without -v.
const ROWS: usize = 10;
/// Of what differs so much from second to second that hardly any difference could have been seen.
const VARIES: &str = "varies too much to tell";
/// Width of names in tables.
const NAME_COLUMNS: usize = 34;
/// Width of the names of the recordings.
const FILE_COLUMNS: usize = 60;

/// The comparison as text for a terminal.
#[must_use]
pub fn comparison(it: &Comparison, style: TextStyle) -> String {
    let mut page = Page::new(style);
    write(&mut page, it, style);
    page.into_text()
}

/// Writes the comparison.
pub(super) fn write(page: &mut Page, it: &Comparison, style: TextStyle) {
    page.paragraph(0, 2, Colour::Heading, &sentence(&it.verdict.sentence));
    page.gap();
    recordings(page, [&it.a, &it.b]);
    let mut plots = Plots::of(it);
    plots.verdict(page);
    if style.verbosity > 0 || it.findings.iter().any(|it| it.change <= Change::Gone) {
        findings(page, &it.findings, style.verbosity, &mut plots);
    }
    losses(page, it, style.verbosity);
    measures(page, it, &mut plots);
    if style.verbosity > 0 {
        behind(page, &it.processes, &mut plots);
        ledgers(page, &it.processes, style.verbosity);
        io(page, it);
        configuration(page, it);
        facts(page, it, style.verbosity);
        unpaired(page, it);
    }
    for note in &it.notes {
        page.gap();
        page.labelled(0, (Colour::Heading, "note: "), 6, Colour::Plain, &sentence(note));
    }
    page.gap();
    page.paragraph(0, 2, Colour::Aside, &method(it));
}

fn method(it: &Comparison) -> String {
    let worth = (1.0 - it.method.least_correlation) / (1.0 + it.method.least_correlation);
    format!(
        "tested together: {}, at a level of {}; a second counts as at most {} of an independent sample; intervals \
         are of 95 % (docs/compare.md)",
        counted(it.method.comparisons, "difference", "differences"),
        share(it.method.level),
        share(worth),
    )
}

fn recordings(page: &mut Page, sides: [&Recording; 2]) {
    for (letter, it) in ["A  ", "B  "].into_iter().zip(sides) {
        let start = it.window.start.replace('T', " ").replace('Z', " UTC");
        let text = format!(
            "{}: {}, {}, {}, kernel {}, {}",
            identifier(&it.file, FILE_COLUMNS),
            names::target(&it.target, &it.host.name),
            sentence(&start),
            duration(it.window.seconds * 1e9),
            label(&it.host.kernel, NAME_COLUMNS),
            counted(it.host.cpus.into(), "CPU", "CPUs"),
        );
        page.labelled(0, (Colour::Aside, letter), 3, Colour::Plain, &text);
    }
}

fn findings<'c>(page: &mut Page, pairs: &'c [FindingPair], verbosity: u8, plots: &mut Plots<'c>) {
    page.gap();
    page.line(0, Colour::Heading, "findings");
    if pairs.is_empty() {
        page.line(2, Colour::Plain, "none in either");
        return;
    }
    for it in pairs {
        let worst = [&it.a, &it.b].into_iter().flatten().map(|told| told.severity).max();
        if worst <= Some(Severity::Info) && verbosity < 2 {
            continue;
        }
        let chance = match (it.change, it.beyond_chance) {
            (Change::New | Change::Gone, Some(false)) => "; its loss may differ by chance",
            (Change::New | Change::Gone, None) => "; whether its loss differs was not tested",
            _ => "",
        };
        let tag = format!("{}[{}]: ", word(it.change), label(&it.code, 12));
        let ink = Colour::Severity(worst.unwrap_or(Severity::Info));
        let told = [&it.b, &it.a].into_iter().flatten().next();
        let title = told.map_or("", |told| told.title.as_str());
        page.labelled(2, (ink, &tag), 2, Colour::Plain, &sentence(&format!("{title}{chance}")));
        let side = |told: &Option<Told>| match told {
            Some(told) => {
                format!(
                    "{}, {} of every second",
                    severity(told.severity),
                    duration(told.lost_ns_per_s as f64)
                )
            }
            None => it.absent_because.clone().unwrap_or_else(|| "not found".into()),
        };
        for (letter, told) in [("A  ", &it.a), ("B  ", &it.b)] {
            page.labelled(6, (Colour::Aside, letter), 3, Colour::Aside, &sentence(&side(told)));
        }
        plots.finding(page, it);
    }
}

/// A change in one word or two.
fn word(change: Change) -> &'static str {
    match change {
        Change::New => "new",
        Change::Grown => "grown",
        Change::Shrunk => "shrunk",
        Change::Gone => "gone",
        Change::Alike => "alike",
        Change::OtherLoad => "other load",
        Change::InBoth => "in both",
        Change::NotComparable => "not comparable",
    }
}

fn lost_to(loss: Loss) -> &'static str {
    match loss {
        Loss::Queued => "queued",
        Loss::WakeUp => "CPU wakes up",
        Loss::Throttled => "throttled",
        Loss::QueuedOrThrottled => "queued/throttled",
        Loss::BlockIo => "block IO",
        Loss::Sync => "syncs",
        Loss::DirtyThrottle => "dirty pages",
        Loss::Requests => "own requests",
        Loss::MemStall => "memory",
    }
}

fn losses(page: &mut Page, it: &Comparison, verbosity: u8) {
    let rows: Vec<(&ProcessPair, &LossChange)> =
        it.processes.iter().flat_map(|pair| pair.losses.iter().map(move |it| (pair, it))).collect();
    if rows.is_empty() {
        return;
    }
    page.gap();
    page.line(0, Colour::Heading, "time lost of every second, of processes that are in both");
    let mut table = Table::new(&[
        Column::Left(NAME_COLUMNS),
        Column::Left(16),
        Column::Right,
        Column::Right,
        Column::Left(24),
        Column::Left(usize::MAX),
    ]);
    table.heading(["process", "lost to", "A", "B", "B / A", ""]);
    let shown = match verbosity {
        0 => ROWS / 2,
        1 => ROWS,
        _ => usize::MAX,
    };
    for (pair, loss) in rows.iter().take(shown) {
        table.row([
            names::entity(&pair.b.process),
            lost_to(loss.loss).into(),
            duration(loss.a_ns_per_s),
            duration(loss.b_ns_per_s),
            ratio(loss.ratio),
            match varies_too_much(loss) {
                true => VARIES.into(),
                false => remark(loss.change, loss.detectable_ns_per_s),
            },
        ]);
    }
    table.write(page, 2);
    if rows.len() > shown {
        page.line(2, Colour::Aside, &format!("and {} more (-v)", rows.len() - shown));
    }
}

fn ratio(ratio: Option<Interval>) -> String {
    match ratio {
        Some(Interval { value, low: Some(low), high: Some(high) }) => {
            format!("{} ({} to {})", times(value), times(low), times(high))
        }
        _ => String::new(),
    }
}

fn remark(change: Change, detectable: Option<f64>) -> String {
    match (change, detectable) {
        (Change::Alike, Some(ns)) => format!("alike; {} would have shown", duration(ns)),
        (Change::Alike | Change::InBoth | Change::NotComparable, _) => "too short to tell".into(),
        (Change::OtherLoad, _) => "in proportion to its CPU time: another load".into(),
        (change, _) => word(change).into(),
    }
}

/// Latency, pressure and steal.
fn measures<'c>(page: &mut Page, it: &'c Comparison, plots: &mut Plots<'c>) {
    if it.measures.is_empty() {
        return;
    }
    page.gap();
    page.line(0, Colour::Heading, "mean latency of requests; pressure and steal of every second");
    let mut table = Table::new(&[
        Column::Left(NAME_COLUMNS),
        Column::Right,
        Column::Right,
        Column::Left(24),
        Column::Left(usize::MAX),
    ]);
    table.heading(["what", "A", "B", "B / A", ""]);
    for it in &it.measures {
        let what = match it.what {
            MeasureOf::ReadLatency => format!("reads of {}", names::entity(&it.of)),
            MeasureOf::WriteLatency => format!("writes of {}", names::entity(&it.of)),
            MeasureOf::Steal => "stolen by the hypervisor".into(),
            MeasureOf::CpuPressure => "somebody waits for a CPU".into(),
            MeasureOf::IoPressure => "somebody waits for IO".into(),
            MeasureOf::MemoryPressure => "somebody waits for memory".into(),
        };
        table.row([
            what,
            duration(it.a),
            duration(it.b),
            ratio(it.ratio),
            match measure_varies_too_much(it) {
                true => VARIES.into(),
                false => remark(it.change, it.detectable),
            },
        ]);
    }
    table.write(page, 2);
    it.measures.iter().for_each(|it| plots.measure(page, it));
}

/// Where the time of the process went that changed most; with -v of all that changed.
fn ledgers(page: &mut Page, processes: &[ProcessPair], verbosity: u8) {
    let changed = |pair: &&ProcessPair| {
        let beyond = |it: &LossChange| matches!(it.change, Change::Grown | Change::Shrunk);
        pair.losses.iter().any(beyond) && !pair.ledger.is_empty()
    };
    let shown = if verbosity > 1 { usize::MAX } else { 1 };
    for pair in processes.iter().filter(changed).take(shown) {
        page.gap();
        let title =
            format!("{}: where the time of its threads went", names::entity(&pair.b.process));
        page.paragraph(0, 2, Colour::Heading, &title);
        let mut table =
            Table::new(&[Column::Left(24), Column::Right, Column::Right, Column::Left(usize::MAX)]);
        table.heading(["of every second", "A", "B", ""]);
        for it in pair.ledger.iter().filter(|it| it.a_ns_per_s.max(it.b_ns_per_s) > 0.0) {
            table.row([state(it.state).into(), duration(it.a_ns_per_s), duration(it.b_ns_per_s)]);
        }
        table.write(page, 2);
    }
}

fn io(page: &mut Page, it: &Comparison) {
    if !it.devices.is_empty() {
        page.gap();
        page.line(0, Colour::Heading, "devices");
        let mut table = Table::new(&[
            Column::Left(16),
            Column::Left(2),
            Column::Right,
            Column::Right,
            Column::Right,
            Column::Left(usize::MAX),
        ]);
        table.heading(["device", "", "IO/s", "bytes/s", "busy", "mean, 99 % under, longest"]);
        for pair in &it.devices {
            for (letter, side) in [("A", &pair.a), ("B", &pair.b)] {
                let Some(side) = side else { continue };
                let latency = side.latency.iter().map(|it| {
                    let p99 = it.p99_ns.map_or("?".to_owned(), |ns| duration(ns as f64));
                    let (mean, most) = (duration(it.mean_ns as f64), duration(it.max_ns as f64));
                    format!("{} {mean}, {p99}, {most}", label(&it.op, 8))
                });
                table.row([
                    identifier(&pair.device, 14),
                    letter.into(),
                    count(side.ios_per_s),
                    bytes(side.bytes_per_s),
                    side.busy_share.map_or("?".into(), share),
                    latency.collect::<Vec<_>>().join("; "),
                ]);
            }
        }
        table.write(page, 2);
    }
    if !it.files.is_empty() {
        page.gap();
        page.line(0, Colour::Heading, "files whose transfers differ most, bytes per second");
        let mut table =
            Table::new(&[Column::Left(12), Column::Right, Column::Right, Column::Left(usize::MAX)]);
        table.heading(["device", "A", "B", "file"]);
        for it in &it.files {
            let rate = |rate: Option<f64>| rate.map_or("little".to_owned(), bytes);
            table.row([
                identifier(&it.device, 10),
                rate(it.a_bytes_per_s),
                rate(it.b_bytes_per_s),
                match it.kind {
                    RowKind::Path => identifier(&it.path, 60),
                    _ => label(&it.path, 60),
                },
            ]);
        }
        table.write(page, 2);
    }
}

/// Quotas and settings that differ.
fn configuration(page: &mut Page, it: &Comparison) {
    if !it.quotas.is_empty() {
        page.gap();
        page.line(
            0,
            Colour::Heading,
            "CPU quotas: CPUs, and share of the periods in which they ran out",
        );
        let mut table = Table::new(&[Column::Left(60), Column::Left(18), Column::Left(usize::MAX)]);
        table.heading(["cgroup", "A", "B"]);
        let side = |side: &Option<QuotaSide>| match side {
            None => "not there".to_owned(),
            Some(side) => {
                let limit = side.cpus.map_or("no quota".into(), cpus);
                format!("{limit}, {}", side.throttled_share.map_or("?".into(), share))
            }
        };
        for it in &it.quotas {
            table.row([identifier(&it.cgroup, 56), side(&it.a), side(&it.b)]);
        }
        table.write(page, 2);
    }
    if !it.settings.is_empty() {
        page.gap();
        page.line(0, Colour::Heading, "settings that differ");
        let mut table = Table::new(&[Column::Left(50), Column::Left(24), Column::Left(usize::MAX)]);
        table.heading(["file", "A", "B"]);
        let side = |value: &Option<String>| {
            value.as_deref().map_or("not there".into(), |it| identifier(it, 40))
        };
        for it in &it.settings {
            table.row([identifier(&it.path, 48), side(&it.a), side(&it.b)]);
        }
        table.write(page, 2);
    }
}

/// How the hosts differ in what they are and how they are configured. Of little importance only with -v.
fn facts(page: &mut Page, it: &Comparison, verbosity: u8) {
    let Some(Configuration { facts, differences }) = &it.configuration else { return };
    let (matter, rest): (Vec<&Difference>, Vec<&Difference>) =
        differences.iter().partition(|it| it.severity > Severity::Info);
    page.gap();
    let compared = counted(facts.compared, "fact", "facts");
    if matter.is_empty() {
        let text = match rest.len() {
            0 => format!("the hosts are configured alike: {compared} compared"),
            _ => {
                format!("{compared} about the hosts compared: none that is known to matter differs")
            }
        };
        page.paragraph(0, 2, Colour::Plain, &text);
    } else {
        let title =
            format!("how the hosts differ, of {compared}; not tested: the reason may be another");
        let most = if verbosity > 1 { usize::MAX } else { ROWS };
        super::host_diff::table(page, &title, &matter, most);
    }
    if facts.not_compared > 0 {
        let n = counted(facts.not_compared, "fact is", "facts are");
        let text = format!("{n} not known of both hosts, and not compared");
        page.paragraph(0, 2, Colour::Aside, &text);
    }
    match (rest.len() as u64, verbosity) {
        (0, _) => {}
        (_, 2..) => super::host_diff::table(page, "not known to matter", &rest, usize::MAX),
        (n, _) => {
            let n = counted(n, "difference that is", "differences that are");
            page.paragraph(
                0,
                2,
                Colour::Aside,
                &format!("{n} not known to matter (-v shows them)"),
            );
        }
    }
}

/// Behind whom the differences were waited, and how the waits are distributed.
fn behind(page: &mut Page, processes: &[ProcessPair], plots: &mut Plots<'_>) {
    for (at, pair) in processes.iter().enumerate() {
        let Some(loss) = pair.losses.iter().find(|it| !it.behind.is_empty()) else { continue };
        page.gap();
        let title = match loss.change {
            Change::Shrunk => "behind whom it no longer waits as long",
            _ => "behind whom it waits longer",
        };
        page.paragraph(
            0,
            2,
            Colour::Heading,
            &format!("{}: {title}", names::entity(&pair.b.process)),
        );
        let mut table = Table::new(&[
            Column::Left(NAME_COLUMNS + 16),
            Column::Right,
            Column::Right,
            Column::Left(usize::MAX),
        ]);
        table.heading(["behind", "A", "B", "of the difference"]);
        for it in &loss.behind {
            let place = it.process.cgroup.as_deref().filter(|path| *path != "/");
            let place =
                place.map_or_else(String::new, |path| format!(" in {}", identifier(path, 30)));
            table.row([
                names::entity(&it.process) + &place,
                duration(it.a_ns_per_s),
                duration(it.b_ns_per_s),
                share(it.share.get()),
            ]);
        }
        table.write(page, 2);
        let side = |side: &ProcessSide| {
            let part = |ns: Option<u64>| ns.map_or("?".to_owned(), |ns| duration(ns as f64));
            let (half, most) = (part(side.p50_ns), part(side.p99_ns));
            format!("half under {half}, 99 % under {most}, the longest {}", part(side.max_ns))
        };
        page.labelled(2, (Colour::Aside, "waits in A  "), 12, Colour::Plain, &side(&pair.a));
        page.labelled(2, (Colour::Aside, "waits in B  "), 12, Colour::Plain, &side(&pair.b));
        if !plots.process(page, at) {
            waits(page, pair);
        }
    }
}

/// The waits of both by length: their number and time in each second, and the time as bars.
fn waits(page: &mut Page, pair: &ProcessPair) {
    const BAR: usize = 16;
    let rows = sizes::waits(pair);
    let most = rows.iter().flat_map(|it| it.sides).map(|it| it.ns_per_s).fold(0.0, f64::max);
    let mut table = Table::new(&[
        Column::Left(16),
        Column::Right,
        Column::Right,
        Column::Right,
        Column::Left(BAR),
        Column::Right,
        Column::Left(BAR),
    ]);
    table.heading(["waits of", "A/s", "B/s", "A", "", "B", ""]);
    for SizePair { from_ns, sides: [a, b], .. } in rows {
        table.row([
            format!("{} or more", duration(from_ns as f64)),
            count(a.count_per_s.round()),
            count(b.count_per_s.round()),
            duration(a.ns_per_s),
            bar(a.ns_per_s / most, BAR),
            duration(b.ns_per_s),
            bar(b.ns_per_s / most, BAR),
        ]);
    }
    table.write(page, 2);
}

fn unpaired(page: &mut Page, it: &Comparison) {
    if it.unpaired.is_empty() {
        return;
    }
    page.gap();
    page.line(0, Colour::Heading, "in one of them only, of every second");
    let mut table = Table::new(&[
        Column::Left(4),
        Column::Left(NAME_COLUMNS),
        Column::Right,
        Column::Right,
        Column::Left(usize::MAX),
    ]);
    table.heading(["in", "process", "on CPU", "lost", "cgroup"]);
    for it in &it.unpaired {
        table.row([
            label(&it.only_in.to_uppercase(), 4),
            names::entity(&it.process),
            duration(it.on_cpu_ns_per_s),
            duration(it.lost_ns_per_s),
            it.process.cgroup.as_deref().map_or_else(String::new, |path| identifier(path, 40)),
        ]);
    }
    table.write(page, 2);
}
