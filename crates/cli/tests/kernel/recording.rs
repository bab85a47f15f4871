// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recordings of the scheduler probe on this kernel are consistent, also while processes start and end.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::common;
use rusqlite::{Connection, OpenFlags};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

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
    // Nothing of it runs before the window has begun.
    assert_eq!(members, 7, "the shell, and six children");
}

/// Threads of this process that sleep, and end when this is dropped.
struct Sleepers(Arc<AtomicBool>, Vec<thread::JoinHandle<()>>);

impl Sleepers {
    fn start(number: usize) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let sleeper = |_| {
            let over = Arc::clone(&over);
            let body = move || {
                while !over.load(Ordering::Relaxed) {
                    thread::park();
                }
            };
            thread::Builder::new().stack_size(64 << 10).spawn(body).unwrap()
        };
        let all = (0..number).map(sleeper).collect();
        Self(over, all)
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        for sleeper in self.1.drain(..) {
            sleeper.thread().unpark();
            let _ = sleeper.join();
        }
    }
}

/// `CLOCK_MONOTONIC`, in nanoseconds.
fn now_ns() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// The session is stopped while it reads what a second held. What it reads before and after the stop belongs to one
/// second all the same.
#[test]
fn a_recording_that_is_stopped_at_its_beats_is_consistent() {
    let name = "a_recording_that_is_stopped_at_its_beats_is_consistent";
    if !common::root_or_skip("kernel", name) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.deburr");
    // The more threads there are, the longer it reads.
    let sleepers = Sleepers::start(2000);
    let churn = Churn::start();
    let mut command = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let mut session = command.args(["record", "-q", "-d", "8", "-o"]).arg(&path).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&session);
    let begins = || {
        let read = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let connection = Connection::open_with_flags(&path, read).ok()?;
        connection.query_row("SELECT start_mono_ns FROM meta", [], |row| row.get(0)).ok()
    };
    let start_ns: i64 = loop {
        assert!(session.try_wait().unwrap().is_none(), "it ended before it began");
        match begins() {
            Some(start_ns) => break start_ns,
            None => thread::sleep(Duration::from_millis(20)),
        }
    };
    let mut stops = 0;
    for second in 2..8 {
        let at_ns = start_ns + second * 1_000_000_000 + (second - 2) * 1_000_000;
        if at_ns < now_ns() {
            continue;
        }
        while now_ns() < at_ns {
            std::hint::spin_loop();
        }
        let sent = rustix::process::kill_process(pid, rustix::process::Signal::STOP);
        thread::sleep(Duration::from_millis(700));
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::CONT);
        stops += i64::from(sent.is_ok());
    }
    assert!(session.wait().unwrap().success());
    drop((churn, sleepers));
    let checked = deburr(&["check", path.to_str().unwrap()]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));

    let connection = Connection::open(&path).unwrap();
    let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let bins = count("SELECT count(*) FROM load_bin WHERE scope = 'host'");
    let missed = count(
        "SELECT coalesce(sum(value), 0) FROM observer_tick, json_each(lost) WHERE key = 'beats_missed'",
    );
    assert!(missed >= 5 * stops.min(6), "{missed} beats were missed in {stops} stops");
    // Every beat makes a bin. If the last one is stopped, the window is longer, there is a bin for the rest of it, and
    // nobody misses the beats after it.
    let last = count(
        "SELECT max(t1_ns / 100000000 - t0_ns / 100000000) FROM load_bin WHERE scope = 'host'",
    );
    let beats = count("SELECT window_ns / 100000000 FROM ending");
    assert!((-1..=last).contains(&(beats - bins - missed)), "{bins} and {missed} of {beats}");
}

/// A recording says what its host is, so that two of them can be held against each other.
#[test]
fn a_recording_holds_a_snapshot_of_its_host() {
    let name = "a_recording_holds_a_snapshot_of_its_host";
    if !common::root_or_skip("kernel", name) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let [recording, snapshot] = ["x.deburr", "x.json"].map(|name| directory.path().join(name));
    let [recording, snapshot] = [&recording, &snapshot].map(|path| path.to_str().unwrap());
    let printed = |arguments: &[&str]| {
        let output = deburr(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    for arguments in [&["record", "-d", "1", "-o", recording][..], &["snapshot", "-o", snapshot]] {
        let output = deburr(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
    let document = printed(&["diff", "--json", recording, snapshot]);
    let [compared, same] = ["compared", "same"].map(|of| document["facts"][of].as_u64().unwrap());
    // On a busy host a file may not be read in the time that an observation waits for it.
    assert!(compared > 500 && same * 100 >= compared * 98, "{same} of {compared}");
    let document = printed(&["compare", "--json", recording, recording]);
    assert_eq!(document["configuration"]["differences"], serde_json::json!([]));
    let compared = document["configuration"]["facts"]["compared"].as_u64();
    assert!(compared > Some(500), "{compared:?}");
}
