// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr cpu-check` inside a cgroup with a CPU quota: the verdict names that limit, and does not blame other tasks.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::cgroups::Nested;
use crate::common;
use serde_json::Value;
use std::process::Command;

#[test]
fn a_quota_above_the_check_is_named() {
    const TEST: &str = "a_quota_above_the_check_is_named";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    let nested = match Nested::make() {
        Ok(nested) => nested,
        Err(reason) => return common::skip("kernel", TEST, &reason),
    };
    nested.set_quota(30_000);
    let [top, _, leaf] = nested.dirs();
    // On one CPU the sweep has only two steps.
    let script = "echo $$ > \"$0\" && exec taskset -c 0 \"$@\"";
    let mut check = Command::new("sh");
    check.args(["-c", script]).arg(leaf.join("cgroup.procs"));
    check.args([env!("CARGO_BIN_EXE_deburr"), "cpu-check", "--quick", "--json", "-q"]);
    let output = check.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let path = format!("/{}", top.file_name().unwrap().display());
    assert_eq!(said["cpus"]["limit"], serde_json::json!({"cpus": 0.3, "cgroup": path}), "{said}");
    let step = &said["sweep"][0];
    assert_eq!(step["workers"], 1);
    // A step may begin with the unused quota of a whole period.
    assert!(step["share"].as_f64().unwrap() < 0.5, "{step}");
    let verdict = said["verdict"].to_string();
    assert!(
        verdict.contains(&format!("`{path}`")) && !verdict.contains("other tasks kept"),
        "{verdict}"
    );
}
