// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is recorded of the target in more detail than of others agrees with what its threads know of themselves.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::common::{root_or_skip, skip, tried};
use rusqlite::Connection;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The time that a thread is away from its CPU at least, for a gap. An interrupt is shorter.
const GAP_NS: i64 = 200_000;
/// How long the rival computes at a time, and then does not.
const BURST: Duration = Duration::from_millis(250);
const REST: Duration = Duration::from_millis(450);

/// `CLOCK_MONOTONIC`, in nanoseconds.
fn now_ns() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

fn first_cpu() -> rustix::thread::CpuSet {
    let mut set = rustix::thread::CpuSet::new();
    set.set(0);
    set
}

/// A thread on the first CPU that does nothing but look at the clock: where the clock jumps, it was away.
struct Witness {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Vec<(i64, i64)>>,
    tid: i32,
}

impl Witness {
    fn start() -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&ends);
        let (send, receive) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            rustix::thread::sched_setaffinity(None, &first_cpu()).unwrap();
            send.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            let (mut gaps, mut before_ns) = (Vec::new(), now_ns());
            while !over.load(Ordering::Relaxed) {
                let now_ns = now_ns();
                if now_ns - before_ns > GAP_NS {
                    gaps.push((now_ns, now_ns - before_ns));
                }
                before_ns = now_ns;
            }
            gaps
        });
        Self { ends, thread, tid: receive.recv().unwrap() }
    }

    /// The gaps: when each ended, and its length.
    fn end(self) -> Vec<(i64, i64)> {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// A process on the first CPU that computes in bursts, because it is stopped in between.
struct Rival(Child);

impl Rival {
    fn start() -> Self {
        let mut command = Command::new("sh");
        let child = command.args(["-c", "while :; do :; done"]).spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::thread::sched_setaffinity(Some(pid), &first_cpu()).unwrap();
        Self(child)
    }

    fn bursts(&self, until: impl Fn() -> bool) {
        use rustix::process::{Pid, Signal, kill_process};
        let pid = Pid::from_child(&self.0);
        while !until() {
            kill_process(pid, Signal::STOP).unwrap();
            thread::sleep(REST);
            kill_process(pid, Signal::CONT).unwrap();
            thread::sleep(BURST);
        }
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn deburr(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_deburr"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn waits_are_in_the_tenth_of_a_second_in_which_they_ended() {
    let name = "waits_are_in_the_tenth_of_a_second_in_which_they_ended";
    tried("kernel", name, || try_waits_are_in_the_tenth_of_a_second(name));
}

fn try_waits_are_in_the_tenth_of_a_second(name: &str) {
    if !root_or_skip("kernel", name) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let shown = directory.path().join("x.deburr").to_str().unwrap().to_owned();
    let (witness, rival) = (Witness::start(), Rival::start());
    let me = std::process::id().to_string();
    let mut recording = deburr(&["record", "-d", "5", "-p", &me, "-o", &shown]).spawn().unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| rival.bursts(|| over.load(Ordering::Relaxed)));
        assert!(recording.wait().unwrap().success());
        over.store(true, Ordering::Relaxed);
    });
    drop(rival);
    let tid = witness.tid;
    let gaps = witness.end();
    let checked = deburr(&["check", &shown]).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));

    let connection = Connection::open(&shown).unwrap();
    let start_ns: i64 =
        connection.query_row("SELECT start_mono_ns FROM meta", [], |row| row.get(0)).unwrap();
    let sql = "SELECT t0_ns, t1_ns, sum(json_extract(value, '$[2]')) FROM wait_bin, \
               json_each(waits) GROUP BY t0_ns";
    let mut query = connection.prepare(sql).unwrap();
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let bins: Vec<(i64, i64, i64)> =
        query.query_map([], row).unwrap().map(Result::unwrap).collect();
    let (mut known_ns, mut off_ns, mut told_ns) = (0, 0, 0);
    for &(t0_ns, t1_ns, waits_ns) in &bins {
        let range = start_ns + t0_ns..start_ns + t1_ns;
        let own = gaps.iter().filter(|(end_ns, _)| range.contains(end_ns));
        let own_ns: i64 = own.map(|(_, ns)| ns).sum();
        known_ns += own_ns;
        told_ns += waits_ns;
        off_ns += (own_ns - waits_ns).abs();
    }
    assert!(bins.len() > 10, "{} bins", bins.len());
    assert!(known_ns > 300_000_000, "the rival left it {known_ns} ns to wait");
    // Other threads of this process wait a little too, and an interrupt of the host is a gap that is no wait.
    let ratio = off_ns as f64 / known_ns as f64;
    assert!(ratio < 0.15, "{ratio} of {known_ns} ns are in other bins; {told_ns} ns were told");

    let sql =
        "SELECT t0_ns, t1_ns, queued_ns + throttled_ns, on_cpu_ns FROM thread_ledger WHERE tid = ?";
    let row = |row: &rusqlite::Row<'_>| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?]);
    let [t0_ns, t1_ns, waited_ns, ran_ns]: [i64; 4] =
        connection.query_row(sql, [tid], row).unwrap();
    let range = start_ns + t0_ns..start_ns + t1_ns;
    let own_ns: i64 =
        gaps.iter().filter(|(end_ns, _)| range.contains(end_ns)).map(|(_, ns)| ns).sum();
    let off = (own_ns - waited_ns).abs() as f64 / own_ns as f64;
    assert!(off < 0.1, "{waited_ns} ns were told of {own_ns} ns");
    let all_ns = waited_ns + ran_ns;
    assert!((all_ns - (t1_ns - t0_ns)).abs() < all_ns / 50, "it never slept: {all_ns} ns");

    let page = directory.path().join("x.html");
    let reported = deburr(&["report", &shown, "--html", page.to_str().unwrap()]).output().unwrap();
    assert!(reported.status.success(), "{reported:?}");
    let html = std::fs::read_to_string(page).unwrap();
    assert!(
        html.contains("waited for a CPU, in columns of 100 ms"),
        "columns are those of the bins"
    );
    assert!(html.contains(&format!("(tid {tid} of pid {me})")), "its threads are shown");
}

/// The requests of a second are those of its bins, and each is in the bin in which it completed.
#[test]
fn requests_are_in_the_tenth_of_a_second_in_which_they_completed() {
    let name = "requests_are_in_the_tenth_of_a_second_in_which_they_completed";
    if !root_or_skip("kernel", name) {
        return;
    }
    // A directory on a disk: the usual one for temporary files may be in memory.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let shown = directory.path().join("x.deburr").to_str().unwrap().to_owned();
    let mut recording = deburr(&["record", "-d", "3", "-o", &shown]).spawn().unwrap();
    let mut syncs = Vec::new();
    while recording.try_wait().unwrap().is_none() {
        let file = std::fs::File::create(directory.path().join("y")).unwrap();
        std::io::Write::write_all(&mut &file, &[1; 4096]).unwrap();
        let from_ns = now_ns();
        file.sync_all().unwrap();
        syncs.push((from_ns, now_ns()));
        thread::sleep(REST);
    }
    assert!(recording.wait().unwrap().success());
    let checked = deburr(&["check", &shown]).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    let connection = Connection::open(&shown).unwrap();
    let number =
        |sql: &str| connection.query_row(sql, [], |row| row.get::<_, Option<i64>>(0)).unwrap();
    let sums = [("device_tick", 1), ("device_tick", 2), ("request_bin", 1), ("request_bin", 2)]
        .map(|(table, at)| {
            number(&format!(
                "SELECT sum(json_extract(value, '$[{at}]')) FROM {table}, json_each(total)"
            ))
        });
    let [Some(requests), ns, in_bins, ns_in_bins] = sums else {
        return skip(
            "kernel",
            name,
            "the files of this machine are on no disk that the probe sees",
        );
    };
    assert_eq!((Some(requests), ns), (in_bins, ns_in_bins));
    let start_ns = number("SELECT start_mono_ns FROM meta").unwrap();
    let end_ns = start_ns + number("SELECT window_ns FROM ending").unwrap();
    for (from_ns, to_ns) in syncs.into_iter().filter(|it| it.0 > start_ns && it.1 < end_ns) {
        let (from_ns, to_ns) = (from_ns - start_ns, to_ns - start_ns);
        let sql = format!(
            "SELECT count(*) FROM request_bin WHERE t0_ns <= {to_ns} AND t1_ns > {from_ns}"
        );
        assert_ne!(number(&sql), Some(0), "a sync from {from_ns} ns to {to_ns} ns wrote nothing");
    }
}
