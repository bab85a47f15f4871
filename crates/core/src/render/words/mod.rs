// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The words and rows of a report, which all of its renderers show: every text is escaped and says the same on a
//! terminal and on a page. Layout is the renderers'.

pub(super) mod asleep;
pub(super) mod block_io;
pub(super) mod finding;
mod interrupts;
pub(super) mod memory;
pub(super) mod profile;
pub(super) mod report;

/// A part of a whole as a share; 0 of nothing.
pub(super) fn portion(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
