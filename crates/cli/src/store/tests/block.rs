// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block IO in recordings: older recordings without it, damage, and the views.

use super::super::table::{self, Table};
use super::*;
use deburr_core::recording::{
    BlockRecord, DevId, Device, DeviceBin, DeviceBins, File, FileId, FileState, IoOp, IoPurpose,
    IoTick,
};

const DISK: DevId = DevId { major: 8, minor: 0 };

fn block(record: BlockRecord) -> Record {
    Record::Block(Box::new(record))
}

fn bins() -> DeviceBins {
    let busy = DeviceBin { busy_ns: 3, depth_ns: 4, ios: 1, bytes: 512 };
    let mut bins = vec![DeviceBin::default(); 100];
    (bins[7], bins[99]) = (busy, busy);
    DeviceBins { t0_ns: 0, t1_ns: 1_000_000_000, device: DISK, bins }
}

fn file(path: &str, state: FileState) -> Record {
    let file = File {
        id: FileId(1),
        fs: DISK,
        ino: 12,
        generation: 0,
        path: path.into(),
        state,
        dirtied_by: None,
    };
    block(BlockRecord::File(file))
}

fn io(t0_ns: u64, what: IoPurpose, bytes: u64) -> Record {
    block(BlockRecord::Io(IoTick {
        t0_ns,
        t1_ns: t0_ns + 10,
        device: DISK,
        what,
        op: IoOp::Write,
        submitter: None,
        owner: None,
        reason: Some("periodic".into()),
        ios: 1,
        bytes,
        total_ns: 5,
        max_ns: 5,
    }))
}

#[test]
fn a_recording_of_the_first_version_has_no_block_io() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    let end = Record::End { window_ns: 1 };
    write(&path, &[block(BlockRecord::Bins(bins())), end.clone()]);
    let connection = Connection::open(&path).unwrap();
    let set = |version: i32| connection.pragma_update(None, "user_version", version).unwrap();
    let later: Vec<&Table> = table::all()
        .filter(|table| table.since_version > 1 && table.on_demand().is_none())
        .collect();
    assert!(later.iter().any(|table| table.name == "device_bins"), "the one that has a row");
    for table in later {
        let (name, stored) = (table.name, table.stored());
        let view = if stored == name { String::new() } else { format!("DROP VIEW {name};") };
        connection.execute_batch(&format!("{view} DROP TABLE {stored}")).unwrap();
    }
    set(1);
    assert_eq!(read(&path).unwrap(), [end]);
    // In a file of this version, the missing tables are an error.
    set(table::VERSION);
    assert!(read(&path).unwrap_err().contains("it has no table `device`"));
}

#[test]
fn a_recording_that_lacks_a_column_that_was_added_later_opens() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    write(&path, &[file("/srv/index", FileState::Linked)]);
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("UPDATE file SET dirtied_by = 7").unwrap();
    assert_ne!(read(&path).unwrap(), [file("/srv/index", FileState::Linked)]);
    // The views refer to columns.
    let views =
        "SELECT group_concat('DROP VIEW ' || name, ';') FROM sqlite_master WHERE type = 'view'";
    let drop: String = connection.query_row(views, [], |row| row.get(0)).unwrap();
    connection.execute_batch(&drop).unwrap();
    for (table, column) in [
        ("file", "dirtied_by"),
        ("stall", "latest_ns"),
        ("stall", "within"),
        ("stall", "within_ns"),
        ("io_wait_packed", "unmeasured"),
    ] {
        connection.execute_batch(&format!("ALTER TABLE {table} DROP COLUMN {column}")).unwrap();
    }
    assert_eq!(read(&path).unwrap(), [file("/srv/index", FileState::Linked)]);
    connection.execute_batch("ALTER TABLE file DROP COLUMN path").unwrap();
    assert!(read(&path).unwrap_err().contains("expected UTF-8 text, found NULL"));
}

#[test]
fn bins_without_activity_take_no_room_and_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    write(&path, &[block(BlockRecord::Bins(bins()))]);
    assert_eq!(read(&path).unwrap(), [block(BlockRecord::Bins(bins()))]);
    let active: String = Connection::open(&path)
        .unwrap()
        .query_row("SELECT active FROM device_bins", [], |row| row.get(0))
        .unwrap();
    assert_eq!(active, "[[7,3,4,1,512],[99,3,4,1,512]]");
}

#[test]
fn what_does_not_fit_is_damage_and_not_a_guess() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    for (change, expected) in [
        ("UPDATE device_bins_packed SET bins = 0.5", "expected an integer"),
        ("UPDATE device_bins_packed SET bins = 1000000000000", "more than 4096 bins"),
        ("UPDATE device_bins_packed SET active = '[[100,1,1,1,1]]'", "a bin that does not exist"),
        ("UPDATE device_bins_packed SET active = '[[1,1,1,1]]'", "a list of 5 numbers each"),
        ("UPDATE device_bins_packed SET active = x'0101010101ff'", "a list of 5 numbers each"),
        ("UPDATE device_bins_packed SET active = x'01010101'", "a list of 5 numbers each"),
        ("UPDATE device_bins_packed SET active = 7", "a list of 5 numbers each"),
        ("UPDATE device_bins_packed SET device = 'sda'", "major:minor"),
        ("UPDATE io_tick SET what = 'metadata'", "another known word"),
        ("UPDATE io_tick SET file = NULL", "another known word"),
        ("UPDATE io_tick SET op = 'trim'", "a word that this version knows"),
        ("UPDATE io_tick SET submitter = -1", "32-bit"),
    ] {
        write(&path, &[block(BlockRecord::Bins(bins())), io(0, IoPurpose::File(FileId(1)), 1)]);
        Connection::open(&path).unwrap().execute_batch(change).unwrap();
        let error = read(&path).expect_err(change);
        assert!(error.contains("damaged") && error.contains(expected), "{change}: {error}");
    }
}

#[test]
fn the_views_of_block_io_answer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    let device = |dev, name: &str, disk| {
        block(BlockRecord::Device(Device {
            dev,
            name: name.into(),
            disk,
            start_sector: None,
            sectors: None,
            backing: None,
            gone: false,
        }))
    };
    write(
        &path,
        &[
            device(DISK, "sda", None),
            device(DevId { minor: 1, ..DISK }, "sda1", Some(DISK)),
            file("", FileState::Nameless),
            file("/srv/index", FileState::Linked),
            io(0, IoPurpose::File(FileId(1)), 4096),
            io(10, IoPurpose::File(FileId(1)), 4096),
            io(10, IoPurpose::Journal, 512),
            block(BlockRecord::Bins(bins())),
        ],
    );
    let connection = Connection::open(&path).unwrap();
    let all = |sql: &str| -> String {
        let sql = format!("SELECT group_concat(x, ';') FROM ({sql})");
        connection.query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(all("SELECT name || ' of ' || disk_name AS x FROM devices"), "sda1 of sda");
    assert_eq!(
        all(
            "SELECT device_name || ' ' || what || ' ' || coalesce(path, '-') || ' ' || bytes AS x FROM io_by_file"
        ),
        "sda file /srv/index 8192;sda journal - 512"
    );
    assert_eq!(all("SELECT t0_ns || ' ' || bytes AS x FROM io_seconds"), "0 4096;10 4096;10 512");
    assert_eq!(all("SELECT t0_ns AS x FROM device_activity"), "70000000;990000000");
    for view in ["passes", "io_wait_totals", "io_blame_totals", "settings", "files"] {
        let mut statement = connection.prepare(&format!("SELECT * FROM {view}")).unwrap();
        assert!(statement.query([]).unwrap().next().is_ok());
    }
}
