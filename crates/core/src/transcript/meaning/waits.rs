// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Histograms of durations: are a few long ones most of the time?

use super::Case;
use crate::text::Unit;
use crate::text::units::{self, duration, share};
use crate::transcript::document::{SizeEstimate, Statement, Weight};
use crate::transcript::engine::Section;
use crate::transcript::layouts::histogram::{Bucket, Histogram, Histograms, Measured, WITH_VALUE};
use std::collections::BTreeMap;

/// Durations from this edge of a row on are long, in nanoseconds.
const LONG_NS: u64 = 1_000_000;
/// With a larger share of the number, long durations are the usual ones, not a tail.
const FEW: f64 = 0.1;
/// Share of the time that the long ones have at least, wherever in their rows the durations are.
const MUCH: f64 = 1.0 / 3.0;
/// Fewer long durations may be chance.
const MIN_LONG: u64 = 20;
/// Histograms by process or disk of which statements are made, those with most time first.
const MAX_KEYS: usize = 5;
/// Histograms of one run whose share is told.
const MAX_PARTS: usize = 12;
/// Rows of a histogram that are told. There are fewer powers of two.
const MAX_SIZES: usize = 64;

/// Durations from some edge on, among all of a histogram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    /// Edge of the rows from which durations are long, in nanoseconds; the end of the last row if none are.
    edge_ns: u64,
    /// Number of durations, and of long ones.
    count: u64,
    long: u64,
    /// Sum of the durations in nanoseconds, as if each were in the middle of its row; and the least and the most it can be.
    ns: [f64; 3],
    /// Share of the long ones in it: with all in the middle of their rows; at least; at most.
    share: [f64; 3],
}

impl Tail {
    /// The tail of some histograms together; `None` without durations.
    fn of<'h>(buckets: impl Iterator<Item = &'h Bucket> + Clone) -> Option<Self> {
        let count: u64 = buckets.clone().fold(0, |sum, bucket| sum.saturating_add(bucket.count));
        let edge =
            |buckets: &mut dyn Iterator<Item = u64>| buckets.filter(|edge| *edge >= LONG_NS).min();
        let last =
            buckets.clone().filter(|bucket| bucket.count > 0).map(|bucket| bucket.to_ns).max();
        let edge_ns =
            edge(&mut buckets.clone().map(|bucket| bucket.from_ns)).or(last).unwrap_or(u64::MAX);
        let sum = |long: Option<bool>, place: fn(&Bucket) -> f64| -> f64 {
            let some = buckets
                .clone()
                .filter(|bucket| long.is_none_or(|long| long == (bucket.from_ns >= edge_ns)));
            some.map(|bucket| place(bucket) * bucket.count as f64).sum()
        };
        let ns = [sum(None, middle), sum(None, low), sum(None, high)];
        let share = [
            part(sum(Some(true), middle), sum(Some(false), middle)),
            part(sum(Some(true), low), sum(Some(false), high)),
            part(sum(Some(true), high), sum(Some(false), low)),
        ];
        let long = buckets.filter(|bucket| bucket.from_ns >= edge_ns);
        let long = long.fold(0u64, |sum, bucket| sum.saturating_add(bucket.count));
        (count > 0).then_some(Self { edge_ns, count, long, ns, share })
    }

    fn count_share(&self) -> f64 {
        self.long as f64 / self.count as f64
    }

    fn is_heavy(&self) -> bool {
        self.long >= MIN_LONG && self.count_share() <= FEW && self.share[1] >= MUCH
    }

    /// Its share of the time with its bounds.
    fn bounds(&self) -> String {
        format!(
            "between {} and {}, wherever in their rows they are",
            share(self.share[1]),
            share(self.share[2])
        )
    }
}

/// Places in a row where a duration may be.
fn low(bucket: &Bucket) -> f64 {
    bucket.from_ns as f64
}
fn middle(bucket: &Bucket) -> f64 {
    f64::midpoint(low(bucket), high(bucket))
}
fn high(bucket: &Bucket) -> f64 {
    bucket.to_ns as f64
}

/// The share of a time in a sum of two.
fn part(some: f64, others: f64) -> f64 {
    if some > 0.0 { some / (some + others) } else { 0.0 }
}

/// Some histograms together, row by row; empty if their rows are not the same ones, have gaps or are too many.
pub(super) fn sizes<'h>(histograms: impl Iterator<Item = &'h Histogram>) -> Vec<SizeEstimate> {
    let mut counts: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for bucket in histograms.flat_map(|histogram| &histogram.buckets) {
        let count = counts.entry((bucket.from_ns, bucket.to_ns)).or_default();
        *count = count.saturating_add(bucket.count);
    }
    let rows = counts.into_iter().map(|((from_ns, to_ns), count)| Bucket { from_ns, to_ns, count });
    let mut rows: Vec<Bucket> = rows.skip_while(|row| row.count == 0).collect();
    rows.truncate(rows.iter().rposition(|row| row.count > 0).map_or(0, |last| last + 1));
    if rows.len() > MAX_SIZES || rows.windows(2).any(|pair| pair[0].to_ns != pair[1].from_ns) {
        return vec![];
    }
    let count = rows.iter().fold(0u64, |sum, row| sum.saturating_add(row.count));
    let time = |row: &Bucket, place: fn(&Bucket) -> f64| place(row) * row.count as f64;
    let all = |place: fn(&Bucket) -> f64| rows.iter().map(|row| time(row, place)).sum::<f64>();
    let all_at = [all(low), all(middle), all(high)];
    let estimate = |row: &Bucket| {
        let at = [low, middle, high].map(|place: fn(&Bucket) -> f64| time(row, place));
        // Rounding must not make the time of the others negative.
        let others = [0, 1, 2].map(|place| (all_at[place] - at[place]).max(0.0));
        SizeEstimate {
            from_ns: row.from_ns,
            to_ns: row.to_ns,
            count: row.count,
            count_share: row.count as f64 / count.max(1) as f64,
            ns: at[1],
            time_share: part(at[1], others[1]),
            time_share_least: part(at[0], others[2]),
            time_share_most: part(at[2], others[0]),
        }
    };
    rows.iter().map(estimate).collect()
}

/// What the durations are, in words.
struct Words {
    many: &'static str,
    of: String,
    settle: String,
    cannot: &'static [&'static str],
}

fn words(section: &Section, of: &Histograms, key: Option<&str>) -> Words {
    let pid = section
        .command
        .value(&["-p", "--pid"])
        .filter(|pid| pid.bytes().all(|b| b.is_ascii_digit()));
    let whose = match (key, pid) {
        (Some(key), _) => format!(" of `{}`", key.replace('`', "'")),
        (None, Some(pid)) => format!(" of pid {pid}"),
        (None, None) => " of all tasks".to_owned(),
    };
    match of.measured {
        Measured::RunQueue => Words {
            many: "waits for a CPU",
            of: whose,
            settle: pid.map_or("deburr -d 30".into(), |pid| format!("deburr -d 30 -p {pid}")),
            cannot: &[
                "behind which tasks it waited",
                "whether a CPU quota held it up: runqlat counts throttled time as waiting",
            ],
        },
        Measured::BlockIo => Words {
            many: "requests to disks",
            of: key.map_or(String::new(), |_| whose),
            settle: "deburr -d 60".into(),
            cannot: &["which files and processes the requests are of", "who waited for them"],
        },
        Measured::Unknown => Words {
            many: "durations",
            of: key.map_or(String::new(), |_| whose),
            settle: "the command line of the tool above its output".into(),
            cannot: &["what took that long: the text does not say what the durations are"],
        },
    }
}

pub(super) fn statements(case: &Case<'_>, section: &Section, of: &Histograms) -> Vec<Statement> {
    let mut by: BTreeMap<Option<&str>, Vec<&Histogram>> = BTreeMap::new();
    for histogram in &of.all {
        by.entry(histogram.key.as_deref()).or_default().push(histogram);
    }
    let mut all: Vec<(Tail, Option<&str>, Vec<&Histogram>)> = by
        .into_iter()
        .filter_map(|(key, parts)| {
            Some((Tail::of(parts.iter().flat_map(|part| &part.buckets))?, key, parts))
        })
        .collect();
    all.sort_by(|(a, ..), (b, ..)| b.ns[0].total_cmp(&a.ns[0]));
    let interval_s = case.interval_s(section, WITH_VALUE);
    all.iter()
        .take(MAX_KEYS)
        .map(|(tail, key, parts)| {
            statement(section, &words(section, of, *key), tail, parts, interval_s)
        })
        .collect()
}

fn statement(
    section: &Section,
    words: &Words,
    tail: &Tail,
    parts: &[&Histogram],
    interval_s: Option<(f64, &'static str)>,
) -> Statement {
    let long = duration(tail.edge_ns as f64);
    let Words { many, of, .. } = words;
    let (weight, name, title) = if tail.is_heavy() {
        let title = format!(
            "a few long {many}{of} are most of the time lost: those of {long} and more are {} of them by number, and {} by \
             time",
            share(tail.count_share()),
            share(tail.share[0])
        );
        (Weight::Found, "tail-heavy", title)
    } else if tail.long >= MIN_LONG && tail.count_share() > FEW {
        let title = format!(
            "long {many}{of} are usual: {} are of {long} and more",
            share(tail.count_share())
        );
        (Weight::Found, "usually-long", title)
    } else if tail.long >= MIN_LONG && tail.share[2] >= MUCH {
        let title = format!(
            "{many}{of} of {long} and more are {} of them by number, and between {} and {} by time: the rows are too coarse \
             to say more",
            share(tail.count_share()),
            share(tail.share[1]),
            share(tail.share[2])
        );
        (Weight::Open, "tail-heavy", title)
    } else {
        let title = match tail.long {
            0 => format!(
                "all {} {many}{of} are shorter than {long}",
                units::count(tail.count as f64)
            ),
            _ => format!("{many}{of} of {long} and more are {} by time", share(tail.share[0])),
        };
        (Weight::RuledOut, "tail-heavy", title)
    };
    let source = section.source_of((parts[0].lines.0, parts[parts.len() - 1].lines.1));
    let mut statement = Statement::new(name, weight, title);
    if tail.long > 0 {
        statement = statement
            .number(&format!("{long} and more, by time"), tail.share[0], Unit::Ratio, &source)
            .note(tail.bounds());
        statement = shares_of_parts(statement, section, tail.edge_ns, parts);
    }
    statement = statement
        .number(many, tail.count as f64, Unit::Count, &source)
        .note(format!("{} of them of {long} and more", units::count(tail.long as f64)))
        .number("time in them", tail.ns[0], Unit::Ns, &source)
        .note(format!("between {} and {}", duration(tail.ns[1]), duration(tail.ns[2])));
    if let Some((interval_s, from)) = interval_s {
        let seconds = interval_s * parts.len() as f64;
        statement = statement
            .number("time in them, per second", tail.ns[0] / seconds, Unit::NsPerS, &source)
            .note(format!("of {}; the interval is from {from}", duration(seconds * 1e9)));
    }
    statement.cannot_say.extend(words.cannot.iter().map(|&it| it.to_owned()));
    statement.of_sizes(sizes(parts.iter().copied())).settled_by(&*words.settle)
}

/// The share of the long ones in each of several histograms.
fn shares_of_parts(
    mut statement: Statement,
    section: &Section,
    edge_ns: u64,
    parts: &[&Histogram],
) -> Statement {
    if parts.len() < 2 {
        return statement;
    }
    for (index, part) in parts.iter().take(MAX_PARTS).enumerate() {
        // The same edge for all.
        let Some(tail) = Tail::of(part.buckets.iter()).filter(|tail| tail.edge_ns == edge_ns)
        else {
            continue;
        };
        statement = statement
            .number(
                &format!("in histogram {} of {}, by time", index + 1, parts.len()),
                tail.share[0],
                Unit::Ratio,
                &section.source_of(part.lines),
            )
            .note(format!("{} by number; {}", share(tail.count_share()), tail.bounds()));
    }
    statement
}
