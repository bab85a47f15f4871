// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr diff`: what it refuses, its exit statuses, and its document.

use crate::program::{refuse, run, scratch, stdout};
use crate::repo::root;
use deburr_core::host_diff::{self, HostInput};
use deburr_core::snapshot::Snapshot;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use std::collections::BTreeSet;
use tempfile::TempDir;

/// Copies a snapshot, because `deburr` runs as a user who may not be able to read the repository.
fn fixture(folder: &TempDir, name: &str) -> String {
    let text = std::fs::read_to_string(root().join("fixtures/snapshots").join(name)).unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A recording that was made before recordings said what their host is.
fn recording(folder: &TempDir) -> String {
    let bytes = std::fs::read(root().join("fixtures/lab/quota/recording.deburr")).unwrap();
    let path = folder.path().join("old.deburr");
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let folder = scratch();
    let healthy = fixture(&folder, "drift-healthy.json");
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let cut = std::fs::read_to_string(&healthy).unwrap();
    for (arguments, expected) in [
        (vec![&*healthy], "two or more"),
        (vec![&healthy, "/nonexistent/b.json"], "/nonexistent/b.json"),
        (vec![&healthy, &file("empty", "")], "is empty"),
        (vec![&healthy, &file("text", "hello")], "not a snapshot"),
        (vec![&healthy, &file("cut", &cut[..cut.len() / 2])], "cut off"),
        (vec![&healthy, &file("later", &cut.replace("snapshot/1", "snapshot/9"))], "snapshot/9"),
        (vec![&healthy, &healthy, "--slow", "nobody"], "nobody"),
        (vec![&healthy, &healthy, "--slow", "db-old-1"], "letter"),
        (vec![&healthy, &healthy, "--slow", "A", "--slow", "B"], "fast"),
        (vec![&healthy, &healthy, "--time", "A=1"], "only A"),
        (vec![&healthy, &healthy, "--time", "A=fast", "B=1"], "A=5.87"),
        (vec![&healthy, &healthy, "--time", "1", "B=1"], "A=1"),
        (vec![&healthy, &healthy, "--recording", "A=/nonexistent/r", "B=1"], "/nonexistent/r"),
        (vec![&healthy, &recording(&folder)], "without facts about its host"),
        (vec![&healthy, folder.path().to_str().unwrap()], "cannot read"),
    ] {
        let message = refuse(&[&["diff"][..], &arguments].concat());
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
}

#[test]
fn fail_on_tells_drift_from_none() {
    let folder = scratch();
    let [healthy, slow] = ["drift-healthy.json", "drift-slow.json"].map(|it| fixture(&folder, it));
    run(&["diff", &healthy, &slow], 0);
    run(&["diff", &healthy, &slow, "--fail-on", "high"], 1);
    let none = stdout(&run(&["diff", &healthy, &healthy, "--fail-on", "info"], 0));
    assert!(none.starts_with("no difference; "), "{none}");
}

/// The page describes every field of a document.
#[test]
fn every_field_has_a_line() {
    let page = std::fs::read_to_string(root().join("docs/diff.md")).unwrap();
    let folder = scratch();
    let [healthy, slow] = ["drift-healthy.json", "drift-slow.json"].map(|it| fixture(&folder, it));
    let document = stdout(&run(
        &["diff", "--json", &healthy, &slow, "--time", "A=1/1/0", "B=9/1/8", "--slow", "B"],
        0,
    ));
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["schema"], "deburr.diff/1");
    let mut names = BTreeSet::new();
    collect(&document, &mut names);
    let marked: BTreeSet<&str> = page
        .split('`')
        .skip(1)
        .step_by(2)
        .flat_map(|text| text.split(|c: char| !c.is_alphanumeric() && c != '_'))
        .collect();
    names.retain(|name| !marked.contains(name.as_str()) && name != "version");
    assert!(names.is_empty(), "docs/diff.md does not say what these are: {names:?}");
}

fn collect(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                // The parts of values and of findings are described elsewhere.
                if name != "value" && name != "findings" {
                    collect(value, names);
                }
                names.insert(name.clone());
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, names)),
        _ => {}
    }
}

#[test]
fn a_host_is_compared_with_what_it_should_be() {
    let folder = scratch();
    let path = folder.path().join("golden.json");
    let golden = path.to_str().unwrap();
    run(&["snapshot", "-q", "-o", golden], 0);
    // A host does not differ from what it was a moment ago.
    let same = stdout(&run(&["diff", "--baseline", golden, "--fail-on", "high"], 0));
    assert!(same.contains("facts compared"), "{same}");
    let mut document: Value =
        serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let facts = document["facts"].as_array_mut().unwrap();
    let fact = facts.iter_mut().find(|it| it["key"] == "/proc/sys/vm/swappiness").unwrap();
    fact["value"] = serde_json::json!({"integer": {"amount": 199}});
    std::fs::write(&path, document.to_string()).unwrap();
    for arguments in
        [&["snapshot", "-q", "--baseline", golden][..], &["diff", "--baseline", golden]]
    {
        let text = stdout(&run(&[arguments, &["--fail-on", "medium"]].concat(), 1));
        assert!(text.contains("swappiness"), "{text}");
        run(arguments, 0);
    }
    let text = stdout(&run(&["diff", "--baseline", golden], 0));
    assert!(text.contains("sudo sysctl -w 'vm.swappiness=199'"), "{text}");
    let message = refuse(&["diff", "--baseline", golden, golden, golden]);
    assert!(message.contains("one at a time"), "{message}");
    assert!(refuse(&["snapshot", "--fail-on", "low"]).contains("--baseline"));
    assert!(refuse(&["snapshot", "--baseline", "/nonexistent/g.json"]).contains("/nonexistent/g"));
}

/// CPU time, in nanoseconds, to compare two hosts that differ in that many facts.
fn comparing(facts: usize) -> i64 {
    let host = |value: usize| {
        let mut snapshot = drifted();
        let fact = snapshot.facts[0].clone();
        snapshot.facts = (0..facts)
            .map(|at| {
                let mut fact = fact.clone();
                fact.key = match at % 2 {
                    0 => format!("/sys/unknown/{at}"),
                    _ => format!("/sys/module/unknown{at}/parameters/{at}"),
                };
                fact.value = deburr_core::snapshot::Value::text(value.to_string());
                fact
            })
            .collect();
        snapshot
    };
    let hosts = [host(1), host(2)];
    let given = hosts.each_ref().map(|snapshot| HostInput {
        snapshot,
        label: "x",
        slow: None,
        golden: false,
    });
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    };
    let before = now();
    let diff = host_diff::diff(&given, &[], "0");
    let took = now() - before;
    assert_eq!(diff.differences.len(), facts);
    took
}

fn drifted() -> Snapshot {
    let path = root().join("fixtures/snapshots/drift-slow.json");
    Snapshot::parse(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn four_times_the_facts_take_four_times_the_time() {
    let least = |facts| (0..3).map(|_| comparing(facts)).min().unwrap();
    let (few, many) = (least(4_000), least(16_000));
    eprintln!("4000 facts: {} ms, 16000 facts: {} ms", few / 1_000_000, many / 1_000_000);
    // Sixteen times as long if each fact were held against each other one.
    assert!(many < 8 * few, "{few} ns, {many} ns");
}
