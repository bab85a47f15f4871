// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Targets that do not exist are refused with status 2 before anything is observed, and the message names them.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use assert_cmd::cargo::cargo_bin_cmd;
use std::time::{Duration, Instant};

fn refused(arguments: &[&str]) -> String {
    let begin = Instant::now();
    // A window that is longer than the test would wait.
    let output = cargo_bin_cmd!("deburr").args(["-d", "600"]).args(arguments).output().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(60));
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{output:?}");
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.lines().count() == 1 && !message.contains('\x1b'), "{message:?}");
    message
}

#[test]
fn unknown_targets_are_named_with_what_is_there() {
    let message = refused(&["-p", "4294967295"]);
    assert!(message.contains("4294967295") && message.contains("the nearest: "), "{message}");
    let message = refused(&["--comm", "no-such-\x1b[31m"]);
    assert!(message.contains("`no-such-\\x1b[31m`"), "{message}");
    assert!(refused(&["--cgroup", "/no/such/cgroup"]).contains("`/no/such/cgroup`"));
    assert!(refused(&["--container", "no-such-container"]).contains("`no-such-container`"));
}

#[test]
fn a_threads_id_is_told_from_a_pid() {
    let (tell, told) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        tell.send(rustix::thread::gettid().as_raw_nonzero().to_string()).unwrap();
        let _ = ended.recv();
    });
    let message = refused(&["-p", &told.recv().unwrap()]);
    let own = std::process::id();
    assert!(message.contains(&format!("is a thread of process {own}")), "{message}");
    drop(end);
    thread.join().unwrap();
}

#[test]
fn only_one_target_is_taken() {
    let both = cargo_bin_cmd!("deburr").args(["-p", "1", "--comm", "x"]).output().unwrap();
    assert_eq!(both.status.code(), Some(2));
}

/// Threads that serve requests are threads of a target.
#[test]
fn entries_that_are_not_there_are_named_with_what_is() {
    assert!(refused(&["--entry", "worker"]).contains("give one, too (`-p`"));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let own = std::process::id().to_string();
    let refused = |entry: &str| refused(&["-p", &own, "--entry", entry]);
    let message = refused("4000000000");
    // A few are named, those with the lowest ids: which is first, chance decides once pids begin anew.
    let is_named = |message: &str, what: &str| message.contains(what) || message.contains(" more");
    let names_own = |message: &str| is_named(message, &format!("{own} ("));
    assert!(names_own(&message) && message.contains("its threads:"), "{message}");
    assert!(is_named(&message, &port.to_string()), "{message}");
    let message = refused("tid:4000000000");
    assert!(names_own(&message) && message.contains("its threads:"), "{message}");
    // Nobody listens there: it is reserved.
    let message = refused("port:1");
    assert!(message.contains(&format!(" {port}")) || message.contains("more"), "{message}");
    assert!(refused("port:65536").contains("from 1 to 65535"));
    assert!(refused("").contains("without a name"));
}

#[test]
fn an_entry_is_recorded_and_a_name_that_no_thread_has_is_remarked_on() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("x.deburr");
    let own = std::process::id().to_string();
    let mut record = cargo_bin_cmd!("deburr");
    record.args(["record", "-d", "0.2", "-p", &own, "--entry", "no-such-\x1b[31m*", "--entry"]);
    let output = record.arg(format!("tid:{own}")).arg("-o").arg(&file).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("`no-such-\\x1b[31m*` yet") && !said.contains("\x1b[31m*"), "{said}");
    let report = cargo_bin_cmd!("deburr").args(["report", "--json"]).arg(&file).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let entries = report["target"]["entries"].as_array().unwrap();
    assert_eq!(entries[0]["name"], "no-such-\x1b[31m*");
    let seen_ns = entries[0]["asleep_ns"].as_u64().unwrap_or_default();
    assert_eq!(seen_ns, 0, "none was seen, if sleep was recorded");
    assert_eq!(entries[1]["tid"], std::process::id());
    let text = cargo_bin_cmd!("deburr").arg("report").arg(&file).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("entries: threads named `no-such-\\x1b[31m*`"), "{text}");
}
