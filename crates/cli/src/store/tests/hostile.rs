// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that were made to harm whoever opens them.

use super::{create, read, write};
use crate::store::bounds::{Budget, most_rows};
use crate::store::companion;
use deburr_core::recording::{
    BlameTick, Culprit, Event, EventKind, HostFacts, MOST_FACT_BYTES, ProcId, PsiReading,
    PsiResource, Record,
};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

const END: Record = Record::End { window_ns: 1 };

/// A recording that these statements have changed.
fn crafted(directory: &Path, statements: &str) -> PathBuf {
    let path = directory.join("crafted.deburr");
    let _ = std::fs::remove_file(&path);
    write(&path, &[END]);
    let connection = Connection::open(&path).unwrap();
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false).unwrap();
    connection.execute_batch("PRAGMA writable_schema = ON").unwrap();
    connection.execute_batch(statements).unwrap();
    path
}

/// What the files of a directory are: contents, or the length of long ones, and when they were changed.
fn state(directory: &Path) -> BTreeMap<PathBuf, (Vec<u8>, i64, i64, u64)> {
    let files = std::fs::read_dir(directory).unwrap().flatten().map(|entry| {
        let meta = entry.metadata().unwrap();
        let bytes = match meta.len() {
            0..10_000_000 if meta.is_file() => std::fs::read(entry.path()).unwrap(),
            _ => Vec::new(),
        };
        (entry.path(), (bytes, meta.mtime_nsec(), meta.ctime_nsec(), meta.len()))
    });
    files.collect()
}

/// A recording whose session was killed, with its log and the log's index.
fn killed(path: &Path) -> Vec<Record> {
    let event = |t_ns| {
        Record::Event(Event { t_ns, kind: EventKind::Interrupted { signal: "x".repeat(3_000) } })
    };
    let records: Vec<Record> = (0..50).map(event).collect();
    let mut writer = create(path, false).unwrap();
    for record in &records {
        writer.push(record).unwrap();
    }
    writer.commit().unwrap();
    // Files that its process left behind.
    let directory = path.parent().unwrap().join("live");
    std::fs::create_dir(&directory).unwrap();
    for suffix in ["", "-wal", "-shm"] {
        let from = companion(path, suffix);
        std::fs::copy(&from, directory.join(from.file_name().unwrap())).unwrap();
    }
    drop(writer);
    for entry in std::fs::read_dir(&directory).unwrap().flatten() {
        std::fs::rename(entry.path(), path.parent().unwrap().join(entry.file_name())).unwrap();
    }
    std::fs::remove_dir(&directory).unwrap();
    records
}

#[test]
fn what_is_no_ordinary_table_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let event = "DROP TABLE event;";
    let endless =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS seq FROM n";
    let declared =
        "event(seq INTEGER PRIMARY KEY, t_ns INTEGER, event TEXT, ns INTEGER, detail TEXT";
    for (what, statements) in [
        ("an endless view", format!("CREATE VIEW event AS {endless} ORDER BY random()")),
        (
            "a virtual table",
            "INSERT INTO sqlite_schema VALUES ('table', 'event', 'event', 0, \
             'CREATE VIRTUAL TABLE event USING dbstat')"
                .into(),
        ),
        (
            "a generated column",
            format!("CREATE TABLE {declared}, x TEXT AS (hex(zeroblob(1000000))) STORED)"),
        ),
        ("a table that is an index", format!("CREATE TABLE {declared}) WITHOUT ROWID")),
        (
            "a key that sorts",
            "CREATE TABLE event(seq INT, t_ns INTEGER, event TEXT, ns INTEGER, detail TEXT, PRIMARY KEY(seq))".into(),
        ),
        ("a default that is computed", format!("CREATE TABLE {declared} DEFAULT (randomblob(9)))")),
        (
            "one tree under two names",
            format!(
                "CREATE TABLE {declared}); UPDATE sqlite_schema SET rootpage = \
                 (SELECT rootpage FROM sqlite_schema WHERE name = 'ending') WHERE name = 'event'"
            ),
        ),
        (
            "the schema as a table",
            format!(
                "CREATE TABLE {declared}); UPDATE sqlite_schema SET rootpage = 1 WHERE name = 'event'"
            ),
        ),
        (
            "a name twice",
            format!(
                "CREATE TABLE {declared}); INSERT INTO sqlite_schema SELECT * FROM sqlite_schema WHERE name = 'event'"
            ),
        ),
    ] {
        let path = crafted(directory.path(), &format!("{event}{statements}"));
        let before = state(directory.path());
        let error = read(&path).expect_err(what);
        assert!(error.contains("`event`") || error.contains("`ending`"), "{what}: {error}");
        assert!(error.contains("is damaged"), "{what}: {error}");
        assert!(before == state(directory.path()), "{what} made it write");
    }
}

#[test]
fn triggers_and_damaged_indexes_are_nothing_to_the_reader() {
    let directory = tempfile::tempdir().unwrap();
    let path = crafted(
        directory.path(),
        "CREATE INDEX i ON ending(window_ns);
         CREATE TRIGGER t AFTER INSERT ON ending BEGIN DELETE FROM ending; END;
         UPDATE sqlite_schema SET rootpage = 999 WHERE name = 'i'",
    );
    assert_eq!(read(&path).unwrap(), [END]);
}

#[test]
fn more_than_a_session_writes_is_refused_with_its_table_and_limit() {
    let directory = tempfile::tempdir().unwrap();
    let rows = |count: u64| {
        format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {count})")
    };
    let most = most_rows("process");
    for (statements, table, limit) in [
        (
            "INSERT INTO event VALUES (9, 0, 'interrupted', NULL, zeroblob(300000000))".into(),
            "event",
            "2 MB".into(),
        ),
        (
            "INSERT INTO tick VALUES (1, 0, 9); \
             INSERT INTO device_bins_packed VALUES (9, 1, '8:0', 65536, NULL)"
                .into(),
            "device_bins",
            "4096 bins".into(),
        ),
        (
            format!(
                "{} INSERT INTO process(seq, proc, pid, start_ns, comm, cmdline, in_target, observer) \
                 SELECT i + 9, i, i, 0, '', '', 0, 0 FROM n",
                rows(most + 1)
            ),
            "process",
            format!("{most} rows"),
        ),
        (
            format!("{} INSERT INTO tick SELECT i, 0, 1 FROM n", rows(most_rows("tick") + 1)),
            "tick",
            format!("{} rows", most_rows("tick")),
        ),
    ] {
        let path = crafted(directory.path(), &statements);
        let error = read(&path).expect_err(table);
        assert!(error.contains(&format!("`{table}")) && error.contains(&limit), "{error}");
    }
}

#[test]
fn amounts_that_would_wrap_around_are_refused_with_their_table() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("large.deburr");
    let blame = |ns| {
        let (victim, culprit) = (ProcId(1), Culprit::NotSampled);
        Record::Blame(BlameTick { t0_ns: 0, t1_ns: 1_000_000_000, victim, culprit, ns })
    };
    let refused = |records: &[Record]| {
        let _ = std::fs::remove_file(&path);
        write(&path, records);
        read(&path).unwrap_err().to_string()
    };
    for amounts in [vec![u64::MAX], vec![1 << 61; 3]] {
        let records: Vec<Record> = amounts.into_iter().map(blame).chain([END]).collect();
        let said = refused(&records);
        assert!(said.contains("table `blame`: it holds amounts"), "{said}");
    }
    let counter = PsiReading {
        t_ns: 1,
        cgroup: None,
        resource: PsiResource::Cpu,
        some_ns: u64::MAX,
        full_ns: None,
    };
    let said = refused(&[Record::Psi(counter), END]);
    assert!(said.contains("it holds a number"), "{said}");
    let said = refused(&[Record::Psi(PsiReading { t_ns: 1 << 61, some_ns: 1, ..counter }), END]);
    assert!(said.contains("it holds a time"), "{said}");
}

#[test]
fn a_reading_ends_when_its_time_is_over_or_its_memory_full() {
    let over = |mut budget: Budget, kept: &mut Vec<Vec<u8>>| {
        let fault = (0..100_000).find_map(|_| {
            kept.push(vec![1; 10_000]);
            budget.spend(1).err()
        });
        format!("{fault:?}")
    };
    let (none, hour) = (Duration::ZERO, Duration::from_secs(3600));
    let fault = over(Budget::of(none, u64::MAX), &mut Vec::new());
    assert!(fault.contains("reading took more than 0 s"), "{fault}");
    let mut kept = Vec::new();
    let fault = over(Budget::of(hour, 64 << 20), &mut kept);
    assert!(fault.contains("takes more than 64 MB of memory"), "{fault}");
    // Other tests of this process use memory, too.
    assert!(kept.len() < 20_000, "{}", kept.len());
}

#[test]
fn a_killed_recording_is_read_and_nothing_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    let records = killed(&path);
    for index in [true, false] {
        if !index {
            std::fs::remove_file(companion(&path, "-shm")).unwrap();
        }
        let before = state(directory.path());
        assert_eq!(before.len(), 2 + usize::from(index));
        assert!(read(&path).unwrap() == records);
        assert!(before == state(directory.path()));
    }
    // What is behind the last transaction does not count.
    let log = companion(&path, "-wal");
    let bytes = std::fs::read(&log).unwrap();
    std::fs::write(&log, &bytes[..bytes.len() - 1]).unwrap();
    assert!(read(&path).unwrap().is_empty());
}

#[test]
fn an_index_that_is_another_file_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    let records = killed(&path);
    let precious = directory.path().join("precious");
    std::fs::write(&precious, "precious").unwrap();
    let index = companion(&path, "-shm");
    std::fs::remove_file(&index).unwrap();
    std::fs::hard_link(&precious, &index).unwrap();
    let before = state(directory.path());
    assert!(read(&path).unwrap() == records);
    assert!(before == state(directory.path()));
    assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
}

#[test]
fn a_log_is_read_as_far_as_it_is_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    let records = killed(&path);
    let log = companion(&path, "-wal");
    let sparse = |file: File| file.set_len(300 << 30).unwrap();
    sparse(File::options().write(true).open(&log).unwrap());
    assert!(read(&path).unwrap() == records);
    // Nothing but holes.
    std::fs::remove_file(&log).unwrap();
    sparse(File::create(&log).unwrap());
    assert!(read(&path).unwrap().is_empty());
    // No log at all.
    std::fs::remove_file(&log).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &log).unwrap();
    assert!(read(&path).unwrap_err().contains("not a regular file"));
}

/// `.cargo/config.toml` says what SQLite is built without.
#[test]
fn sqlite_has_nothing_that_is_not_used() {
    let connection = Connection::open_in_memory().unwrap();
    let mut options = connection.prepare("PRAGMA compile_options").unwrap();
    let options: Vec<String> =
        options.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    let unused = ["FTS3", "FTS5", "RTREE", "DBSTAT", "STAT4", "SOUNDEX", "ENABLE_LOAD_EXTENSION"];
    for option in &options {
        assert!(!unused.iter().any(|it| option.contains(it)), "{option}");
    }
    for needed in ["OMIT_LOAD_EXTENSION", "TEMP_STORE=3"] {
        assert!(options.iter().any(|it| it == needed), "{needed} is not in {options:?}");
    }
}

/// A recording whose facts about the host are those bytes.
fn with_facts(directory: &Path, bytes: &[u8]) -> PathBuf {
    let path = crafted(directory, "");
    let connection = Connection::open(&path).unwrap();
    connection.execute("INSERT INTO host_facts VALUES (9, ?)", [bytes]).unwrap();
    path
}

#[test]
fn compressed_text_is_bounded_and_must_be_text() {
    let directory = tempfile::tempdir().unwrap();
    let packed = |text: &[u8]| miniz_oxide::deflate::compress_to_vec_zlib(text, 1);
    let facts = |text: &str| Record::HostFacts(Box::new(HostFacts { document: text.into() }));
    let largest = "x".repeat(MOST_FACT_BYTES);
    for text in ["", "{}", &largest] {
        let path = with_facts(directory.path(), &packed(text.as_bytes()));
        assert_eq!(read(&path).unwrap()[1], facts(text));
    }
    let whole = packed(b"some text");
    let too_large = packed(&vec![0; MOST_FACT_BYTES + 1]);
    for bytes in [&b""[..], b"x", &whole[..whole.len() - 5], &too_large, &packed(b"\xff")] {
        let path = with_facts(directory.path(), bytes);
        let message = read(&path).unwrap_err().to_string();
        assert!(message.contains("host_facts") && message.contains("compressed text"), "{message}");
    }
}
