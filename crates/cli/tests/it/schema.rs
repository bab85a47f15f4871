// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks reports against `docs/report.schema.json`, and the schema against `docs/report.md`.

use crate::repo::root;
use assert_cmd::cargo::cargo_bin_cmd;
use jsonschema::Validator;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn read(path: &str) -> Value {
    let text = std::fs::read_to_string(root().join(path)).expect("the file is there");
    serde_json::from_str(&text).expect("the file holds JSON")
}

fn schema() -> Validator {
    jsonschema::draft202012::new(&read("docs/report.schema.json")).expect("it is a schema")
}

fn assert_valid(name: &str, report: &Value) {
    let problems: Vec<String> =
        schema().iter_errors(report).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(problems.is_empty(), "{name}:\n{}", problems.join("\n"));
}

#[test]
fn sample_reports_are_valid() {
    let folder = root().join("fixtures/render");
    let mut samples = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".json") {
            assert_valid(&name, &read(&format!("fixtures/render/{name}")));
            samples += 1;
        }
    }
    assert!(samples >= 7, "only {samples} samples were found");
}

#[test]
fn a_report_of_this_host_is_valid() {
    let output = cargo_bin_cmd!("deburr").args(["-d", "1", "--json"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_valid("deburr -d 1 --json", &report);
}

#[test]
fn additions_are_allowed() {
    let mut report = read("fixtures/render/neighbour.json");
    report["later"] = json!(1);
    report["findings"][0]["victim"]["later"] = json!({"a": []});
    assert_valid("a report of a later version", &report);
}

#[test]
fn malformed_reports_are_refused() {
    let schema = schema();
    for (at, wrong) in [
        ("/schema", json!("deburr.report/2")),
        ("/host/cpus", json!(-1)),
        ("/window/source", json!("guessed")),
        ("/target/kind", json!("Host")),
        ("/findings", json!({})),
        ("/findings/0/code", json!("sch1")),
        ("/findings/0/name", json!("Run Queue")),
        ("/findings/0/severity", json!("fatal")),
        ("/findings/0/confidence", json!(1.5)),
        ("/findings/0/victim/kind", json!("person")),
        ("/findings/0/victim/container", json!({"runtime": "docker"})),
        ("/findings/0/cost/lost_ns_per_s", json!(0.5)),
        ("/findings/0/causes/0/share", json!("71 %")),
        ("/findings/0/causes/0/kind", json!(null)),
        ("/findings/0/evidence/0/unit", json!("seconds")),
        ("/findings/0/evidence/0/value", json!(null)),
        ("/findings/0/sizes/0/count", json!(null)),
        ("/findings/0/fix/0", json!({"command": "reboot"})),
        ("/findings/0/confirm", json!({})),
        ("/ruled_out/0/closest", json!(3)),
        ("/ledger/0/parts/0/state", json!("dreaming")),
        ("/observer/lost", json!({"bpf:sched": -1})),
        ("/observer/coverage", json!({"bpf:sched": "so so"})),
    ] {
        let mut report = read("fixtures/render/neighbour.json");
        *report.pointer_mut(at).unwrap_or_else(|| panic!("no {at}")) = wrong.clone();
        assert!(!schema.is_valid(&report), "{at} = {wrong} was accepted");
    }
}

#[test]
fn every_field_is_required_that_is_always_there() {
    let schema = schema();
    let whole = read("fixtures/render/healthy.json");
    for field in whole.as_object().unwrap().keys() {
        let mut report = whole.clone();
        report.as_object_mut().unwrap().remove(field);
        assert!(!schema.is_valid(&report), "a report without `{field}` was accepted");
    }
}

/// Collects the names of all fields in a schema.
fn fields(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(map) => {
            if let Some(properties) = map.get("properties").and_then(Value::as_object) {
                names.extend(properties.keys().cloned());
            }
            map.values().for_each(|value| fields(value, names));
        }
        Value::Array(items) => items.iter().for_each(|item| fields(item, names)),
        _ => {}
    }
}

/// Collects the names of all fields in a document, without maps whose keys are data (sources and losses).
fn used(document: &Value, key: &str, names: &mut BTreeSet<String>) {
    match document {
        Value::Object(map) => {
            let free = ["lost", "lost_detail", "coverage"].contains(&key);
            names.extend(map.keys().filter(|_| !free).cloned());
            map.iter().for_each(|(key, value)| used(value, key, names));
        }
        Value::Array(items) => items.iter().for_each(|item| used(item, key, names)),
        _ => {}
    }
}

#[test]
fn each_field_is_in_the_schema_and_on_the_page() {
    let mut known = BTreeSet::new();
    fields(&read("docs/report.schema.json"), &mut known);
    let mut found = BTreeSet::new();
    for name in ["healthy", "neighbour", "quota", "pinned", "unprivileged", "interrupted", "rhythm"]
    {
        used(&read(&format!("fixtures/render/{name}.json")), "", &mut found);
    }
    let unknown: Vec<_> = found.difference(&known).collect();
    assert!(unknown.is_empty(), "not in the schema: {unknown:?}");
    let page = std::fs::read_to_string(root().join("docs/report.md")).unwrap();
    let missing: Vec<_> =
        known.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "not in docs/report.md: {missing:?}");
}
