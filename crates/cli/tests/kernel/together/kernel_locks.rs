// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Locks of the kernel: for how long threads sleep for one, and who held it, against what they measure themselves.

use crate::common;
use rusqlite::Connection;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// Processes that write a byte into a file in memory, into which another one writes much at once, with the lock of its
/// inode. Each prints for how long it slept in that call at least and at most: what is neither CPU time nor the kernel's count
/// of its time in run queues, which is read before and after the clocks, since the process may be queued in between.
const WRITERS: &str = r#"
import os, sys, time
fd = os.memfd_create("journal")
told = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
until = time.monotonic() + 4
queued = lambda: int(open("/proc/self/schedstat").read().split()[1])
def is_writer():
    open("/proc/self/comm", "w").write("writer")
    much = b"x" * (24 << 20)
    while time.monotonic() < until:
        os.pwrite(fd, much, 0)
        time.sleep(0.02)
def waits():
    least = most = 0
    clocks = lambda: time.monotonic_ns() - time.thread_time_ns()
    while time.monotonic() < until:
        outer, off_cpu, inner = queued(), clocks(), queued()
        os.pwrite(fd, b"y", 0)
        inner, off_cpu, outer = queued() - inner, clocks() - off_cpu, queued() - outer
        least += off_cpu - outer
        most += off_cpu - inner
        time.sleep(0.003)
    os.write(told, f"{os.getpid()} {least} {most}\n".encode())
children = []
for what in (is_writer, waits, waits, waits):
    pid = os.fork()
    if pid == 0:
        what()
        os._exit(0)
    children.append(pid)
for pid in children:
    os.waitpid(pid, 0)
"#;

/// Sleep for locks of the kernel in `pwrite64`, by process, and the part of it that was behind the writer.
fn recorded(recording: &Path, pid: u32) -> (f64, f64) {
    let connection = Connection::open(recording).unwrap();
    let sql = "SELECT s.slept_on, s.behind, s.ns FROM sleep s JOIN processes p ON p.proc = s.proc
               WHERE p.pid = ? AND s.call = 'pwrite64'";
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([pid], |row| {
        let (on, behind): (String, Option<String>) = (row.get(0)?, row.get(1)?);
        Ok((on, behind, row.get::<_, i64>(2)? as f64))
    });
    let (mut all, mut behind_writer) = (0.0, 0.0);
    for (on, behind, ns) in rows.unwrap().map(Result::unwrap) {
        let on: Value = serde_json::from_str(&on).unwrap();
        if on["kind"] != "kernel_lock" {
            continue;
        }
        assert_eq!(on["lock"], "rwsem_write", "{on}");
        all += ns;
        let behind: Option<Value> = behind.map(|text| serde_json::from_str(&text).unwrap());
        if behind.is_some_and(|behind| behind[0]["thread"] == "writer") {
            behind_writer += ns;
        }
    }
    (all, behind_writer)
}

#[test]
fn sleep_for_a_lock_of_the_kernel_is_as_the_sleepers_measured_it() {
    const TEST: &str = "sleep_for_a_lock_of_the_kernel_is_as_the_sleepers_measured_it";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    if !deburr_bpf::sched::plan::names_locks(&deburr_bpf::facts::facts()) {
        return common::skip(
            "kernel",
            TEST,
            "this kernel does not say for which lock a thread sleeps",
        );
    }
    common::tried("kernel", TEST, try_locks);
}

fn try_locks() {
    let scratch = tempfile::tempdir().unwrap();
    let [recording, told] = ["x.deburr", "told"].map(|name| scratch.path().join(name));
    let mut record = Command::new(env!("CARGO_BIN_EXE_deburr"));
    record.args(["record", "-q", "--force", "-o"]).arg(&recording);
    record.args(["--", "python3", "-c", WRITERS]).arg(&told);
    assert!(record.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap().success());
    let text = std::fs::read_to_string(&told).unwrap();
    let [mut least, mut most, mut all, mut behind_writer] = [0.0; 4];
    for line in text.lines() {
        let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        let [pid, at_least, at_most] = numbers[..] else { panic!("{text}") };
        least += at_least as f64;
        most += at_most as f64;
        let (slept, behind) = recorded(&recording, u32::try_from(pid).unwrap());
        all += slept;
        behind_writer += behind;
    }
    eprintln!(
        "told {all:.0} ns, measured {least:.0} to {most:.0} ns, {behind_writer:.0} ns behind the writer"
    );
    assert!(all > 0.0, "{text}");
    // A record stands for a millisecond of sleep, whatever the rest of it was on.
    assert!(
        all > 0.95 * least && all < 1.05 * most,
        "told {all:.0} ns, measured {least:.0} to {most:.0} ns"
    );
    // The others wait for each other, too: whoever has waited longest gets the lock next.
    assert!(behind_writer > 0.8 * all, "{behind_writer:.0} ns of {all:.0} ns behind the writer");
}
