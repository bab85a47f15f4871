// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a test says that it could not run here.
//!
//! `scripts/test` names files in `DEBURR_SKIPPED` and `DEBURR_INCONCLUSIVE`; what is noted there is counted and shown
//! with its reason.
//! It lists in `DEBURR_REQUIRE` the tiers that must run on this machine.

#![allow(dead_code, unused_imports, reason = "each test program uses a part of this")]

mod fitness;

pub(crate) use fitness::{Fitness, tried, tried_times};
use std::io::Write as _;

/// Notes that `test` of `tier` (`program`, `kernel`, `lab`, `replay`) did not run, and why.
///
/// To be followed by `return`.
pub(crate) fn skip(tier: &str, test: &str, reason: &str) {
    eprintln!("skipped {test}: {reason}");
    note("DEBURR_SKIPPED", tier, test, reason);
}

/// Notes that `test` of `tier` did not see what it expected, again and again, on a machine that was not fit to tell
/// why: it neither passed nor failed.
///
/// To be followed by `return`. Where nobody counts it (`DEBURR_INCONCLUSIVE`), the test fails: it shall not be taken
/// for one that passed.
pub(crate) fn inconclusive(tier: &str, test: &str, reason: &str) {
    assert!(note("DEBURR_INCONCLUSIVE", tier, test, reason), "{test} is inconclusive: {reason}");
    eprintln!("inconclusive {test}: {reason}");
}

/// Adds a line to the file that a variable names; whether it names one.
fn note(variable: &str, tier: &str, test: &str, reason: &str) -> bool {
    let Some(path) = std::env::var_os(variable) else { return false };
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(&path)
        .unwrap_or_else(|error| panic!("{variable} is a file: {error}"));
    // One write, so that lines of tests that run at the same time do not mix.
    let line = format!("{tier}\t{test}\t{}\n", reason.replace(['\n', '\t'], " "));
    file.write_all(line.as_bytes()).unwrap_or_else(|error| panic!("{variable}: {error}"));
    true
}

/// Whether this process is root. If not, the test is noted as skipped; where its tier had to run, it fails.
#[must_use]
pub(crate) fn root_or_skip(tier: &str, test: &str) -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    skip_or_fail(tier, test, "not root");
    false
}

/// Notes that `test` of `tier` could not run; where that tier had to run, it fails.
///
/// To be followed by `return`.
pub(crate) fn skip_or_fail(tier: &str, test: &str, reason: &str) {
    let required = std::env::var("DEBURR_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|r| r == tier), "{test} had to run here: {reason}");
    skip(tier, test, reason);
}
