// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr export`. What is exported is compared by Python, which shares no code with it.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::common::skip;
use crate::program::{deburr, expect, refuse, run, scratch, stderr, stdout};
use crate::repo::root;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const TIER: &str = "program";
const KEPT: &str = "fixtures/lab/writeback/recording.deburr";

/// All recordings that are kept.
fn kept() -> Vec<PathBuf> {
    let folders =
        ["fixtures/recordings/v1", "fixtures/recordings/v2"].map(|name| root().join(name));
    let labs = std::fs::read_dir(root().join("fixtures/lab")).unwrap();
    let labs = labs.map(|entry| entry.unwrap().path());
    let files =
        folders.into_iter().chain(labs).flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let mut files: Vec<PathBuf> = files.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "deburr"));
    files.sort();
    files
}

/// A copy that every user can read.
fn copy(of: &Path, to: &Path) -> String {
    std::fs::copy(of, to).unwrap();
    std::fs::set_permissions(to, PermissionsExt::from_mode(0o644)).unwrap();
    to.to_str().unwrap().to_owned()
}

fn has_python(test: &str) -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok();
    if !found {
        skip(TIER, test, "python3 is not here");
    }
    found
}

/// Names that a process may choose, or that somebody may write into a recording.
const HOSTILE: [&str; 9] = [
    "=cmd|' /C calc'!A0",
    "@SUM(1)",
    "'=1",
    "a\0b",
    "a\r\nb,\"c\"",
    "\u{202e}gpj.exe",
    "\\x0a \\u{202e} \\",
    "</script>\t\u{1b}[2J",
    "",
];

/// Adds rows to the tables of which no kept recording has any.
fn add_rows(file: &str) {
    let connection = rusqlite::Connection::open(file).unwrap();
    // It was made before there was this table.
    let table = "CREATE TABLE named_threads(seq INTEGER PRIMARY KEY, tick INTEGER NOT NULL, proc INTEGER NOT NULL,
                 comm TEXT NOT NULL, threads INTEGER NOT NULL, on_cpu_ns INTEGER NOT NULL, delay_ns INTEGER NOT NULL)";
    connection.execute_batch(table).unwrap();
    let add = |sql: &str, name: &str, n: i64| {
        connection.execute(sql, rusqlite::params![1_000_000 + n, n, name]).unwrap();
    };
    for (n, name) in (0..).zip(HOSTILE) {
        let seq = 10 * n;
        add("INSERT INTO event VALUES (?1, 5 + ?2, 'interrupted', NULL, ?3)", name, seq);
        add(
            "INSERT INTO named_threads SELECT ?1 + 1, min(tick), 1, ?3, ?2, 1, 2 FROM tick",
            name,
            seq,
        );
        add(
            "INSERT INTO schedstat SELECT ?1 + 2, min(tick), 1, 2, ?2, 0, length(?3), 4 FROM tick",
            name,
            seq,
        );
    }
}

#[test]
fn every_table_of_every_kept_recording_round_trips() {
    if !has_python("export::every_table_of_every_kept_recording_round_trips") {
        return;
    }
    let script = root().join("tests/export/round-trip");
    let mut tables = BTreeSet::new();
    let kept = kept();
    assert!(kept.len() > 10, "{kept:?}");
    for recording in kept {
        let here = scratch();
        let [file, jsonl, csv] = ["x.deburr", "x.jsonl", "x"].map(|name| here.path().join(name));
        let file = copy(&recording, &file);
        if recording.ends_with(KEPT) {
            add_rows(&file);
        }
        let [jsonl, csv] = [jsonl, csv].map(|path| path.to_str().unwrap().to_owned());
        run(&["export", &file, "--jsonl", &jsonl, "--csv", &csv], 0);
        let mut compare = Command::new("python3");
        compare.arg(&script).args([&file, "--jsonl", &jsonl, "--csv", &csv]);
        let said = stdout(&expect(&mut compare, 0));
        tables.extend(said.lines().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())));
    }
    // Each table has rows in one of them.
    let wanted: BTreeSet<String> = schema_tables().into_iter().collect();
    let without: Vec<_> = wanted.difference(&tables).collect();
    assert_eq!(without, Vec::<&String>::new());
}

/// The tables that the document lists.
fn schema_tables() -> Vec<String> {
    let document = std::fs::read_to_string(root().join("docs/export.md")).unwrap();
    let sections = document.lines().filter_map(|line| line.strip_prefix("### `"));
    sections.map(|name| name.trim_end_matches('`').to_owned()).collect()
}

#[test]
fn outputs_are_private_whole_and_never_replaced_unasked() {
    let here = scratch();
    let file = copy(&root().join(KEPT), &here.path().join("x.deburr"));
    let path = |name: &str| here.path().join(name).to_str().unwrap().to_owned();
    let (jsonl, csv) = (path("x.jsonl"), path("x"));
    let said = stderr(&run(&["export", &file, "--jsonl", &jsonl, "--csv", &csv], 0));
    assert!(said.contains("rows of"), "{said}");
    let mode = |path: &str| Path::new(path).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(&jsonl), mode(&csv), mode(&(csv.clone() + "/meta.csv"))),
        (0o600, 0o700, 0o600)
    );
    assert!(refuse(&["export", &file, "--jsonl", &jsonl]).contains("--force"));
    assert!(refuse(&["export", &file, "--csv", &csv, "--force"]).contains("is not empty"));
    assert_eq!(stderr(&run(&["export", &file, "--jsonl", &jsonl, "--force", "-q"], 0)), "");
    assert!(
        refuse(&["export", &file, "--jsonl", &file, "--force"]).contains("the recording itself")
    );
    assert!(refuse(&["export", &file]).contains("--jsonl"));
    // What fails leaves nothing.
    std::fs::write(path("y.deburr"), "hello").unwrap();
    let said =
        refuse(&["export", &path("y.deburr"), "--jsonl", &path("y.jsonl"), "--csv", &path("y")]);
    assert!(said.contains("is not a recording"), "{said}");
    let left = std::fs::read_dir(here.path()).unwrap().count();
    assert_eq!(left, 4, "two recordings, a file and a directory");
}

#[test]
fn standard_output_gets_lines_and_a_closed_pipe_is_no_error() {
    let here = scratch();
    let file = copy(&root().join(KEPT), &here.path().join("x.deburr"));
    let output = run(&["export", &file, "--jsonl", "-"], 0);
    let text = stdout(&output);
    let rows: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows[0]["schema"], "deburr.export/1");
    assert_eq!(rows[1]["table"], "meta");
    assert!(rows.last().unwrap()["table"] == "ending" && rows.len() > 100);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = deburr(&["export", &file, "--jsonl", "-"]).stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = deburr(&["export", &file, "--jsonl", "-"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
}

#[test]
fn a_recording_that_was_cut_short_is_exported_as_far_as_it_goes() {
    let here = scratch();
    let file = copy(&root().join(KEPT), &here.path().join("x.deburr"));
    rusqlite::Connection::open(&file).unwrap().execute_batch("DELETE FROM ending").unwrap();
    let output = run(&["export", &file, "--jsonl", "-"], 0);
    assert!(stderr(&output).contains("was cut short"), "{}", stderr(&output));
    assert!(stdout(&output).lines().count() > 100);
}
