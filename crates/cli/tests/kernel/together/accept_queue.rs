// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients that wait to be accepted, as recorded, against what they measured themselves.

use crate::common;
use rusqlite::Connection;
use std::process::{Command, Stdio};

/// Workers that accept a connection, read what it asks, nap for 50 ms and answer; six clients that each connect for every question.
/// It counts how long clients waited beyond the naps, in three seconds. Others connect, and ask for nothing: as many as the third argument says.
const SERVICE: &str = r#"
import os, signal, socket, sys, threading, time
told, workers, silent = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
listening = socket.socket()
listening.bind(("127.0.0.1", 0))
listening.listen(64)

def serve():
    while True:
        connection = listening.accept()[0]
        if connection.recv(1):
            time.sleep(0.050)
            connection.send(b"x")
        connection.close()

def ask(stop, waited):
    while time.monotonic() < stop:
        begin = time.monotonic()
        connection = socket.create_connection(listening.getsockname())
        connection.send(b"x")
        connection.recv(1)
        waited.append(time.monotonic() - begin - 0.050)
        connection.close()

children = []
for _ in range(workers):
    pid = os.fork()
    if pid == 0:
        serve()
    children.append(pid)
waited, stop = [], time.monotonic() + 3.0
# Nobody accepts these: all workers read from one of them.
rest = [socket.create_connection(listening.getsockname()) for _ in range(silent)]
clients = [threading.Thread(target=ask, args=(stop, waited)) for _ in range(0 if silent else 6)]
for client in clients:
    client.start()
for client in clients:
    client.join()
if silent:
    time.sleep(2.0)
with open(told, "w") as file:
    file.write(f"{sum(waited)}")
for pid in children:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
"#;

/// What became of the service.
struct Served {
    /// Clients that waited at a time, by their own count.
    waited: f64,
    /// The same by the recording, and seconds in which any waited to be accepted.
    found: f64,
    late_s: f64,
    report: serde_json::Value,
}

fn served(workers: u32, silent: u32) -> Served {
    let scratch = tempfile::tempdir().unwrap();
    let [recording, told] = ["x.deburr", "told"].map(|name| scratch.path().join(name));
    let mut record = Command::new(env!("CARGO_BIN_EXE_deburr"));
    record.args(["record", "-q", "-o"]).arg(&recording).args(["--", "python3", "-c", SERVICE]);
    record.arg(&told).args([workers.to_string(), silent.to_string()]);
    record.stdin(Stdio::null()).stdout(Stdio::null());
    assert!(record.status().unwrap().success());
    let waited: f64 = std::fs::read_to_string(&told).unwrap().parse().unwrap();
    let connection = Connection::open(&recording).unwrap();
    let sql = "SELECT coalesce(sum(waiting_ns), 0) / 1e9, coalesce(sum(late_ns), 0) / 1e9 FROM accept_queue";
    let (waiting_s, late_s): (f64, f64) =
        connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let mut report = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let output = report.args(["report", "--json"]).arg(&recording).output().unwrap();
    Served {
        waited: waited / 3.0,
        found: waiting_s / late_s.max(1e-9),
        late_s,
        report: serde_json::from_slice(&output.stdout).unwrap(),
    }
}

fn finding(report: &serde_json::Value) -> Option<&serde_json::Value> {
    let findings = report["findings"].as_array().unwrap();
    findings.iter().find(|it| it["code"] == "NET006")
}

#[test]
fn clients_wait_to_be_accepted_where_all_workers_are_occupied_only() {
    const TEST: &str = "clients_wait_to_be_accepted_where_all_workers_are_occupied_only";
    common::tried("kernel", TEST, || {
        if !common::root_or_skip("kernel", TEST) {
            return;
        }
        // Four of six. In the first second it is not known yet that the service listens.
        let Served { waited, found, late_s, report } = served(2, 0);
        assert!(waited > 3.0 && late_s > 1.7, "{waited}, {late_s} s");
        assert!((0.85 * waited..1.15 * waited).contains(&found), "{found} of {waited}");
        let it = finding(&report).unwrap_or_else(|| panic!("{report:#}"));
        assert_eq!(it["severity"], "high", "{it:#}");
        assert!(it["title"].as_str().unwrap().contains(" in the queue"), "{it:#}");
        for (workers, silent) in [(8, 0), (2, 5)] {
            let Served { late_s, report, .. } = served(workers, silent);
            assert!(late_s < 0.3, "{workers} workers: {late_s} s");
            assert!(finding(&report).is_none(), "{report:#}");
        }
    });
}
