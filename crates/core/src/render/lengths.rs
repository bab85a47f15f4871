// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long waits and requests are, for a plot on a page: bars by class of lengths, of one or several series, and the
//! table with the same numbers.

use super::table::{Column, Table};
use super::words::finding as words;
use crate::compare::sizes::{SizePair, SizePart};
use crate::finding::SizeClass;
use crate::text::units::{count, duration, share};
use crate::transcript::SizeEstimate;

/// The plot, and its table.
pub(super) struct Lengths {
    /// What it shows, with names in backticks.
    pub(super) caption: String,
    /// The same for who does not see it: where most of it is.
    pub(super) described: String,
    /// Names of the series; a single one has none.
    pub(super) series: Vec<String>,
    /// Bounds of the classes in words: where each begins, and where it ends if it does.
    pub(super) bounds: Vec<(String, Option<String>)>,
    /// The ways to look at the classes, from the top.
    pub(super) panels: Vec<Panel>,
    /// The numbers.
    pub(super) table: Table,
}

/// One of the ways to look at the classes.
pub(super) struct Panel {
    /// Its title.
    pub(super) title: &'static str,
    /// Whether it shows time, rather than numbers.
    pub(super) is_time: bool,
    /// The value of the highest bar that there is room for.
    pub(super) highest: f64,
    /// The bars of each class, one for each series.
    pub(super) bars: Vec<Vec<Bar>>,
}

/// A bar.
pub(super) struct Bar {
    /// Its height.
    pub(super) value: f64,
    /// Least and most that the value can be, if it is an estimate.
    pub(super) bounds: Option<[f64; 2]>,
    /// The value in words.
    pub(super) shown: String,
    /// All that is known of it, for a pointer that rests on it.
    pub(super) hint: String,
}

const BY_NUMBER: &str = "by number: what is usual";
const BY_TIME: &str = "by time: what hurts";

/// What there is to say of the waits of one victim if they are all of one class.
pub(super) fn only_class(sizes: &[SizeClass]) -> Option<String> {
    match words::sizes(sizes).as_slice() {
        [only] => {
            Some(format!("how long the waits were: all {} of them {}", only.waits, only.length))
        }
        _ => None,
    }
}

/// The waits of one victim; `None` if they are of fewer than two classes.
pub(super) fn of_victim(sizes: &[SizeClass]) -> Option<Lengths> {
    let rows = words::sizes(sizes);
    if rows.len() < 2 {
        return None;
    }
    // Both panels have one scale, so that their bars can be compared.
    let all = rows.iter().flat_map(|row| [row.waits_share, row.time_share]);
    let highest = all.fold(0.0, f64::max);
    let mut table = Table::new(&[Column::Right; 5]);
    table.heading(["length", "waits", "of all waits", "time", "of the time"]);
    let (mut by_number, mut by_time, mut bounds) = (vec![], vec![], vec![]);
    for row in &rows {
        let bar = |value: f64, amount: &str| {
            let hint = format!("{}: {amount}, {}", row.length, share(value));
            vec![Bar { value, bounds: None, shown: share(value), hint }]
        };
        by_number.push(bar(row.waits_share, &row.waits));
        by_time.push(bar(row.time_share, &row.time));
        bounds.push((row.from.clone(), row.to.clone()));
        let (waits_share, time_share) = (share(row.waits_share), share(row.time_share));
        let (waits, time) = (row.waits.clone(), row.time.clone());
        table.row([row.length.clone(), waits, waits_share, time, time_share]);
    }
    let panel = |title, is_time, bars| Panel { title, is_time, highest, bars };
    let [usual, hurts] = [&by_number, &by_time].map(|bars| most(bars, 0, &rows, |it| &it.length));
    Some(Lengths {
        caption: "how long the waits were".into(),
        described: format!(
            "histogram of the waits by length: most waits are {usual}, most time is in waits of {hurts}"
        ),
        series: vec![],
        bounds,
        panels: vec![panel(BY_NUMBER, false, by_number), panel(BY_TIME, true, by_time)],
        table,
    })
}

/// The class with the highest bar of a series, and that bar in words.
fn most<T>(bars: &[Vec<Bar>], series: usize, classes: &[T], length: fn(&T) -> &str) -> String {
    let of = |it: &(&Vec<Bar>, &T)| it.0.get(series).map_or(0.0, |bar| bar.value);
    let highest = bars.iter().zip(classes).max_by(|x, y| of(x).total_cmp(&of(y)));
    let said = highest.and_then(|(bars, class)| Some((length(class), bars.get(series)?)));
    said.map(|(length, bar)| format!("{length} ({})", bar.shown)).unwrap_or_default()
}

/// What is compared of two recordings.
pub(super) struct Compared<'c> {
    /// What it is, with names in backticks: `how long NAME waited for a CPU`.
    pub(super) caption: String,
    /// What has lengths: `waits`, `requests`.
    pub(super) many: &'static str,
    /// Names of the recordings.
    pub(super) names: [String; 2],
    /// Whether amounts are known for each second, and not only of those that were measured.
    pub(super) is_per_second: bool,
    /// The classes.
    pub(super) pairs: &'c [SizePair],
}

impl Compared<'_> {
    /// The plot; `None` if nothing is compared.
    pub(super) fn lengths(self) -> Option<Lengths> {
        // Documents of others may have more classes than a histogram has.
        if self.pairs.is_empty() || self.pairs.len() > MOST_CLASSES {
            return None;
        }
        let lengths: Vec<String> =
            self.pairs.iter().map(|it| words::range(it.from_ns, it.to_ns)).collect();
        let panels = self.panels(&lengths);
        let said = |side: usize| {
            let [usual, hurts] =
                [0, 1].map(|at: usize| most(&panels[at].bars, side, &lengths, String::as_str));
            let many = self.many;
            format!("in {}, most {many} are {usual}, most time is in {hurts}", LETTERS[side])
        };
        Some(Lengths {
            described: format!("histogram of {} by length: {}; {}", self.many, said(0), said(1)),
            bounds: bounds(self.pairs.iter().map(|it| (it.from_ns, it.to_ns))),
            table: self.table(&lengths),
            panels: panels.into(),
            caption: self.caption,
            series: self
                .names
                .iter()
                .zip(LETTERS)
                .map(|(name, it)| format!("{it} {name}"))
                .collect(),
        })
    }

    /// What is added to the name of an amount.
    fn per(&self) -> &'static str {
        if self.is_per_second { "/s" } else { "" }
    }

    fn number(&self, part: &SizePart) -> String {
        count(if self.is_per_second { part.count_per_s } else { part.count as f64 })
    }

    fn time(&self, part: &SizePart) -> String {
        duration(if self.is_per_second { part.ns_per_s } else { part.ns as f64 })
    }

    fn panels(&self, lengths: &[String]) -> [Panel; 2] {
        let panel = |title, is_time, bar: &dyn Fn(&SizePart) -> (f64, String, String)| {
            let bars = |(pair, length): (&SizePair, &String)| {
                let bars = pair.sides.iter().zip(LETTERS).map(|(part, letter)| {
                    let (value, shown, all) = bar(part);
                    let hint = format!("{letter}, {length}: {all}");
                    Bar { value, bounds: None, shown, hint }
                });
                bars.collect()
            };
            let bars: Vec<Vec<Bar>> = self.pairs.iter().zip(lengths).map(bars).collect();
            let highest = bars.iter().flatten().map(|bar| bar.value).fold(0.0, f64::max);
            Panel { title, is_time, highest, bars }
        };
        let by_number = panel("by number: share of all, what is usual", false, &|part| {
            let shown = share(part.count_share);
            let all = format!("{}{}, {shown}", self.number(part), self.per());
            (part.count_share, shown, all)
        });
        let by_time = match self.is_per_second {
            true => panel("by time: of every second, what hurts", true, &|part| {
                let shown = self.time(part);
                let all = format!("{shown} of every second, {}", share(part.ns_share));
                (part.ns_per_s, shown, all)
            }),
            false => panel("by time: share of all, what hurts", true, &|part| {
                let shown = share(part.ns_share);
                let all = format!("{}, {shown}", self.time(part));
                (part.ns_share, shown, all)
            }),
        };
        [by_number, by_time]
    }

    fn table(&self, lengths: &[String]) -> Table {
        let mut table = Table::new(&[Column::Right; 9]);
        let (many, per) = (self.many, self.per());
        let names = LETTERS.map(|it| {
            [
                format!("{it}: {many}{per}"),
                format!("of all in {it}"),
                format!("{it}: time{per}"),
                format!("of the time in {it}"),
            ]
        });
        table.heading(["length"].into_iter().chain(names.iter().flatten().map(String::as_str)));
        for (pair, length) in self.pairs.iter().zip(lengths) {
            let cells = pair.sides.iter().flat_map(|part| {
                let shares = [part.count_share, part.ns_share].map(share);
                let [count_share, ns_share] = shares;
                [self.number(part), count_share, self.time(part), ns_share]
            });
            table.row([length.clone()].into_iter().chain(cells));
        }
        table
    }
}

/// A histogram that was read; `None` if there is none, or if it has only one row. The time in a row is an estimate.
pub(super) fn of_histogram(rows: &[SizeEstimate]) -> Option<Lengths> {
    // Documents of others may have more rows than deburr writes.
    if rows.len() < 2 || rows.len() > MOST_CLASSES {
        return None;
    }
    let all = rows.iter().flat_map(|row| [row.count_share, row.time_share, row.time_share_most]);
    let highest = all.fold(0.0, f64::max);
    let lengths: Vec<String> =
        rows.iter().map(|row| words::range(row.from_ns, Some(row.to_ns))).collect();
    let mut table = Table::new(&[Column::Right; 7]);
    table.heading(["length", "number", "of all", "time", "of the time", "at least", "at most"]);
    let (mut by_number, mut by_time) = (vec![], vec![]);
    for (row, length) in rows.iter().zip(&lengths) {
        let shares = [row.count_share, row.time_share, row.time_share_least, row.time_share_most];
        let [count_share, time_share, least, most] = shares.map(share);
        let (number, time) = (count(row.count as f64), duration(row.ns));
        let hint = format!("{length}: {number}, {count_share}");
        let shown = count_share.clone();
        by_number.push(vec![Bar { value: row.count_share, bounds: None, shown, hint }]);
        let hint = format!("{length}: about {time}, {time_share}, between {least} and {most}");
        let bounds = Some([row.time_share_least, row.time_share_most]);
        let shown = time_share.clone();
        by_time.push(vec![Bar { value: row.time_share, bounds, shown, hint }]);
        table.row([length.clone(), number, count_share, time, time_share, least, most]);
    }
    let panel = |title, is_time, bars| Panel { title, is_time, highest, bars };
    let [usual, hurts] = [&by_number, &by_time].map(|it| most(it, 0, &lengths, String::as_str));
    Some(Lengths {
        caption: "how long they were. Of the time, bars are an estimate and lines its limits: where in its row a \
                  duration is, is not known"
            .into(),
        described: format!(
            "histogram by length: most are {usual}, and by an estimate most time is in those of {hurts}"
        ),
        series: vec![],
        bounds: bounds(rows.iter().map(|row| (row.from_ns, Some(row.to_ns)))),
        panels: vec![panel(BY_NUMBER, false, by_number), panel(BY_TIME, true, by_time)],
        table,
    })
}

/// The recordings.
const LETTERS: [&str; 2] = ["A", "B"];
/// Most classes of a plot. Histograms in powers of two have fewer.
pub(super) const MOST_CLASSES: usize = 64;

fn bounds(classes: impl Iterator<Item = (u64, Option<u64>)>) -> Vec<(String, Option<String>)> {
    let words = |ns: u64| duration(ns as f64);
    classes.map(|(from_ns, to_ns)| (words(from_ns), to_ns.map(words))).collect()
}
