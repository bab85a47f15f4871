// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of all rules: the registry, the golden inputs and their reports, cases that decide between rules, and
//! properties that hold for any input.

mod blamed_processes;
mod block;
mod cases;
mod chain_ends;
mod commands;
mod decoys;
mod disks;
mod fixtures;
mod held_in_kernel;
mod host_sleeps;
mod hosts;
mod in_request;
mod interpreter;
mod interrupts;
mod memory;
mod memory_holders;
mod memory_remedies;
mod network;
mod overhead;
mod own_requests;
mod pages;
mod policies;
mod profile;
mod promises;
mod properties;
mod registry;
mod rhythms;
mod runtime_stops;
mod runtimes;
mod scenes;
mod stalled;
mod steal;
mod stopped;
mod syscalls;
mod tables;
mod tails;
mod tasks;
mod waiting;

use super::{RULES, of_recordings, report};
use crate::finding::Report;
use crate::render::{TextStyle, text};
use crate::testkit::Scene;
use std::fmt::Write as _;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn judged(scene: &Scene) -> Report {
    report(&scene.view(), "0.1.0", true)
}

/// Codes of the findings, in the report's order.
fn codes(report: &Report) -> Vec<&str> {
    report.findings.iter().map(|finding| finding.code.as_str()).collect()
}

/// The part of a report about one code; the ledgers only if it fired.
fn about(report: &Report, code: &str) -> Report {
    let mut report = report.clone();
    report.findings.retain(|finding| finding.code == code);
    report.ruled_out.retain(|item| item.code == code);
    report.not_checked.retain(|item| item.code == code);
    if report.findings.is_empty() {
        report.ledger.clear();
    }
    report
}

fn shown(report: &Report) -> String {
    text(report, TextStyle { columns: 100, color: false, verbosity: 1 })
}

/// Content of a golden file, which `UPDATE=1 cargo test` rewrites; empty if there is none.
#[allow(clippy::disallowed_methods, reason = "golden files are read and written")]
fn kept(path: &str, now: &str) -> String {
    let path = format!("{ROOT}/{path}");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(path.rsplit_once('/').expect("a folder").0).unwrap();
        std::fs::write(&path, now).unwrap();
    }
    std::fs::read_to_string(&path).unwrap_or_default()
}

/// The lines in which a golden file and the current output differ.
fn diff(path: &str, kept: &str, now: &str) -> String {
    let mut out = String::new();
    let (mut kept, mut now) = (kept.lines(), now.lines());
    for line in 1.. {
        match (kept.next(), now.next()) {
            (None, None) => break,
            (a, b) if a == b => {}
            (a, b) => {
                for (sign, side) in [('-', a), ('+', b)] {
                    if let Some(side) = side {
                        let _ = writeln!(out, "{path}:{line}: {sign} {side}");
                    }
                }
            }
        }
    }
    out
}
