// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a report looks: `finding::Report` in, bytes out. Pure.

pub mod units;

use crate::finding::Report;

/// How the terminal text should look.
#[derive(Clone, Copy, Debug)]
pub struct TextStyle {
    /// Width in columns; at most 100 are used.
    pub columns: usize,
    /// Whether to use ANSI colours (never needed to understand the text).
    pub color: bool,
    /// 0 = findings and one line each for the rest; 1 = default; 2 = all evidence and every ledger.
    pub verbosity: u8,
}

/// The report for a terminal.
#[must_use]
pub fn text(report: &Report, style: TextStyle) -> String {
    let _ = (report, style);
    String::new()
}

/// The report as one JSON document with a final newline.
///
/// # Errors
/// Only if a number is not finite, which no rule produces.
pub fn json(report: &Report) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string_pretty(report)? + "\n")
}
