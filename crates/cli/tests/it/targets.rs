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
