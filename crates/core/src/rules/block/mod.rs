// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BLK rules: time lost to block IO. The detectors are here; what they share is in `support`.

mod device_saturated;
mod dirty_throttled_writer;
mod io_limit;
pub(super) mod io_neighbour;
mod journal_stall;
mod own_requests;
pub(super) mod support;
mod writeback_bursts;
mod writeback_cohort;

use super::Rule;

/// The rules of this area, by code.
pub(super) const RULES: &[&Rule] = &[
    &writeback_bursts::RULE,
    &writeback_cohort::RULE,
    &device_saturated::RULE,
    &io_neighbour::RULE,
    &journal_stall::RULE,
    &dirty_throttled_writer::RULE,
    &io_limit::RULE,
    &own_requests::RULE,
];
