// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr doctor` on this machine, whatever it is and whichever user runs it.

use assert_cmd::cargo::cargo_bin_cmd;
use serde_json::Value;

#[test]
fn its_document_says_what_can_be_found_and_why_not() {
    let output = cargo_bin_cmd!("deburr").args(["doctor", "--json"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let checkup: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(checkup["schema"], "deburr.doctor/1");
    assert!(checkup["facts"]["kernel"].is_string());
    let sources = checkup["sources"].as_array().unwrap();
    let state = |source: &Value| {
        sources.iter().find(|line| line["source"] == *source).unwrap()["state"].clone()
    };
    for line in sources {
        let explained = line["reason"].is_string();
        assert_eq!(explained, line["state"] != "active", "{line}");
    }
    for finding in checkup["findings"].as_array().unwrap() {
        let without = finding["without"].as_array().unwrap();
        assert!(without.iter().all(|source| state(source) != "active"), "{finding}");
        assert!(finding["possible"] == "yes" || !without.is_empty(), "{finding}");
    }
}

#[test]
fn its_text_fits_and_has_no_colour_in_a_pipe() {
    let output = cargo_bin_cmd!("deburr").arg("doctor").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\nfindings that can be made\n"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 100) && !text.contains('\x1b'),
        "{text}"
    );
}
