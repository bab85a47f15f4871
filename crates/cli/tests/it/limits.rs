// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr limits`: what it refuses, what it reports without privileges, and its document.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::program::{deburr, expect, refuse, run, stderr, stdout};
use crate::repo::root;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(&run(arguments, 0))).unwrap()
}

#[test]
fn processes_that_are_not_there_are_refused() {
    let message = refuse(&["limits", "4194304"]);
    assert!(message.contains("no process has the pid 4194304"), "{message}");
    assert!(!refuse(&["limits", "-1"]).is_empty());
    assert!(!refuse(&["limits", "x"]).is_empty());
    // A process that exists is shown all the same.
    let mut child = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap();
    let pid = child.id().to_string();
    let output = expect(&mut deburr(&["limits", &pid, "4194304"]), 2);
    child.kill().unwrap();
    assert!(stdout(&output).starts_with(&format!("`sleep` (pid {pid})")), "{}", stdout(&output));
    assert!(stderr(&output).contains("4194304"));
    // Until its parent waits for it, the process is a zombie: it has ended and still exists.
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    while !stat().contains(") Z ") {
        std::thread::yield_now();
    }
    let message = refuse(&["limits", &pid]);
    assert!(message.contains("its parent has not yet noticed"), "{message}");
    child.wait().unwrap();
}

#[test]
fn names_of_processes_are_data() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("a\u{1b}[31m`b\n");
    let sleep = ["/bin/sleep", "/usr/bin/sleep"].iter().find(|path| std::fs::exists(path).unwrap());
    std::fs::copy(sleep.unwrap(), &file).unwrap();
    let mut child = Command::new(&file).arg("60").stdout(Stdio::null()).spawn().unwrap();
    let pid = child.id().to_string();
    // The kernel lets the parent continue just before it sets the name of the child.
    let name = |of: &str| std::fs::read(format!("/proc/{of}/comm")).unwrap();
    while name(&pid) == name("thread-self") {
        std::thread::yield_now();
    }
    let comm = name(&pid);
    let (text, document) = (run(&["limits", &pid], 0), json(&["limits", "--json", &pid]));
    child.kill().unwrap();
    child.wait().unwrap();
    // Where `sleep` is part of a multi-call binary, that binary sets the name.
    if comm != b"a\x1b[31m`b\n\n" {
        let test = "names_of_processes_are_data";
        return crate::common::skip("program", test, "`sleep` renames itself here");
    }
    let text = stdout(&text);
    assert!(text.starts_with(&format!(r"`a\x1b[31m'b\x0a` (pid {pid})")), "{text}");
    assert_eq!(document["processes"][0]["comm"], "a\u{1b}[31m`b\n");
}

#[test]
fn a_kernel_thread_has_no_quota_and_no_runtime() {
    let text = stdout(&run(&["limits", "2"], 0));
    let here = std::fs::read_to_string("/proc/2/comm").unwrap();
    if here.trim() != "kthreadd" {
        crate::common::skip(
            "program",
            "a_kernel_thread_has_no_quota_and_no_runtime",
            "pid 2 is no kernel thread here",
        );
        return;
    }
    assert!(text.contains("a kernel thread: quotas do not hold for it"), "{text}");
}

#[test]
fn the_table_fits_its_width_and_says_who_is_not_listed() {
    let text = stdout(&run(&["limits"], 0));
    assert!(text.lines().next().unwrap().contains("cgroup"), "{text}");
    assert!(text.contains("not listed: "), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

/// Collects the names of all fields in a document.
fn fields(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                found.insert(name.clone());
                // Names from the host are not fields.
                if name != "settings" && name != "affinity_of_threads" {
                    fields(value, found);
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| fields(value, found)),
        _ => {}
    }
}

#[test]
fn every_field_of_the_document_is_described() {
    let mut sleep = Command::new("taskset");
    let mut child = sleep.args(["-c", "0", "sleep", "60"]).stdout(Stdio::null()).spawn().unwrap();
    let one = json(&["limits", "--json", &child.id().to_string()]);
    let all = json(&["limits", "--json"]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(all["schema"], "deburr.limits/1");
    assert_eq!(one["processes"].as_array().unwrap().len(), 1);
    assert_eq!(one["processes"][0]["verdict"], "unknown");
    let page = std::fs::read_to_string(root().join("docs/limits.md")).unwrap();
    let mut found = BTreeSet::new();
    fields(&one, &mut found);
    fields(&all, &mut found);
    // Words in backticks: `processes[].limit.cpus`, `name`.
    let marked = page.split('`').skip(1).step_by(2);
    let described: BTreeSet<&str> =
        marked.flat_map(|text| text.split(|c: char| !c.is_alphanumeric() && c != '_')).collect();
    // The fields of a container are described with the report.
    let of_reports = ["schema", "tool", "id", "pod", "namespace"];
    found.retain(|name| !described.contains(name.as_str()) && !of_reports.contains(&name.as_str()));
    assert!(found.is_empty(), "{found:?}");
}
