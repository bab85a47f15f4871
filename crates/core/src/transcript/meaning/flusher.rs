// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `writeback.bt`: how often does the flusher work, and which of its passes are heavy?

use crate::stats::{Rhythm, grid, rhythm};
use crate::text::Unit;
use crate::text::ticked;
use crate::text::units::{self, duration};
use crate::transcript::document::{Statement, Weight};
use crate::transcript::engine::Section;
use crate::transcript::layouts::writeback::{Passes, Work};
use std::collections::BTreeMap;

/// Pieces of work with no more time between them are one pass, in seconds: times are whole seconds.
const GAP_S: f64 = 1.0;
/// With fewer periods in the window, an unknown clock is hard to distinguish from chance.
const ENOUGH_PERIODS: u64 = 8;
/// Heavy passes take this many times as long as light ones ...
const RATIO: f64 = 5.0;
/// ... and at least this long, in ms.
const HEAVY_MS: f64 = 10.0;
const MAX_DEVICES: usize = 8;
/// Passes that are compared with each other, the first ones: some hours of them.
const MAX_PASSES: usize = 2000;

/// A pass over what is dirty.
struct Pass {
    time_s: f64,
    lines: (u64, u64),
    ms: f64,
}

pub(super) fn statements(section: &Section, of: &Passes) -> Vec<Statement> {
    let mut by: BTreeMap<&str, Vec<Pass>> = BTreeMap::new();
    for row in of.rows.iter().filter(|row| row.reason == "periodic") {
        add(by.entry(&row.device).or_default(), row);
    }
    by.iter()
        .take(MAX_DEVICES)
        .filter_map(|(device, passes)| statement(section, device, passes))
        .collect()
}

fn add(passes: &mut Vec<Pass>, row: &Work) {
    match passes.last_mut() {
        Some(last) if (row.time_s - last.time_s).abs() <= GAP_S => {
            last.lines.1 = row.line;
            last.ms += row.ms;
        }
        _ => passes.push(Pass { time_s: row.time_s, lines: (row.line, row.line), ms: row.ms }),
    }
}

/// In which order heavy passes are among the light ones.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    /// One after so many, and with which probability heavy ones in any order look like that.
    Every(usize, f64),
    /// None.
    Irregular,
}

/// Which passes are heavy, in the order of time; `None` if they are all alike.
fn heavy(passes: &[Pass]) -> Option<Vec<usize>> {
    let mut sorted: Vec<f64> = passes.iter().map(|pass| pass.ms).collect();
    sorted.sort_by(f64::total_cmp);
    let ratio = |pair: &[f64]| pair[1] / pair[0].max(0.001);
    let pairs = sorted.windows(2).filter(|pair| pair[1] >= HEAVY_MS && ratio(pair) >= RATIO);
    let from = pairs.max_by(|a, b| ratio(a).total_cmp(&ratio(b)))?[1];
    Some((0..passes.len()).filter(|at| passes[*at].ms >= from).collect())
}

fn order(heavy: &[usize], passes: usize) -> Order {
    let Some(step) = heavy.windows(2).map(|pair| pair[1] - pair[0]).next() else {
        return Order::Irregular;
    };
    let even = heavy.windows(2).all(|pair| pair[1] - pair[0] == step);
    // Nor may one be missing at either end.
    let whole = heavy[0] < step && passes - 1 - heavy[heavy.len() - 1] < step;
    if !even || !whole || step < 2 || heavy.len() < 3 {
        return Order::Irregular;
    }
    let orders = (0..heavy.len()).fold(1.0, |n, i| n * (passes - i) as f64 / (i + 1) as f64);
    Order::Every(step, (step as f64 / orders).min(1.0))
}

/// The clock that passes at these times follow. All clocks are tried, because the setting is not in the text.
fn clock(at_ns: &[u64], window_ns: u64) -> Rhythm {
    if !at_ns.is_sorted() {
        return Rhythm::None { p: 1.0 };
    }
    let mut distances: Vec<u64> = at_ns.windows(2).map(|pair| pair[1] - pair[0]).collect();
    distances.sort_unstable();
    let usual_ns = distances.get(distances.len() / 2).map(|ns| ns.saturating_mul(ENOUGH_PERIODS));
    match (rhythm(at_ns, window_ns, &grid(window_ns)), usual_ns) {
        (Rhythm::None { .. }, None) => Rhythm::NeedsMore { for_ns: window_ns },
        // A clock as slow as that was not tried: the window does not hold enough of its ticks.
        (Rhythm::None { .. }, Some(enough_ns)) if window_ns < enough_ns => {
            Rhythm::NeedsMore { for_ns: enough_ns - window_ns }
        }
        (rhythm, _) => rhythm,
    }
}

fn statement(section: &Section, device: &str, passes: &[Pass]) -> Option<Statement> {
    let passes = &passes[..passes.len().min(MAX_PASSES)];
    let (first, last) = (passes.first()?, passes.last()?);
    let source = section.source_of((first.lines.0, last.lines.1));
    let at: Vec<u64> =
        passes.iter().map(|pass| ((pass.time_s - first.time_s).max(0.0) * 1e9) as u64).collect();
    let window_ns = at.iter().max().copied().unwrap_or(0) + 1_000_000_000;
    let rhythm = clock(&at, window_ns);
    let name = ticked(device);
    let n = units::counted(passes.len() as u64, "pass", "passes");
    let heavy = heavy(passes).unwrap_or_default();
    let order = order(&heavy, passes.len());
    let heavier = match (order, heavy.len()) {
        (_, 0) => String::new(),
        (Order::Every(2, _), _) => "; every second pass is heavy".into(),
        (Order::Every(step, _), _) => format!("; one pass in {step} is heavy"),
        (Order::Irregular, heavy) => format!("; {heavy} of {n} are heavy, in no regular order"),
    };
    let (weight, title) = match rhythm {
        Rhythm::Found { period_ns, .. } => {
            let every = duration(period_ns as f64);
            (Weight::Found, format!("the flusher works on {name} every {every}{heavier}"))
        }
        Rhythm::NeedsMore { .. } => (
            Weight::Open,
            format!("the flusher worked on {name} in {n}, too few for a period{heavier}"),
        ),
        Rhythm::None { .. } => (
            Weight::Fact,
            format!("the flusher worked on {name} in {n}, without a period{heavier}"),
        ),
    };
    let mut statement = Statement::new("flusher", weight, title);
    match rhythm {
        Rhythm::Found { period_ns, pairs, expected, p } => {
            statement = statement.number("period", period_ns as f64, Unit::Ns, &source).note(format!(
                "{pairs} passes are followed by one that much later, {expected:.1} by chance; p = {p:.1e}"
            ));
        }
        Rhythm::NeedsMore { for_ns } => {
            statement = statement.cannot(&format!(
                "whether the passes have a period: that needs {} more of the same capture",
                duration(for_ns as f64)
            ));
        }
        Rhythm::None { .. } => {}
    }
    statement = submission(statement, section, passes, &heavy, order);
    Some(
        statement
            .number("passes", passes.len() as f64, Unit::Count, &source)
            .note("of the reason `periodic`; rows of the same second are one pass")
            .cannot("how much was written: PAGES is a budget of which the script prints some bits")
            .cannot("how long the disk took: the time ends when the writes were submitted")
            .cannot("which files were written, and who waited")
            .settled_by("deburr -d 60"),
    )
}

/// How long heavy and light passes take.
fn submission(
    mut statement: Statement,
    section: &Section,
    passes: &[Pass],
    heavy: &[usize],
    order: Order,
) -> Statement {
    for (is_heavy, name) in
        [(true, "heavy passes, until submitted"), (false, "light passes, until submitted")]
    {
        let some: Vec<&Pass> = (0..passes.len())
            .filter(|at| !heavy.is_empty() && heavy.contains(at) == is_heavy)
            .map(|at| &passes[at])
            .collect();
        let (Some(first), Some(last)) = (some.first(), some.last()) else { continue };
        let most = some.iter().map(|pass| pass.ms).fold(0.0, f64::max);
        let least = some.iter().map(|pass| pass.ms).fold(f64::INFINITY, f64::min);
        let mean = some.iter().map(|pass| pass.ms).sum::<f64>() / some.len() as f64;
        let source = section.source_of((first.lines.0, last.lines.1));
        let mut note = format!(
            "{} of them, {} to {}",
            some.len(),
            duration(least * 1e6),
            duration(most * 1e6)
        );
        if let (true, Order::Every(_, p)) = (is_heavy, order) {
            note += &format!("; as many in any order look like that with a probability of {p:.2}");
        }
        statement = statement.number(name, mean * 1e6, Unit::Ns, &source).note(note);
    }
    statement
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_heavy_passes() {
        assert_eq!(order(&[1, 3, 5], 6), Order::Every(2, 0.1));
        assert_eq!(order(&[0, 3, 6], 9), Order::Every(3, 3.0 / 84.0));
        // Uneven; all of them; one is missing at an end; two.
        for (heavy, passes) in
            [(&[0, 1, 5][..], 6), (&[0, 1, 2], 3), (&[1, 3, 5], 9), (&[1, 3], 4), (&[], 4)]
        {
            assert_eq!(order(heavy, passes), Order::Irregular, "{heavy:?}");
        }
    }
}
