// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sleep of a plain request server (an event loop, a pool of threads, a database over TCP, a lock), as the report divides
//! it, against what its own threads measured: how long they waited for the database, for the lock and for a timer, and for nothing
//! else.

use crate::common;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// A database and clients, each with threads. It prints the ports of both, and ends with its standard input.
const AROUND: &str = r#"
import random, socket, sys, threading, time
random.seed(int(sys.argv[1]))
requests_per_s, answer_s = random.uniform(60, 150), random.uniform(0.002, 0.006)

def listener():
    it = socket.socket()
    it.bind(("127.0.0.1", 0))
    it.listen(64)
    return it

def serve(connection):
    while connection.recv(100):
        time.sleep(random.uniform(0.5, 1.5) * answer_s)
        connection.send(b"row")

def database(listening):
    while True:
        threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

def client(address):
    while True:
        try:
            connection = socket.create_connection(address)
            while True:
                time.sleep(random.expovariate(requests_per_s / 8))
                connection.send(b"request")
                connection.recv(100)
        except OSError:
            time.sleep(0.05)

stored, front = listener(), listener()
address = front.getsockname()
front.close()
threading.Thread(target=database, args=(stored,), daemon=True).start()
for _ in range(8):
    threading.Thread(target=client, args=(address,), daemon=True).start()
print(stored.getsockname()[1], address[1], flush=True)
sys.stdin.read()
"#;

/// A thread of the pool asks the database for each request, and then does something with a lock held.
const SERVER: &str = r#"
import asyncio, ctypes, os, random, socket, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
told, stored, front = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
libc, held_s = ctypes.CDLL(None), random.uniform(0.001, 0.003)
own, waited, mutex = threading.local(), {}, ctypes.create_string_buffer(64)

def delayed():
    return int(os.pread(own.schedstat, 99, 0).split()[1]) / 1e9

def timed(name, call):
    # How long it waits for a CPU afterwards is no sleep.
    begin = time.monotonic() - delayed()
    call()
    key = threading.get_ident(), name
    waited[key] = waited.get(key, 0.0) + time.monotonic() - delayed() - begin

def answer():
    if not hasattr(own, "schedstat"):
        own.schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        own.database = socket.create_connection(("127.0.0.1", stored))
    own.database.send(b"select")
    timed("database", lambda: own.database.recv(100))
    timed("lock", lambda: libc.pthread_mutex_lock(mutex))
    timed("timer", lambda: time.sleep(held_s))
    libc.pthread_mutex_unlock(mutex)
    return b"answer"

pool = ThreadPoolExecutor(4)

async def handle(reader, writer):
    while await reader.read(100):
        writer.write(await asyncio.get_running_loop().run_in_executor(pool, answer))

async def main():
    await asyncio.start_server(handle, "127.0.0.1", front)
    await asyncio.sleep(4.0)

asyncio.new_event_loop().run_until_complete(main())
queued = [open(f"/proc/self/task/{tid}/schedstat").read().split()[1] for tid in os.listdir("/proc/self/task")]
with open(told, "w") as file:
    file.write(f"queued {sum(map(int, queued)) / 1e9}\n")
    for name in "database", "lock", "timer":
        file.write(f"{name} {sum(seconds for (_, it), seconds in waited.items() if it == name)}\n")
os._exit(0)
"#;

/// Seconds of sleep of each kind in the report.
fn told_by_kind(recording: &Path) -> BTreeMap<String, f64> {
    let mut report = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let output = report.args(["report", "--json"]).arg(recording).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ledgers = report["ledger"].as_array().unwrap();
    let mut kinds = BTreeMap::new();
    for part in ledgers.iter().filter_map(|ledger| ledger["asleep"].as_array()).flatten() {
        let kind = part["kind"].as_str().unwrap().to_owned();
        *kinds.entry(kind).or_default() += part["ns"].as_f64().unwrap() / 1e9;
    }
    kinds
}

#[test]
fn a_request_servers_sleep_is_known_and_idle_threads_blame_nobody() {
    const TEST: &str = "a_request_servers_sleep_is_known_and_idle_threads_blame_nobody";
    common::tried("kernel", TEST, || {
        if common::root_or_skip("kernel", TEST) {
            try_request_server();
        }
    });
}

fn try_request_server() {
    let scratch = tempfile::tempdir().unwrap();
    let [recording, told] = ["x.deburr", "told"].map(|name| scratch.path().join(name));
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos().to_string();
    let mut around = Command::new("python3");
    around.args(["-c", AROUND, &seed]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut around = around.spawn().unwrap();
    let mut ports = String::new();
    BufReader::new(around.stdout.as_mut().unwrap()).read_line(&mut ports).unwrap();
    let mut record = Command::new(env!("CARGO_BIN_EXE_deburr"));
    record.args(["record", "-q", "--force", "-o"]).arg(&recording);
    record.args(["--", "python3", "-c", SERVER]).arg(&told).args(ports.split_whitespace());
    assert!(record.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap().success());
    drop(around.stdin.take());
    assert!(around.wait().unwrap().success());

    let text = std::fs::read_to_string(&told).unwrap();
    let measured: BTreeMap<&str, f64> = text
        .lines()
        .map(|row| row.split_once(' ').unwrap())
        .map(|(name, seconds)| (name, seconds.parse().unwrap()))
        .collect();
    let kinds = told_by_kind(&recording);
    let of = |kind: &str| kinds.get(kind).copied().unwrap_or_default();
    let whole: f64 = kinds.values().sum();
    let context = format!("seed {seed}: {measured:?}, {kinds:?}");
    println!("{context}");
    // Six threads sleep nearly all the time.
    assert!(whole > 12.0, "{context}");
    assert!(of("not_known") <= 0.05 * whole, "{context}");
    let others = of("waits_for_others") - measured["database"] - measured["lock"];
    // While one of them waits for a CPU, the four of the pool may wait for it, and that is no idle time.
    let late = 4.0 * measured["queued"];
    assert!((-0.02 * whole..0.02 * whole + late).contains(&others), "{others} s: {context}");
    assert!((of("own_timer") - measured["timer"]).abs() < 0.02 * whole, "{context}");
    // The pool is idle for most of the time.
    assert!(of("waits_for_work") > 0.5 * whole, "{context}");
}
