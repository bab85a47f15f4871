// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of `programs/` that wait, recorded in a scratch directory.

use crate::common;
use rusqlite::Connection;
use std::path::Path;
use std::process::{Command, Stdio};

/// A record stands for a millisecond of sleep, and a look at the clock comes a little late: 3 %, and 30 ms.
pub(crate) fn is_near(recorded_s: f64, measured_s: f64) -> bool {
    (recorded_s - measured_s).abs() < 0.03 + 0.03 * measured_s
}

pub(crate) fn compiled(source: &str, flags: &[&str], to: &Path) -> bool {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel/programs").join(source);
    let mut compile = Command::new("cc");
    compile.args(["-O1", "-w"]).args(flags).arg("-o").arg(to).arg(source);
    compile.stdin(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|it| it.success())
}

pub(crate) fn record(recording: &Path, more: &[&str]) -> Command {
    let mut record = Command::new(env!("CARGO_BIN_EXE_deburr"));
    record.args(["record", "-q", "--force", "-o"]).arg(recording).args(more).arg("--");
    record.stdin(Stdio::null()).stdout(Stdio::null());
    record
}

/// Sleep of a process in seconds, for a condition.
pub(crate) fn slept(recording: &Path, pid: u32, condition: &str) -> f64 {
    let sql = format!(
        "SELECT sum(ns) FROM sleep JOIN processes USING (proc) WHERE pid = ? AND ({condition})"
    );
    sum(recording, &sql, pid) / 1e9
}

pub(crate) fn sum(recording: &Path, sql: &str, pid: u32) -> f64 {
    let connection = Connection::open(recording).unwrap();
    let sum = connection.query_row(sql, [pid], |row| row.get::<_, Option<i64>>(0)).unwrap();
    sum.unwrap_or(0) as f64
}

/// Runs a test that needs root; `run` returns what is missing here.
pub(crate) fn in_scratch(test: &'static str, run: impl Fn(&Path) -> Option<&'static str>) {
    common::tried("kernel", test, || {
        if common::root_or_skip("kernel", test) {
            let scratch = tempfile::tempdir().unwrap();
            if let Some(missing) = run(scratch.path()) {
                common::skip("kernel", test, missing);
            }
        }
    });
}
