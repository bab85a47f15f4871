// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares two measurements: which calls are more frequent, which take longer per call, and how many seconds each of
//! these explains.

use super::profile::{Profile, SCHEMA, Subject};
use crate::finding::Tool;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Identifier of the document's schema.
pub const DIFF_SCHEMA: &str = "deburr.syscalls-diff/1";

/// Difference of two measurements, B minus A, in terms of their mean runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// [`DIFF_SCHEMA`].
    pub schema: String,
    /// The program that compared.
    pub tool: Tool,
    /// The first measurement.
    pub a: Side,
    /// The second measurement.
    pub b: Side,
    /// Differences by call, largest difference in seconds first.
    pub syscalls: Vec<RowChange>,
    /// Differences by file, in the same order. The seconds of a file are also contained in those of calls.
    pub files: Vec<RowChange>,
    /// Limitations of the comparison.
    pub notes: Vec<String>,
}

/// One of the two measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Name of the host.
    pub host: String,
    /// Kernel of the host.
    pub kernel: String,
    /// Start time, RFC 3339.
    pub start: String,
    /// The processes that were traced.
    pub subject: Subject,
    /// Number of runs; 1 if no command was started.
    pub runs: u64,
    /// Wall time per run.
    pub wall_ns: u64,
    /// User CPU time per run; absent if no command was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_ns: Option<u64>,
    /// System CPU time per run; absent if no command was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_ns: Option<u64>,
    /// Number of calls per run.
    pub calls: f64,
    /// Time in calls per run.
    pub calls_ns: u64,
}

/// Main cause of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// Occurs in B only.
    New,
    /// Occurs in A only.
    Gone,
    /// More or fewer calls.
    Count,
    /// Each call takes a longer or shorter time.
    Cost,
}

/// Difference of one call or file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowChange {
    /// Name of the call, or path of the file.
    pub name: String,
    /// Main cause of the difference.
    pub kind: ChangeKind,
    /// Number of calls per run of A.
    pub calls_a: f64,
    /// Number of calls per run of B.
    pub calls_b: f64,
    /// Mean duration of a call in A; 0 = no calls.
    pub mean_ns_a: u64,
    /// Mean duration of a call in B; 0 = no calls.
    pub mean_ns_b: u64,
    /// Time per run in B minus time per run in A, in seconds.
    pub seconds: f64,
    /// Part of `seconds` that is due to the number of calls, at the mean duration in A; all of it if the row occurs in
    /// B only.
    pub by_count_s: f64,
    /// Part of `seconds` that is due to the mean duration of a call.
    pub by_cost_s: f64,
}

/// Number of calls and nanoseconds per run in both measurements.
#[derive(Clone, Copy, Debug, Default)]
struct BothTotals {
    a: (f64, f64),
    b: (f64, f64),
}

impl Difference {
    /// Compares two measurements.
    #[must_use]
    pub fn new(a: &Profile, b: &Profile, tool_version: &str) -> Self {
        let mut calls: BTreeMap<&str, BothTotals> = BTreeMap::new();
        let mut files: BTreeMap<&str, BothTotals> = BTreeMap::new();
        let runs = |of: &Profile| of.setup.runs.len().max(1) as f64;
        let each =
            |of: &Profile, calls: u64, ns: u64| (calls as f64 / runs(of), ns as f64 / runs(of));
        for row in &a.syscalls {
            calls.entry(&row.name).or_default().a = each(a, row.calls, row.times.total_ns);
        }
        for row in &b.syscalls {
            calls.entry(&row.name).or_default().b = each(b, row.calls, row.times.total_ns);
        }
        // Two long paths may have the same end: their rows are summed.
        for row in &a.files {
            add(&mut files.entry(&row.path).or_default().a, each(a, row.calls, row.times.total_ns));
        }
        for row in &b.files {
            add(&mut files.entry(&row.path).or_default().b, each(b, row.calls, row.times.total_ns));
        }
        Self {
            schema: DIFF_SCHEMA.into(),
            tool: Tool { version: tool_version.into() },
            a: side(a),
            b: side(b),
            syscalls: rows(&calls),
            files: rows(&files),
            notes: notes(a, b),
        }
    }
}

fn add(to: &mut (f64, f64), more: (f64, f64)) {
    to.0 += more.0;
    to.1 += more.1;
}

fn side(of: &Profile) -> Side {
    let runs = of.setup.runs.len().max(1) as u64;
    let started = !of.setup.runs.is_empty();
    let mean = |ns: fn(&super::Run) -> u64| of.setup.runs.iter().map(ns).sum::<u64>() / runs;
    Side {
        host: of.setup.host.name.clone(),
        kernel: of.setup.host.kernel.clone(),
        start: of.setup.start.clone(),
        subject: of.setup.subject.clone(),
        runs,
        wall_ns: if started { mean(|run| run.wall_ns) } else { of.setup.window_ns },
        user_ns: started.then(|| mean(|run| run.user_ns)),
        system_ns: started.then(|| mean(|run| run.system_ns)),
        calls: of.calls as f64 / runs as f64,
        calls_ns: of.times.total_ns / runs,
    }
}

fn rows(of: &BTreeMap<&str, BothTotals>) -> Vec<RowChange> {
    let mut all: Vec<RowChange> = of.iter().filter_map(|(name, both)| row(name, both)).collect();
    // The sort is stable: ties stay in the order of their names.
    all.sort_by_key(|row| Reverse((row.seconds.abs() * 1e9) as u64));
    all
}

fn row(name: &str, BothTotals { a, b }: &BothTotals) -> Option<RowChange> {
    if a == b {
        return None;
    }
    let mean = |(calls, ns): &(f64, f64)| if *calls > 0.0 { ns / calls } else { 0.0 };
    let (mean_a, mean_b) = (mean(a), mean(b));
    let ns = b.1 - a.1;
    // (calls_b - calls_a) * mean_a + calls_b * (mean_b - mean_a) = total_b - total_a
    let by_count = if a.0 > 0.0 { (b.0 - a.0) * mean_a } else { ns };
    let by_cost = ns - by_count;
    let kind = match () {
        () if a.0 == 0.0 => ChangeKind::New,
        () if b.0 == 0.0 => ChangeKind::Gone,
        () if by_count.abs() >= by_cost.abs() => ChangeKind::Count,
        () => ChangeKind::Cost,
    };
    Some(RowChange {
        name: name.into(),
        kind,
        calls_a: a.0,
        calls_b: b.0,
        mean_ns_a: mean_a as u64,
        mean_ns_b: mean_b as u64,
        seconds: ns / 1e9,
        by_count_s: by_count / 1e9,
        by_cost_s: by_cost / 1e9,
    })
}

fn notes(a: &Profile, b: &Profile) -> Vec<String> {
    let mut notes = Vec::new();
    if a.setup.subject != b.setup.subject {
        notes.push("the two are not of the same command or process".into());
    }
    for (name, of) in [("A", a), ("B", b)] {
        if of.setup.runs.len() == 1 {
            notes.push(format!("{name} is one run: how much runs differ is not known (-r 10)"));
        }
        if of.more_files.calls > 0 {
            notes.push(format!("not all files of {name} have a row"));
        }
        if of.setup.interrupted {
            notes.push(format!("{name} was ended early"));
        }
    }
    if a.setup.runs.is_empty()
        && a.setup.window_ns.abs_diff(b.setup.window_ns) > a.setup.window_ns / 10
    {
        notes.push("the two are not equally long".into());
    }
    notes
}

impl Profile {
    /// Parses a document.
    ///
    /// # Errors
    /// If the text is not JSON, another kind of document, or a newer version. The error is part of a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|error| format!("not JSON, or cut off: {error}"))?;
        match value.get("schema").and_then(serde_json::Value::as_str) {
            Some(SCHEMA) => {}
            Some(other) => {
                return Err(format!("a document of the kind `{other}`, not `{SCHEMA}`"));
            }
            None => return Err(format!("no document of the kind `{SCHEMA}`")),
        }
        serde_json::from_value(value)
            .map_err(|error| format!("says that it is `{SCHEMA}`, but: {error}"))
    }
}
