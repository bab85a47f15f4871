// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr compare`: what it refuses, its exit statuses, and its document.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::program::{refuse, run, scratch, stdout};
use crate::repo::root;
use serde_json::Value;
use std::collections::BTreeSet;
use tempfile::TempDir;

/// Copies a kept recording, because `deburr` runs as a user who may not be able to read the repository.
fn kept(folder: &TempDir, name: &str) -> String {
    let bytes =
        std::fs::read(root().join("fixtures/lab").join(name).join("recording.deburr")).unwrap();
    let path = folder.path().join(format!("{name}.deburr"));
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn what_is_no_recording_is_refused_by_name() {
    let folder = scratch();
    let good = kept(&folder, "healthy");
    let text = folder.path().join("text");
    std::fs::write(&text, "hello").unwrap();
    let text = text.to_str().unwrap();
    for arguments in [&[&*good, "/nonexistent/b"], &["/nonexistent/b", &good]] {
        let message = refuse(&[&["compare"][..], arguments].concat());
        assert!(message.contains("/nonexistent/b"), "{message}");
    }
    assert!(refuse(&["compare", &good, text]).contains(text));
    assert!(refuse(&["compare", &good]).contains("<B>"));
}

#[test]
fn a_recording_does_not_differ_from_itself_and_a_short_one_proves_nothing() {
    let folder = scratch();
    let [long, short, slow] =
        ["writeback", "healthy", "neighbour-8"].map(|name| kept(&folder, name));
    let alike = stdout(&run(&["compare", &long, &long, "--fail-on", "info"], 0));
    assert!(alike.starts_with("no difference that this much data can show"), "{alike}");
    let text = stdout(&run(&["compare", &short, &slow, "--fail-on", "info"], 0));
    assert!(text.starts_with("too short to compare") && text.contains("new[SCH001]"), "{text}");
}

#[test]
fn the_recordings_of_a_lab_go_into_two_files() {
    let folder = scratch();
    let file = folder.path().join("x.deburr");
    let file = file.to_str().unwrap();
    let arguments = ["lab", "run", "neighbour-4", "--keep", file, "--keep-control", file];
    assert!(refuse(&arguments).contains("the same file"));
    assert!(refuse(&["lab", "run", "neighbour-4", "--force"]).contains("--keep-control"));
}

/// The page describes every field of a document.
#[test]
fn every_field_has_a_line() {
    let folder = scratch();
    let [a, b] = ["neighbour-8", "writeback"].map(|name| kept(&folder, name));
    let mut names = BTreeSet::new();
    for (a, b) in [(&a, &b), (&b, &b)] {
        let document = stdout(&run(&["compare", "--json", a, b], 0));
        let document: Value = serde_json::from_str(&document).unwrap();
        assert_eq!(document["schema"], "deburr.compare/1");
        collect(&document, &mut names);
    }
    let page = std::fs::read_to_string(root().join("docs/compare.md")).unwrap();
    let marked: BTreeSet<&str> = page
        .split('`')
        .skip(1)
        .step_by(2)
        .flat_map(|text| text.split(|c: char| !c.is_alphanumeric() && c != '_'))
        .collect();
    names.retain(|name| !marked.contains(name.as_str()));
    assert!(names.is_empty(), "docs/compare.md does not say what these are: {names:?}");
}

fn collect(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                // Described in docs/report.md.
                if !["host", "window", "target", "victim", "process", "latency"]
                    .contains(&name.as_str())
                {
                    collect(value, names);
                }
                names.insert(name.clone());
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, names)),
        _ => {}
    }
}
