// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Workers whose waiting cannot be told from outside, with `--entry` and without, against what they measured themselves: how
//! long they had no work, and how long they waited inside of a job.

use crate::common;
use crate::lab::until;
use rusqlite::Connection;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};

/// A thread gets jobs from a broker, which it asks for the next one, for two workers. For each job, these have a helper ask
/// a database. A server does so for each request of a client. A flusher waits for a lock all the time, and nobody waits for
/// it.
const SERVICE: &str = r#"
import ctypes, os, queue, random, signal, socket, sys, threading, time
libc = ctypes.CDLL(None)

def listener(port=0):
    it = socket.socket()
    it.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    it.bind(("127.0.0.1", port))
    it.listen(8)
    return it

broker, database, front = listener(), listener(), listener(int(sys.argv[2]))

def serve(listening, least, most):
    def answer(connection):
        while connection.recv(1):
            time.sleep(random.uniform(least, most))
            connection.send(b"x")
    while True:
        threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()

def call(mean):
    connection = socket.create_connection(front.getsockname())
    while True:
        time.sleep(random.expovariate(1 / mean))
        connection.send(b"x")
        connection.recv(1)

children = []
for work, *given in (serve, broker, 0.008, 0.025), (serve, database, 0.002, 0.006), (call, 0.020):
    pid = os.fork()
    if pid == 0:
        try:
            work(*given)
        finally:
            os._exit(0)
    children.append(pid)

end = time.monotonic() + float(sys.argv[3])
own, waits, jobs, mutex = threading.local(), [], queue.SimpleQueue(), ctypes.create_string_buffer(64)
asked, asked_by_server = queue.SimpleQueue(), queue.SimpleQueue()

def delayed():
    return int(os.pread(own.schedstat, 99, 0).split()[1]) / 1e9

def timed(name, call):
    # How long it waits for a CPU afterwards is no sleep.
    queued, begin = delayed(), time.monotonic()
    result = call()
    now = time.monotonic()
    waits.append((name, begin, now, now - begin - delayed() + queued))
    return result

def named(name, what):
    def run():
        libc.prctl(15, name.encode())
        own.schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        what()
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread

def fetch():
    connection = socket.create_connection(broker.getsockname())
    while time.monotonic() < end:
        connection.send(b"x")
        connection.recv(1)
        jobs.put(1)
    for _ in range(2):
        jobs.put(None)

def work():
    answers = queue.SimpleQueue()
    while timed("queue", jobs.get):
        asked.put(answers)
        timed("answer", answers.get)

def answer_client():
    answers = queue.SimpleQueue()
    connection, _ = timed("client", front.accept)
    while time.monotonic() < end:
        timed("client", lambda: connection.recv(1))
        asked_by_server.put(answers)
        timed("inside", answers.get)
        connection.send(b"x")

def help(asked=asked):
    connection = socket.create_connection(database.getsockname())
    while True:
        answers = asked.get()
        connection.send(b"x")
        connection.recv(1)
        answers.put(1)

def keep():
    while True:
        libc.pthread_mutex_lock(mutex)
        time.sleep(0.020)
        libc.pthread_mutex_unlock(mutex)
        time.sleep(0.001)

def flush():
    while True:
        libc.pthread_mutex_lock(mutex)
        libc.pthread_mutex_unlock(mutex)
        time.sleep(0.002)

workers = [named(f"worker-{n}", work) for n in range(2)]
for name, what in ("helper", help), ("other-helper", lambda: help(asked_by_server)), ("server", answer_client), ("keeper", keep), ("flusher", flush), ("fetcher", fetch):
    named(name, what)
for worker in workers:
    worker.join()
with open(sys.argv[1], "w") as told:
    for wait in waits:
        print(*wait, file=told)
for pid in children:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
os._exit(0)
"#;

/// A run of the service: what the workers measured, in seconds, and the report.
fn run(port: u16, arguments: &[&str]) -> (BTreeMap<String, f64>, Value) {
    let scratch = tempfile::tempdir().unwrap();
    let [recording, told] = ["x.deburr", "told"].map(|name| scratch.path().join(name));
    let mut record = Command::new(env!("CARGO_BIN_EXE_deburr"));
    record.args(["record", "-q", "-o"]).arg(&recording).args(arguments);
    record.args(["--", "python3", "-c", SERVICE]).arg(&told).args([&port.to_string(), "4"]);
    assert!(record.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap().success());
    (measured(&told, 0.0..f64::INFINITY), reported(&recording))
}

/// What the workers measured in a range of time, on the monotonic clock: what a wait has of it is its part, too.
fn measured(told: &Path, within: Range<f64>) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    for row in std::fs::read_to_string(told).unwrap().lines() {
        let (name, numbers) = row.split_once(' ').unwrap();
        let numbers: Vec<f64> = numbers.split(' ').map(|it| it.parse().unwrap()).collect();
        let [begin, end, slept] = numbers[..] else { panic!("{row}") };
        let part = (end.min(within.end) - begin.max(within.start)).max(0.0) / (end - begin);
        *all.entry(name.to_owned()).or_default() += slept * part;
    }
    all
}

fn reported(recording: &Path) -> Value {
    let mut report = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let output = report.args(["report", "--json"]).arg(recording).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Seconds of sleep of each kind.
fn kinds(report: &Value) -> BTreeMap<&str, f64> {
    let mut kinds = BTreeMap::new();
    let ledgers = report["ledger"].as_array().unwrap().iter();
    for part in ledgers.filter_map(|ledger| ledger["asleep"].as_array()).flatten() {
        let sum: &mut f64 = kinds.entry(part["kind"].as_str().unwrap()).or_default();
        *sum += part["ns"].as_f64().unwrap() / 1e9;
    }
    kinds
}

fn codes(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings.map(|it| it["code"].as_str().unwrap()).collect()
}

#[test]
fn who_serves_requests_is_told_by_the_user_where_it_cannot_be_seen() {
    const TEST: &str = "who_serves_requests_is_told_by_the_user_where_it_cannot_be_seen";
    common::tried("kernel", TEST, || {
        if common::root_or_skip("kernel", TEST) {
            try_entries();
        }
    });
}

fn try_entries() {
    // Free a moment ago.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let (measured, report) = run(port, &[]);
    let told = kinds(&report);
    println!("nothing said: {measured:?}, {told:?}, {:?}", codes(&report));
    let of = |told: &BTreeMap<&str, f64>, kind: &str| told.get(kind).copied().unwrap_or_default();
    // The workers without work seem to wait for what the broker answers, and a lock that no request needs is found.
    let both = measured["queue"] + measured["answer"];
    assert!(of(&told, "waits_for_others") > both, "{told:?}, {measured:?}");
    assert!(codes(&report).contains(&"OFF001"), "{report:#}");

    let (measured, report) = run(port, &["--entry", "worker*"]);
    let told = kinds(&report);
    println!("workers: {measured:?}, {told:?}, {:?}", codes(&report));
    let context = format!("{measured:?}, {told:?}: {report:#}");
    let (queue, answer) = (measured["queue"], measured["answer"]);
    assert!(queue > 2.0 && answer > 0.3, "{context}");
    agree(&told, (queue, answer), &context);
    // The others sleep, too.
    assert!(of(&told, "no_entry") > queue, "{context}");
    assert!(!codes(&report).contains(&"OFF001"), "{context}");
    let entry = &report["target"]["entries"][0];
    assert_eq!(entry["name"], "worker*");
    let asleep = entry["asleep_ns"].as_f64().unwrap() / 1e9;
    assert!((asleep - queue - answer).abs() < 0.05 * (queue + answer), "{asleep}: {context}");

    let (measured, report) = run(port, &["--entry", &port.to_string()]);
    let told = kinds(&report);
    println!("port: {measured:?}, {told:?}, {:?}", codes(&report));
    let context = format!("{measured:?}, {told:?}: {report:#}");
    assert!(measured["client"] > 1.0 && measured["inside"] > 0.2, "{context}");
    agree(&told, (measured["client"], measured["inside"]), &context);
}

#[test]
fn who_serves_requests_is_told_by_the_ids_of_threads() {
    const TEST: &str = "who_serves_requests_is_told_by_the_ids_of_threads";
    common::tried("kernel", TEST, || {
        if common::root_or_skip("kernel", TEST) {
            try_threads();
        }
    });
}

/// The service runs already: its threads have ids.
fn try_threads() {
    let scratch = tempfile::tempdir().unwrap();
    let [recording, told] = ["x.deburr", "told"].map(|name| scratch.path().join(name));
    let mut service = Command::new("python3");
    service.args(["-c", SERVICE]).arg(&told).args(["0", "7"]).stdin(Stdio::null());
    let mut service = service.spawn().unwrap();
    let tasks = format!("/proc/{}/task", service.id());
    let workers = || -> Vec<String> {
        let tasks = std::fs::read_dir(&tasks).unwrap().map(|it| it.unwrap().path());
        let comm = |task: &Path| std::fs::read_to_string(task.join("comm")).unwrap_or_default();
        let of_worker = tasks.filter(|task| comm(task).starts_with("worker-"));
        of_worker.map(|task| task.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    };
    until("the workers have their names", || workers().len() == 2);
    let [one, other] = workers().try_into().unwrap();
    let mut record = Command::new(env!("CARGO_BIN_EXE_deburr"));
    record.args(["record", "-q", "-d", "3", "-p", &service.id().to_string(), "-o"]).arg(&recording);
    // A number, and one that says what it is.
    record.args(["--entry", &one, "--entry", &format!("tid:{other}")]).stdout(Stdio::null());
    let ended = record.status().unwrap();
    assert!(service.wait().unwrap().success() && ended.success(), "{ended}");
    let (report, tids) = (reported(&recording), [one, other]);
    let connection = Connection::open(&recording).unwrap();
    let (began, length): (i64, i64) = connection
        .query_row("SELECT start_mono_ns, asked_ns FROM meta", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    let began = began as f64 / 1e9;
    let measured = measured(&told, began..began + length as f64 / 1e9);
    let kinds = kinds(&report);
    println!("threads: {measured:?}, {kinds:?}, {:?}", codes(&report));
    let context = format!("{measured:?}, {kinds:?}: {report:#}");
    let (queue, answer) = (measured["queue"], measured["answer"]);
    assert!(queue > 1.5 && answer > 0.2, "{context}");
    agree(&kinds, (queue, answer), &context);
    // The helper and the others are none of them.
    assert!(kinds["no_entry"] > queue, "{context}");
    let entries = report["target"]["entries"].as_array().unwrap();
    let mut told: Vec<String> = entries.iter().map(|it| it["tid"].to_string()).collect();
    told.sort_unstable();
    let mut tids = tids;
    tids.sort_unstable();
    assert_eq!(told, tids, "{context}");
    for entry in entries {
        assert!(entry["asleep_ns"].as_f64().unwrap() > 0.5e9, "each of them is seen: {context}");
    }
}

/// What threads of an entry waited for is told as they measured it: without work, and inside of jobs.
fn agree(told: &BTreeMap<&str, f64>, (idle, inside): (f64, f64), context: &str) {
    let of = |kind: &str| told.get(kind).copied().unwrap_or_default();
    let slack = 0.05 * (idle + inside);
    assert!((of("waits_for_work") - idle).abs() < slack, "{context}");
    assert!((of("waits_for_others") - inside).abs() < slack, "{context}");
    assert!(of("not_known") < slack, "{context}");
}
