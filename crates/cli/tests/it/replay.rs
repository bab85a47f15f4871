// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Applies every rule to every recording that the lab made on a real kernel (`fixtures/lab`): a finding that is new, is
//! gone, or names another culprit shows as a difference.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use assert_cmd::cargo::cargo_bin_cmd;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Minimum share of the loss for a cause to be listed: smaller ones come and go with details of a rule.
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

/// Scenarios whose recordings are kept: all that do not say otherwise.
fn kept_scenarios() -> BTreeSet<String> {
    let mut names = names_in("lab/scenarios");
    names.retain(|name| {
        let file = root().join("lab/scenarios").join(format!("{name}.toml"));
        !std::fs::read_to_string(file).unwrap().lines().any(|line| line == "kept = false")
    });
    names
}

/// The findings of a report that are not `info`, with victims and causes but without amounts: what the scenario is
/// about.
fn complaints(report: &Value) -> String {
    let mut text = String::new();
    let findings = report["findings"].as_array().unwrap();
    for finding in findings.iter().filter(|finding| finding["severity"] != "info") {
        let [code, severity] = ["code", "severity"].map(|key| finding[key].as_str().unwrap());
        let _ = writeln!(text, "{code} {severity}: {}", entity(&finding["victim"]));
        for cause in finding["causes"].as_array().into_iter().flatten() {
            if cause["share"].as_f64().unwrap() >= NAMED_FROM {
                let _ = writeln!(text, "  {}", entity(cause));
            }
        }
    }
    text
}

/// What each rule answered, over all recordings: a line for each code and answer, so that a new rule adds lines and
/// changes none.
#[derive(Default)]
struct Answers(BTreeMap<String, BTreeMap<&'static str, BTreeSet<String>>>);

impl Answers {
    fn add(&mut self, scenario: &str, report: &Value) {
        let kinds =
            [("findings", "found"), ("ruled_out", "ruled out"), ("not_checked", "not checked")];
        for (list, answer) in kinds {
            for line in report[list].as_array().unwrap() {
                let answers = self.0.entry(line["code"].as_str().unwrap().to_owned()).or_default();
                answers.entry(answer).or_default().insert(scenario.to_owned());
            }
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (code, answers) in &self.0 {
            for (answer, scenarios) in answers {
                let scenarios: Vec<&str> = scenarios.iter().map(String::as_str).collect();
                let _ = writeln!(text, "{code} {answer}: {}", scenarios.join(" "));
            }
        }
        text
    }
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

/// The difference between a kept text and what it would be now; empty if there is none. With `UPDATE`, the kept text is
/// rewritten.
fn difference(file: &str, now: &str) -> String {
    let path = root().join(file);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, now).unwrap();
        return String::new();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    if kept == now { String::new() } else { format!("{file}, kept:\n{kept}\nnow:\n{now}\n") }
}

#[test]
fn kept_recordings_yield_the_same_findings_as_ever() {
    let (mut differences, mut answers) = (String::new(), Answers::default());
    for name in names_in("fixtures/lab") {
        let recording = root().join("fixtures/lab").join(&name).join("recording.deburr");
        let output =
            cargo_bin_cmd!("deburr").args(["report", "--json"]).arg(recording).output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        answers.add(&name, &report);
        differences +=
            &difference(&format!("fixtures/lab/{name}/findings.txt"), &complaints(&report));
    }
    differences += &difference("fixtures/lab-answers.txt", &answers.text());
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
        // Thousands of files take long to be written back: as long as they take to expire twice.
        let most = if name == "writeback" { 2_500_000 } else { 1_000_000 };
        assert!(bytes < most, "{name}: {bytes} bytes are much to carry along");
    }
    let kept = names_in("fixtures/lab");
    let of_nothing: Vec<_> = kept.difference(&scenarios).collect();
    assert!(of_nothing.is_empty(), "not of a scenario: {of_nothing:?}");
}
