// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Without privileges the same commands work from `/proc`, and report what they could not observe.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::common;
use rusqlite::{Connection, OpenFlags};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// User id of `nobody`, which has no special rights.
const NOBODY: u32 = 65534;

/// A directory that any user may enter, with a copy of the program in it.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_deburr"), dir.path().join("deburr")).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn deburr(&self) -> Command {
        let mut command = Command::new(self.path("deburr"));
        command.uid(NOBODY).gid(NOBODY).current_dir(self.dir.path());
        command
    }
}

/// A spinning process, killed on drop.
struct Spinner(Child);

impl Spinner {
    /// Starts a shell that loops on CPU 0.
    fn start() -> Option<Self> {
        let mut command = Command::new("taskset");
        command.args(["-c", "0", "sh", "-c", "while :; do :; done"]).stdin(Stdio::null());
        command.spawn().ok().map(Self)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn two_spinners_on_one_cpu_wait_half_of_the_time() {
    const TEST: &str = "two_spinners_on_one_cpu_wait_half_of_the_time";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    let (Some(victim), Some(_other)) = (Spinner::start(), Spinner::start()) else {
        return common::skip("kernel", TEST, "`taskset` is not installed");
    };
    let place = Place::new();
    let file = place.path("spinners.deburr");
    let status = place
        .deburr()
        .args(["record", "-q", "-d", "3", "-p", &victim.0.id().to_string(), "-o"])
        .arg(&file)
        .status()
        .unwrap();
    assert!(status.success());

    let recording = Connection::open_with_flags(&file, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let sums = "SELECT sum(wall_ns), sum(on_cpu_ns), sum(delay_ns), max(threads) FROM schedstat";
    let [wall, on_cpu, delay, threads] = recording
        .query_row(sums, [], |row| {
            Ok([0, 1, 2, 3].map(|column| row.get::<_, i64>(column).unwrap() as f64))
        })
        .unwrap();
    assert_eq!(threads, 1.0);
    // The kernel counts run delay when a wait ends, so a wait may lie across an end of the window.
    let (total, waiting) = ((on_cpu + delay) / wall, delay / wall);
    assert!((total - 1.0).abs() < 0.1, "{total}");
    // Other tasks may run on that CPU too, and those of the same group may get most of it.
    assert!((0.35..0.95).contains(&waiting), "{waiting}");
    let why: String = recording
        .query_row("SELECT reason FROM coverage WHERE source = 'sched'", [], |row| row.get(0))
        .unwrap();
    assert!(why.contains("CAP_BPF"), "{why}");
}

#[test]
fn the_report_says_what_root_would_see() {
    const TEST: &str = "the_report_says_what_root_would_see";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    let place = Place::new();
    let report = place.deburr().args(["-d", "1", "--json"]).output().unwrap();
    assert!(report.status.success(), "{report:?}");
    let text = String::from_utf8(report.stdout).unwrap();
    assert!(text.contains("CAP_BPF"), "{text}");
    let doctor = place.deburr().arg("doctor").output().unwrap();
    let text = String::from_utf8(doctor.stdout).unwrap();
    assert!(text.contains("effective uid 65534; may not load BPF programs"), "{text}");
    let can =
        text.lines().find(|line| line.contains("SCH003 idle-while-waiting")).unwrap_or_default();
    assert_eq!(can.split_whitespace().nth(2), Some("no"), "{text}");
}
