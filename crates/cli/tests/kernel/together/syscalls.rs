// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr syscalls` agrees with strace's counts, and copes with commands that end in unusual ways.

use crate::common;
use crate::lab::until;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const TIER: &str = "kernel";

fn deburr(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_deburr"));
    command.arg("syscalls").args(arguments).stdin(Stdio::null());
    command
}

/// Runs `deburr syscalls` on a command, whose output is discarded. Returns the result as JSON, and deburr's exit.
fn counted(arguments: &[&str], command: &[&str]) -> (Value, Output) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("result.json");
    let mut deburr = deburr(arguments);
    deburr.arg("-o").arg(&file).arg("--").args(command);
    let output = deburr.stdout(Stdio::null()).output().unwrap();
    let text = std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    (serde_json::from_str(&text).unwrap(), output)
}

fn row<'d>(document: &'d Value, name: &str) -> &'d Value {
    let rows = document["syscalls"].as_array().unwrap();
    rows.iter().find(|row| row["name"] == name).unwrap_or(&Value::Null)
}

fn number(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or_else(|| panic!("no {field} in {value}"))
}

fn no_losses(document: &Value) {
    let notes = document["notes"].to_string();
    assert!(!notes.contains("lost"), "{notes}");
}

/// Calls and errors by name of the system call, as strace counts them; `None` = strace cannot run here.
fn traced(command: &[&str]) -> Option<BTreeMap<String, (u64, u64)>> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let status = Command::new("strace")
        .args(["-c", "-f", "-o"])
        .arg(file.path())
        .arg("--")
        .args(command)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.ok().filter(std::process::ExitStatus::success)?;
    let text = std::fs::read_to_string(file.path()).unwrap();
    let mut calls = BTreeMap::new();
    for line in text.lines() {
        // % time, seconds, usecs/call, calls, [errors,] syscall
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, count, more @ ..] = words.as_slice() else { continue };
        let (Ok(count), Some(name)) = (count.parse(), more.last()) else { continue };
        let errors = if more.len() == 2 { more[0].parse().unwrap() } else { 0 };
        if *name != "total" {
            calls.insert((*name).to_owned(), (count, errors));
        }
    }
    Some(calls)
}

#[test]
fn every_count_is_that_of_strace() {
    let test = "syscalls::every_count_is_that_of_strace";
    if !common::root_or_skip(TIER, test) {
        return;
    }
    for command in [
        &["find", "/usr/share/perl", "/usr/lib/git-core", "/etc", "-xdev", "-size", "+1"][..],
        // Children, and what they start.
        &["sh", "-c", "(cat /etc/passwd; (cat /proc/self/status; exit 3); true); ls -l /usr/bin"],
    ] {
        // Paths that do not exist on this machine are left out.
        let command: Vec<&str> = command
            .iter()
            .copied()
            .filter(|word| !word.starts_with('/') || std::path::Path::new(word).exists())
            .collect();
        let Some(expected) = traced(&command) else {
            common::skip(TIER, test, "strace is not installed, or may not trace here (ptrace)");
            return;
        };
        assert!(expected.values().map(|(calls, _)| calls).sum::<u64>() > 500, "{expected:?}");
        let (document, _) = counted(&[], &command);
        no_losses(&document);
        let rows = document["syscalls"].as_array().unwrap();
        let mut found: BTreeMap<String, (u64, u64)> = rows
            .iter()
            .filter(|row| number(row, "calls") > 0)
            .map(|row| {
                let name = row["name"].as_str().unwrap().to_owned();
                (name, (number(row, "calls"), number(row, "errors")))
            })
            .collect();
        let mut expected = expected;
        // How often a child's end interrupts its parent is random, under strace too. And a shell calls `rt_sigaction`
        // once more for a signal that was ignored when it started, as in a background job; strace undoes that.
        for chance in ["rt_sigreturn", "wait4", "rt_sigaction"] {
            found.remove(chance);
            expected.remove(chance);
        }
        assert_eq!(found, expected, "{command:?}");
    }
}

#[test]
fn a_file_that_is_read_often_stands_on_top() {
    if !common::root_or_skip(TIER, "syscalls::a_file_that_is_read_often_stands_on_top") {
        return;
    }
    let file = "/sys/kernel/mm/transparent_hugepage/enabled";
    let file = if std::path::Path::new(file).exists() { file } else { "/sys/kernel/notes" };
    let script = format!("i=0; while [ $i -lt 2000 ]; do read -r line < {file}; i=$((i+1)); done");
    let (document, output) = counted(&["-r", "2"], &["bash", "-c", &script]);
    assert!(output.status.success());
    no_losses(&document);
    let first = &document["files"][0];
    assert_eq!(first["path"], file, "{}", document["files"]);
    assert_eq!((&first["class"], &first["complete"]), (&"sys".into(), &true.into()));
    let ops = first["ops"].as_array().unwrap();
    let of =
        |op: &str| ops.iter().find(|row| row["op"] == op).map_or(0, |row| number(row, "calls"));
    assert_eq!(of("open"), 4000, "{first}");
    assert!(of("read") >= 4000 && number(first, "bytes") > 4000, "{first}");
    let runs = document["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for run in runs {
        assert!(number(run, "wall_ns") > number(run, "system_ns") / 4, "{run}");
        assert!(number(run, "user_ns") + number(run, "system_ns") > 0, "{run}");
    }
    let openat = row(&document, "openat");
    assert!(number(&openat["spread"], "calls_min") >= 2000, "{openat}");
    let parts =
        number(openat, "on_cpu_ns") + number(openat, "blocked_ns") + number(openat, "waiting_ns");
    assert_eq!(parts, number(openat, "total_ns"), "time is conserved");
}

#[test]
fn sleeping_is_told_from_working() {
    common::tried("kernel", "sleeping_is_told_from_working", try_sleeping_is_told_from_working);
}

fn try_sleeping_is_told_from_working() {
    if !common::root_or_skip(TIER, "syscalls::sleeping_is_told_from_working") {
        return;
    }
    let (document, _) = counted(&[], &["sleep", "0.3"]);
    let sleeps = document["syscalls"].as_array().unwrap();
    let sleeps =
        sleeps.iter().find(|row| row["name"].as_str().unwrap().contains("nanosleep")).unwrap();
    assert!(number(sleeps, "blocked_ns") >= 290_000_000, "{sleeps}");
    assert!(number(sleeps, "on_cpu_ns") * 2 < number(sleeps, "blocked_ns"), "{sleeps}");
    let (document, _) =
        counted(&[], &["dd", "if=/dev/urandom", "of=/dev/null", "bs=4M", "count=4"]);
    let read = row(&document, "read");
    assert!(number(read, "on_cpu_ns") > 4 * number(read, "blocked_ns"), "{read}");
}

#[test]
fn how_a_command_ends_is_passed_on() {
    if !common::root_or_skip(TIER, "syscalls::how_a_command_ends_is_passed_on") {
        return;
    }
    let end = |command: &[&str]| deburr(&["--"]).args(command).output().unwrap();
    for (command, status) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "kill -9 $$"], 137),
        (&["no-such-command-here"], 127),
        (&["/etc/passwd"], 126),
    ] {
        assert_eq!(end(command).status.code(), Some(status), "{command:?}");
    }
    let missing = end(&["no-such-command-here"]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no-such-command-here"));
    assert!(missing.stdout.is_empty());
    let killed = end(&["sh", "-c", "kill -9 $$"]);
    assert!(String::from_utf8_lossy(&killed.stdout).contains("killed by signal 9"));
    // The command gets this process's standard input, output and environment.
    let mut command = deburr(&["-q", "--"]);
    let mut child = command
        .args(["sh", "-c", "read x; echo got $x $Y"])
        .env("Y", "y")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"word\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.stdout.starts_with(b"got word y\n"), "{output:?}");
}

#[test]
fn thousands_of_children_are_followed() {
    if !common::root_or_skip(TIER, "syscalls::thousands_of_children_are_followed") {
        return;
    }
    let (document, output) =
        counted(&[], &["sh", "-c", "i=0; while [ $i -lt 10000 ]; do (:); i=$((i+1)); done"]);
    assert!(output.status.success());
    no_losses(&document);
    assert_eq!(number(&document, "processes"), 10_001);
    let ends = row(&document, "exit_group");
    assert_eq!((number(ends, "calls"), number(ends, "unfinished")), (0, 10_001), "{ends}");
}

#[test]
fn a_process_that_ends_ends_the_measurement() {
    if !common::root_or_skip(TIER, "syscalls::a_process_that_ends_ends_the_measurement") {
        return;
    }
    let mut sleep = Command::new("sh")
        .args(["-c", "for i in $(seq 40); do cat /proc/version; sleep 0.1; done"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let pid = sleep.id().to_string();
    let output = deburr(&["--json", "-p", &pid, "-d", "60"]).output().unwrap();
    sleep.wait().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(50));
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("ended after"), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["interrupted"], true);
    assert!(number(&document, "processes") > 0, "what it starts is followed: {document}");
    let paths: Vec<_> =
        document["files"].as_array().unwrap().iter().map(|row| row["path"].clone()).collect();
    assert!(paths.contains(&"/proc/version".into()), "{paths:?}");
}

/// The first thread is still listed, as a zombie, and nobody hears of its end any more.
#[test]
fn a_process_whose_first_thread_has_ended_before_ends_the_measurement_too() {
    if !common::root_or_skip(
        TIER,
        "syscalls::a_process_whose_first_thread_has_ended_before_ends_the_measurement_too",
    ) {
        return;
    }
    let source = "import ctypes, threading, time\n\
                  threading.Thread(target=time.sleep, args=[4]).start()\n\
                  ctypes.CDLL(None).pthread_exit(None)";
    let mut process = Command::new("python3").args(["-c", source]).spawn().unwrap();
    let pid = process.id().to_string();
    let stat = format!("/proc/{pid}/stat");
    until("its first thread has ended", || {
        std::fs::read_to_string(&stat).unwrap().contains(") Z ")
    });
    let output = deburr(&["--json", "-p", &pid, "-d", "60"]).output().unwrap();
    process.wait().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("ended after"), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["interrupted"], true);
}

#[test]
fn a_storm_is_named_and_a_quiet_command_is_not() {
    if !common::root_or_skip(TIER, "syscalls::a_storm_is_named_and_a_quiet_command_is_not") {
        return;
    }
    let codes = |document: &Value| -> Vec<String> {
        let findings = document["findings"].as_array().unwrap();
        findings.iter().map(|found| found["code"].as_str().unwrap().to_owned()).collect()
    };
    // On a busy host the command may get too little CPU time for a finding.
    let storm = ["dd", "if=/dev/zero", "of=/dev/null", "bs=64k", "count=200000"];
    let found = (0..10).any(|_| {
        let (document, _) = counted(&[], &storm);
        no_losses(&document);
        codes(&document) == ["SYS002"]
    });
    assert!(found);
    let (document, _) = counted(&[], &["sleep", "0.5"]);
    assert_eq!(codes(&document), [""; 0], "{}", document["findings"]);
    assert_eq!(document["ruled_out"].as_array().unwrap().len(), 2, "both rules looked");
}
