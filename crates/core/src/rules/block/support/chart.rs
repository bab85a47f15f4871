// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A chart of a device over the window: how busy it was, and what happened meanwhile, on one time axis.

use crate::finding::{Chart, ChartKind, ChartRow};
use crate::recording::DevId;
use crate::stats::{Span, merge, overlaps};
use crate::view::View;

/// Maximum number of columns: with the names of the rows they fill a line of text.
const COLUMNS: u64 = 76;
const MS: u64 = 1_000_000;

/// A row of marks: its name, and spans of time.
pub(in crate::rules::block) type MarkRow<'a> = (&'a str, Vec<Span>);

/// A device's busy share, and spans of time as rows of marks below it; `None` if the device's activity was not
/// recorded.
pub(in crate::rules::block) fn of(
    view: &View,
    device: DevId,
    marks: Vec<MarkRow<'_>>,
) -> Option<Chart> {
    let activity = view.block().activity().get(&device)?;
    let window_ns = view.window_ns();
    let (bins, width_ns) = (activity.busy.bins(), activity.busy.width_ns());
    if window_ns == 0 || bins.is_empty() {
        return None;
    }
    let step_ns = step_ns(window_ns).max(width_ns);
    let columns = window_ns.div_ceil(step_ns);
    let busy = (0..columns).map(|column| {
        // The fullest of the bins that begin in the column: an average over a second would hide what the chart is
        // about.
        let from = (column * step_ns).div_ceil(width_ns) as usize;
        let to = ((column + 1) * step_ns).div_ceil(width_ns) as usize;
        let most = bins.iter().take(to).skip(from).max().copied().unwrap_or(0);
        (most as f64 / width_ns as f64).min(1.0)
    });
    let mut rows = vec![ChartRow {
        name: format!("{} busy", view.block().device_name(device)),
        kind: ChartKind::Share,
        values: busy.collect(),
    }];
    rows.extend(marks.into_iter().map(|(name, spans)| {
        let spans = merge(spans, 0);
        let mark = |column: u64| {
            let within = Span::new(column * step_ns, (column + 1) * step_ns - 1);
            f64::from(u8::from(overlaps(&spans, within)))
        };
        let values = (0..columns).map(mark).collect();
        ChartRow { name: name.to_owned(), kind: ChartKind::Marks, values }
    }));
    let s = |ns: u64| ns as f64 / 1e9;
    Some(Chart { from_s: 0.0, step_s: s(step_ns), resolution_s: s(width_ns), rows })
}

/// The smallest round step (1, 2 or 5 times a power of ten) with which a window fits into [`COLUMNS`]; nanoseconds, at
/// least 100 ms.
fn step_ns(window_ns: u64) -> u64 {
    let mut decade_ns = 100 * MS;
    loop {
        for step_ns in [decade_ns, 2 * decade_ns, 5 * decade_ns] {
            if window_ns.div_ceil(step_ns) <= COLUMNS {
                return step_ns;
            }
        }
        decade_ns = decade_ns.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, step_ns};

    const S: u64 = 1_000_000_000;

    #[test]
    fn steps_are_round_and_fit() {
        let steps = [1, 8, 30, 40, 60, 75, 120, 600, 86_400].map(|s| step_ns(s * S) as f64 / 1e9);
        assert_eq!(steps, [0.1, 0.2, 0.5, 1.0, 1.0, 1.0, 2.0, 10.0, 2000.0]);
        assert!(u64::MAX.div_ceil(step_ns(u64::MAX)) <= COLUMNS);
    }
}
