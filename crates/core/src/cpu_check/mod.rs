// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Are the CPUs of this machine consistent: does the same work always take the same time, on any CPU and with any
//! number of other workers computing at the same time?
//!
//! [`schedule`] defines what is measured, in which order and for how long; the measurement itself is done elsewhere. The
//! measurements (`crate::view::CpuCheckView`) are evaluated by [`pairs`] (which CPUs slow each other down) and
//! [`sweep`] (how many workers run evenly). [`judge`] combines them into the [`document`] that is printed and that the
//! rules read.

mod circumstances;
pub mod document;
pub mod pairs;
pub mod schedule;
pub mod sweep;
#[cfg(test)]
mod tests;
mod verdict;
mod words;

pub use document::{CpuCheck, Document};
pub use verdict::judge;

use crate::recording::Run;

/// A worker is slowed down if its speed is below this ratio of the speed of others, or of its own speed when alone.
///
/// The ratio is far from both cases that it separates: independent CPUs keep 0.97 or more, siblings of a core 0.50 to
/// 0.53.
pub const HELD_UP: f64 = 0.8;

/// Speed of a worker in chunks per second of its CPU time; `None` if it had no CPU time or completed no chunk.
pub(crate) fn speed(run: &Run) -> Option<f64> {
    (run.cpu_ns > 0 && run.chunks > 0).then(|| run.chunks as f64 * 1e9 / run.cpu_ns as f64)
}

/// Share of a worker's wall time in which it had a CPU according to the kernel.
pub(crate) fn share(run: &Run) -> f64 {
    if run.wall_ns == 0 { 0.0 } else { run.cpu_ns as f64 / run.wall_ns as f64 }
}

/// Whether slow work is due to stops (a time-sliced CPU) rather than to slower execution.
///
/// `speed` is the ratio of the speed to the undisturbed one, `chunk` the ratio of the undisturbed duration of a chunk
/// to its duration; both are 1 if nothing is lost. If the median chunk explains less than half of the loss, the worker
/// ran at full speed between stops.
pub(crate) fn is_sliced(speed: f64, chunk: f64) -> bool {
    1.0 - chunk < (1.0 - speed) / 2.0
}

/// Quantile `at` (0..1) of a sorted list, interpolated linearly; `None` for an empty list.
pub(crate) fn quantile(sorted: &[f64], at: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = at.clamp(0.0, 1.0) * last as f64;
    // Both are within 0..=last.
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    let part = place - place.floor();
    Some(sorted[below] * (1.0 - part) + sorted[above] * part)
}

/// Sorts numbers, without those that are not finite.
pub(crate) fn sorted(numbers: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut all: Vec<f64> = numbers.into_iter().filter(|number| number.is_finite()).collect();
    all.sort_by(f64::total_cmp);
    all
}
