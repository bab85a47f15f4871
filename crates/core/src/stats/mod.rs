// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Statistical tests for series of events and amounts.
//!
//! Each module answers one question and takes plain numbers. A probability is always a p-value: that of the data, or of
//! more extreme data, under the null hypothesis. If the data are too short for a test, the answer is how much longer to
//! observe.

mod burst_pattern;
mod bursts;
mod coincidence;
mod exact;
mod interval;
mod period;
mod random;
mod shift;
mod span;
mod student;
mod tail;

#[cfg(test)]
mod monte_carlo;
#[cfg(test)]
mod monte_carlo_shift;

pub use burst_pattern::{BurstPattern, pace};
pub use bursts::{Burst, bursts, merge};
pub use coincidence::{
    Coincidence, MIN_EPISODES, coincidence, coincidence_by_length, covered_ns, episodes,
    median_length_ns, overlaps, worst_moments,
};
pub use exact::{fisher, holm};
pub use interval::{Interval, Scatter, interval, ratio};
pub use period::{Clock, Rhythm, grid, rhythm};
pub use random::Random;
pub use shift::{LEAST_CORRELATION, MIN_BLOCKS, Shift, ratios, shift};
pub use span::Span;
pub use student::{student_p, student_quantile};
pub use tail::poisson;

/// Significance level: claims need a p-value below it.
pub const SIGNIFICANT: f64 = 0.01;
