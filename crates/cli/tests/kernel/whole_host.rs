// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sleeps of those that lose most on a whole host: they are chosen while it is recorded, and told as they measured them.

use crate::common;
use rusqlite::Connection;
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// A process that holds the lock of a file most of the time; two that wait for it, each with a thread that sleeps all the
/// time; and two of which one waits for the answers of the other, which nobody asked about. Of the first two kinds of waiting, each
/// prints for how long it slept at least and at most, and in how much time: what is neither CPU time nor the kernel's count of its
/// time in run queues, which is read before and after the clocks.
const PROCESSES: &str = r#"
import fcntl, os, socket, sys, tempfile, threading, time
path = tempfile.NamedTemporaryFile().name
until = time.monotonic() + 9
queued = lambda: int(open("/proc/thread-self/schedstat").read().split()[1])
clocks = lambda: time.monotonic_ns() - time.thread_time_ns()
lock = lambda: open(path, "w")
def named(name):
    open("/proc/self/comm", "w").write(name)
def holds():
    named("holder")
    with lock() as file:
        while time.monotonic() < until:
            fcntl.flock(file, fcntl.LOCK_EX)
            time.sleep(0.006)
            fcntl.flock(file, fcntl.LOCK_UN)
            time.sleep(0.0005)
def waits():
    named("waiter")
    threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
    least = most = 0
    began = time.monotonic_ns()
    with lock() as file:
        while time.monotonic() < until:
            outer, off_cpu, inner = queued(), clocks(), queued()
            fcntl.flock(file, fcntl.LOCK_EX)
            inner, off_cpu, outer = queued() - inner, clocks() - off_cpu, queued() - outer
            fcntl.flock(file, fcntl.LOCK_UN)
            least += off_cpu - outer
            most += off_cpu - inner
    return f"{os.getpid()} {least} {most} {time.monotonic_ns() - began}\n"
def asks():
    named("asker")
    with socket.create_connection(listening.getsockname()) as asked:
        while time.monotonic() < until:
            asked.send(b"?")
            asked.recv(1)
def answers():
    named("answerer")
    asked, _ = listening.accept()
    while asked.recv(1):
        time.sleep(0.004)
        asked.send(b"!")
listening = socket.socket()
listening.bind(("127.0.0.1", 0))
listening.listen(1)
children = []
for what in (holds, waits, waits, answers, asks):
    pid = os.fork()
    if pid == 0:
        try:
            listening.close() if what not in (answers, asks) else None
            said = what()
            said and os.write(1, said.encode())
        finally:
            os._exit(0)
    children.append(pid)
listening.close()
time.sleep(0.5)
print("began", flush=True)
for pid in children:
    os.waitpid(pid, 0)
"#;

/// What is told of a process: sleep in `flock`, all sleep, and the time in which there is any of it.
fn told(recording: &Path, pid: u32) -> (f64, f64, f64) {
    let connection = Connection::open(recording).unwrap();
    let sql =
        "SELECT coalesce(sum(s.ns) FILTER (WHERE s.call = 'flock'), 0), coalesce(sum(s.ns), 0),
                      coalesce(max(t.t1_ns) - min(t.t0_ns), 0)
               FROM sleep s JOIN processes p ON p.proc = s.proc JOIN tick t ON t.tick = s.tick WHERE p.pid = ?";
    let row = connection.query_row(sql, [pid], |row| {
        Ok([row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?])
    });
    let [flock_ns, all_ns, in_ns] = row.unwrap().map(|ns| ns as f64);
    (flock_ns, all_ns, in_ns)
}

#[test]
fn on_a_whole_host_the_sleep_of_those_that_wait_for_a_lock_is_told() {
    const TEST: &str = "on_a_whole_host_the_sleep_of_those_that_wait_for_a_lock_is_told";
    if common::root_or_skip("kernel", TEST) {
        common::tried("kernel", TEST, try_host);
    }
}

fn try_host() {
    let scratch = tempfile::tempdir().unwrap();
    let recording = scratch.path().join("x.deburr");
    let mut python = Command::new("python3");
    python.args(["-c", PROCESSES]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut processes = python.spawn().unwrap();
    let mut lines = BufReader::new(processes.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "began");
    let mut record = Command::new(env!("CARGO_BIN_EXE_deburr"));
    record.args(["record", "-q", "--force", "-d", "6", "-o"]).arg(&recording);
    assert!(record.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap().success());
    let waiters: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(processes.wait().unwrap().success());
    assert_eq!(waiters.len(), 2, "{waiters:?}");
    for line in &waiters {
        let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        let [pid, least, most, in_ns] = numbers[..] else { panic!("{line}") };
        let (flock_ns, all_ns, told_in_ns) = told(&recording, u32::try_from(pid).unwrap());
        let share = flock_ns / told_in_ns.max(1.0);
        let [least, most] = [least, most].map(|ns| ns as f64 / in_ns as f64);
        eprintln!(
            "{line}: {share:.3} of {told_in_ns:.0} ns in flock, measured {least:.3} to {most:.3}; {all_ns:.0} ns"
        );
        // It is chosen at the end of the first second, or of a later one if others did more.
        assert!(told_in_ns > 2e9, "told for {told_in_ns:.0} ns only");
        assert!(share > 0.93 * least && share < 1.07 * most, "not as measured");
        // Two threads; what the one slept before it was chosen, a second and more, is not told.
        assert!(all_ns < 2.02 * told_in_ns, "{all_ns:.0} ns of 2 threads in {told_in_ns:.0} ns");
        assert!(all_ns > 1.5 * told_in_ns, "{all_ns:.0} ns of 2 threads in {told_in_ns:.0} ns");
    }
    let mut report = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let report = report.arg("report").arg("--json").arg(&recording).output().unwrap();
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let of_lock: Vec<_> = findings.iter().filter(|it| it["code"] == "OFF007").collect();
    let whose = |it: &Value| it["victim"].to_string();
    assert!(of_lock.iter().any(|it| whose(it).contains("waiter")), "{findings:#?}");
    // Who asks another one waits for it: that is lost time only if the user asks about that process. It takes more turns than
    // the waiters, so that it was chosen, too.
    let sql = "SELECT coalesce(sum(s.ns), 0) FROM sleep s JOIN processes p ON p.proc = s.proc WHERE p.comm = 'asker'";
    let connection = Connection::open(&recording).unwrap();
    let asked_ns: i64 = connection.query_row(sql, [], |row| row.get(0)).unwrap();
    assert!(asked_ns > 500_000_000, "{asked_ns} ns of sleep of the one that asks");
    assert!(!findings.iter().any(|it| whose(it).contains("asker")), "{findings:#?}");
}
