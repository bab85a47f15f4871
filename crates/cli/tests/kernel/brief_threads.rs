// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sleep of threads that live for less sleep than one record stands for is told, too.

use crate::common;
use rusqlite::Connection;
use std::process::{Command, Stdio};

/// A process whose threads sleep twenty thousand times a second, so that not each sleep has a record, and its parent, whose
/// threads sleep for 4 ms and end.
const SLEEPERS: &str = r#"
import ctypes, os, signal, sys, threading, time
libc = ctypes.CDLL(None)

def often():
    while True:
        libc.usleep(1000)

stop = time.monotonic() + 5.0
child = os.fork()
if child == 0:
    for _ in range(39):
        threading.Thread(target=often).start()
    often()
while time.monotonic() < stop:
    threads = [threading.Thread(target=libc.usleep, args=(4000,)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
print(os.getpid())
"#;

#[test]
fn brief_threads_are_told_too() {
    const TEST: &str = "brief_threads_are_told_too";
    common::tried("kernel", TEST, || {
        if common::root_or_skip("kernel", TEST) {
            try_brief_threads();
        }
    });
}

fn try_brief_threads() {
    let scratch = tempfile::tempdir().unwrap();
    let recording = scratch.path().join("x.deburr");
    let mut record = Command::new(env!("CARGO_BIN_EXE_deburr"));
    record.args(["record", "-q", "--force", "-o"]).arg(&recording);
    record.args(["--", "python3", "-c", SLEEPERS]);
    let output = record.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let pid: u32 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();

    let connection = Connection::open(&recording).unwrap();
    let sum = |sql: &str| -> f64 { connection.query_row(sql, [pid], |row| row.get(0)).unwrap() };
    // In the first second with so many each of the sleeps has a record, which are more than a log holds. That is the second one
    // of the window where the program takes long to start.
    let slept =
        sum("SELECT total(t.sleep_ns) FROM process_tick t JOIN processes p ON p.proc = t.proc
         WHERE p.pid = ? AND t.tick > (SELECT min(tick) + 1 FROM process_tick)");
    let told = sum("SELECT total(s.ns) FROM sleep s JOIN processes p ON p.proc = s.proc
         WHERE p.pid = ? AND s.tick > (SELECT min(tick) + 1 FROM process_tick)");
    // The last records of the threads that live are due later.
    assert!(told > 0.9 * slept && told < 1.1 * slept, "{told} ns of {slept} ns");
}
