// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What may happen to disks, filesystems and files while they are observed: the recording stays consistent, every
//! byte that a disk counts has a class, and files keep their names.

mod devices;
mod files;
mod host;
mod layers;
mod many;

use crate::common;
use crate::disk;
use rusqlite::Connection;
use rusqlite::types::FromSql;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

pub(crate) const DEBURR: &str = env!("CARGO_BIN_EXE_deburr");

/// The recording of a script's run.
struct Recording {
    _directory: tempfile::TempDir,
    path: std::path::PathBuf,
    connection: Connection,
}

impl Recording {
    /// Records a shell script, which finds `vars` in its environment, and checks the recording. Every request is
    /// followed, because these tests are about what each was for.
    fn of(script: &str, vars: &[(&str, &OsStr)]) -> Self {
        Self::sampled(script, vars, Some(1))
    }

    /// Like [`Self::of`], with one request in `one_in` followed; `None` = as many as the reader can keep up with.
    fn sampled(script: &str, vars: &[(&str, &OsStr)], one_in: Option<u32>) -> Self {
        Self::by(Command::new(DEBURR), script, vars, one_in)
    }

    /// Like [`Self::sampled`]; `command` runs deburr with the arguments that are appended.
    fn by(
        mut command: Command,
        script: &str,
        vars: &[(&str, &OsStr)],
        one_in: Option<u32>,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.deburr");
        // The kernel's counters are first read when the command has begun already.
        let done = directory.path().join("done");
        let script = format!("set -e; sleep 1; {script}\nsleep 1.2; : >\"$DONE\"");
        command.args(["record", "-q", "-o"]).arg(&path);
        command.args(one_in.map(|one_in| format!("--io-one-in={one_in}")));
        command.args(["--", "sh", "-c", &script]);
        let output = command
            .envs(vars.iter().copied())
            .env("DONE", &done)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(done.exists(), "the script failed: {said}");
        let checked = Command::new(DEBURR).arg("check").arg(&path).output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
        let connection = Connection::open(&path).unwrap();
        Self { _directory: directory, path, connection }
    }

    /// The single value that a query returns; `None` = it returns no row, or NULL.
    fn value<T: FromSql>(&self, sql: &str, of: &[&str]) -> Option<T> {
        let values = rusqlite::params_from_iter(of);
        let found = self.connection.query_row(sql, values, |row| row.get::<_, Option<T>>(0));
        match found {
            Ok(value) => value,
            Err(rusqlite::Error::QueryReturnedNoRows) => None,
            Err(error) => panic!("{sql}: {error}"),
        }
    }

    fn number(&self, sql: &str, of: &[&str]) -> i64 {
        self.value(sql, of).unwrap_or(0)
    }

    /// Bytes of a file's data that went to or from a device, under whichever name the file is or was known.
    fn bytes(&self, device: &str, op: &str, path: &Path) -> i64 {
        let sql = "SELECT sum(bytes) FROM io_tick WHERE device = ?1 AND op = ?2 AND what = 'file' AND file IN \
                   (SELECT file FROM file WHERE path = ?3)";
        self.number(sql, &[device, op, &shown(path)])
    }

    /// Bytes of a class that went to or from a device.
    fn class(&self, device: &str, op: &str, what: &str) -> i64 {
        let sql = "SELECT sum(bytes) FROM io_tick WHERE device = ?1 AND op = ?2 AND what = ?3";
        self.number(sql, &[device, op, what])
    }

    /// The last recorded state of a file, by its path; `None` = no file has that path.
    fn state(&self, path: &Path) -> Option<String> {
        self.value("SELECT state FROM files WHERE path = ?1", &[&shown(path)])
    }

    /// Asserts that all classes together have what the kernel counted, and that little has the class `unknown`: within
    /// 1 % of all that the device moved. (Of two reads among thousands of writes, a sample of one in eight may hold
    /// none.)
    fn assert_classes_sum(&self, device: &str) {
        let ops = ["read", "write"];
        let told = ops.map(|op| {
            let sql = "SELECT sum(bytes) FROM io_tick WHERE device = ?1 AND op = ?2";
            self.number(sql, &[device, op])
        });
        // A device that vanished and came back counts from 0 again.
        let counted = ops.map(|op| {
            let sql = format!(
                "SELECT sum(max(0, now - coalesce(before, now))) FROM (SELECT {op}_bytes AS now, \
                 lag({op}_bytes) OVER (ORDER BY seq) AS before FROM disk_reading WHERE device = ?1)"
            );
            self.number(&sql, &[device])
        });
        let allowed = counted.iter().sum::<i64>() / 100;
        for ((op, told), counted) in ops.iter().zip(told).zip(counted) {
            let all = self.classes(device, op);
            assert!(
                (told - counted).abs() <= allowed,
                "{device} {op}: {told} of {counted} bytes: {all}"
            );
            let unknown = self.class(device, op, "unknown");
            assert!(unknown <= allowed, "{device} {op}: {unknown} of {counted} bytes: {all}");
        }
    }

    /// Bytes of each class, for a message.
    fn classes(&self, device: &str, op: &str) -> String {
        let sql = "SELECT group_concat(what || ' ' || bytes, ', ') FROM (SELECT what, sum(bytes) AS bytes \
                   FROM io_tick WHERE device = ?1 AND op = ?2 GROUP BY what)";
        self.value(sql, &[device, op]).unwrap_or_default()
    }

    /// Output of `deburr report`, as text or as JSON.
    fn report(&self, arguments: &[&str]) -> String {
        let path = self.path.to_string_lossy();
        let out = disk::run(DEBURR, &[&["report", &path], arguments].concat()).unwrap();
        String::from_utf8(out.stdout).expect("a report is UTF-8")
    }
}

/// A path in the form that recordings have.
fn shown(path: &Path) -> String {
    deburr_core::text::name::decode(path.as_os_str().as_encoded_bytes())
}

/// Device number as `major:minor`.
fn number(device: &str) -> String {
    use std::os::unix::fs::MetadataExt as _;
    let number = std::fs::metadata(device).unwrap().rdev();
    format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number))
}

/// Whether bytes are as many as expected, within 1 %.
fn near(bytes: i64, expected: i64) -> bool {
    (bytes - expected).abs() * 100 <= expected
}

/// Runs a test with a new disk, or notes why it cannot run.
fn with_disk(test: &str, mib: u64, fs_type: &str, body: impl FnOnce(disk::Disk, &Path)) {
    if !common::root_or_skip("kernel", test) {
        return;
    }
    match disk::mounted(mib, fs_type) {
        Ok((disk, point)) => body(disk, &point),
        Err(reason) => common::skip_or_fail("kernel", test, &format!("{fs_type}: {reason}")),
    }
}
