// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A small chart of several series: values on a logarithmic scale over labelled slots. Each series has a letter, and
//! its own column in every slot, so that no value hides another.

use crate::stats::Interval;
use crate::text::escape::width;

/// Height of the chart in lines.
const ROWS: usize = 12;
/// Width of the numbers at the left.
const LABEL: usize = 8;
/// Maximum number of series: the number of letters.
pub(super) const MAX_SERIES: usize = 26;

/// The letter of a series.
pub(super) fn letter(series: usize) -> char {
    char::from(b'A' + (series % MAX_SERIES) as u8)
}

/// The lines of a chart of at most `columns` columns; none if there is no positive value, or if there are too many
/// slots or series. `series[i][j]` is the value of series `i` in slot `j`.
pub(super) fn plot(
    series: &[Vec<Option<Interval>>],
    slots: &[String],
    columns: usize,
    unit: impl Fn(f64) -> String,
) -> Vec<String> {
    let room = columns.saturating_sub(LABEL + 2);
    let needed = slots.iter().map(|slot| width(slot)).max().unwrap_or(0).max(series.len()) + 2;
    let values =
        || series.iter().flatten().flatten().map(|it| it.value).filter(|value| *value > 0.0);
    let lowest = values().min_by(f64::total_cmp);
    let highest = values().max_by(f64::total_cmp);
    let (Some(lowest), Some(highest)) = (lowest, highest) else { return Vec::new() };
    if series.len() > MAX_SERIES || slots.is_empty() || needed * slots.len() > room {
        return Vec::new();
    }
    let slot_width = (room / slots.len()).min(14.max(needed));
    let scale = Scale::new(lowest, highest);
    let mut cells = vec![vec![' '; slot_width * slots.len()]; ROWS];
    for (i, values) in series.iter().enumerate() {
        for (j, value) in values.iter().enumerate().take(slots.len()) {
            let Some(it) = value.filter(|it| it.value > 0.0) else { continue };
            let x = j * slot_width + (slot_width - series.len()) / 2 + i;
            let (low, high) = (it.low.unwrap_or(it.value), it.high.unwrap_or(it.value));
            let (high, low) = (scale.row(high.max(low)), scale.row(low.min(high)));
            for row in &mut cells[high..=low] {
                row[x] = ':';
            }
            cells[scale.row(it.value)][x] = letter(i);
        }
    }
    let mut lines: Vec<String> = cells
        .iter()
        .enumerate()
        .map(|(row, cells)| {
            let label =
                if row % 3 == 0 || row == ROWS - 1 { unit(scale.at(row)) } else { String::new() };
            format!("{label:>LABEL$} |{}", cells.iter().collect::<String>()).trim_end().to_owned()
        })
        .collect();
    lines.push(format!("{:>LABEL$} +{}", "", "-".repeat(slot_width * slots.len())));
    let names: String = slots.iter().map(|slot| format!("{slot:^slot_width$}")).collect();
    lines.push(format!("{:>LABEL$}  {names}", "").trim_end().to_owned());
    lines
}

/// Maps values to rows on a logarithmic scale, with the greatest at the top.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn new(lowest: f64, highest: f64) -> Self {
        let (low, high) = (lowest.ln(), highest.ln());
        // The scale covers at least a factor of 2, so that nearly equal values do not appear far apart.
        let spare = ((2f64.ln() - (high - low)) / 2.0).max(0.0);
        Self { low: low - spare, high: high + spare }
    }

    fn row(&self, value: f64) -> usize {
        let height = (value.max(f64::MIN_POSITIVE).ln() - self.low) / (self.high - self.low);
        ((1.0 - height.clamp(0.0, 1.0)) * (ROWS - 1) as f64).round() as usize
    }

    fn at(&self, row: usize) -> f64 {
        let height = 1.0 - row as f64 / (ROWS - 1) as f64;
        (self.low + (self.high - self.low) * height).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn exact(value: f64) -> Option<Interval> {
        Some(Interval { value, low: None, high: None })
    }

    #[test]
    fn the_greatest_is_at_the_top_and_the_lowest_at_the_bottom() {
        let series = [vec![exact(1.0), exact(10.0)], vec![exact(1.0), None]];
        let lines = plot(&series, &["5".into(), "10".into()], 60, |value| format!("{value:.0}"));
        assert_eq!(lines.len(), ROWS + 2);
        assert_eq!(lines[0].trim_end().chars().next_back(), Some('A'));
        assert!(lines[0].trim_start().starts_with("10 |"), "{lines:?}");
        assert!(lines[ROWS - 1].contains("AB"), "{lines:?}");
        assert!(plot(&[vec![None]], &["1".into()], 60, |_| String::new()).is_empty());
    }

    proptest! {
        #[test]
        fn no_line_is_too_long_and_every_value_is_there(
            values in prop::collection::vec(prop::collection::vec(1e-3..1e12f64, 1..9), 1..5),
            columns in 20usize..100,
        ) {
            let slots: Vec<String> = (0..values[0].len()).map(|i| (100 << i).to_string()).collect();
            let series: Vec<Vec<_>> =
                values.iter().map(|it| it.iter().map(|value| exact(*value)).collect()).collect();
            let lines = plot(&series, &slots, columns, |_| "1.0 ms".into());
            for line in &lines {
                prop_assert!(width(line) <= columns, "{line}");
            }
            if !lines.is_empty() {
                let shown = lines[..ROWS].iter().flat_map(|line| line[LABEL..].chars());
                let marks = shown.filter(char::is_ascii_uppercase).count();
                let values: usize = series.iter().map(|it| it.len().min(slots.len())).sum();
                prop_assert_eq!(marks, values);
            }
        }
    }
}
