// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr lab run --prove`: an experiment on a fault whose cause is known says what is true, and nothing of it is left,
//! however it ends.

use crate::common;
use crate::lab::{DEBURR, alone, cgroup_roots, lab_run, made_by, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

#[test]
fn a_limit_that_does_not_bind_is_refuted() {
    let name = "a_limit_that_does_not_bind_is_refuted";
    // The lab makes several tries by itself.
    common::tried_times(1, "kernel", name, || try_limit(name));
}

fn try_limit(name: &str) {
    let _one = alone();
    if !common::root_or_skip("kernel", name) {
        return;
    }
    // Beside other load the lab has three times the weight.
    let arguments = ["lab", "run", "decoy-limit", "--prove", "--json", "--weight=3"];
    let output = Command::new(DEBURR).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(3) {
        return common::skip_or_fail("kernel", name, said.trim());
    }
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error} in the answer; {}: {said}", output.status));
    let one = &document["experiments"][0];
    if output.status.code() == Some(4) {
        assert!(!one["unfit"].as_array().unwrap().is_empty(), "{one:#}");
        let reason = format!("{} tries; {}; {}", one["tries"], one["unfit"], one["checks"]);
        return common::inconclusive("kernel", name, &reason);
    }
    assert_eq!(output.status.code(), Some(0), "{said}{one:#}");
    assert_eq!((&document["passed"], &one["expected"]), (&Value::Bool(true), &"refuted".into()));
    let experiment = &one["experiment"];
    assert_eq!(experiment["result"]["outcome"], "refuted", "{one:#}");
    assert_eq!(experiment["plan"]["changes"].as_array().unwrap().len(), 1, "{one:#}");
    let blocks = experiment["blocks"].as_array().unwrap();
    assert!(blocks.len() >= 8 && blocks.iter().all(|it| it["value"].is_number()), "{one:#}");
}

/// The state of a process, from `/proc/PID/stat`; `None` if it is gone.
fn state(pid: &str) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

/// The names of the journals of experiments.
fn journals() -> Vec<String> {
    let entries = std::fs::read_dir("/run/deburr").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("deburr-prove-")).collect()
}

#[test]
fn a_signal_while_the_suspect_is_paused_leaves_nothing() {
    let name = "a_signal_while_the_suspect_is_paused_leaves_nothing";
    let _one = alone();
    if !common::root_or_skip("kernel", name) {
        return;
    }
    let Some(roots) = Some(cgroup_roots()).filter(|roots| !roots.is_empty()) else {
        return common::skip_or_fail("kernel", name, "no cgroups");
    };
    let before = journals();
    for (signal, status) in [(Signal::INT, Some(130)), (Signal::KILL, None)] {
        let mut lab = lab_run(&["decoy-suspect", "--prove", "--weight=3"]);
        let pid = lab.id();
        let dirs = || roots.iter().filter_map(|root| made_by(pid, root));
        let is_paused = || {
            let suspects = dirs().map(|dir| dir.join("suspect/cgroup.procs"));
            let text: String =
                suspects.filter_map(|file| std::fs::read_to_string(file).ok()).collect();
            text.lines().any(|pid| state(pid) == Some('T'))
        };
        until("a suspect is paused", || {
            if let Some(early) = lab.try_wait().unwrap() {
                panic!("the lab has ended before ({early})");
            }
            is_paused()
        });
        assert_ne!(journals(), before, "an experiment has a journal");
        kill_process(Pid::from_child(&lab), signal).unwrap();
        let ended = lab.wait().unwrap();
        assert_eq!(ended.code(), status, "{signal:?}");
        until("the cgroup is gone", || dirs().next().is_none());
        until("the lab's journal is gone", || made_by(pid, Path::new("/run/deburr")).is_none());
        until("the experiment's journal is gone", || journals() == before);
    }
}
