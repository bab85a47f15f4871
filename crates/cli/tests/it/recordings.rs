// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recordings that are made, read, damaged and cut short.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::program::{
    Running, deburr, deburr_after, expect, refuse, run, scratch, stderr, stdout, until,
};
use crate::repo::root;
use rusqlite::{Connection, OpenFlags};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Records this host for 1.3 s.
fn record(path: &Path) {
    let output = run(&["record", "-d", "1.3", "-o", path.to_str().unwrap()], 0);
    assert_eq!(stdout(&output) + &stderr(&output), "");
}

/// Number of seconds that are in a recording so far; `None` if it cannot be read at the moment.
fn seconds_in(path: &Path) -> Option<i64> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let connection = Connection::open_with_flags(path, flags).ok()?;
    connection.query_row("SELECT count(*) FROM observer_tick", [], |row| row.get(0)).ok()
}

#[test]
fn what_was_recorded_is_reported_and_consistent() {
    let directory = scratch();
    let path = directory.path().join("a b.deburr");
    let shown = path.to_str().unwrap();
    record(&path);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "one file is left");
    let report = run(&["report", shown, "--json"], 0);
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["window"]["source"], "recording");
    assert!(report["window"]["seconds"].as_f64().unwrap() >= 1.3);
    assert!(stdout(&run(&["check", shown], 0)).contains("consistent"));

    let before = std::fs::read(&path).unwrap();
    run(&["report", shown], 0);
    assert!(std::fs::read(&path).unwrap() == before, "reading changes nothing");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn disks_and_the_settings_of_writeback_are_recorded_without_bpf() {
    let directory = scratch();
    let path = directory.path().join("x.deburr");
    record(&path);
    let connection = Connection::open(&path).unwrap();
    let one = |sql: &str| -> String { connection.query_row(sql, [], |row| row.get(0)).unwrap() };
    let expected = std::fs::read_to_string("/proc/sys/vm/dirty_expire_centisecs").unwrap();
    let sql = "SELECT value FROM settings WHERE path = '/proc/sys/vm/dirty_expire_centisecs'";
    assert_eq!(one(sql), expected.trim_end());
    // Every recorded device is in `/proc/diskstats`.
    let text = std::fs::read_to_string("/proc/diskstats").unwrap();
    let sql = "SELECT DISTINCT name FROM disk_reading JOIN devices USING (device)";
    let mut statement = connection.prepare(sql).unwrap();
    let names = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    for name in names.map(Result::unwrap) {
        let fields = text.lines().filter_map(|line| line.split_whitespace().nth(2));
        assert!(fields.map(|field| field.replace('/', "!")).any(|field| field == name), "{name}");
    }
}

#[test]
fn a_report_and_its_recording_say_the_same() {
    let directory = scratch();
    let path = directory.path().join("x.deburr");
    let shown = path.to_str().unwrap();
    let live = run(&["-d", "1.3", "-o", shown, "--json"], 0);
    let replayed = run(&["report", shown, "--json"], 0);
    let parse = |bytes: &[u8]| -> serde_json::Value { serde_json::from_slice(bytes).unwrap() };
    let (mut live, mut replayed) = (parse(&live.stdout), parse(&replayed.stdout));
    assert_eq!(live["window"]["source"].take(), "live");
    assert_eq!(replayed["window"]["source"].take(), "recording");
    assert_eq!(live, replayed);
}

#[test]
fn a_recording_is_replaced_only_by_force() {
    let directory = scratch();
    let path = directory.path().join("x.deburr");
    let shown = path.to_str().unwrap();
    record(&path);
    refuse(&["record", "-d", "1h", "-o", shown]);
    run(&["record", "-d", "0.2", "--force", "-o", shown], 0);
    run(&["check", shown], 0);
    assert_eq!(seconds_in(&path), Some(1));
}

#[test]
fn what_is_no_recording_is_called_by_its_name() {
    let directory = scratch();
    let place = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let write = |name: &str, bytes: &[u8]| std::fs::write(place(name), bytes).unwrap();
    let good = directory.path().join("good");
    record(&good);
    let bytes = std::fs::read(&good).unwrap();
    write("empty", b"");
    write("text", b"Linux 6.1.0 (host)\n");
    write("truncated", &bytes[..bytes.len() / 2]);
    write("newer", &bytes);
    write("beheaded", &bytes);
    Connection::open(place("foreign")).unwrap().execute_batch("CREATE TABLE t(x)").unwrap();
    Connection::open(place("newer")).unwrap().pragma_update(None, "user_version", 1000).unwrap();
    Connection::open(place("beheaded")).unwrap().execute_batch("DROP TABLE psi_reading").unwrap();
    for (name, expected) in [
        ("nothing", "does not exist"),
        ("", "is a directory"),
        ("empty", "is empty"),
        ("text", "not a recording"),
        ("truncated", "damaged or cut off"),
        ("foreign", "not a recording"),
        ("newer", "version 1000"),
        ("beheaded", "psi_reading"),
    ] {
        for command in ["report", "check"] {
            let message = refuse(&[command, &place(name)]);
            assert!(message.contains(expected), "{name}: {message}");
            assert!(message.contains(&place(name)), "{message}");
            assert_eq!(message.lines().count(), 1, "{message}");
        }
    }
}

#[test]
fn recordings_of_every_version_are_read_from_places_that_cannot_be_written() {
    let versions = root().join("fixtures/recordings");
    for version in std::fs::read_dir(versions).unwrap() {
        let directory = scratch();
        for file in std::fs::read_dir(version.unwrap().path()).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), directory.path().join(file.file_name())).unwrap();
        }
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o555)).unwrap();
        let files: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
        assert!(!files.is_empty());
        for file in files {
            let path = file.unwrap().path();
            let before = std::fs::read(&path).unwrap();
            run(&["check", path.to_str().unwrap()], 0);
            run(&["report", path.to_str().unwrap()], 0);
            assert!(std::fs::read(&path).unwrap() == before, "{} was changed", path.display());
        }
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    }
}

#[test]
fn the_kept_recording_tells_who_made_the_victim_wait() {
    let directory = scratch();
    let path = directory.path().join("small.deburr");
    std::fs::copy(root().join("fixtures/recordings/v1/small.deburr"), &path).unwrap();
    let shown = path.to_str().unwrap();
    let report = run(&["report", shown, "--json", "--fail-on", "high"], 1);
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let finding = &report["findings"][0];
    assert_eq!(finding["code"], "SCH001");
    assert_eq!(finding["victim"]["comm"], "victim");
    assert_eq!(finding["causes"][0]["comm"], "spinner");
    let share = finding["causes"][0]["share"].as_f64().unwrap();
    assert!((0.5..0.7).contains(&share), "{share}");
    assert!(stdout(&run(&["report", shown, "-q"], 0)).contains("`spinner`"));
}

#[test]
fn an_inconsistent_recording_is_found_out() {
    let directory = scratch();
    let path = directory.path().join("x.deburr");
    record(&path);
    Connection::open(&path)
        .unwrap()
        .execute_batch("UPDATE tick SET t1_ns = 0 WHERE t0_ns > 0; DELETE FROM coverage")
        .unwrap();
    let text = stdout(&run(&["check", path.to_str().unwrap()], 1));
    assert!(text.contains("not consistent"), "{text}");
    assert!(text.contains("every source says what it saw"), "{text}");
    assert!(text.contains("does not end before it begins"), "{text}");
}

#[test]
fn a_killed_session_keeps_all_but_its_last_second() {
    // At different times within a second, so that some kills hit a write.
    for (seconds, extra_ms) in [(1, 0), (1, 630), (2, 310), (2, 970)] {
        let directory = scratch();
        let path = directory.path().join("x.deburr");
        let shown = path.to_str().unwrap();
        let session = Running::start(&mut deburr(&["record", "-d", "1h", "-o", shown]));
        until("a few seconds are recorded", || seconds_in(&path).is_some_and(|n| n >= seconds));
        std::thread::sleep(Duration::from_millis(extra_ms));
        let committed = seconds_in(&path).unwrap();
        session.signal(Signal::KILL);
        drop(session);

        let output = run(&["report", shown, "--json"], 0);
        assert!(stderr(&output).contains("cut short"), "{}", stderr(&output));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(report["window"]["seconds"].as_f64().unwrap() >= committed as f64);
        assert!(stdout(&run(&["check", shown], 0)).contains("cut short"));
        assert!(seconds_in(&path).unwrap() >= committed);
    }
}

#[test]
fn a_disk_that_fills_up_ends_the_recording_and_keeps_what_is_in_it() {
    let directory = scratch();
    let path = directory.path().join("x.deburr");
    let shown = path.to_str().unwrap();
    // `ulimit -f` counts blocks of 512 B: room for the tables and a few seconds.
    let output =
        expect(&mut deburr_after("ulimit -f 520", &["record", "-d", "10m", "-o", shown]), 4);
    let message = stderr(&output);
    assert!(message.contains("ends here") && message.contains(shown), "{message}");
    let report = run(&["report", shown], 0);
    assert!(stderr(&report).contains("cut short"), "{}", stderr(&report));
    run(&["check", shown], 0);
}

#[test]
fn a_report_is_given_even_if_its_recording_failed() {
    let directory = scratch();
    let path = directory.path().join("x.deburr");
    let shown = path.to_str().unwrap();
    // Room for the tables, and for some more of them.
    let mut command = deburr_after("ulimit -f 490", &["-d", "8", "-o", shown]);
    let output = expect(&mut command, 4);
    assert!(stdout(&output).starts_with("watched host"), "{}", stdout(&output));
    assert!(stderr(&output).contains("ends here"), "{}", stderr(&output));
}

#[test]
fn a_recording_whose_index_is_cut_short_ends_with_a_sentence() {
    let directory = scratch();
    let path = directory.path().join("x.deburr");
    let shown = path.to_str().unwrap();
    let mut command = deburr(&["record", "-d", "10m", "-o", shown]);
    let session = Running::start(command.stderr(Stdio::piped()));
    until("a second is recorded", || seconds_in(&path).is_some_and(|n| n >= 1));
    let index = format!("{shown}-shm");
    std::fs::File::options().write(true).open(index).unwrap().set_len(0).unwrap();
    let output = session.wait();
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert!(stderr(&output).contains("was truncated"), "{}", stderr(&output));
    assert!(stdout(&run(&["check", shown], 0)).contains("cut short"));
}

/// Makes a recording one of 190 000 processes with long command lines: 100 MB.
fn fill(path: &Path) {
    let connection = Connection::open(path).unwrap();
    let mut columns = connection.prepare("SELECT name FROM pragma_table_info('process')").unwrap();
    let columns = columns.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let columns: Vec<String> = columns.map(Result::unwrap).collect();
    let made = |column: &String| match &**column {
        "seq" => "1000000 + n".to_owned(),
        "proc" | "id" => "1000000 + n".to_owned(),
        "pid" => "n".to_owned(),
        "cmdline" => "printf('%0480d', n)".to_owned(),
        other => format!("one.{other}"),
    };
    let made: Vec<String> = columns.iter().map(made).collect();
    connection
        .execute_batch(&format!(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
             WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 190000)
             INSERT INTO process({}) SELECT {} FROM number, (SELECT * FROM process LIMIT 1) AS one",
            columns.join(", "),
            made.join(", ")
        ))
        .unwrap();
}

/// The kernel bounds the memory here. `sizes` has recordings of other kinds, and smaller ones.
#[test]
fn a_crafted_recording_of_100_mb_takes_no_more_than_a_gigabyte_and_a_minute() {
    let directory = scratch();
    let path = directory.path().join("x.deburr");
    record(&path);
    fill(&path);
    let megabytes = path.metadata().unwrap().len() >> 20;
    assert!((90..130).contains(&megabytes), "{megabytes} MB");
    let begin = Instant::now();
    // The kernel gives no more than a gigabyte.
    let mut command = deburr_after("ulimit -v 1000000", &["report", path.to_str().unwrap()]);
    let output = command.output().unwrap();
    let took = begin.elapsed();
    let said = stderr(&output);
    assert!(matches!(output.status.code(), Some(0 | 2)), "{}: {said}", output.status);
    assert!(!said.contains("not enough memory"), "{said}");
    // This program may be built without optimization, and share its CPU with other tests.
    assert!(took < Duration::from_secs(4 * 60), "{took:?}");
}

#[test]
fn memory_that_cannot_be_had_is_said() {
    let path = root().join("fixtures/lab/writeback/recording.deburr");
    let with = |kilobytes: u32, arguments: &[&str]| {
        deburr_after(&format!("ulimit -v {kilobytes}"), arguments).output().unwrap()
    };
    // With less the kernel or the dynamic linker cannot even load the program.
    let limits = || (8_000..400_000).step_by(1_000);
    let least = limits().find(|&limit| with(limit, &["--version"]).status.success()).unwrap();
    let mut refused = 0;
    for limit in limits().filter(|limit| *limit > least) {
        let output = with(limit, &["report", path.to_str().unwrap()]);
        if output.status.success() {
            break;
        }
        refused += 1;
        assert_eq!(output.status.code(), Some(3), "{limit} kB: {}", stderr(&output));
        assert!(stderr(&output).contains("not enough memory"), "{}", stderr(&output));
    }
    assert!(refused > 0, "{least} kB are enough for everything");
}
