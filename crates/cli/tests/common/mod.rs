// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a test reports that it could not run here, or that it had no result.
//!
//! `scripts/test` names files in `DEBURR_SKIPPED` and `DEBURR_INCONCLUSIVE`. It counts the tests that are noted there and
//! shows them with their reasons, and those in `DEBURR_UNSTEADY`, which have passed. `DEBURR_REQUIRE` lists the tiers that must run on this machine.

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

/// Notes that all tries of `test` of `tier` failed while the machine was unfit: the test neither passed nor failed.
///
/// To be followed by `return`. If `DEBURR_INCONCLUSIVE` is not set, nothing counts the test, so it fails rather than
/// look like one that passed.
pub(crate) fn inconclusive(tier: &str, test: &str, reason: &str) {
    assert!(note("DEBURR_INCONCLUSIVE", tier, test, reason), "{test} is inconclusive: {reason}");
    eprintln!("inconclusive {test}: {reason}");
}

/// Notes that `test` of `tier` failed once without a reason that is known, and then passed each time it was run again.
pub(crate) fn unsteady(tier: &str, test: &str, reason: &str) {
    eprintln!("unsteady {test}: {reason}");
    note("DEBURR_UNSTEADY", tier, test, reason);
}

/// Adds a line to the file that an environment variable names. Returns whether the variable is set.
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

/// Whether this process is root. If not, the test is noted as skipped, or fails if its tier must run here.
#[must_use]
pub(crate) fn root_or_skip(tier: &str, test: &str) -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    skip_or_fail(tier, test, "not root");
    false
}

/// Notes that `test` of `tier` could not run, or fails if that tier must run here.
///
/// To be followed by `return`.
pub(crate) fn skip_or_fail(tier: &str, test: &str, reason: &str) {
    let required = std::env::var("DEBURR_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|r| r == tier), "{test} had to run here: {reason}");
    skip(tier, test, reason);
}
