// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every rule over every recording that the lab made on a real kernel (`fixtures/lab`): a finding that is new,
//! gone, or blames somebody else shows as a difference.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use assert_cmd::cargo::cargo_bin_cmd;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Causes below this share of the loss come and go with details of a rule.
const NAMED_FROM: f64 = 0.1;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn names_in(dir: &str) -> BTreeSet<String> {
    std::fs::read_dir(root().join(dir))
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect()
}

/// Scenarios without a kept recording.
const NOT_KEPT: [&str; 16] = [
    "cpuset",
    "decoy-disk",
    "decoy-job",
    "decoy-other-cpu",
    "fork-storm",
    "fsync-crowd",
    "io-healthy",
    "io-rhythm",
    "overlay",
    "refault",
    "rt-hog",
    "short-quota",
    "starved",
    "sync-cron",
    "tail",
    "writeback-fast",
];

/// Scenarios whose recordings are kept.
fn kept_scenarios() -> BTreeSet<String> {
    let mut names = names_in("lab/scenarios");
    names.retain(|name| !NOT_KEPT.contains(&&**name));
    names
}

/// What a report says, without its amounts.
fn gist(report: &Value) -> String {
    let mut text = String::new();
    for finding in report["findings"].as_array().unwrap() {
        let [code, severity] = ["code", "severity"].map(|key| finding[key].as_str().unwrap());
        let _ = writeln!(text, "{code} {severity}: {}", entity(&finding["victim"]));
        for cause in finding["causes"].as_array().into_iter().flatten() {
            if cause["share"].as_f64().unwrap() >= NAMED_FROM {
                let _ = writeln!(text, "  {}", entity(cause));
            }
        }
    }
    for (key, name) in [("ruled_out", "ruled out"), ("not_checked", "not checked")] {
        let list = report[key].as_array().unwrap();
        let mut codes: Vec<_> = list.iter().map(|line| line["code"].as_str().unwrap()).collect();
        codes.sort_unstable();
        codes.dedup();
        let codes = if codes.is_empty() { "nothing".into() } else { codes.join(" ") };
        let _ = writeln!(text, "{name}: {codes}");
    }
    text
}

fn entity(entity: &Value) -> String {
    let mut text = entity["kind"].as_str().unwrap().to_owned();
    for key in ["comm", "cgroup", "cpu"] {
        match &entity[key] {
            Value::String(value) => write!(text, " {key} `{}`", value.escape_default()).unwrap(),
            Value::Number(value) => write!(text, " {key} {value}").unwrap(),
            _ => {}
        }
    }
    text
}

#[test]
fn kept_recordings_yield_the_same_findings_as_ever() {
    let mut differences = String::new();
    for name in names_in("fixtures/lab") {
        let dir = root().join("fixtures/lab").join(&name);
        if !dir.is_dir() {
            continue;
        }
        let output = cargo_bin_cmd!("deburr")
            .args(["report", "--json"])
            .arg(dir.join("recording.deburr"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
        let gist = gist(&serde_json::from_slice(&output.stdout).unwrap());
        let file = dir.join("findings.txt");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&file, gist).unwrap();
        } else {
            let kept = std::fs::read_to_string(&file).unwrap_or_default();
            if kept != gist {
                let _ = writeln!(differences, "{name}, kept:\n{kept}\n{name}, now:\n{gist}");
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{differences}if that is right: UPDATE=1 cargo test -p deburr --test it replay::"
    );
}

#[test]
fn kept_recordings_are_consistent() {
    for name in kept_scenarios() {
        let file = root().join("fixtures/lab").join(&name).join("recording.deburr");
        cargo_bin_cmd!("deburr").arg("check").arg(file).assert().success();
    }
}

#[test]
fn every_scenario_is_kept_and_says_where_it_is_from() {
    let scenarios = kept_scenarios();
    for name in &scenarios {
        let dir = root().join("fixtures/lab").join(name);
        for file in ["recording.deburr", "findings.txt", "PROVENANCE.md"] {
            assert!(dir.join(file).is_file(), "fixtures/lab/{name}/{file} is not there");
        }
        let bytes = std::fs::metadata(dir.join("recording.deburr")).unwrap().len();
        // The writeback of thousands of files takes as long as they take to expire twice.
        let most = if name == "writeback" { 2_500_000 } else { 1_000_000 };
        assert!(bytes < most, "{name}: {bytes} bytes are much to carry along");
    }
    let kept = names_in("fixtures/lab");
    let of_nothing: Vec<_> = kept.difference(&scenarios).collect();
    assert!(of_nothing.is_empty(), "not of a scenario: {of_nothing:?}");
}
