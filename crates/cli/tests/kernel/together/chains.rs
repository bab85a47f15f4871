// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What sleeps waited for, as recorded, against what those say that were waited for: stages that ask each other, each of
//! which knows how long it napped, and has the kernel's account of its CPU time and its waits for a CPU. Who asks whom, how
//! often and for how long is drawn at random.

use crate::common;
use rusqlite::Connection;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// A first stage that asks the others and waits. Stages are processes; a question is a byte in a pipe, a pair of unix sockets or a
/// TCP connection. Only what a stage does while the first one waits is written down.
const STAGES: &str = r#"
import os, random, signal, socket, sys, time
told, seed = sys.argv[1], int(sys.argv[2])
random.seed(seed)
depth = random.randint(2, 4)
open_sockets = []

def channel():
    kind = random.choice(("pipe", "pair", "tcp"))
    if kind == "pipe":
        return os.pipe()
    if kind == "pair":
        reader, writer = socket.socketpair()
    else:
        listening = socket.create_server(("127.0.0.1", 0))
        reader = socket.create_connection(listening.getsockname())
        writer, _ = listening.accept()
        listening.close()
        writer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    open_sockets.extend((reader, writer))
    return reader.fileno(), writer.fileno()

asks = [channel() for _ in range(depth + 1)]
answers = [channel() for _ in range(depth + 1)]
mix = [random.random() for _ in range(depth + 1)]

def name(text):
    with open("/proc/self/comm", "w") as comm:
        comm.write(text)

def compute(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

def ask(stage):
    os.write(asks[stage][1], b"x")
    os.read(answers[stage][0], 1)

def counted():
    with open("/proc/thread-self/schedstat") as schedstat:
        on_cpu, delay, _ = schedstat.read().split()
    return int(on_cpu) / 1e9, int(delay) / 1e9

def work(stage):
    slept = 0.0
    for _ in range(random.randint(1, 3)):
        if random.random() < mix[stage]:
            compute(random.uniform(0.002, 0.012))
        else:
            # How long it waits for a CPU afterwards is no sleep.
            begin = time.monotonic() - counted()[1]
            time.sleep(random.uniform(0.002, 0.012))
            slept += time.monotonic() - counted()[1] - begin
        if stage < depth and random.random() < 0.6:
            ask(stage + 1)
    return slept

children = []
for stage in range(1, depth + 1):
    pid = os.fork()
    if pid == 0:
        name(f"stage-{stage}")
        random.seed(seed * 10 + stage)
        slept, before = 0.0, counted()
        while os.read(asks[stage][0], 1) == b"x":
            slept += work(stage)
            os.write(answers[stage][1], b"x")
        on_cpu, delay = (now - then for now, then in zip(counted(), before))
        with open(f"{told}.{stage}", "w") as file:
            for seconds, did in (slept, "slept"), (on_cpu, "on_cpu"), (delay, "queued"):
                file.write(f"{seconds} stage-{stage} {did}\n")
        os._exit(0)
    children.append(pid)
name("stage-0")
waited, stop = 0.0, time.monotonic() + 4.0
while time.monotonic() < stop:
    begin = time.monotonic()
    ask(1)
    waited += time.monotonic() - begin
    time.sleep(0.003)
for stage in range(1, depth + 1):
    os.write(asks[stage][1], b"q")
for pid in children:
    os.waitpid(pid, 0)
with open(told, "w") as file:
    file.write(f"{os.getpid()} {waited}\n")
"#;

/// The sleeps of a process with that of which SQL says that it is so: the chain behind each, and its seconds.
pub(crate) fn sleeps_behind(recording: &Path, pid: u32, is_so: &str) -> Vec<(Vec<Value>, f64)> {
    let connection = Connection::open(recording).unwrap();
    let sql = format!(
        "SELECT s.behind, s.ns FROM sleep s JOIN processes p ON p.proc = s.proc WHERE p.pid = ? AND {is_so}"
    );
    let mut statement = connection.prepare(&sql).unwrap();
    let rows = statement.query_map([pid], |row| {
        let behind: Option<String> = row.get(0)?;
        let links = behind.map(|text| serde_json::from_str(&text).unwrap()).unwrap_or_default();
        Ok((links, row.get::<_, i64>(1)? as f64 / 1e9))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

/// The sleep of the first stage in `read`, by the last of the chain and what it did, in seconds.
fn recorded(recording: &Path, pid: u32) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    for (behind, seconds) in sleeps_behind(recording, pid, "s.call = 'read'") {
        // How the interpreter was started is not what is measured.
        if behind.first().is_some_and(|first| first["thread"] != "stage-1") {
            continue;
        }
        let name = behind.last().map_or_else(
            || "unknown".to_owned(),
            |last| {
                let did = match last["did"].as_str().unwrap() {
                    "slept" if last["call"] != "clock_nanosleep" => "waited",
                    other => other,
                };
                format!("{} {did}", last["thread"].as_str().unwrap())
            },
        );
        *all.entry(name).or_default() += seconds;
    }
    all
}

#[test]
fn what_stages_wait_for_is_what_the_others_did() {
    const TEST: &str = "what_stages_wait_for_is_what_the_others_did";
    common::tried("kernel", TEST, || {
        if common::root_or_skip("kernel", TEST) {
            for _ in 0..4 {
                try_random_stages();
            }
        }
    });
}

fn try_random_stages() {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap();
    let seed = now.subsec_nanos().to_string();
    let scratch = tempfile::tempdir().unwrap();
    let [recording, told] = ["x.deburr", "told"].map(|name| scratch.path().join(name));
    let mut record = Command::new(env!("CARGO_BIN_EXE_deburr"));
    record.args(["record", "-q", "--force", "-o"]).arg(&recording);
    record.args(["--", "python3", "-c", STAGES]).arg(&told).arg(&seed);
    assert!(record.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap().success());

    let text = std::fs::read_to_string(&told).unwrap();
    let (pid, waited) = text.trim().split_once(' ').unwrap();
    let waited: f64 = waited.parse().unwrap();
    let recorded = recorded(&recording, pid.parse().unwrap());
    let mut measured: BTreeMap<String, f64> = BTreeMap::new();
    for stage in 1.. {
        let Ok(text) = std::fs::read_to_string(format!("{}.{stage}", told.display())) else {
            break;
        };
        for row in text.lines() {
            let (seconds, name) = row.split_once(' ').unwrap();
            measured.insert(name.to_owned(), seconds.parse().unwrap());
        }
    }
    assert!(measured.len() > 1, "{measured:?}");
    let sum: f64 = recorded.values().sum();
    let told = format!("seed {seed}, waited {waited} s: {recorded:?}, measured {measured:?}");
    // What a stage does after it has answered is counted by the kernel, and is nobody's wait.
    let slack = 0.04 * waited + 0.02;
    assert!((sum - waited).abs() < slack, "in all: {told}");
    for (name, seconds) in &measured {
        let of = recorded.get(name).copied().unwrap_or_default();
        assert!((of - seconds).abs() < slack, "{name}: {told}");
    }
    let known: f64 = measured.keys().filter_map(|name| recorded.get(name)).sum();
    assert!(known > 0.9 * waited, "{told}");
}
