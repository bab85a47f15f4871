// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `iostat`: does a device have bursts that its averages hide, and do they follow a clock?

use super::Case;
use crate::stats::{BurstPattern, Rhythm, pace};
use crate::text::Unit;
use crate::text::ticked;
use crate::text::units::{self, duration, share};
use crate::transcript::document::{Statement, Weight};
use crate::transcript::engine::Section;
use crate::transcript::layouts::diskstats::Captures;
use crate::transcript::layouts::iostat::{Iostat, Origin, Row};

/// Options of iostat that have a value.
const WITH_VALUE: &[&str] = &["-p", "-o", "-g", "-j", "-f", "+f", "--dec"];
/// With fewer requests in the queue on average, nothing waits for the device.
const QUEUE: f64 = 0.5;
/// Devices of which statements are made, those with the longest queue first.
const MAX_DEVICES: usize = 8;
/// Reports that are compared with each other, the first ones: some hours of them.
const MAX_REPORTS: usize = 10_000;
/// Bursts that are told one by one.
const MAX_BURSTS: usize = 8;
/// Percent of the time from which a device has hardly a pause: such a report is not shorter than it says.
const FULL: f64 = 90.0;

/// The bursts of a device.
struct Bursts<'r> {
    /// The report at which each is worst.
    worst: Vec<&'r Row>,
    pattern: BurstPattern,
}

pub(super) fn statements(case: &Case<'_>, section: &Section, of: &Iostat) -> Vec<Statement> {
    let mut devices: Vec<(usize, Vec<&Row>)> =
        (0..of.devices.len()).map(|device| (device, vec![])).collect();
    for row in &of.rows {
        if row.report - of.first < MAX_REPORTS {
            devices[row.device].1.push(row);
        }
    }
    let most = |rows: &[&Row]| rows.iter().filter_map(|row| row.queue).fold(0.0, f64::max);
    devices.retain(|(_, rows)| rows.iter().any(|row| row.queue.is_some()));
    devices.sort_by(|(_, a), (_, b)| most(b).total_cmp(&most(a)));
    let among = devices.len();
    let interval = interval_s(case, section, of);
    let each = devices.iter().take(MAX_DEVICES);
    each.filter_map(|(device, rows)| {
        statement(section, &of.devices[*device], rows, interval, of, among)
    })
    .collect()
}

/// What captures of `/proc/diskstats` say: what happened between them.
pub(super) fn of_captures(case: &Case<'_>, section: &Section, of: &Captures) -> Vec<Statement> {
    match between_captures_s(case, section, of) {
        Some((interval_s, _)) if of.len() > 1 => statements(case, section, &of.reports(interval_s)),
        _ => {
            let source = section.source_of(of.lines());
            let title = match of.len() {
                1 => "one capture of `/proc/diskstats` is a sum since boot".to_owned(),
                n => format!("{n} captures of `/proc/diskstats`, at an unknown distance"),
            };
            vec![
                Statement::new("device-bursts", Weight::Open, title)
                    .number("captures", of.len() as f64, Unit::Count, &source)
                    .cannot("what the disks did in any time: that takes two captures, and their distance")
                    .settled_by("deburr read --interval S ..."),
            ]
        }
    }
}

/// Time between two captures in seconds, and where that is from.
pub(in crate::transcript) fn between_captures_s(
    case: &Case<'_>,
    section: &Section,
    of: &Captures,
) -> Option<(f64, &'static str)> {
    let own = median_distance_s(of.times_s()).map(|s| (s, "the times of the captures"));
    own.or_else(|| case.interval_s(section, &[]))
}

/// The median distance of the times that are known and differ.
fn median_distance_s(times_s: &[Option<f64>]) -> Option<f64> {
    let times: Vec<f64> = times_s.iter().filter_map(|time| *time).collect();
    let mut distances: Vec<f64> =
        times.windows(2).map(|pair| pair[1] - pair[0]).filter(|s| *s > 0.0).collect();
    distances.sort_by(f64::total_cmp);
    distances.get(distances.len() / 2).copied()
}

/// Time between two reports in seconds, and where that is from: the median of the reports' own times, if they have any.
pub(in crate::transcript) fn interval_s(
    case: &Case<'_>,
    section: &Section,
    of: &Iostat,
) -> Option<(f64, &'static str)> {
    let own = median_distance_s(&of.times_s).map(|s| (s, "the times of the reports"));
    own.or_else(|| case.interval_s(section, WITH_VALUE))
}

/// Bins of equal length, one for each report; a report without the device is an empty bin.
fn bursts<'r>(rows: &[&'r Row], of: &Iostat, interval_s: f64, among: usize) -> Bursts<'r> {
    let reports = of.reports().min(MAX_REPORTS);
    let mut bins = vec![0u64; reports];
    let mut by: Vec<Option<&Row>> = vec![None; reports];
    for row in rows {
        let at = row.report - of.first;
        bins[at] = (row.queue.unwrap_or(0.0) * 1000.0) as u64;
        by[at] = Some(row);
    }
    let width_ns = ((interval_s * 1e9) as u64).max(1);
    let mut pattern = pace(&bins, width_ns, width_ns.saturating_mul(bins.len() as u64), among);
    let worst_in = |t0_ns: u64, t1_ns: u64| {
        let (from, to) = ((t0_ns / width_ns) as usize, (t1_ns / width_ns) as usize);
        let rows = by.get(from..to.min(by.len())).unwrap_or_default().iter().flatten();
        rows.copied().max_by(|a, b| a.queue.unwrap_or(0.0).total_cmp(&b.queue.unwrap_or(0.0)))
    };
    let worst: Vec<Option<&Row>> =
        pattern.bursts.iter().map(|burst| worst_in(burst.t0_ns, burst.t1_ns)).collect();
    let is_long = |row: &Option<&Row>| row.is_some_and(|row| row.queue.unwrap_or(0.0) >= QUEUE);
    if !worst.iter().all(is_long) {
        let mut at = 0;
        pattern.bursts.retain(|_| {
            at += 1;
            is_long(&worst[at - 1])
        });
        // The clock was searched for among all of them.
        pattern.rhythm = Rhythm::None { p: 1.0 };
    }
    Bursts { worst: worst.into_iter().filter(is_long).flatten().collect(), pattern }
}

fn statement(
    section: &Section,
    device: &str,
    rows: &[&Row],
    interval: Option<(f64, &'static str)>,
    of: &Iostat,
    among: usize,
) -> Option<Statement> {
    let source = section.source_of((rows.first()?.line, rows.last()?.line));
    let most = rows.iter().filter_map(|row| row.queue).fold(0.0, f64::max);
    let name = ticked(device);
    let Some((interval_s, from)) = interval else {
        let title = format!(
            "{name} had up to {most:.2} requests queued on average of a report, of unknown length"
        );
        return Some(
            Statement::new("device-bursts", Weight::Open, title)
                .number("longest queue", most, Unit::Count, &source)
                .cannot("how long a report is, so neither how long bursts are nor how far apart")
                .settled_by("deburr read --interval S ..."),
        );
    };
    let found = bursts(rows, of, interval_s, among);
    let length = duration(interval_s * 1e9);
    let usual_util = mean(rows.iter().filter_map(|row| row.util));
    if found.worst.is_empty() {
        return Some(quiet(section, &name, rows, most, usual_util));
    }
    let short = found.worst.iter().all(|row| row.util.is_some_and(|util| util < FULL));
    let n = found.worst.len();
    let how = match short {
        true => format!("each shorter than the {length} of a report"),
        false => format!("seen in reports of {length}"),
    };
    let apart = apart(&found, of);
    let period = match found.pattern.rhythm {
        Rhythm::Found { period_ns, .. } => format!(", every {}", duration(period_ns as f64)),
        _ => apart,
    };
    let title =
        format!("{name} has {}, {how}{period}", units::counted(n as u64, "burst", "bursts"));
    let mut statement = Statement::new("device-bursts", Weight::Found, title);
    for row in found.worst.iter().take(MAX_BURSTS) {
        statement = one(statement, section, row, of, interval_s);
    }
    statement = statement
        .number("busy", usual_util.unwrap_or(f64::NAN) / 100.0, Unit::Ratio, &source)
        .note(format!(
            "of the time, as an average of all reports; interval: {length}, from {from}"
        ));
    statement = rhythm(statement, &found, &source);
    Some(
        statement
            .cannot("when in its report a burst began, to less than the length of a report")
            .cannot("which files and processes wrote, and who waited")
            .settled_by("deburr -d 60"),
    )
}

fn mean(values: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    let n = values.clone().count();
    (n > 0).then(|| values.sum::<f64>() / n as f64)
}

fn quiet(section: &Section, name: &str, rows: &[&Row], most: f64, util: Option<f64>) -> Statement {
    let source = section.source_of((rows[0].line, rows[rows.len() - 1].line));
    let busy = util.map_or(String::new(), |util| {
        format!(", and was busy {} of the time", share(util / 100.0))
    });
    // A queue that is always long has no bursts, and is not harmless.
    let always =
        rows.len() >= 3 && rows.iter().all(|row| row.util.is_some_and(|util| util >= FULL));
    let (weight, kind, title) = match always {
        true => (
            Weight::Found,
            "device-full",
            format!("{name} is busy throughout: {FULL} % or more in every report"),
        ),
        false => (
            Weight::RuledOut,
            "device-bursts",
            format!("no bursts of {name}: it had {most:.2} requests queued at most{busy}"),
        ),
    };
    Statement::new(kind, weight, title)
        .number("longest queue", most, Unit::Count, &source)
        .number("busy", util.unwrap_or(f64::NAN) / 100.0, Unit::Ratio, &source)
        .cannot("what lasted much shorter than a report and queued little on its average")
}

/// The distances between bursts, if there are few.
fn apart(found: &Bursts<'_>, of: &Iostat) -> String {
    let at = |row: &Row| of.times_s.get(row.report).copied().flatten();
    let distances: Vec<f64> =
        match found.worst.iter().map(|row| at(row)).collect::<Option<Vec<f64>>>() {
            Some(times) => times.windows(2).map(|pair| pair[1] - pair[0]).collect(),
            None => {
                let starts: Vec<f64> =
                    found.pattern.bursts.iter().map(|burst| burst.t0_ns as f64 / 1e9).collect();
                starts.windows(2).map(|pair| pair[1] - pair[0]).collect()
            }
        };
    match distances.as_slice() {
        [] => String::new(),
        [one] => format!(", {} apart", duration(one * 1e9)),
        some if some.len() < 6 => {
            let all: Vec<String> = some.iter().map(|s| duration(s * 1e9)).collect();
            format!(", {} apart", all.join(", "))
        }
        _ => ", without a period".into(),
    }
}

/// The numbers of one burst.
fn one(
    statement: Statement,
    section: &Section,
    row: &Row,
    of: &Iostat,
    interval_s: f64,
) -> Statement {
    let source = section.source_of((row.line, row.line));
    let when = of.times_s.get(row.report).copied().flatten();
    let when = when.map_or(format!("in report {}", row.report + 1), |s| {
        let s = s as u64;
        format!("in the report of {:02}:{:02}:{:02}", s / 3600 % 24, s / 60 % 60, s % 60)
    });
    let mut parts = vec![when];
    if let Some(util) = row.util {
        let busy = duration(util / 100.0 * interval_s * 1e9);
        parts.push(format!("the device was busy for {busy} of it"));
        if util > 0.0 {
            parts.push(format!(
                "with {:.0} requests at once",
                row.queue.unwrap_or(0.0) / (util / 100.0)
            ));
        }
    }
    let which = usize::from(row.ios[1] >= row.ios[0]);
    let one_sort = of.origin != Origin::Sar || row.ios.contains(&0.0);
    let (what, ios) = match one_sort {
        true => (["reads", "writes"][which], row.ios[which]),
        false => ("requests", row.ios.iter().sum()),
    };
    parts.push(format!("{ios:.0} {what} a second"));
    if let Some(ms) = row.await_ms[which] {
        parts.push(format!("{} each", duration(ms * 1e6)));
    }
    statement
        .number("queued, on average of the report", row.queue.unwrap_or(0.0), Unit::Count, &source)
        .note(parts.join(", "))
}

/// What is known of a clock.
fn rhythm(statement: Statement, found: &Bursts<'_>, source: &str) -> Statement {
    let n = found.worst.len();
    match found.pattern.rhythm {
        Rhythm::Found { period_ns, pairs, expected, p } => {
            let note = format!("{pairs} bursts are followed by one that much later, {expected:.1} by chance; p = {p:.1e}");
            statement.number("period", period_ns as f64, Unit::Ns, source).note(note)
        }
        Rhythm::NeedsMore { for_ns } if n > 1 => statement.cannot(&format!(
            "whether they have a period: {n} bursts are too few, {} more of the same capture would do",
            duration(for_ns as f64)
        )),
        Rhythm::None { .. } if n > 2 => statement.cannot("whether they have a cause in common: they follow no clock"),
        _ => statement.cannot("whether they have a period: there are too few"),
    }
}
