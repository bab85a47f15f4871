// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BLK rules: time lost to block IO. The detectors are here; what they share is in `support`.

pub(super) mod device_saturated;
pub(super) mod dirty_throttled_writer;
pub(super) mod io_limit;
pub(super) mod io_neighbour;
pub(super) mod journal_stall;
pub(super) mod support;
pub(super) mod writeback_bursts;
pub(super) mod writeback_cohort;
