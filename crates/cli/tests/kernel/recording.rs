// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recordings of the scheduler probe on this kernel are consistent, also while processes start and end.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::common;
use rusqlite::Connection;
use std::process::{Child, Command, Output, Stdio};

fn deburr(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_deburr"));
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// A shell, killed on drop with its children, which are in its process group.
struct Churn(Child);

impl Churn {
    /// Starts a shell that runs one short process after the other.
    fn start() -> Self {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do /bin/true; done"]).process_group(0);
        Self(command.spawn().unwrap())
    }
}

impl Drop for Churn {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

#[test]
fn a_recording_of_a_host_with_churn_is_consistent() {
    let name = "a_recording_of_a_host_with_churn_is_consistent";
    if !common::root_or_skip("kernel", name) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.deburr");
    let shown = path.to_str().unwrap();
    let churn = Churn::start();
    let recorded = deburr(&["record", "-d", "3", "-o", shown]);
    drop(churn);
    assert!(recorded.status.success(), "{recorded:?}");
    let checked = deburr(&["check", shown]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));

    let connection = Connection::open(&path).unwrap();
    let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let probe = "SELECT count(*) FROM coverage WHERE source = 'sched' AND state = 'missing'";
    assert_eq!(count(probe), 0, "the probe was used");
    assert!(count("SELECT count(*) FROM process_tick") > 0);
    // Bins of 100 ms each; on a busy machine the reader wakes up late, and the bin is longer.
    let bins = count("SELECT count(*) FROM load_bin WHERE scope = 'host'");
    let bins_ns = count("SELECT sum(t1_ns - t0_ns) FROM load_bin WHERE scope = 'host'");
    let window_ns = count("SELECT window_ns FROM ending");
    assert!((5..=31).contains(&bins), "{bins}");
    assert!((window_ns - bins_ns).abs() < window_ns / 100, "{bins_ns} ns of {window_ns} ns");
}

#[test]
fn a_recording_of_a_command_holds_its_children() {
    if !common::root_or_skip("kernel", "a_recording_of_a_command_holds_its_children") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.deburr");
    let shown = path.to_str().unwrap();
    // Processes are looked up once a second, when most children are gone: the kernel reports their parent.
    let script = "for i in 1 2 3 4 5; do sleep 0.05; done; sleep 1.2; exit 3";
    let recorded = deburr(&["record", "-o", shown, "--", "sh", "-c", script]);
    assert!(recorded.status.success(), "{recorded:?}");
    let checked = deburr(&["check", shown]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    let connection = Connection::open(&path).unwrap();
    let sql = "SELECT count(DISTINCT pid) FROM process WHERE in_target";
    let members: i64 = connection.query_row(sql, [], |row| row.get(0)).unwrap();
    assert!(members >= 6, "the shell and five children at least, not {members}");
}
