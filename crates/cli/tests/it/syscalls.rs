// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr syscalls`: what it refuses, the difference of two results, and whether `docs/syscalls.md` is complete.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::program::{refuse, run, scratch, stdout};
use crate::repo::root;
use serde_json::Value;
use std::collections::BTreeSet;

const GOOD: &str = "fixtures/syscalls/good.json";
const BAD: &str = "fixtures/syscalls/bad.json";

fn path(name: &str) -> String {
    root().join(name).display().to_string()
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (arguments, expected) in [
        (&[][..], "--pid"),
        (&["-p", "1", "--", "true"], "cannot be used with"),
        (&["-p", "1", "-r", "3"], "cannot be used with"),
        (&["-d", "3", "--", "true"], "cannot be used with"),
        (&["-r", "0", "--", "true"], "1..=1000"),
        (&["-p", "999999999"], "999999999"),
        (&["--comm", "no-such-name-here"], "no-such-name-here"),
        (&["--diff", "a.json"], "2 values"),
        (&["--diff", "/no/such", "b.json"], "/no/such"),
    ] {
        let message = refuse(&[&["syscalls"], arguments].concat());
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
}

#[test]
fn without_privileges_it_says_what_is_missing() {
    let output = run(&["syscalls", "--", "true"], 3);
    assert!(crate::program::stderr(&output).contains("root"));
}

/// A small version of incident 5: the same command on a good and on a bad host.
#[test]
fn the_difference_names_the_slow_file_first() {
    let text = stdout(&run(&["syscalls", "--diff", &path(GOOD), &path(BAD)], 0));
    let rows = |heading: &str| {
        let mut lines = text.lines().skip_while(|line| *line != heading);
        lines.nth(2).unwrap_or_default().to_owned()
    };
    assert!(rows("by call").ends_with("read"), "{text}");
    assert!(rows("by file").contains("/cpufreq/"), "{text}");
    let json = stdout(&run(&["syscalls", "--json", "--diff", &path(GOOD), &path(BAD)], 0));
    let document: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(document["schema"], "deburr.syscalls-diff/1");
    assert_eq!(document["files"][0]["kind"], "new");
    let seconds: Vec<f64> = document["syscalls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["seconds"].as_f64().unwrap().abs())
        .collect();
    assert!(seconds.len() > 1 && seconds.is_sorted_by(|a, b| a >= b), "{seconds:?}");
}

#[test]
fn a_bad_document_is_refused_by_name() {
    let dir = scratch();
    let whole = std::fs::read(root().join(GOOD)).unwrap();
    let report = br#"{"schema": "deburr.report/1"}"#;
    for (name, content, expected) in [
        ("empty.json", &b""[..], "not JSON"),
        ("cut.json", &whole[..whole.len() / 2], "cut off"),
        ("bytes.json", &b"\xff\xfe\x00"[..], "UTF-8"),
        ("report.json", &report[..], "deburr.report/1"),
        ("newer.json", &br#"{"schema": "deburr.syscalls/9"}"#[..], "deburr.syscalls/9"),
        ("list.json", &b"[1, 2]"[..], "no document"),
    ] {
        let file = dir.path().join(name);
        std::fs::write(&file, content).unwrap();
        let file = file.display().to_string();
        for arguments in [[&path(GOOD), &file], [&file, &path(GOOD)]] {
            let message = refuse(&["syscalls", "--diff", arguments[0], arguments[1]]);
            assert!(message.contains(expected) && message.contains(name), "{message}");
        }
    }
    let message = refuse(&["syscalls", "--diff", &dir.path().display().to_string(), &path(GOOD)]);
    assert!(message.contains("Is a directory"), "{message}");
}

/// The page describes every field of the documents.
#[test]
fn every_field_has_a_line() {
    let page = std::fs::read_to_string(root().join("docs/syscalls.md")).unwrap();
    let mut names = BTreeSet::new();
    for file in [GOOD, BAD] {
        let example = std::fs::read_to_string(root().join(file)).unwrap();
        collect(&serde_json::from_str(&example).unwrap(), &mut names);
    }
    let missing: Vec<_> =
        names.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/syscalls.md does not say what these are: {missing:?}");
}

/// Leaves out the fields of findings: `docs/report.md` describes them.
fn collect(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                names.insert(name.clone());
                if !["findings", "ruled_out", "not_checked"].contains(&name.as_str()) {
                    collect(value, names);
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, names)),
        _ => {}
    }
}
