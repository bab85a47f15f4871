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
    // What was made before there were these tables has none of them.
    let table = "CREATE TABLE IF NOT EXISTS long_wait(seq INTEGER PRIMARY KEY, t_ns INTEGER NOT NULL, victim INTEGER NOT NULL,
                 tid INTEGER NOT NULL, wait_ns INTEGER NOT NULL, culprit INTEGER NOT NULL, ns INTEGER NOT NULL);
                 INSERT INTO long_wait VALUES (999998, 9000000, 1, 1, 5000000, 2, 3000000), (999999, 9000000, 1, 1, 5000000, -1, 1);
                 CREATE TABLE IF NOT EXISTS named_threads(seq INTEGER PRIMARY KEY, tick INTEGER NOT NULL, proc INTEGER NOT NULL,
                 comm TEXT NOT NULL, threads INTEGER NOT NULL, on_cpu_ns INTEGER NOT NULL, delay_ns INTEGER NOT NULL);
                 CREATE TABLE profile_span(seq INTEGER PRIMARY KEY, t0_ns INTEGER NOT NULL, t1_ns INTEGER NOT NULL,
                 period_ns INTEGER NOT NULL, samples INTEGER NOT NULL, lost INTEGER NOT NULL);
                 CREATE TABLE profile_stack(seq INTEGER PRIMARY KEY, t0_ns INTEGER NOT NULL, t1_ns INTEGER NOT NULL,
                 proc INTEGER NOT NULL, stack TEXT NOT NULL, samples INTEGER NOT NULL);
                 CREATE TABLE sleep_stack(seq INTEGER PRIMARY KEY, t0_ns INTEGER NOT NULL, t1_ns INTEGER NOT NULL,
                 proc INTEGER NOT NULL, call TEXT NOT NULL, address INTEGER, waker INTEGER, stack TEXT NOT NULL,
                 samples INTEGER NOT NULL, ns INTEGER NOT NULL);
                 INSERT INTO profile_span VALUES (999990, 0, 9000000, 10101010, 1000, 3);
                 CREATE TABLE IF NOT EXISTS host_facts(seq INTEGER PRIMARY KEY, document BLOB_OF_ZLIB NOT NULL)";
    connection.execute_batch(table).unwrap();
    let facts = std::fs::read(root().join("fixtures/snapshots/drift-slow.json")).unwrap();
    let packed = miniz_oxide::deflate::compress_to_vec_zlib(&facts, 6);
    connection.execute("INSERT INTO host_facts VALUES (999997, ?)", [packed]).unwrap();
    add_details(file, &connection);
    let add = |sql: &str, name: &str, n: i64| {
        connection.execute(sql, rusqlite::params![1_000_000 + n, n, name]).unwrap();
    };
    for (n, name) in (0..).zip(HOSTILE) {
        let seq = 10 * n;
        add("INSERT INTO profile_stack VALUES (?1 + 3, 0, 9000000, 1, ?3, ?2)", name, seq);
        add(
            "INSERT INTO sleep_stack VALUES (?1 + 4, 0, 9000000, 1, ?3, ?2, nullif(?2, 0), ?3, ?2, 7)",
            name,
            seq,
        );
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

/// Adds the tables that a recording of now has for details, each with a row.
fn add_details(file: &str, connection: &rusqlite::Connection) {
    let now = format!("{file}-now");
    run(&["record", "-q", "-d", "0.2", "-o", &now], 0);
    let now = rusqlite::Connection::open(now).unwrap();
    for name in [
        "wait_bin_packed",
        "wait_bin",
        "request_bin_packed",
        "request_bin",
        "thread_ledger",
        "sleep",
        "cpu_time",
        "reclaim",
        "memory_reading",
        "memory_held",
        "resent",
        "sending",
        "unread",
        "accept_queue",
        "held_back",
        "datagrams",
        "netns",
        "listener",
        "interrupts",
    ] {
        let sql = "SELECT sql FROM sqlite_master WHERE name = ?";
        let sql: String = now.query_row(sql, [name], |row| row.get(0)).unwrap();
        connection.execute_batch(&sql).unwrap();
    }
    // Packed lists of three numbers each.
    let rows = "INSERT INTO wait_bin_packed VALUES (2000000, 0, 100000000, 1, x'050164'), (2000001, 0, 100000000, 4294967295, x'0602640701a08d06');
                INSERT INTO reclaim SELECT 2000200, min(tick), 1, 0, 'limit', NULL, 'max', 4096, 4000, 9, 9, 2, 5, 1, 9, 32 FROM tick;
                INSERT INTO memory_reading VALUES (2000201, 5, NULL, 7, NULL, 4096, 8192, 4096, 0);
                INSERT INTO memory_held VALUES (2000202, 5, 1, 8192, NULL, 4096);
                INSERT INTO request_bin_packed VALUES (2000002, 0, 100000000, (SELECT min(device) FROM device_tick), 'read', x'090264');";
    connection.execute_batch(rows).unwrap();
    for (n, name) in (0..).zip(HOSTILE) {
        let sql = "INSERT INTO thread_ledger VALUES (2000003 + ?1, 0, 9, 1, nullif(?1, 0), ?2, 1, 9, 1, 2, 0, 0, 0, 0, 6, 0)";
        connection.execute(sql, rusqlite::params![n, name]).unwrap();
        let on = serde_json::json!({ "kind": "anonymous", "name": name }).to_string();
        let sql = "INSERT INTO sleep SELECT 2000100 + ?1, min(tick), 1, 'asleep', ?2, ?3, '{\"by\":\"not_yet\"}', ?2,
                   nullif(?1, 0), nullif(?1, 1) = 0, nullif(?1 % 2, 0), ?4, 9, 1, 9 FROM tick";
        let behind =
            serde_json::json!([{ "proc": 1, "thread": name, "did": "queued" }]).to_string();
        connection.execute(sql, rusqlite::params![n, name, on, behind]).unwrap();
        let sql = "INSERT INTO cpu_time VALUES (2000600 + ?1, ?1, 1, 7, 9)";
        connection.execute(sql, [n]).unwrap();
        for sql in [
            "INSERT INTO resent SELECT 2000700 + ?1, min(tick), 1, 7, ?2, ?2, 1, 2, 0, 0, 1, 9, 0, 1, 8, 7, 9, 2, 40, 3 FROM tick",
            "INSERT INTO sending SELECT 2000900 + ?1, min(tick), 1, 7, ?2, ?2, nullif(?1 % 2, 0), 1, nullif(?1 % 3, 2), 9, 5, 2, 7, 8192, 87040, 9 FROM tick",
            "INSERT INTO unread SELECT 2001000 + ?1, min(tick), 1, nullif(?1, 0), 2, 10, 1, 3, 3, 2, 1, 0, 1, 9, ?2, ?2, 64 FROM tick",
            "INSERT INTO accept_queue SELECT 2001100 + ?1, min(tick), 1, nullif(?1, 0), ?2, 10, 3, 12, 5, 4, 7 FROM tick",
            "INSERT INTO held_back SELECT 2001200 + ?1, min(tick), 1, ?2, ?2, 10, 3, nullif(?1 % 2, 0) IS NULL, 5, 4, 200 FROM tick",
            "INSERT INTO datagrams SELECT 2000300 + ?1, min(tick), 1, 7, ?2, nullif(?2, ''), 5, 9, 9, 9 FROM tick",
            "INSERT INTO interrupts SELECT 2000800 + ?1, min(tick), 1, 3, 'device', 36, ?2, 'interrupts', 900, 7, 200, 2 FROM tick",
            "INSERT INTO listener SELECT 2000400 + ?1, min(tick), 1, 7, ?2, 5, 3, 2, 128 FROM tick",
        ] {
            connection.execute(sql, rusqlite::params![n, name]).unwrap();
        }
        let sql = "INSERT INTO netns SELECT 2000500 + ?1, min(tick), 7, 5, 1, 2 FROM tick";
        connection.execute(sql, rusqlite::params![n]).unwrap();
    }
}

/// Where the Python packages are that `scripts/setup --lab` installs.
fn packages(test: &str) -> Option<PathBuf> {
    let found = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("python");
    if !has_python(test) {
        return None;
    }
    if !found.join("made").exists() {
        skip(
            TIER,
            test,
            "the Python packages of tests/export/requirements.txt are not here: `scripts/setup --lab`",
        );
        return None;
    }
    Some(found)
}

#[test]
fn every_table_of_every_kept_recording_round_trips() {
    if !has_python("export::every_table_of_every_kept_recording_round_trips") {
        return;
    }
    let script = root().join("tests/export/round-trip");
    let packages = packages("export::every_table_of_every_kept_recording_round_trips (Parquet)");
    let mut tables = BTreeSet::new();
    let kept = kept();
    assert!(kept.len() > 10, "{kept:?}");
    for recording in kept {
        let here = scratch();
        let [file, jsonl, csv, parquet] =
            ["x.deburr", "x.jsonl", "csv", "parquet"].map(|name| here.path().join(name));
        let file = copy(&recording, &file);
        if recording.ends_with(KEPT) {
            add_rows(&file);
        }
        let [jsonl, csv, parquet] =
            [jsonl, csv, parquet].map(|path| path.to_str().unwrap().to_owned());
        let formats = ["--jsonl", &jsonl, "--csv", &csv, "--parquet", &parquet];
        run(&[&["export", &file], &formats[..]].concat(), 0);
        let mut compare = Command::new("python3");
        match &packages {
            Some(packages) => {
                compare.env("PYTHONPATH", packages).arg(&script).arg(&file).args(formats)
            }
            None => compare.arg(&script).arg(&file).args(&formats[..4]),
        };
        let said = stdout(&expect(&mut compare, 0));
        tables.extend(said.lines().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())));
    }
    // Each table has rows in one of them.
    let made = ["finding".to_owned(), "fact".to_owned()];
    let wanted = schema_tables().into_iter().filter(|table| !made.contains(table)).collect();
    let without: Vec<_> = BTreeSet::difference(&wanted, &tables).collect();
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
    assert!(rows.last().unwrap()["table"] == "finding" && rows.len() > 100);
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

#[test]
fn a_fleet_is_asked_with_the_questions_of_the_document() {
    let Some(packages) = packages("export::a_fleet_is_asked_with_the_questions_of_the_document")
    else {
        return;
    };
    let here = scratch();
    let fleet = here.path().join("fleet");
    std::fs::create_dir(&fleet).unwrap();
    std::fs::set_permissions(&fleet, PermissionsExt::from_mode(0o777)).unwrap();
    for name in ["neighbour-4", "healthy", "go-quota", "writeback"] {
        let kept = root().join("fixtures/lab").join(name).join("recording.deburr");
        let file = copy(&kept, &here.path().join("x.deburr"));
        // All hosts of the lab have one name.
        let connection = rusqlite::Connection::open(&file).unwrap();
        connection.execute("UPDATE meta SET host_name = ?1", [name]).unwrap();
        drop(connection);
        run(&["export", &file, "--parquet", fleet.join(name).to_str().unwrap()], 0);
    }
    let mut ask = Command::new("python3");
    ask.env("PYTHONPATH", packages).arg(root().join("tests/export/fleet")).arg(here.path());
    let said = stdout(&expect(&mut ask, 0));
    let answers: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [codes, losses, settings, waits] = answers.as_slice() else { panic!("{answers:?}") };
    let of_code = |code: &str| {
        let rows = codes.as_array().unwrap();
        rows.iter().find(|row| row["code"] == code).unwrap().clone()
    };
    // Every host could look for a full run queue; one alone has it. No host was asked about system calls.
    assert_eq!(of_code("SCH001")["looked"], 4);
    assert!((1..4).contains(&of_code("SCH001")["hosts"].as_i64().unwrap()));
    assert_eq!(of_code("SYS001")["could_not_look"], 4);
    let shares = losses.as_array().unwrap().iter().map(|row| row["share"].as_f64().unwrap());
    assert!(shares.clone().all(|share| share > 0.0 && share < 1.0), "{losses}");
    assert!(settings.as_array().unwrap().iter().all(|row| row["hosts"].as_i64().unwrap() <= 4));
    assert!(waits[0]["ns"].as_i64().unwrap() > 0 && waits[0]["culprit"].is_string(), "{waits}");
}

#[test]
fn a_snapshot_has_facts_only() {
    let here = scratch();
    let kept = root().join("fixtures/snapshots/drift-slow.json");
    let file = copy(&kept, &here.path().join("host.json"));
    let text = stdout(&run(&["export", &file, "--jsonl", "-"], 0));
    let rows: Vec<serde_json::Value> =
        text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.len() > 10 && rows.iter().all(|row| row["table"] == "fact"), "{}", rows.len());
    let snapshot: serde_json::Value =
        serde_json::from_slice(&std::fs::read(kept).unwrap()).unwrap();
    let keys: BTreeSet<&str> = rows.iter().map(|row| row["key"].as_str().unwrap()).collect();
    let wanted = snapshot["facts"].as_array().unwrap().iter();
    assert_eq!(keys, wanted.map(|fact| fact["key"].as_str().unwrap()).collect());
    for row in &rows {
        assert_eq!(row["origin"], "snapshot");
        assert_eq!(
            row["state"] == "absent",
            row["state"] != "unreadable" && row["value"].is_null(),
            "{row}"
        );
    }
    std::fs::write(here.path().join("y.json"), "{}").unwrap();
    let path = here.path().join("y.json");
    assert!(refuse(&["export", path.to_str().unwrap(), "--jsonl", "-"]).contains("y.json"));
}

#[test]
fn a_trace_is_what_perfetto_reads() {
    const TEST: &str = "export::a_trace_is_what_perfetto_reads";
    let Some(packages) = packages(TEST) else { return };
    for name in ["neighbour-4", "writeback", "journal"] {
        let here = scratch();
        let kept = root().join("fixtures/lab").join(name).join("recording.deburr");
        let file = copy(&kept, &here.path().join("x.deburr"));
        let trace = here.path().join("x.pftrace");
        run(&["export", &file, "--perfetto", trace.to_str().unwrap()], 0);
        let mut check = Command::new("python3");
        check
            .env("PYTHONPATH", &packages)
            .arg(root().join("tests/export/trace"))
            .arg(&trace)
            .arg(&file);
        let said = stdout(&expect(&mut check, 0));
        assert!(said.contains("packets"), "{said}");
        if said.contains("no trace processor") {
            skip(TIER, &format!("{TEST} (queries)"), "the trace processor could not be downloaded");
        }
    }
    let here = scratch();
    let kept = root().join("fixtures/snapshots/drift-slow.json");
    let file = copy(&kept, &here.path().join("host.json"));
    let said = refuse(&["export", &file, "--perfetto", here.path().join("x").to_str().unwrap()]);
    assert!(said.contains("is no recording"), "{said}");
}
