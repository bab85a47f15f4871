// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A page that somebody wrote: what it was made from is shown again, as text, as JSON and as another page.

use crate::judged::{STYLE, visible};
use crate::store;
use deburr_core::compare::{Plan, Summary, compare};
use deburr_core::host_diff::{HostInput, Measured};
use deburr_core::render::{self, InPage, MOST_PAGE_BYTES};
use deburr_core::rules;
use deburr_core::snapshot::Snapshot;
use deburr_core::transcript::{Given, Reader};
use deburr_core::view::Fold;
use std::path::Path;

pub(crate) fn read(data: &[u8]) -> bool {
    let read = match render::read_page(data) {
        Ok(read) => read,
        Err(error) => {
            visible(&render::message(&error.to_string()));
            return false;
        }
    };
    let (text, json, page) = shown(&read);
    visible(&text);
    visible(&json);
    visible(&page);
    assert!(page.len() <= MOST_PAGE_BYTES, "a page of {} bytes", page.len());
    // The script of the renderer is only in pages of what happened when, which no page holds.
    let (scripts, documents) =
        (page.matches("<script").count(), page.matches("json\" id=").count());
    assert_eq!(scripts, documents, "a script that is not a document: {page}");
    // The document is left out of a page that would be too large.
    if documents > 0 {
        let again = render::read_page(page.as_bytes());
        assert_eq!(again.as_ref().ok(), Some(&read), "it was written and read");
    }
    true
}

fn shown(read: &InPage) -> (String, String, String) {
    let written = "numbers are finite";
    match read {
        InPage::Report(report, check) => (
            render::text(report, STYLE),
            render::json(report).expect(written),
            render::html(report, None, check.as_deref()).expect(written),
        ),
        InPage::Check(it) => (
            render::cpu_check(it, STYLE),
            render::json_document(it).expect(written),
            render::cpu_check_html(it).expect(written),
        ),
        InPage::Sweep(it) => (
            render::sweep_text(it, STYLE),
            render::json_document(it).expect(written),
            render::sweep_html(it).expect(written),
        ),
        InPage::Comparison(it) => (
            render::comparison(it, STYLE),
            render::json_document(it).expect(written),
            render::comparison_html(it).expect(written),
        ),
        InPage::Read(it) => (
            render::read_text(it, STYLE),
            render::json_document(it).expect(written),
            render::read_html(it).expect(written),
        ),
        InPage::HostDiff(it) => (
            render::host_diff(it, STYLE),
            render::json_document(it).expect(written),
            render::host_diff_html(it).expect(written),
        ),
        InPage::Experiment(it) => (
            render::experiment(it, STYLE),
            render::json_document(it).expect(written),
            render::experiment_html(it).expect(written),
        ),
    }
}

/// What `deburr compare` says of two recordings, as JSON.
///
/// # Errors
/// If one of them cannot be read.
pub fn comparison(recordings: [&Path; 2]) -> Result<String, String> {
    let [a, b] = recordings.map(store::read_file);
    let sides = [a?, b?];
    let [a, b] = [0, 1].map(|side: usize| {
        let mut fold = Fold::default();
        sides[side].iter().for_each(|record| fold.push(record));
        Summary::of(fold.view(), rules::report(fold.view(), "0.1.0", false))
    });
    let plan = Plan::new(a, b);
    let mut series = [plan.series(0), plan.series(1)];
    for (series, records) in series.iter_mut().zip(&sides) {
        records.iter().for_each(|record| series.push(record));
    }
    let found = compare(&plan, [&series[0], &series[1]], ["a", "b"], "0.1.0");
    render::json_document(&found).map_err(|error| error.to_string())
}

/// What `deburr diff` says of two snapshots, the second of a slow host, as JSON.
///
/// # Errors
/// If one of them cannot be read.
pub fn host_diff(snapshots: [&Path; 2]) -> Result<String, String> {
    let read = |path: &Path| {
        let document = std::fs::read(path).map_err(|error| error.to_string())?;
        Snapshot::parse(&document).map_err(|error| error.to_string())
    };
    let [a, b] = snapshots.map(read);
    let snapshots = [a?, b?];
    let host =
        |(snapshot, slow)| HostInput { snapshot, label: "a", slow: Some(slow), golden: false };
    let hosts: Vec<HostInput<'_>> = snapshots.iter().zip([false, true]).map(host).collect();
    let times = [(0, 0.11, [0.01, 0.10]), (1, 5.87, [0.05, 5.80])];
    let measured = times.map(|(host, wall, cpu)| Measured::time(host, wall, Some(cpu)));
    let found = rules::diff(&hosts, &measured, "0.1.0");
    render::json_document(&found).map_err(|error| error.to_string())
}

/// What `deburr read` says of the output of another tool, as JSON.
///
/// # Errors
/// If it cannot be read.
pub fn transcript(text: &Path) -> Result<String, String> {
    let text = std::fs::read(text).map_err(|error| error.to_string())?;
    let mut reader = Reader::new(Given { cpus: Some(4), interval_s: None });
    reader.file("a");
    text.split(|&byte| byte == b'\n').for_each(|line| reader.line(line));
    render::json_document(&reader.finish("0.1.0").document).map_err(|error| error.to_string())
}
