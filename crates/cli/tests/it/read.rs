// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr read`: files, pipes and standard input, what it prints, and what it refuses.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::common;
use crate::program::{deburr, expect, refuse, run, stderr, stdout};
use crate::repo::root;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

fn fixture(name: &str) -> String {
    root().join("fixtures/transcripts").join(name).to_str().unwrap().to_owned()
}

/// A fixture in a place that every user can read.
fn read(names: &[&str], more: &[&str]) -> String {
    let place = tempfile::Builder::new().tempdir().unwrap();
    let all: std::fs::Permissions = PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.path(), all).unwrap();
    let mut arguments = vec!["read".to_owned()];
    for name in names {
        let copy = place.path().join(name);
        std::fs::copy(fixture(name), &copy).unwrap();
        arguments.push(copy.to_str().unwrap().to_owned());
    }
    arguments.extend(more.iter().map(|&it| it.to_owned()));
    stdout(&run(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), 0))
}

#[test]
fn files_are_read_and_said_what_they_are() {
    let text = read(&["neighbour-vmstat.txt", "neighbour-runqlat.txt"], &["--cpus", "4"]);
    assert!(text.starts_with("read 2 outputs in 2 files, 2 found\n"), "{text}");
    assert!(
        text.contains("found: load comes in bursts") && text.contains("neighbour-vmstat.txt:5-12"),
        "{text}"
    );
    let quiet = read(&["neighbour-vmstat.txt"], &["--cpus", "4", "-q"]);
    assert!(quiet.lines().count() < 8 && quiet.contains("found: load"), "{quiet}");
}

#[test]
fn the_document_is_json_and_holds_what_the_rules_say() {
    let text = read(&["writeback-iostat-xmt.txt"], &["--json"]);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["schema"], "deburr.read/1");
    assert_eq!(document["statements"][0]["name"], "device-bursts");
    assert_eq!(document["files"][0]["unread_lines"], 0);
    let codes: Vec<_> =
        document["rules"]["ruled_out"].as_array().unwrap().iter().map(|it| &it["code"]).collect();
    assert!(codes.iter().any(|code| *code == "BLK003"), "{codes:?}");
}

#[test]
fn standard_input_is_a_file() {
    let text = std::fs::read(fixture("neighbour-vmstat.txt")).unwrap();
    let mut child = deburr(&["read", "-", "--cpus", "4"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&text).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("found: load comes in bursts")
            && stdout(&output).contains("(-:5-12)")
    );
}

#[test]
fn what_is_not_understood_is_named_and_refused() {
    let mut child = deburr(&["read", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    // A line of 200 kB, and one without its end.
    pipe.write_all(&[vec![b'x'; 200_000], b"\nhello \x1b[2Jthere".to_vec()].concat()).unwrap();
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = stdout(&output);
    assert!(
        text.contains("`-`, 2 lines") && text.contains("64 KiB") && text.contains("hello there"),
        "{text}"
    );
    assert!(stderr(&output).contains("docs/read.md"), "{}", stderr(&output));
}

#[test]
fn what_is_no_file_is_refused() {
    assert!(refuse(&["read"]).contains("FILE"));
    assert!(refuse(&["read", "/no/such/file"]).contains("cannot read `/no/such/file`"));
    assert!(refuse(&["read", "/"]).contains("Is a directory"));
    assert!(refuse(&["read", "-", "--cpus", "0"]).contains("--cpus"));
    for seconds in ["0", "-1", "inf", "1e9", "x", ""] {
        assert!(!refuse(&["read", "-", "--interval", seconds]).is_empty());
    }
    // Nothing at all is not the output of a tool.
    let output = expect(&mut deburr(&["read", "/dev/null"]), 2);
    assert!(stdout(&output).contains("`/dev/null`, 0 lines"));
}

/// What `deburr read -` makes of a text.
fn document_of(text: &[u8]) -> serde_json::Value {
    let mut child = deburr(&["read", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text).unwrap();
    let output = child.wait_with_output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", stderr(&output)))
}

/// The tools of this machine, whatever their version: what they print is understood to the last line.
#[test]
fn the_tools_of_this_machine_are_understood() {
    let tools = [
        (Command::new("vmstat"), "1 2", "vmstat"),
        (Command::new("vmstat"), "-w -t 1 2", "vmstat"),
        (Command::new("top"), "-b -n 1", "top"),
        (Command::new("ps"), "-e -o pid,psr,comm,s", "ps"),
        (Command::new("lscpu"), "", "lscpu"),
        (Command::new("iostat"), "-x -t 1 2", "iostat"),
        (Command::new("iostat"), "-x -o JSON 1 2", "sysstat, JSON"),
        (Command::new("mpstat"), "-P ALL 1 1", "mpstat, sar"),
        (Command::new("pidstat"), "1 1", "pidstat"),
        (Command::new("pidstat"), "-h -t 1 1", "pidstat"),
    ];
    let started: Vec<_> = tools
        .into_iter()
        .map(|(mut command, arguments, tool)| {
            let command =
                command.args(arguments.split_whitespace()).env("LC_ALL", "C").stdin(Stdio::null());
            let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
            (format!("{command:?}"), child, tool)
        })
        .collect();
    for (command, child, tool) in started {
        let Ok(child) = child else {
            common::skip(
                "program",
                "the_tools_of_this_machine_are_understood",
                &format!("no {command}"),
            );
            continue;
        };
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{command}: {}", stderr(&output));
        let document = document_of(&output.stdout);
        let file = &document["files"][0];
        assert_eq!(file["unread_lines"], 0, "{command}: {file:#}");
        assert_eq!(file["sections"][0]["tool"], tool, "{command}: {file:#}");
    }
}
