// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block IO in recordings: each file has the bytes that were written to it, and all classes together have what the
//! kernel counted.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::common;
use crate::disk;
use rusqlite::Connection;
use std::path::Path;
use std::process::{Command, Stdio};

/// Shell script that writes files to `$POINT`: through the page cache, synced, directly, then deleted or renamed.
const WRITE: &str = r#"
set -e
# The kernel's counters are first read when the command has begun already.
sleep 1
for file in a b c; do dd if=/dev/zero of="$POINT/$file" bs=64k count=48; done
dd if=/dev/zero of="$POINT/synced" bs=64k count=16 conv=fsync
# So large that the block layer splits them.
dd if=/dev/zero of="$POINT/direct" bs=8M count=2 oflag=direct
dd if=/dev/zero of="$POINT/gone" bs=64k count=32
sync -f "$POINT"
rm "$POINT/gone"
mv "$POINT/c" "$POINT/renamed"
sleep 1.2
"#;

const WRITTEN: [(&str, i64); 6] = [
    ("a", 48 << 16),
    ("b", 48 << 16),
    ("renamed", 48 << 16),
    ("synced", 16 << 16),
    ("direct", 16 << 20),
    ("gone", 32 << 16),
];

fn record(point: &Path, to: &Path) {
    let output = Command::new(env!("CARGO_BIN_EXE_deburr"))
        .args(["record", "-q", "-o"])
        .arg(to)
        .args(["--", "sh", "-c", WRITE])
        .env("POINT", point)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let checked = Command::new(env!("CARGO_BIN_EXE_deburr")).arg("check").arg(to).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

fn every_byte_has_its_file(fs_type: &str) {
    let name = format!("every_byte_has_its_file_on_{fs_type}");
    if !common::root_or_skip("kernel", &name) {
        return;
    }
    let (_disk, point) = match disk::mounted(512, fs_type) {
        Ok(mounted) => mounted,
        Err(reason) => return common::skip_or_fail("kernel", &name, &reason),
    };
    let directory = tempfile::tempdir().unwrap();
    let recording = directory.path().join("io.deburr");
    record(&point, &recording);

    let connection = Connection::open(&recording).unwrap();
    let fs = disk::fs_of(&point).to_string();
    let number = |sql: &str, of: &str| {
        connection.query_row(sql, [of], |row| row.get::<_, Option<i64>>(0)).unwrap().unwrap_or(0)
    };
    for (file, bytes) in WRITTEN {
        let path = point.join(file).to_string_lossy().into_owned();
        let sql = "SELECT sum(bytes) FROM io_tick WHERE op = 'write' AND what = 'file' AND file IN \
                   (SELECT file FROM file WHERE path = ?1)";
        let seen = number(sql, &path);
        assert!((seen - bytes).abs() * 100 <= bytes, "{file}: {seen} of {bytes} bytes");
    }
    let state = |file: &str| {
        let path = point.join(file).to_string_lossy().into_owned();
        let sql = "SELECT state FROM file WHERE path = ?1 ORDER BY seq DESC LIMIT 1";
        connection.query_row(sql, [path], |row| row.get::<_, String>(0)).unwrap()
    };
    assert_eq!([state("a"), state("renamed"), state("gone")], ["linked", "linked", "deleted"]);

    let told = number("SELECT sum(bytes) FROM io_tick WHERE op = 'write' AND device = ?1", &fs);
    let counted = number(
        "SELECT max(write_bytes) - min(write_bytes) FROM disk_reading WHERE device = ?1",
        &fs,
    );
    assert!((told - counted).abs() * 100 <= counted, "{told} of {counted} bytes");
}

#[test]
fn every_byte_has_its_file_on_ext4() {
    every_byte_has_its_file("ext4");
}

#[test]
fn every_byte_has_its_file_on_xfs() {
    every_byte_has_its_file("xfs");
}
