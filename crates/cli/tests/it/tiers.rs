// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How `scripts/test` counts what its test programs say: what came to no result has neither passed nor failed.

use std::path::Path;
use std::process::{Command, Output};

/// Accounts for a tier of which `log` was printed, `status` was the end, and `inconclusive` was noted.
fn account(log: &str, status: &str, inconclusive: &str) -> (Output, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let (log_file, notes) = (dir.path().join("log"), dir.path().join("notes"));
    std::fs::write(&log_file, log).expect("a file");
    std::fs::write(&notes, inconclusive).expect("a file");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/test");
    let output = Command::new(script)
        .args(["--account", "3", "lab"])
        .arg(&log_file)
        .arg(status)
        .arg(&notes)
        .env("DEBURR_REQUIRE", "lab")
        .output()
        .expect("the script runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, said)
}

const LOG: &str = "test lab::pinned ... ok\ntest lab::quota ... ok\n\
                   test result: ok. 25 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";

#[test]
fn what_is_inconclusive_is_counted_and_named_and_has_not_passed() {
    let (output, said) =
        account(LOG, "0", "lab\tpinned\t3 tries; half was stolen\nkernel\tother\tno\n");
    assert!(output.status.success(), "{said}");
    for line in [
        "3 lab        24 passed, 0 failed, 0 skipped, 1 inconclusive",
        "      inconclusive pinned: 3 tries; half was stolen",
        "24 passed, 0 failed, 0 skipped, 1 inconclusive",
    ] {
        assert!(said.lines().any(|said| said == line), "`{line}` is not in: {said}");
    }
    assert!(!said.contains("ATTENTION"), "one of 25: {said}");
}

#[test]
fn a_tenth_without_a_result_is_said_loudly() {
    let notes: String = ["a", "b", "c"].map(|name| format!("lab\t{name}\tit is stolen\n")).concat();
    let (output, said) = account(LOG, "0", &notes);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("ATTENTION: 3 of 25 tests of tier 3 (lab)"), "{said}");
}

#[test]
fn a_failure_is_one_whatever_else_is_inconclusive() {
    let log =
        LOG.replace("quota ... ok", "quota ... FAILED").replace("25 passed; 0", "24 passed; 1");
    let (output, said) = account(&log, "101", "lab\tpinned\tit is stolen\n");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("23 passed, 1 failed, 0 skipped, 1 inconclusive"), "{said}");
    assert!(said.contains("failed lab::quota"), "{said}");
}

#[test]
fn a_tier_that_had_to_run_and_did_not_is_a_failure() {
    let (output, said) = account("", "0", "");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("this tier had to run here and nothing of it did"), "{said}");
}
