// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Questions about series of times and amounts, answered with a chance or with what it would take to tell.
//!
//! Each file answers one question and takes plain numbers. A probability is always that of the data, or of data
//! that say more, if there were nothing to find. Where the data are too short for that, the answer is how much
//! longer to look.

mod bursts;
mod coincidence;
mod exact;
mod interval;
mod pace;
mod period;
mod tail;

#[cfg(test)]
mod monte_carlo;

pub use bursts::{Burst, bursts, merge};
pub use coincidence::{
    Coincidence, MIN_EPISODES, coincidence, coincidence_by_length, covered_ns, episodes,
    median_length_ns, overlaps, worst_moments,
};
pub use exact::{fisher, holm};
pub use interval::{Interval, Scatter, interval, ratio};
pub use pace::{Pace, pace};
pub use period::{Clock, Rhythm, grid, rhythm};
pub use tail::poisson;

/// Claims are made below this chance of being wrong.
pub const SIGNIFICANT: f64 = 0.01;
