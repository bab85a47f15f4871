// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The blocks of an experiment for a plot on a page: the measure of each over time, or how far its bursts are apart, and the
//! table with the same numbers.

use super::table::{Column, Table};
use crate::prove::design::{Arm, GROUP};
use crate::prove::experiment::Test;
use crate::prove::measure::Measure;
use crate::prove::outcome::{Block, Outcome};
use crate::prove::verdict::Verdict;
use crate::text::escape::{identifier, sentence};
use crate::text::units::{count, counted, duration};

/// Most blocks that are shown. No experiment of deburr has more.
const MOST_BLOCKS: usize = 160;
/// Most distances of a block that its row of the table lists.
const MOST_DISTANCES: usize = 100;
/// Most reasons for a missing number that are told below the plot.
const MOST_REASONS: usize = 4;
/// Most blocks that the description goes through one by one.
const MOST_DESCRIBED: usize = 20;
/// Width of the name of a setting, and of what was done in a block.
const SETTING_COLUMNS: usize = 60;
const DONE_COLUMNS: usize = 24;

/// The plot, and its table.
pub(super) struct ProvePlot {
    /// What it shows, with names in backticks.
    pub(super) caption: String,
    /// The same for who does not see it, with the numbers that matter.
    pub(super) described: String,
    /// What its marks and lines mean.
    pub(super) legend: Vec<(Sign, String)>,
    /// Length of all blocks together with what is between them, in seconds.
    pub(super) seconds: f64,
    /// The highest number, in nanoseconds.
    pub(super) highest_ns: f64,
    /// Blocks that belong together: a group, or a round.
    pub(super) group: usize,
    /// The blocks, in the order of time.
    pub(super) blocks: Vec<Shown>,
    /// Numbers that belong to all blocks.
    pub(super) levels: Vec<Level>,
    /// What is to be known of the blocks, as sentences.
    pub(super) notes: Vec<String>,
    /// The numbers.
    pub(super) table: Table,
}

/// A block.
pub(super) struct Shown {
    /// Its time, in seconds since the first block.
    pub(super) from_s: f64,
    pub(super) until_s: f64,
    /// What its numbers are marked with.
    pub(super) mark: Mark,
    /// Its numbers, in nanoseconds.
    pub(super) values_ns: Vec<f64>,
    /// Whether it has no number.
    pub(super) is_missing: bool,
    /// What the setting predicts, in nanoseconds.
    pub(super) predicted_ns: Option<f64>,
    /// The value of the setting.
    pub(super) set_to: Option<String>,
    /// All that is known of it, for a pointer that rests on it.
    pub(super) hint: String,
}

/// Shapes that tell numbers apart. Each has a colour, too.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// As it was.
    Before,
    /// With the change.
    Changed,
    /// Any number of a block that belongs to no arm.
    Plain,
}

/// A sample in the legend.
#[derive(Clone, Copy)]
pub(super) enum Sign {
    /// A mark, and the line of its median if there is one.
    Mark(Mark, bool),
    /// What the setting predicts.
    Predicted,
    /// A multiple of it.
    Multiple,
    /// One number for all blocks.
    Level,
    /// There is no number.
    Missing,
}

/// A number that belongs to all blocks.
pub(super) struct Level {
    pub(super) mark: Mark,
    pub(super) ns: f64,
    pub(super) shown: String,
}

/// What was done in a block.
pub(super) fn done(block: &Block) -> String {
    match (block.arm, block.set_to) {
        (Some(arm), _) => of_arm(arm).to_owned(),
        (None, Some(value)) => format!("set to {value}"),
        (None, None) => String::new(),
    }
}

fn of_arm(arm: Arm) -> &'static str {
    match arm {
        Arm::Before => "as it was",
        Arm::Changed => "changed",
    }
}

/// The plot; `None` without a block.
pub(super) fn of(it: &Outcome) -> Option<ProvePlot> {
    let blocks = &it.blocks[..it.blocks.len().min(MOST_BLOCKS)];
    if blocks.is_empty() {
        return None;
    }
    let mut plot = match &it.plan.experiment.test {
        Test::Lowers { .. } => of_arms(it, blocks),
        Test::Follows { setting, values, .. } => of_setting(it, blocks, (setting, values.len())),
    };
    let ends = plot.blocks.iter().map(|block| block.until_s).filter(|end| end.is_finite());
    plot.seconds = ends.fold(0.0, f64::max);
    let numbers = |block: &Shown| {
        let all = block.values_ns.iter().chain(&block.predicted_ns).copied();
        all.fold(0.0, f64::max)
    };
    let levels = plot.levels.iter().map(|level| level.ns);
    plot.highest_ns = plot
        .blocks
        .iter()
        .map(numbers)
        .chain(levels)
        .filter(|it| it.is_finite())
        .fold(0.0, f64::max);
    if blocks.iter().any(is_missing) {
        plot.legend.push((Sign::Missing, "no number".into()));
        plot.notes.extend(reasons(blocks));
    }
    if blocks.len() < it.blocks.len() {
        let all = count(it.blocks.len() as f64);
        plot.notes.push(format!("these are the first {MOST_BLOCKS} of {all} blocks"));
    }
    Some(plot)
}

fn is_missing(block: &Block) -> bool {
    block.value.is_none()
}

fn why_not(block: &Block) -> &str {
    block.why_not.as_deref().unwrap_or("no number")
}

/// A plot without blocks.
fn empty(group: usize, table: Table) -> ProvePlot {
    ProvePlot {
        caption: String::new(),
        described: String::new(),
        legend: vec![],
        seconds: 0.0,
        highest_ns: 0.0,
        group,
        blocks: vec![],
        levels: vec![],
        notes: vec![],
        table,
    }
}

/// Numbers that are held against each other by arm.
fn of_arms(it: &Outcome, blocks: &[Block]) -> ProvePlot {
    let measure = &it.plan.experiment.measure;
    let fall = it.result.as_ref().and_then(|result| result.fall.as_ref());
    let mut plot = empty(GROUP, table_of(["in it", &name(measure)]));
    for (number, block) in (1..).zip(blocks) {
        let shown = block.value.map_or_else(|| why_not(block).to_owned(), |ns| measure.shown(ns));
        let done = done(block);
        // The heading says of what it is.
        let cell = block.value.map_or_else(|| sentence(why_not(block)), duration);
        plot.table.row(cells(number, block, [sentence(&done), cell]));
        plot.blocks.push(Shown {
            mark: block.arm.map_or(Mark::Plain, mark_of),
            values_ns: block.value.into_iter().collect(),
            ..shown_as(block, &format!("block {number}, {done}: {shown}"))
        });
    }
    let mut said = Vec::new();
    for arm in [Arm::Before, Arm::Changed] {
        let median = fall.and_then(|fall| match arm {
            Arm::Before => fall.before,
            Arm::Changed => fall.changed,
        });
        let words = median.map(|ns| format!(", median {}", measure.shown(ns))).unwrap_or_default();
        plot.legend
            .push((Sign::Mark(mark_of(arm), median.is_some()), format!("{}{words}", of_arm(arm))));
        plot.levels.extend(median.map(|ns| Level { mark: mark_of(arm), ns, shown: duration(ns) }));
        let numbers = || blocks.iter().filter(|it| it.arm == Some(arm)).filter_map(|it| it.value);
        let range = numbers().reduce(f64::min).zip(numbers().reduce(f64::max));
        let range = range.map_or_else(
            || "no number".into(),
            |(least, most)| format!("{} to {}", duration(least), measure.shown(most)),
        );
        said.push(format!(
            "{} {}: {range}{words}",
            counted(numbers().count() as u64, "number", "numbers"),
            match arm {
                Arm::Before => "as it was",
                Arm::Changed => "with the change",
            },
        ));
    }
    let lines = if plot.levels.is_empty() { "" } else { "; lines are the medians of the arms" };
    plot.caption = format!(
        "{}, block by block{lines}{}",
        name(measure),
        if blocks.len() > GROUP {
            "; thin vertical lines part the groups within which the arms are compared"
        } else {
            ""
        }
    );
    plot.described = format!(
        "{} of {} in the order of time: {}",
        name(measure),
        counted(blocks.len() as u64, "block", "blocks"),
        said.join("; ")
    );
    plot
}

/// Distances of bursts, beside what the setting of each block predicts.
fn of_setting(it: &Outcome, blocks: &[Block], (setting, values): (&str, usize)) -> ProvePlot {
    let mut plot = empty(values.max(1), table_of(["in it", "bursts apart"]));
    let mut said = Vec::new();
    for (number, block) in (1..).zip(blocks) {
        let predicted = block.predicted_ns.map(|ns| format!(", predicted {}", duration(ns)));
        let done = sentence(&done(block)) + &predicted.unwrap_or_default();
        let apart = block.distances_ns.iter().take(MOST_DISTANCES).map(|ns| duration(*ns));
        let mut listed = apart.collect::<Vec<_>>().join(", ");
        if let Some(more @ 1..) = block.distances_ns.len().checked_sub(MOST_DISTANCES) {
            listed += &format!(" and {} more", count(more as f64));
        }
        let median = block.value.map_or_else(
            || sentence(why_not(block)),
            |ns| {
                let all = counted(block.distances_ns.len() as u64, "distance", "distances");
                format!("{all}, median {}", duration(ns))
            },
        );
        let about = format!("{done}: {median}");
        // Of a single distance there is no median, but it was seen.
        let row = match (listed.is_empty(), block.value) {
            (true, _) => median,
            (false, None) => format!("{listed} ({median})"),
            (false, Some(ns)) => format!("{listed}; median {}", duration(ns)),
        };
        plot.table.row(cells(number, block, [done, row]));
        plot.blocks.push(Shown {
            mark: Mark::Plain,
            values_ns: block.distances_ns.clone(),
            predicted_ns: block.predicted_ns,
            set_to: block.set_to.map(|value| value.to_string()),
            ..shown_as(block, &format!("block {number}, {about}"))
        });
        if number <= MOST_DESCRIBED {
            said.push(about);
        }
    }
    plot.legend = vec![
        (Sign::Mark(Mark::Plain, false), "from one burst to the next, in their order".into()),
        (Sign::Predicted, "what the setting predicts".into()),
        (Sign::Multiple, "its multiples: not every tick of a clock hurts".into()),
    ];
    let period = it.result.as_ref().and_then(|result| result.period.as_ref());
    if let Some(period) = period.filter(|period| period.verdict == Verdict::Refuted) {
        let shown = duration(period.one_ns);
        plot.legend.push((Sign::Level, format!("one period for all blocks, {shown}")));
        plot.levels.push(Level { mark: Mark::Plain, ns: period.one_ns, shown });
    }
    plot.caption = format!(
        "how far bursts are apart, block by block; below each block is its value of {}{}",
        identifier(setting, SETTING_COLUMNS),
        if blocks.len() > values {
            "; thin vertical lines part the rounds of all values"
        } else {
            ""
        }
    );
    plot.described = format!(
        "how far bursts are apart in each block, in the order of time: {}",
        said.join("; ")
    );
    plot
}

/// What is measured, with the time that it is of.
fn name(measure: &Measure) -> String {
    let every_second = if measure.is_of_every_second() { " in every second" } else { "" };
    sentence(&(measure.words() + every_second))
}

fn mark_of(arm: Arm) -> Mark {
    match arm {
        Arm::Before => Mark::Before,
        Arm::Changed => Mark::Changed,
    }
}

fn shown_as(block: &Block, hint: &str) -> Shown {
    Shown {
        from_s: block.at_seconds,
        until_s: block.at_seconds + block.seconds,
        mark: Mark::Plain,
        values_ns: vec![],
        is_missing: is_missing(block),
        predicted_ns: None,
        set_to: None,
        hint: sentence(hint),
    }
}

fn table_of(names: [&str; 2]) -> Table {
    let mut table = Table::new(&[
        Column::Right,
        Column::Right,
        Column::Right,
        Column::Left(DONE_COLUMNS),
        Column::Left(usize::MAX),
    ]);
    table.heading(["block", "from", "length"].into_iter().chain(names));
    table
}

fn cells(number: usize, block: &Block, rest: [String; 2]) -> impl Iterator<Item = String> {
    // In the unit of the axis; no experiment lasts for days.
    let time = |seconds: f64| match seconds.abs() < 1e6 {
        true => format!("{seconds:.1} s"),
        false => duration(seconds * 1e9),
    };
    [number.to_string(), time(block.at_seconds), time(block.seconds)].into_iter().chain(rest)
}

/// Why blocks have no number, each reason once.
fn reasons(blocks: &[Block]) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for (number, block) in (1..).zip(blocks).filter(|(_, block)| is_missing(block)) {
        let number: usize = number;
        let named = format!("{number} ({})", done(block));
        match reasons.iter_mut().find(|(why, _)| *why == why_not(block)) {
            Some((_, numbers)) => numbers.push(named),
            None => reasons.push((why_not(block), vec![named])),
        }
    }
    let more: usize = reasons.iter().skip(MOST_REASONS).map(|(_, numbers)| numbers.len()).sum();
    let tell = |(why, numbers): &(&str, Vec<String>)| {
        let blocks = if numbers.len() == 1 { "block" } else { "blocks" };
        sentence(&format!("no number in {blocks} {}: {why}", numbers.join(", ")))
    };
    let mut told: Vec<String> = reasons.iter().take(MOST_REASONS).map(tell).collect();
    if more > 0 {
        let blocks = counted(more as u64, "more block", "more blocks");
        told.push(format!("no number in {blocks}, for the reasons in the table"));
    }
    told
}

#[cfg(test)]
pub(super) mod tests;
