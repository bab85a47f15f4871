// SPDX-License-Identifier: Apache-2.0 OR MIT

mod block;
mod document;
mod hostile;
mod kept;
mod sample;
mod size;
mod size_block;

pub(crate) use document::{Documented, Field, joined, wrapped};
pub(in crate::store) use sample::{Sample, bin, range};

use super::table;
use super::*;
use deburr_core::recording::{
    BlameTick, Culprit, Event, EventKind, ProcId, Process, ProcessTick, Record, ThreadStates,
    WaitHist,
};
use proptest::prelude::*;
use rusqlite::Connection;
use sample::record;

fn read(path: &Path) -> Result<Vec<Record>, String> {
    let mut records = Vec::new();
    let reader = Reader::open(path).map_err(|error| error.to_string())?;
    reader.for_each(|record| records.push(record.clone())).map_err(|error| error.to_string())?;
    Ok(records)
}

pub(in crate::store) fn create(path: &Path, force: bool) -> anyhow::Result<Writer> {
    Claim::new(path, force)?.begin()
}

fn write(path: &Path, records: &[Record]) {
    let mut writer = create(path, true).unwrap();
    for record in records {
        writer.push(record).unwrap();
    }
    writer.finish().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read_back_in_order(records in prop::collection::vec(record(), 0..40)) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.deburr");
        write(&path, &records);
        prop_assert_eq!(read(&path).unwrap(), records);
        prop_assert!(!companion(&path, "-wal").exists());
        prop_assert!(!companion(&path, "-shm").exists());
    }

    /// Lists are JSON in recordings from before lists were packed, and older versions read them as JSON from the views.
    #[test]
    fn lists_as_json_are_read_as_well(records in prop::collection::vec(record(), 0..40)) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.deburr");
        write(&path, &records);
        let connection = Connection::open(&path).unwrap();
        // The views for people refer to the tables.
        connection.execute_batch("DROP VIEW process_seconds; DROP VIEW process_totals").unwrap();
        connection.execute_batch("DROP VIEW wait_sizes; DROP VIEW io_wait_totals").unwrap();
        connection.execute_batch("DROP VIEW device_activity").unwrap();
        for table in table::all() {
            let (name, stored) = (table.name, table.stored());
            if stored != name {
                let columns: Vec<_> =
                    table.columns().iter().map(|column| format!(", {} BLOB", column.name)).collect();
                connection
                    .execute_batch(&format!(
                        "CREATE TABLE copy(seq INTEGER PRIMARY KEY{});
                         INSERT INTO copy SELECT * FROM {name}; DROP VIEW {name};
                         DROP TABLE {stored}; ALTER TABLE copy RENAME TO {name}",
                        columns.concat()
                    ))
                    .unwrap();
            }
        }
        prop_assert_eq!(read(&path).unwrap(), records);
    }

    #[test]
    fn what_was_committed_survives_its_writer(
        records in prop::collection::vec(record(), 1..40),
        cut in any::<prop::sample::Index>(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.deburr");
        let committed = cut.index(records.len());
        let mut writer = create(&path, false).unwrap();
        for record in &records[..committed] {
            writer.push(record).unwrap();
        }
        writer.commit().unwrap();
        for record in &records[committed..] {
            writer.push(record).unwrap();
        }
        prop_assert_eq!(&read(&path).unwrap()[..], &records[..committed], "read along");
        drop(writer);
        prop_assert_eq!(&read(&path).unwrap()[..], &records[..committed], "afterwards");
    }

    #[test]
    fn no_damage_makes_the_reader_panic(
        records in prop::collection::vec(record(), 1..20),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.deburr");
        write(&path, &records);
        let mut bytes = std::fs::read(&path).unwrap();
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        std::fs::write(&path, bytes).unwrap();
        let _ = read(&path);
    }
}

#[test]
fn a_full_disk_keeps_what_was_written_before() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.deburr");
    let mut writer = create(&path, false).unwrap();
    let filler = |t_ns| {
        Record::Event(Event { t_ns, kind: EventKind::Interrupted { signal: "x".repeat(1000) } })
    };
    // Each table takes a page.
    writer.limit_to_pages(100);
    let mut committed = Vec::new();
    let error = 'full: loop {
        let second = committed.len() as u64;
        for t_ns in second..second + 10 {
            if let Err(error) = writer.push(&filler(t_ns)) {
                break 'full error;
            }
        }
        writer.commit().unwrap();
        committed.extend((second..second + 10).map(filler));
    };
    assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::DiskFull), "{error}");
    let last = Record::Event(Event {
        t_ns: 1,
        kind: EventKind::StoreFailed { reason: error.to_string() },
    });
    writer.abandon(&last);
    let records = read(&path).unwrap();
    assert!(!committed.is_empty());
    assert_eq!(&records[..committed.len()], &committed[..]);
    assert_eq!(records.last(), Some(&last));
}

#[test]
fn files_that_are_no_recording_are_called_by_their_name() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let whole = directory.path().join("whole");
    write(&whole, &[Record::End { window_ns: 1 }]);
    let bytes = std::fs::read(&whole).unwrap();
    let foreign = directory.path().join("foreign");
    Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE t(x)").unwrap();
    let newer = directory.path().join("newer");
    std::fs::copy(&whole, &newer).unwrap();
    let version = table::VERSION + 1;
    Connection::open(&newer).unwrap().pragma_update(None, "user_version", version).unwrap();
    for (path, expected) in [
        (directory.path().join("nothing"), "does not exist"),
        (directory.path().to_owned(), "is a directory"),
        ("/dev/null".into(), "not a regular file"),
        (file("empty", b""), "is empty"),
        (file("text", b"hello\n"), "is not a recording"),
        (file("cut", &bytes[..bytes.len() / 2]), "damaged or cut off"),
        (file("head", &bytes[..20]), "damaged or cut off"),
        (foreign, "not a recording of deburr"),
        (newer, "use a newer deburr"),
    ] {
        let error = read(&path).expect_err(expected);
        assert!(error.contains(expected), "{}: {error}", path.display());
        assert!(error.contains(&format!("`{}`", path.display())), "{error}");
    }
}

#[test]
fn a_name_is_never_read_as_sqlites_syntax() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("file:")).unwrap();
    for name in ["file:y?mode=memory", "file:/x", ":memory:", "a%41#?&b", "-x"] {
        let path = directory.path().join(name);
        write(&path, &[Record::End { window_ns: 1 }]);
        assert!(path.metadata().unwrap().len() > 0, "{name}");
        assert_eq!(read(&path).unwrap().len(), 1, "{name}");
    }
    for (path, expected) in [
        ("file:y?mode=memory", "file:./file%3ay%3fmode%3dmemory?mode=rw"),
        (":memory:", "file:./%3amemory%3a?mode=rw"),
        ("/a/b c", "file:///a/b%20c?mode=rw"),
        ("//a/b", "file:////a/b?mode=rw"),
    ] {
        assert_eq!(uri(Path::new(path), "mode=rw"), expected);
    }
}

#[test]
fn errors_do_not_quote_statements() {
    let connection = Connection::open_in_memory().unwrap();
    let error = connection.execute_batch("CREATE TABLE a (b); CREATE TABLE a (b)").unwrap_err();
    assert_eq!(reason(&error), "table a already exists");
}

#[test]
fn only_its_owner_reads_a_recording() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.deburr");
    let mut writer = create(&path, false).unwrap();
    writer.push(&Record::End { window_ns: 1 }).unwrap();
    writer.commit().unwrap();
    for file in std::fs::read_dir(dir.path()).unwrap().flatten() {
        let mode = file.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{file:?}");
    }
}

#[test]
fn no_query_of_somebody_elses_runs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.deburr");
    write(&path, &[Record::End { window_ns: 1 }]);
    let endless =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS seq FROM n";
    let hostile = Connection::open(&path).unwrap();
    hostile
        .execute_batch(&format!("DROP TABLE coverage; CREATE VIEW coverage AS {endless};"))
        .unwrap();
    drop(hostile);
    let error = read(&path).unwrap_err();
    assert!(
        error.ends_with("is damaged or cut off: `coverage` is not a table, but a view"),
        "{error}"
    );
}

#[test]
fn a_fifo_is_not_waited_for() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fifo");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    for path in [&path, Path::new("/dev/null")] {
        assert!(read(path).expect_err("refused").contains("is not a regular file"));
    }
}

#[test]
fn reading_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a b%41?#.deburr");
    write(&path, &[Record::End { window_ns: 1 }]);
    let before = (std::fs::read(&path).unwrap(), path.metadata().unwrap().modified().unwrap());
    assert_eq!(read(&path).unwrap().len(), 1);
    let after = (std::fs::read(&path).unwrap(), path.metadata().unwrap().modified().unwrap());
    assert!(before == after);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_file_is_only_replaced_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    std::fs::write(&path, "precious").unwrap();
    let refuse = |path: &Path, force| create(path, force).expect_err("refused").to_string();
    assert!(refuse(&path, false).contains("--force"));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    assert!(refuse(directory.path(), true).contains("directory"));
    assert!(refuse(Path::new("/dev/null"), true).contains("regular file"));
    assert!(refuse(&directory.path().join("no/x"), false).contains("there is no directory"));
    let claim = Claim::new(&path, true).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"precious", "a claim changes nothing");
    claim.begin().unwrap().finish().unwrap();
    assert_eq!(read(&path).unwrap(), []);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is beside it");
}

#[test]
fn only_a_recordings_own_log_is_replaced_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    for suffix in ["-wal", "-shm", "-journal"] {
        let log = companion(&path, suffix);
        std::fs::write(&log, "precious").unwrap();
        for has_file in [false, true] {
            if has_file {
                std::fs::write(&path, "no recording").unwrap();
            }
            let error = create(&path, true).expect_err("refused").to_string();
            assert!(error.contains(&format!("`{}` exists", log.display())), "{error}");
            assert_eq!(std::fs::read(&log).unwrap(), b"precious");
            assert_eq!(path.exists(), has_file);
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(&log).unwrap();
        write(&path, &[Record::End { window_ns: 1 }]);
        std::fs::write(&log, "left over").unwrap();
        write(&path, &[Record::End { window_ns: 2 }]);
        assert_eq!(read(&path).unwrap(), [Record::End { window_ns: 2 }]);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_recording_is_locked_before_anything_is_written_to_it() {
    use std::os::unix::fs::MetadataExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    let writer = create(&path, false).unwrap();
    let inode = format!(":{} ", path.metadata().unwrap().ino());
    let own = format!(" {} ", std::process::id());
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    let is_locked = locks.lines().any(|line| line.contains(&inode) && line.contains(&own));
    assert!(is_locked, "{locks}");
    drop(writer);
}

#[test]
fn harm_to_a_file_under_way_is_noticed() {
    type Harm = fn(&Path);
    let harms: [(Harm, &str); 5] = [
        (|path| std::fs::remove_file(path).unwrap(), "deleted"),
        (|path| std::fs::rename(path, path.with_extension("moved")).unwrap(), "moved"),
        (|path| std::fs::write(path, "").unwrap(), "truncated"),
        (|path| std::fs::write(companion(path, "-wal"), "").unwrap(), "truncated"),
        (|path| std::fs::remove_file(companion(path, "-wal")).unwrap(), "log was deleted"),
    ];
    for (harm, expected) in harms {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.deburr");
        let mut writer = create(&path, false).unwrap();
        for window_ns in 0..3 {
            writer.push(&Record::End { window_ns }).unwrap();
            writer.commit().unwrap();
            assert_eq!(writer.harm(), None);
        }
        harm(&path);
        let told = writer.harm().unwrap();
        assert!(told.contains(expected), "{told}");
    }
}

#[test]
fn why_a_file_cannot_be_made_is_said() {
    for (path, expected) in [
        ("-", "name a file"),
        ("/dev/stdout", "name a file"),
        ("/proc/x", "no file can be made in `/proc`"),
        ("/nonexistent/x", "there is no directory `/nonexistent`"),
        ("/proc/self/comm", "`/proc/self/comm`: no file can be made in `/proc/self`"),
    ] {
        let error = create(Path::new(path), true).expect_err("refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn the_views_answer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    let proc = |id, pid, comm: &str| {
        Record::Process(Box::new(Process {
            id: ProcId(id),
            pid,
            start_ns: 0,
            comm: comm.into(),
            cmdline: String::new(),
            kernel_thread: Some(false),
            cgroup: None,
            cpus_allowed: None,
            cpuset_cpus: None,
            memory_cgroup: None,
            nice: None,
            in_target: true,
            observer: false,
            scheduling: vec![],
            many: false,
        }))
    };
    let mut waits = WaitHist::default();
    waits.add(5_000);
    let tick = |t0_ns| {
        Record::ProcessTick(Box::new(ProcessTick {
            t0_ns,
            t1_ns: t0_ns + 10,
            proc: ProcId(1),
            threads: 1,
            wall_ns: 10,
            states: ThreadStates { queued_ns: 5_000, ..ThreadStates::default() },
            waits: waits.clone(),
            wait_max_ns: 5_000,
            switches: 1,
            wakeup_latency_ns: 0,
        }))
    };
    let blame = |culprit, ns| {
        Record::Blame(BlameTick { t0_ns: 0, t1_ns: 10, victim: ProcId(1), culprit, ns })
    };
    write(
        &path,
        &[
            proc(1, 11, "old"),
            proc(2, 22, "hog"),
            proc(1, 11, "new"),
            tick(0),
            tick(10),
            blame(Culprit::Process(ProcId(2)), 4_000),
            blame(Culprit::Migrated, 1_000),
        ],
    );
    let connection = Connection::open(&path).unwrap();
    let one = |sql: &str| -> String {
        connection.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap()
    };
    assert_eq!(one("SELECT comm || ' ' || queued_ns FROM process_totals"), "new 10000");
    assert_eq!(
        one("SELECT group_concat(culprit_comm || ns) FROM blame_totals"),
        "hog4000,(migrated)1000"
    );
    assert_eq!(one("SELECT bucket || ' ' || waits || ' ' || ns FROM wait_sizes"), "3 2 10000");
    assert_eq!(one("SELECT count(*) || '' FROM process_seconds"), "2");
    for table in table::all().filter(|table| table.on_demand().is_none()) {
        connection.prepare(&format!("SELECT * FROM {}", table.name)).unwrap();
    }
}
