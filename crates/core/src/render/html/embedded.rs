// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report within a page: where it is, and how it is read back. A page may be anybody's.

use crate::compare::document::Comparison;
use crate::cpu_check::document::Document;
use crate::finding::{REPORT_SCHEMA, Report};
use crate::host_diff::document::HostDiff;
use crate::prove::outcome::Outcome;
use crate::sweep::Sweep;
use crate::{compare, cpu_check, host_diff, prove, sweep, transcript};
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
pub(super) const EXPERIMENT: &str = "deburr-prove";
/// What a page begins with.
pub(super) const DOCTYPE: &str = "<!doctype html>";
const END: &[u8] = b"</script>";

/// Maximum size of a page that is read. Pages have less than 500 kB as a rule.
pub const MAX_PAGE_BYTES: u64 = 8 << 20;

/// What a page was made from.
#[derive(Clone, Debug, PartialEq)]
pub enum InPage {
    /// A report, with the check of CPUs if there was one.
    Report(Box<Report>, Option<Box<Document>>),
    /// A check of CPUs.
    Check(Box<Document>),
    /// A load sweep.
    Sweep(Box<Sweep>),
    /// A comparison of two recordings.
    Comparison(Box<Comparison>),
    /// What was read of transcripts.
    Read(Box<transcript::Document>),
    /// A comparison of hosts.
    HostDiff(Box<HostDiff>),
    /// An experiment.
    Experiment(Box<Outcome>),
}

/// Why a page cannot be read.
#[derive(Debug, Error)]
pub enum PageError {
    /// It holds no document.
    #[error("holds no report of deburr: it is another page, or was cut short")]
    Nothing,
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
    let report: Option<Box<Report>> = document(page, REPORT)?;
    let check: Option<Box<Document>> = document(page, CHECK)?;
    if let Some(report) = &report {
        known(&report.schema, REPORT_SCHEMA)?;
    }
    if let Some(check) = &check {
        known(&check.schema, cpu_check::document::SCHEMA)?;
    }
    match (report, check) {
        (Some(report), check) => return Ok(InPage::Report(report, check)),
        (None, Some(check)) => return Ok(InPage::Check(check)),
        (None, None) => {}
    }
    if let Some(sweep) = document::<Box<Sweep>>(page, SWEEP)? {
        known(&sweep.schema, sweep::SCHEMA)?;
        return Ok(InPage::Sweep(sweep));
    }
    if let Some(comparison) = document::<Box<Comparison>>(page, COMPARISON)? {
        known(&comparison.schema, compare::document::SCHEMA)?;
        return Ok(InPage::Comparison(comparison));
    }
    if let Some(read) = document::<Box<transcript::Document>>(page, READ)? {
        known(&read.schema, transcript::READ_SCHEMA)?;
        return Ok(InPage::Read(read));
    }
    if let Some(diff) = document::<Box<HostDiff>>(page, HOST_DIFF)? {
        known(&diff.schema, host_diff::document::SCHEMA)?;
        return Ok(InPage::HostDiff(diff));
    }
    if let Some(experiment) = document::<Box<Outcome>>(page, EXPERIMENT)? {
        known(&experiment.schema, prove::outcome::SCHEMA)?;
        return Ok(InPage::Experiment(experiment));
    }
    Err(PageError::Nothing)
}

fn known(schema: &str, known: &str) -> Result<(), PageError> {
    if schema == known { Ok(()) } else { Err(PageError::Schema(schema.to_owned())) }
}

/// The start tag of an element with a document, as every page has it.
pub(super) fn start(id: &str) -> String {
    format!("<script type=\"application/json\" id=\"{id}\">")
}

/// The document in the first element of that id; `None` without one that is closed.
pub(super) fn document<T: DeserializeOwned>(page: &[u8], id: &str) -> Result<Option<T>, PageError> {
    let start = start(id);
    let Some(at) = memmem::find(page, start.as_bytes()) else { return Ok(None) };
    let rest = &page[at + start.len()..];
    let Some(end) = memmem::find(rest, END) else { return Ok(None) };
    Ok(Some(serde_json::from_slice(&rest[..end])?))
}
