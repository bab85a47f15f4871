// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Is this machine's CPU consistent: does the same work always take the same time, on whichever CPU and however
//! many others compute beside it?
//!
//! [`plan`] says what is measured, in which order and for how long; the measuring itself is not done here. From what
//! was measured (`crate::view::CpuCheckView`) come [`pairs`] (which CPUs hold each other up), [`sweep`] (how many
//! workers are served evenly), and [`judge`]: the [`document`] that is printed and that the rules read.

mod circumstances;
pub mod document;
pub mod pairs;
pub mod plan;
pub mod sweep;
#[cfg(test)]
mod tests;
mod verdict;
mod words;

pub use document::{CpuCheck, Document};
pub use verdict::judge;

use crate::recording::Run;

/// Below this part of the speed of others, or of itself when it is alone, a worker is held up.
///
/// Far from both what it is to tell apart: independent CPUs keep 0.97 and more, siblings of a core 0.50 to 0.53.
pub const HELD_UP: f64 = 0.8;

/// Work in a second of its CPU time, in chunks; `None` if it had none.
pub(crate) fn speed(run: &Run) -> Option<f64> {
    (run.cpu_ns > 0 && run.chunks > 0).then(|| run.chunks as f64 * 1e9 / run.cpu_ns as f64)
}

/// Part of its wall time in which it had a CPU, as the kernel counts.
pub(crate) fn share(run: &Run) -> f64 {
    if run.wall_ns == 0 { 0.0 } else { run.cpu_ns as f64 / run.wall_ns as f64 }
}

/// How work that is slower than it could be is slower.
///
/// `speed` and `chunk` are 1 where nothing is lost: the speed beside the undisturbed one, and the undisturbed length
/// of a chunk beside its length. A worker whose median chunk explains less than half of its loss ran at full speed in
/// between and stood still for the rest.
pub(crate) fn is_sliced(speed: f64, chunk: f64) -> bool {
    1.0 - chunk < (1.0 - speed) / 2.0
}

/// The value at that part of a sorted list, between the two next to it; `None` of an empty one.
pub(crate) fn quantile(sorted: &[f64], at: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = at.clamp(0.0, 1.0) * last as f64;
    // Within 0..=last.
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    let part = place - place.floor();
    Some(sorted[below] * (1.0 - part) + sorted[above] * part)
}

/// Sorts numbers that are all finite.
pub(crate) fn sorted(numbers: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut all: Vec<f64> = numbers.into_iter().filter(|number| number.is_finite()).collect();
    all.sort_by(f64::total_cmp);
    all
}
