// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a report looks: `finding::Report` in, bytes out. Pure.
//!
//! Everything in a report is data, whoever named it: [`escape`] makes each string safe to show before it is
//! laid out, and colours are added last, so no name can steer the terminal or the layout.

mod bars;
mod block_io;
mod chart;
mod cpu_check;
mod finding;
mod host_diff;
mod json;
mod manual;
mod names;
mod page;
mod plot;
mod sheet;
mod sweep;
mod syscalls;
mod syscalls_diff;
mod table;
mod text;
mod wrap;

#[cfg(test)]
pub(crate) mod golden;

pub use cpu_check::cpu_check;
pub use host_diff::host_diff;
pub use json::{json, json_document};
pub use manual::manual;
pub use sheet::{Cell, Grid, Section, grid, sheet};
pub use sweep::sweep_text;
pub use syscalls::syscalls_text;
pub use syscalls_diff::syscalls_diff_text;
pub use text::text;

/// A message on one line: hidden characters are escaped, nothing is cut.
#[must_use]
pub fn message(text: &str) -> String {
    crate::text::escape::command(text)
}

/// How the terminal text should look.
#[derive(Clone, Copy, Debug)]
pub struct TextStyle {
    /// Width in columns; at least 60 and at most 100 are used.
    pub columns: usize,
    /// Whether to use ANSI colours (never needed to understand the text).
    pub color: bool,
    /// 0 = findings and one line each for the rest; 1 = default; 2 = all evidence and every ledger.
    pub verbosity: u8,
}
