// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr sweep`: what it refuses before it starts anything, and whether `docs/sweep.md` is complete.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::program::{refuse, run, stderr};
use crate::repo::root;
use serde_json::Value;
use std::collections::BTreeSet;

const URL: &str = "http://127.0.0.1:1/";

#[test]
fn what_makes_no_sense_is_refused() {
    for (arguments, expected) in [
        (&["--rate", "10..5x2", "--url", URL, "--", "true"][..], "goes down"),
        (&["--rate", "fast", "--url", URL, "--", "true"], "200..4000x2"),
        (&["--rate", "10", "--url", URL], "<CMD>"),
        (&["--rate", "10", "--", "true"], "--url"),
        (&["--url", URL, "--", "true"], "--rate"),
        (&["--cmd", "--rate", "10", "--", "true"], "--rate"),
        (&["--rate", "10", "--url", "https://127.0.0.1/", "--", "true"], "TLS"),
        (&["--rate", "10", "--url", "127.0.0.1", "--", "true"], "http://"),
        (&["--rate", "10", "--url", URL, "--vary", "GOMAXPROCS=1", "--", "true"], "env:NAME=V1,V2"),
        (&["--rate", "10", "--url", URL, "--cpus", "0", "--", "true"], "0.01"),
        (&["--rate", "10", "--url", URL, "--accept", "soon", "--", "true"], "50ms"),
        (&["--rate", "100000", "--seconds", "1h", "--url", URL, "--", "true"], "fewer --seconds"),
        (&["--rate", "10", "--url", URL, "--connections", "99999", "--", "true"], "ulimit -n"),
    ] {
        let message = refuse(&[&["sweep"], arguments].concat());
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
}

#[test]
fn other_machines_are_driven_only_if_that_is_allowed() {
    for url in ["http://192.0.2.1:8080/work", "tcp://[2001:db8::1]:7"] {
        let message = refuse(&["sweep", "--rate", "1", "--url", url, "--", "true"]);
        assert!(message.contains("--allow-remote"), "{message}");
    }
}

#[test]
fn without_the_right_to_make_cgroups_it_says_so() {
    let output = run(&["sweep", "--rate", "1", "--url", URL, "-q", "--", "true"], 3);
    let message = stderr(&output);
    assert!(message.contains("cgroup") && message.contains("root"), "{message}");
}

/// The page describes every field of a document.
#[test]
fn every_field_has_a_line() {
    let page = std::fs::read_to_string(root().join("docs/sweep.md")).unwrap();
    let example = std::fs::read_to_string(root().join("fixtures/sweep/example.json")).unwrap();
    let mut names = BTreeSet::new();
    collect(&serde_json::from_str(&example).unwrap(), &mut names);
    let missing: Vec<_> =
        names.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/sweep.md does not say what these are: {missing:?}");
}

fn collect(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                // Names of environment variables are not fields.
                if name != "env" {
                    collect(value, names);
                }
                names.insert(name.clone());
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, names)),
        _ => {}
    }
}
