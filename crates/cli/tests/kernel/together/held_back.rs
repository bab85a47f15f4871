// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What connections hold back, as recorded, against how long their program waited for answers by its own count.

use crate::common;
use rusqlite::Connection;
use serde_json::Value;
use std::process::{Command, Stdio};

/// It asks a process behind a connection for three seconds, in the way that the second argument says, and counts how long it waits.
const PROGRAM: &str = r#"
import json, os, signal, socket, sys, threading, time
told, mode = sys.argv[1:]
signal.alarm(30)
listening = socket.socket()
listening.bind(("127.0.0.1", 0))
listening.listen()
QUESTION = 300

def answers():
    it = listening.accept()[0]
    it.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    got, answered = 0, time.monotonic()
    while data := it.recv(65536):
        got += len(data)
        if mode in ("stream", "stream-answered"):
            # Whoever sends on and on hears now and then that it has arrived.
            if mode == "stream-answered" and time.monotonic() > answered + 0.7:
                answered = time.monotonic()
                it.send(b"got it")
            continue
        while got >= QUESTION:
            got -= QUESTION
            if mode == "late":
                time.sleep(0.03)
            it.send(b"answer")

child = os.fork()
if child == 0:
    answers()
    os._exit(0)
it = socket.create_connection(listening.getsockname())
listening.close()
if mode == "at-once" or mode == "late":
    it.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
if mode == "corked":
    it.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
waited, stop = 0.0, time.monotonic() + 3.2
if mode.startswith("stream"):
    if mode == "stream-answered":
        threading.Thread(target=lambda: [None for _ in iter(lambda: it.recv(100), b"")], daemon=True).start()
    while time.monotonic() < stop:
        it.send(b"line of a log" * 3)
        time.sleep(0.003)
while time.monotonic() < stop:
    if mode == "whole":
        it.send(b"x" * QUESTION)
    else:
        it.send(b"h" * 100)
        it.send(b"b" * 200)
    begin = time.monotonic()
    it.recv(100)
    waited += time.monotonic() - begin
    for _ in range(30 if mode in ("at-once", "whole") else 1):
        sum(range(20_000))
json.dump(waited, open(told, "w"))
it.close()
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
"#;

/// What became of the program.
struct Asked {
    /// By its own count.
    waited_s: f64,
    /// Held back, by the recording, and of that by a cork.
    held_s: f64,
    held_looks: i64,
    corked: f64,
    report: Value,
}

impl Asked {
    fn severity(&self, code: &str) -> Option<&str> {
        let findings = self.report["findings"].as_array().unwrap();
        findings.iter().find(|it| it["code"] == code).map(|it| it["severity"].as_str().unwrap())
    }
}

fn asked(mode: &str) -> Asked {
    let scratch = tempfile::tempdir().unwrap();
    let [recording, told] = ["x.deburr", "told"].map(|name| scratch.path().join(name));
    let mut record = Command::new(env!("CARGO_BIN_EXE_deburr"));
    record.args(["record", "-q", "-o"]).arg(&recording).args(["--", "python3", "-c", PROGRAM]);
    record.arg(&told).arg(mode).stdin(Stdio::null()).stdout(Stdio::null());
    assert!(record.status().unwrap().success(), "{mode}");
    let connection = Connection::open(&recording).unwrap();
    let sql = "SELECT coalesce(sum(held_ns), 0) / 1e9, coalesce(sum(held_looks), 0), coalesce(sum(corked_looks) * 1.0 / sum(held_looks), 0) FROM held_back";
    let (held_s, held_looks, corked) =
        connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    let mut report = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let output = report.args(["report", "--json"]).arg(&recording).output().unwrap();
    Asked {
        waited_s: std::fs::read_to_string(&told).unwrap().parse().unwrap(),
        held_s,
        held_looks,
        corked,
        report: serde_json::from_slice(&output.stdout).unwrap(),
    }
}

#[test]
fn small_pieces_are_held_back_where_nobody_asked_to_send_them_at_once() {
    const TEST: &str = "small_pieces_are_held_back_where_nobody_asked_to_send_them_at_once";
    common::tried("kernel", TEST, || {
        if !common::root_or_skip("kernel", TEST) {
            return;
        }
        for (mode, corked, severity) in [("small", 0.0, "high"), ("corked", 1.0, "medium")] {
            let it = asked(mode);
            eprintln!("{mode}: held back {:.2} s, waited {:.2} s", it.held_s, it.waited_s);
            assert!(it.waited_s > 2.0, "{mode}: {} s", it.waited_s);
            // Looks are a tenth of a second apart and more: a share of some twenty. What the program connected first is known after
            // a second.
            let range = 0.3 * it.waited_s..1.2 * it.waited_s;
            assert!(range.contains(&it.held_s), "{mode}: {} of {} s", it.held_s, it.waited_s);
            assert_eq!(it.corked, corked, "{mode}");
            // Of a slow machine there are fewer looks.
            if it.held_looks >= 5 {
                assert_eq!(it.severity("NET007"), Some(severity), "{mode}: {:#}", it.report);
            }
            // The peer is not told where it is clear enough.
            if it.held_s > 0.6 * it.waited_s {
                let told = it.severity("OFF002");
                assert!(!matches!(told, Some("high")), "{mode}: {:#}", it.report);
            }
        }
        // The other end is late; and nobody waits for each piece.
        for mode in ["late", "at-once", "whole", "stream", "stream-answered"] {
            let it = asked(mode);
            eprintln!("{mode}: held back {:.2} s, waited {:.2} s", it.held_s, it.waited_s);
            // A stream is held back while its other end waits for a CPU, which some looks see beside other tests.
            let most = if mode.starts_with("stream") { 5 } else { 2 };
            assert!(it.held_looks <= most, "{mode}: {} looks", it.held_looks);
            assert_eq!(it.severity("NET007"), None, "{mode}: {:#}", it.report);
            if !mode.starts_with("stream") {
                let of_answers = it.severity("OFF002");
                assert_eq!(of_answers == Some("high"), mode == "late", "{mode}: {:#}", it.report);
            }
        }
    });
}
