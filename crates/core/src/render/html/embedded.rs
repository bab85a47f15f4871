// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report within a page: where it is, and how it is read back. A page may be anybody's.

use crate::finding::{REPORT_SCHEMA, Report};
use memchr::memmem;
use thiserror::Error;

/// Id of the element that holds the report.
pub(super) const ID: &str = "deburr-report";
/// What a page begins with.
pub(super) const DOCTYPE: &str = "<!doctype html>";
/// The start tag of the element, as every page has it.
const START: &[u8] = b"<script type=\"application/json\" id=\"deburr-report\">";
const END: &[u8] = b"</script>";

/// Maximum size of a page that is read. Pages have less than 500 kB as a rule.
pub const MAX_PAGE_BYTES: u64 = 8 << 20;

/// Why a page cannot be read.
#[derive(Debug, Error)]
pub enum PageError {
    /// It holds no report.
    #[error("holds no report of deburr: it is another page, or was cut short")]
    NoReport,
    /// Its report is not one.
    #[error("holds a report that cannot be read: {0}")]
    Broken(#[from] serde_json::Error),
    /// Its report has another schema.
    #[error("holds a document of the schema `{0}`, not `{REPORT_SCHEMA}`")]
    Schema(String),
}

/// Whether a file that begins like this is an HTML page.
#[must_use]
pub fn is_page(start: &[u8]) -> bool {
    start.get(..DOCTYPE.len()).is_some_and(|it| it.eq_ignore_ascii_case(DOCTYPE.as_bytes()))
}

/// The report that a page was made from.
///
/// # Errors
/// If there is none.
pub fn report_of_page(page: &[u8]) -> Result<Report, PageError> {
    let start = memmem::find(page, START).ok_or(PageError::NoReport)? + START.len();
    let rest = &page[start..];
    let json = &rest[..memmem::find(rest, END).ok_or(PageError::NoReport)?];
    let report: Report = serde_json::from_slice(json)?;
    match report.schema.as_str() {
        REPORT_SCHEMA => Ok(report),
        other => Err(PageError::Schema(other.to_owned())),
    }
}
