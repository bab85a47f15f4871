// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report within a page: where it is, and how it is read back. A page may be anybody's.

use crate::cpu_check::document::{self, Document};
use crate::finding::{REPORT_SCHEMA, Report};
use memchr::memmem;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Ids of the elements that hold the documents.
pub(super) const REPORT: &str = "deburr-report";
pub(super) const CHECK: &str = "deburr-cpu-check";
pub(super) const SWEEP: &str = "deburr-sweep";
pub(super) const COMPARISON: &str = "deburr-compare";
pub(super) const READ: &str = "deburr-read";
pub(super) const HOST_DIFF: &str = "deburr-diff";
/// What a page begins with.
pub(super) const DOCTYPE: &str = "<!doctype html>";
const END: &[u8] = b"</script>";

/// Maximum size of a page that is read. Pages have less than 500 kB as a rule.
pub const MAX_PAGE_BYTES: u64 = 8 << 20;

/// What a page holds; at least one of them.
#[derive(Clone, Debug, PartialEq)]
pub struct InPage {
    /// The report that it shows.
    pub report: Option<Report>,
    /// The check of CPUs that it shows.
    pub check: Option<Document>,
}

/// Why a page cannot be read.
#[derive(Debug, Error)]
pub enum PageError {
    /// It holds no document.
    #[error("holds no report of deburr: it is another page, or was cut short")]
    Nothing,
    /// It shows something else.
    #[error("is not read back: its document is in the page, in the element `{0}`")]
    Other(&'static str),
    /// Its document is not one.
    #[error("holds a document that cannot be read: {0}")]
    Broken(#[from] serde_json::Error),
    /// Its document has another schema.
    #[error("holds a document of the schema `{0}`, which this version does not know")]
    Schema(String),
}

/// Whether a file that begins like this is an HTML page.
#[must_use]
pub fn is_page(start: &[u8]) -> bool {
    start.get(..DOCTYPE.len()).is_some_and(|it| it.eq_ignore_ascii_case(DOCTYPE.as_bytes()))
}

/// What a page was made from.
///
/// # Errors
/// If it holds no document, or one that cannot be read.
pub fn read_page(page: &[u8]) -> Result<InPage, PageError> {
    let report: Option<Report> = document(page, REPORT)?;
    let check: Option<Document> = document(page, CHECK)?;
    let schemas = [
        report.as_ref().map(|it| (&it.schema, REPORT_SCHEMA)),
        check.as_ref().map(|it| (&it.schema, document::SCHEMA)),
    ];
    if let Some((other, _)) = schemas.into_iter().flatten().find(|(is, known)| *is != known) {
        return Err(PageError::Schema(other.clone()));
    }
    match (&report, &check) {
        (None, None) => {
            let is_there = |id: &&str| memmem::find(page, start(id).as_bytes()).is_some();
            let other = [SWEEP, COMPARISON, READ, HOST_DIFF].into_iter().find(is_there);
            Err(other.map_or(PageError::Nothing, PageError::Other))
        }
        _ => Ok(InPage { report, check }),
    }
}

/// The start tag of an element with a document, as every page has it.
pub(super) fn start(id: &str) -> String {
    format!("<script type=\"application/json\" id=\"{id}\">")
}

/// The document in the first element of that id; `None` without one that is closed.
fn document<T: DeserializeOwned>(page: &[u8], id: &str) -> Result<Option<T>, PageError> {
    let start = start(id);
    let Some(at) = memmem::find(page, start.as_bytes()) else { return Ok(None) };
    let rest = &page[at + start.len()..];
    let Some(end) = memmem::find(rest, END) else { return Ok(None) };
    Ok(Some(serde_json::from_slice(&rest[..end])?))
}
