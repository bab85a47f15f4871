// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What threads wait for while a client waits for their answer, as recorded, against what they measured themselves.

use crate::common;
use rusqlite::Connection;
use std::path::Path;
use std::process::{Command, Stdio};

/// A thread for each connection, which wants a lock of the interpreter before it answers; a holder; and waits of the same kind for
/// which nobody waits: those of workers without work, and of a connection's thread after its answer.
const SERVER: &str = r#"
import os, queue, signal, socket, sys, threading, time
stop = time.monotonic() + 3.0
row, work, rest = threading.Lock(), queue.SimpleQueue(), threading.Semaphore(0)
own, spent = threading.local(), {"row": 0.0, "rest": 0.0}

def delayed():
    # How long it waits for a CPU is no sleep.
    if not hasattr(own, "schedstat"):
        own.schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    return int(os.pread(own.schedstat, 99, 0).split()[1]) / 1e9

def timed(name, call):
    begin = time.monotonic() - delayed()
    call()
    spent[name] += time.monotonic() - delayed() - begin

listening = socket.socket()
listening.bind(("127.0.0.1", 0))
listening.listen(8)

def ask():
    connection = socket.create_connection(listening.getsockname())
    while True:
        time.sleep(0.020)
        connection.send(b"x")
        connection.recv(1)

clients = []
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        try:
            ask()
        finally:
            os._exit(0)
    clients.append(pid)

def serve(connection):
    while time.monotonic() < stop:
        connection.recv(1)
        timed("row", row.acquire)
        row.release()
        connection.send(b"x")
        while rest.acquire(blocking=False):
            pass
        timed("rest", lambda: rest.acquire(timeout=0.2))

def hold():
    while time.monotonic() < stop:
        with row:
            time.sleep(0.030)
        time.sleep(0.005)

def tick():
    while time.monotonic() < stop:
        time.sleep(0.011)
        rest.release(2)
        work.put(None)
    for _ in range(2):
        work.put(None)

def idle():
    while time.monotonic() < stop:
        work.get()

works = [(serve, listening.accept()[0]) for _ in clients] + [(hold,), (tick,), (idle,), (idle,)]
threads = [threading.Thread(target=work, args=args) for work, *args in works]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
with open(sys.argv[1], "w") as told:
    told.write(f"{os.getpid()} {spent['row']} {spent['rest']}")
for pid in clients:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
"#;

#[test]
fn who_waits_for_another_thread_while_a_client_waits_is_known() {
    const TEST: &str = "who_waits_for_another_thread_while_a_client_waits_is_known";
    common::tried("kernel", TEST, || {
        if common::root_or_skip("kernel", TEST) {
            try_waits_in_requests();
        }
    });
}

fn try_waits_in_requests() {
    let scratch = tempfile::tempdir().unwrap();
    let [recording, told] = ["x.deburr", "told"].map(|name| scratch.path().join(name));
    let mut record = Command::new(env!("CARGO_BIN_EXE_deburr"));
    record.args(["record", "-q", "-o"]).arg(&recording);
    record.args(["--", "python3", "-c", SERVER]).arg(&told);
    assert!(record.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap().success());
    let text = std::fs::read_to_string(&told).unwrap();
    let [pid, row, rest] = text.split(' ').collect::<Vec<_>>()[..] else { panic!("{text}") };
    let [row, rest]: [f64; 2] = [row, rest].map(|it| it.parse().unwrap());
    let connection = Connection::open(&recording).unwrap();
    let slept = |in_request: &str| -> f64 {
        let sql = format!(
            "SELECT coalesce(sum(s.ns), 0) / 1e9 FROM sleep s JOIN processes p ON p.proc = s.proc
             WHERE p.pid = ? AND s.call = 'futex' AND s.in_request {in_request}"
        );
        connection.query_row(&sql, [pid], |row| row.get(0)).unwrap()
    };
    let (inside, outside) = (slept("= 1"), slept("IS NULL"));
    // Waits for the interpreter are inside, too. In the first moments it is not known yet who listens.
    assert!(row > 1.0 && (0.85 * row..1.1 * row + 0.1).contains(&inside), "{inside} s, {row} s");
    // Two workers without work, and the waits after an answer.
    assert!(rest > 0.5 && outside > rest + 3.0, "{outside} s outside, {rest} s after answers");
    is_told(&recording);
}

/// What the report makes of it: a remark, for the holder slept.
fn is_told(recording: &Path) {
    let mut report = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let output = report.args(["report", "--json"]).arg(recording).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let it = findings.iter().find(|it| it["code"] == "OFF003").expect("OFF003");
    assert_eq!(it["severity"], "info", "{it:#}");
    let title = it["title"].as_str().unwrap();
    assert!(title.contains("while clients wait") && title.contains("sleeps"), "{title}");
}
