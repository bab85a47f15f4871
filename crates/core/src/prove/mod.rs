// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Controlled experiments: one thing is changed in some blocks of time and not in others, and what is measured in them
//! says whether it was the cause.
//!
//! The runner asks [`design::Design`] whether a block is with or without the change, measures one number in each, and
//! asks [`judge::judge`] after each group of blocks what the numbers say. Where a period must follow a setting,
//! [`period::order`] and [`period::judge_periods`] do the same. What may be changed is in [`knob`].

pub mod design;
pub mod effect;
pub mod experiment;
pub mod judge;
pub mod knob;
mod looks;
pub mod measure;
pub mod outcome;
pub mod period;
pub mod verdict;

#[cfg(test)]
mod monte_carlo;
