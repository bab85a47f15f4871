// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BLK: held up by block IO.

mod before;
mod busy_counters;
mod by_counters;
mod chart;
mod clocks;
mod device_remedies;
pub(super) mod device_saturated;
pub(super) mod dirty_throttled_writer;
mod files;
mod fullness;
mod held_back;
pub(super) mod io_limit;
pub(super) mod io_neighbour;
pub(super) mod journal_stall;
mod journals;
mod knobs;
mod pass_lines;
mod pass_remedies;
mod rhythms;
mod saturation;
mod shares;
pub(super) mod tables;
mod victims;
pub(super) mod writeback_bursts;
pub(super) mod writeback_cohort;
