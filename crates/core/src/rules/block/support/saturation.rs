// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stretches in which a device was saturated, which an average over a second hides.

use super::time_parts;
use crate::finding::{Evidence, Unit};
use crate::recording::{DevId, IoOp, Source};
use crate::rules::words::{evidence, ticked};
use crate::stats::{Span, merge, overlaps};
use crate::text::units;
use crate::view::block::{Activity, BusyStretch};
use crate::view::{View, waits};

/// With more requests than this in the queue or the device on average, those on a busy device wait for each other.
pub(in crate::rules::block) const MIN_DEPTH: f64 = 1.0;

/// A busy share of a second below this, 0..1, looks harmless.
const HARMLESS: f64 = 0.6;

/// The spells in which a device was saturated: never idle, with more than [`MIN_DEPTH`] requests on average.
pub(in crate::rules::block) fn full(view: &View, device: DevId) -> Vec<&BusyStretch> {
    let activity = view.block().activity().get(&device);
    let spells = activity.into_iter().flat_map(Activity::spells);
    spells.filter(|spell| spell.depth() > MIN_DEPTH).collect()
}

/// Evidence line: the longest saturated spell that overlaps one of the spans, and how many such spells the averages of
/// their seconds hide.
pub(in crate::rules::block) fn line(
    view: &View,
    device: DevId,
    within: &[Span],
) -> Option<Evidence> {
    let all = full(view, device);
    let within = merge(within.to_vec(), 0);
    let inside: Vec<&&BusyStretch> =
        all.iter().filter(|spell| overlaps(&within, spell.span())).collect();
    let longest = inside.iter().max_by_key(|spell| spell.span().length_ns())?;
    let length_ns = longest.span().length_ns();
    let name = ticked(&view.block().device_name(device));
    // Spells much shorter than a second disappear in its average.
    let hidden: Vec<_> = inside.iter().filter(|spell| spell.second_busy < HARMLESS).collect();
    let most = hidden.iter().map(|spell| spell.second_busy).fold(0.0, f64::max);
    let average = match hidden.len() {
        0 => String::new(),
        n => format!(
            "; {n} of them hide in seconds that are at most {} busy on average",
            units::share(most)
        ),
    };
    let note = format!(
        "longest of {} in which {name} had no pause, {:.0} requests deep{average}",
        units::counted(inside.len() as u64, "stretch", "stretches"),
        longest.depth()
    );
    let mut line = evidence(
        view,
        "device saturated for",
        length_ns as f64,
        Unit::Ns,
        Source::Block.label(),
        note,
    );
    (line.from_s, line.to_s) = (longest.t0_ns as f64 / 1e9, longest.t1_ns as f64 / 1e9);
    Some(line)
}

/// Evidence lines: how long reads and writes took, and the parts of that before and in the device.
pub(in crate::rules::block) fn latency_lines(view: &View, device: DevId) -> Vec<Evidence> {
    let mut lines = Vec::new();
    for (op, what) in [(IoOp::Read, "reads"), (IoOp::Write, "writes")] {
        let Some(latency) = view.block().latency().get(&(device, op)) else { continue };
        let (count, total_ns) = (latency.total.total_count(), latency.total.total_ns());
        if count == 0 {
            continue;
        }
        let percentile = |p| waits::percentile_ns(&latency.total, p, latency.max_ns);
        let mut parts = vec![format!("mean of {}", units::counted(count, "request", "requests"))];
        if let Some(p99) = percentile(0.99) {
            parts.push(format!("99 % under {}", units::duration(p99 as f64)));
        }
        parts.push(format!("the longest {}", units::duration(latency.max_ns as f64)));
        let queued = latency.queue.total_ns() as f64 / total_ns.max(1) as f64;
        parts.push(time_parts::parts(latency).unwrap_or_else(|| {
            format!("{} of the time before the device", units::share(queued.min(1.0)))
        }));
        if latency.sampled_one_in > 1 {
            parts.push(format!(
                "while it was busiest, 1 in {} was looked at",
                latency.sampled_one_in
            ));
        }
        let mean = total_ns as f64 / count as f64;
        lines.push(evidence(
            view,
            &format!("{what} took"),
            mean,
            Unit::Ns,
            Source::Block.label(),
            parts.join(", "),
        ));
    }
    lines.extend(time_parts::line(view, device));
    lines
}
