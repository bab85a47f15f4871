// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A Go runtime's number of threads and a quota: which of the two is to blame.

use crate::cgroups::Nested;
use crate::common;
use crate::golang::{start, toolchains};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const DEBURR: &str = env!("CARGO_BIN_EXE_deburr");
/// Go program. `one`: one goroutine that needs 0.8 CPUs. `many`: sixteen goroutines that never sleep.
const SOURCE: &str = "package main

import (
	\"os\"
	\"time\"
)

func busy(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
	}
}

func main() {
	if os.Args[1] == \"many\" {
		for i := 0; i < 16; i++ {
			go busy(time.Hour)
		}
		time.Sleep(time.Hour)
	}
	for {
		busy(8 * time.Millisecond)
		time.Sleep(2 * time.Millisecond)
	}
}
";

/// Findings about a program under a quota of half a CPU with GOMAXPROCS=32.
fn findings(nested: &Nested, program: &Path, what: &str) -> Vec<Value> {
    let procs = nested.dirs()[2].join("cgroup.procs");
    let mut sh = Command::new("sh");
    sh.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(&procs).arg(program).arg(what);
    let running = start(sh.env("GOMAXPROCS", "32"));
    let pid = running.0.id();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().starts_with("program") {
        assert!(Instant::now() < deadline, "the program does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = Command::new(DEBURR)
        .args(["-q", "--json", "-d", "6", "-p", &pid.to_string()])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let report: Value = serde_json::from_slice(&output.stdout).expect(&error);
    report["findings"].as_array().unwrap().clone()
}

fn at(findings: &[Value], code: &str) -> Option<usize> {
    findings.iter().position(|finding| finding["code"] == code)
}

#[test]
fn a_go_program_with_one_busy_goroutine_is_stopped_by_its_quota() {
    const TEST: &str = "a_go_program_with_one_busy_goroutine_is_stopped_by_its_quota";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    let nested = match Nested::make() {
        Ok(nested) => nested,
        Err(reason) => return common::skip("kernel", TEST, &reason),
    };
    nested.set_quota(50_000);
    let go = match toolchains() {
        Ok(all) => all.into_iter().next().unwrap(),
        Err(reason) => return common::skip("kernel", TEST, &reason),
    };
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("program.go");
    fs::write(&source, SOURCE).unwrap();
    let program = go.build_file(&source);

    let one = findings(&nested, &program.file, "one");
    let (quota, number) = (at(&one, "SCH002").expect("SCH002"), at(&one, "SCH004"));
    let number = number.expect("32 threads are too many for half a CPU: a risk");
    assert!(quota < number, "{one:?}");
    assert_eq!(one[number]["severity"], "info", "{:?}", one[number]);
    assert!(one[number]["causes"].as_array().is_none_or(Vec::is_empty), "{:?}", one[number]);

    let many = findings(&nested, &program.file, "many");
    let (quota, number) = (at(&many, "SCH002").expect("SCH002"), at(&many, "SCH004"));
    let number = number.expect("SCH004");
    assert!(number < quota, "{many:?}");
    let cause = &many[number]["causes"][0];
    assert_eq!(cause["key"], "GOMAXPROCS", "{cause}");
    // Sixteen threads are runnable at once, of which one fits. As the queues of both CPUs are throttled, at least half
    // of that can be attributed.
    let share = cause["share"].as_f64().unwrap();
    assert!((0.6..=0.95).contains(&share), "{share}");
}
