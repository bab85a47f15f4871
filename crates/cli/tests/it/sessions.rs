// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions: what ends them, commands under observation, hostile names of processes.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::common;
use crate::program::{
    Running, deburr, deburr_after, deburr_with_default_signals, expect, refuse, run, scratch,
    stderr, stdout, unshared, until,
};
use rustix::process::Signal;
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Output, Stdio};

/// Starts a session of one minute and waits until its recording holds something.
fn begin(arguments: &[&str]) -> (Running, tempfile::TempDir) {
    let directory = scratch();
    let path = directory.path().join("x.deburr");
    let mut command = deburr_with_default_signals(&["-d", "1m", "-o", path.to_str().unwrap()]);
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let session = Running::start(&mut command);
    let log = directory.path().join("x.deburr-wal");
    until("the session is under way", || log.metadata().is_ok_and(|log| log.len() > 0));
    (session, directory)
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("a report")
}

fn has_event(report: &Value, words: &[&str]) -> bool {
    let events = report["window"]["events"].to_string();
    words.iter().all(|word| events.contains(word))
}

#[test]
fn a_signal_ends_the_window_and_the_report_says_so() {
    for (signal, name) in
        [(Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM"), (Signal::HUP, "SIGHUP")]
    {
        let (session, directory) = begin(&["--json"]);
        session.signal(signal);
        let output = session.wait();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let report = report(&output);
        assert!(has_event(&report, &[name]), "{}", report["window"]);
        assert!(report["window"]["seconds"].as_f64().unwrap() < 60.0);
        // The recording was closed, too: a single file is left.
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}

#[test]
fn a_window_whose_last_beat_is_late_says_so() {
    let (session, directory) = begin(&["--json"]);
    session.signal(Signal::STOP);
    // It stands still for longer than a beat may be late without being noted.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    session.signal(Signal::INT);
    session.signal(Signal::CONT);
    let output = session.wait();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report = report(&output);
    assert!(has_event(&report, &["the observer was late by", "SIGINT"]), "{}", report["window"]);
    let path = directory.path().join("x.deburr");
    assert!(stdout(&run(&["check", path.to_str().unwrap()], 0)).contains("consistent"));
}

#[test]
fn a_recording_under_way_cannot_be_replaced() {
    let (session, directory) = begin(&["--json"]);
    let path = directory.path().join("x.deburr");
    let message = refuse(&["-d", "1h", "--force", "-o", path.to_str().unwrap()]);
    assert!(message.contains("is in use"), "{message}");
    session.signal(Signal::INT);
    assert_eq!(session.wait().status.code(), Some(0));
    assert!(stdout(&run(&["report", path.to_str().unwrap()], 0)).contains("SIGINT"));
}

#[test]
fn a_second_signal_ends_the_program_at_once() {
    let (session, _directory) = begin(&[]);
    // Both are delivered before the session can act on the first.
    session.signal(Signal::STOP);
    session.signal(Signal::INT);
    session.signal(Signal::TERM);
    session.signal(Signal::CONT);
    let output = session.wait();
    assert!(matches!(output.status.code(), Some(130 | 143)), "{:?}", output.status);
    assert_eq!(stdout(&output), "");
}

#[test]
fn a_target_that_ends_ends_the_window() {
    let target = Running::start(Command::new("sleep").arg("1h"));
    let (session, _directory) = begin(&["--json", "-p", &target.0.id().to_string()]);
    target.signal(Signal::KILL);
    let output = session.wait();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(has_event(&report(&output), &["gone"]), "{}", report(&output)["window"]);
}

#[test]
fn a_command_is_observed_until_it_ends_and_keeps_its_status_to_itself() {
    let output = run(&["--json", "--", "sh", "-c", "echo from the command; sleep 0.3; exit 7"], 0);
    assert_eq!(stderr(&output), "from the command\n");
    let report = report(&output);
    assert_eq!(report["target"]["kind"], "command");
    assert!(report["window"]["seconds"].as_f64().unwrap() >= 0.3);
    // With a text report, the command keeps its stdout.
    assert!(stdout(&run(&["--", "echo", "from the command"], 0)).starts_with("from the command\n"));
}

#[test]
fn a_command_that_outlives_the_window_goes_on() {
    let output =
        run(&["-d", "0.3", "--", "sh", "-c", "echo $$ >&2; exec sleep 1h >/dev/null 2>&1"], 0);
    let messages = stderr(&output);
    let pid = messages.lines().next().unwrap();
    assert!(messages.contains(&format!("still runs as pid {pid}")), "{messages}");
    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).expect("it still runs");
}

#[test]
fn a_command_that_cannot_be_started_is_told_and_leaves_no_recording() {
    let directory = scratch();
    let place = directory.path().join("x.deburr");
    let message = refuse(&["-o", place.to_str().unwrap(), "--", "/nonexistent/\x1b[31mcommand"]);
    assert!(message.contains("/nonexistent/\\x1b[31mcommand"), "{message}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn hostile_names_are_shown_safely() {
    for name in [&b"\x1b[31mred\n\r"[..], b"</script>", b"\xff\xfe`$(x)`", b"a\"b'c\\", b") R 1 1"]
    {
        // A shell names itself and waits for input that never comes.
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "printf %s \"$0\" >/proc/$$/comm; read -r never"])
            .arg(OsStr::from_bytes(name));
        let target = Running::start(shell.stdin(Stdio::piped()));
        let pid = target.0.id().to_string();
        let comm = format!("/proc/{pid}/comm");
        until("it has its name", || {
            std::fs::read(&comm).is_ok_and(|comm| comm.strip_suffix(b"\n") == Some(name))
        });
        let text = stdout(&run(&["-d", "1.2", "-p", &pid, "-v"], 0));
        let steering = |c: char| c.is_control() && c != '\n';
        assert!(!text.contains(steering), "{text:?}");
        assert!(text.contains(&format!("pid {pid}")), "{text}");
        let document = stdout(&run(&["-d", "1.2", "-p", &pid, "--json"], 0));
        assert!(!document.contains(steering), "{document:?}");
        let report: Value = serde_json::from_str(&document).unwrap();
        assert_eq!(report["target"]["pid"].to_string(), pid);
    }
}

#[test]
fn a_limit_on_locked_memory_is_not_fatal() {
    expect(&mut deburr_after("ulimit -l 64", &["-d", "0.3"]), 0);
}

#[test]
fn two_sessions_at_once_do_not_disturb_each_other() {
    let start = || {
        let mut command = deburr(&["-d", "1.2", "--json"]);
        Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    };
    for session in [start(), start()] {
        let output = session.wait();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(report(&output)["window"]["seconds"].as_f64().unwrap() >= 1.2);
    }
}

#[test]
fn few_open_files_are_enough_to_measure_the_observer() {
    let output = expect(&mut deburr_after("ulimit -n 10", &["-d", "0.5", "--json"]), 0);
    let observer = &report(&output)["observer"];
    assert!(observer["rss_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{observer}");
}

#[test]
fn where_there_is_no_proc_that_is_what_is_said() {
    const TEST: &str = "where_there_is_no_proc_that_is_what_is_said";
    for args in [
        &["-d", "0.2"][..],
        &["limits"],
        &["doctor"],
        &["snapshot"],
        &["record", "-d", "0.2", "-o", "x"],
    ] {
        let Some((mut command, _place)) = unshared(&["--mount"], "mount -t tmpfs none /proc", args)
        else {
            return common::skip("program", TEST, "no namespaces for this user");
        };
        let output = expect(&mut command, 3);
        let said = stderr(&output);
        assert!(
            said.contains("no `/proc` is mounted") && said.lines().count() == 1,
            "{args:?}: {said}"
        );
    }
}

#[test]
fn a_recording_made_in_a_time_namespace_is_consistent() {
    const TEST: &str = "a_recording_made_in_a_time_namespace_is_consistent";
    let directory = scratch();
    let path = directory.path().join("x.deburr");
    let shown = path.to_str().unwrap();
    let options = ["--time", "--boottime", "100000", "--monotonic", "5000"];
    let Some((mut command, _place)) =
        unshared(&options, "true", &["record", "-d", "1.2", "-o", shown])
    else {
        return common::skip("program", TEST, "no time namespaces for this user");
    };
    expect(&mut command, 0);
    let said = stdout(&run(&["check", shown], 0));
    assert!(said.contains("consistent"), "{said}");
}
