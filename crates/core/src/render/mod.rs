// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Renders reports: `finding::Report` in, bytes out. Pure.
//!
//! All strings in a report are untrusted: [`escape`](crate::text::escape) makes each string safe to show before the
//! layout, and colours are added last, so that no name can control the terminal or the layout.

mod answers;
mod bars;
mod block_io;
mod chart;
mod compare;
mod compare_plots;
mod cpu_check;
mod finding;
mod host_diff;
mod html;
mod json;
mod lengths;
mod manual;
mod names;
mod page;
mod plot;
mod profile;
mod prove;
mod prove_plot;
mod read;
mod sheet;
mod sweep;
mod syscalls;
mod syscalls_diff;
mod table;
mod text;
mod words;
mod wrap;

#[cfg(test)]
pub(crate) mod golden;
#[cfg(test)]
pub(crate) use html::tests::check as check_page;

pub use compare::comparison;
pub use cpu_check::cpu_check;
pub use host_diff::host_diff;
pub use html::{
    InPage, MAX_PAGE_BYTES, MOST_PAGE_BYTES, PageError, comparison_html, cpu_check_html,
    experiment_html, host_diff_html, html, is_page, read_html, read_page, sweep_html,
};
pub use json::{json, json_document};
pub use manual::manual;
pub use prove::{experiment, experiment_plan};
pub use read::read_text;
pub use sheet::{Cell, Grid, Section, grid, sheet};
pub use sweep::sweep_text;
pub use syscalls::syscalls_text;
pub use syscalls_diff::syscalls_diff_text;
pub use text::text;

/// A message on one line: hidden characters are escaped, nothing is truncated.
#[must_use]
pub fn message(text: &str) -> String {
    crate::text::escape::command(text)
}

/// Appearance of text for a terminal.
#[derive(Clone, Copy, Debug)]
pub struct TextStyle {
    /// Width in columns, limited to 60..=100.
    pub columns: usize,
    /// Whether to use ANSI colours, which are never needed to understand the text.
    pub color: bool,
    /// 0 = findings, and one line each for the rest; 1 = default; 2 = all evidence and every ledger.
    pub verbosity: u8,
}
