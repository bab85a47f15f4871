// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BLK: held up by block IO.

mod by_counters;
mod clocks;
pub(super) mod device_saturated;
pub(super) mod dirty_throttled_writer;
mod files;
pub(super) mod io_neighbour;
pub(super) mod journal_stall;
mod knobs;
mod pass_lines;
mod pass_remedies;
mod saturation;
mod shares;
mod victims;
pub(super) mod writeback_bursts;
pub(super) mod writeback_cohort;
