// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the block IO rules share: victims, culprits, timing, and the words and remedies of findings.

pub(super) mod active_limits;
pub(in crate::rules) mod beside_others;
pub(super) mod busy_counters;
pub(super) mod by_counters;
pub(super) mod chart;
pub(super) mod clocks;
pub(super) mod device_remedies;
pub(super) mod files;
pub(super) mod hung;
pub(super) mod journals;
pub(super) mod knobs;
pub(super) mod overload;
pub(super) mod own_waits;
pub(super) mod pass_lines;
pub(super) mod pass_remedies;
pub(super) mod rhythms;
pub(super) mod saturation;
pub(in crate::rules) mod shares;
pub(in crate::rules) mod tables;
pub(super) mod time_parts;
pub(super) mod victims;
