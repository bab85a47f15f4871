// SPDX-License-Identifier: Apache-2.0 OR MIT
//! On what threads sleep, as recorded, against what they measured themselves: they know which of their calls was slow.

use crate::common;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// Threads that wait in one way each, and write how long they did. Whom they wait for are other processes, but for the
/// lock.
const SLEEPERS: &str = r#"
import ctypes, fcntl, os, select, signal, socket, sys, threading, time
spent, stop = {}, time.monotonic() + 3.0
libc = ctypes.CDLL(None)

own = threading.local()

def delayed():
    if not hasattr(own, "schedstat"):
        own.schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    return int(os.pread(own.schedstat, 99, 0).split()[1]) / 1e9

def timed(name, call):
    # How long it waits for a CPU afterwards is no sleep.
    begin = time.monotonic() - delayed()
    result = call()
    spent[name] = spent.get(name, 0.0) + time.monotonic() - delayed() - begin
    return result

def listener():
    it = socket.socket()
    it.bind(("127.0.0.1", 0))
    it.listen(8)
    return it

backend, front = listener(), listener()
counter = os.eventfd(0)
lock_file = sys.argv[2]
children = []

def child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    children.append(pid)

def serve():
    while True:
        connection, _ = backend.accept()
        threading.Thread(target=answer, args=(connection,)).start()

def answer(connection):
    while connection.recv(1):
        time.sleep(0.015)
        connection.send(b"x")

def ask():
    connection = socket.create_connection(front.getsockname())
    while True:
        time.sleep(0.010)
        connection.send(b"x")
        os.eventfd_write(counter, 1)

def hold():
    held = open(lock_file, "w")
    while True:
        fcntl.flock(held, fcntl.LOCK_EX)
        time.sleep(0.012)
        fcntl.flock(held, fcntl.LOCK_UN)
        time.sleep(0.003)

for work in (serve, ask, ask, hold):
    child(work)
peer, one, either, chosen = (socket.create_connection(backend.getsockname()) for _ in range(4))
client, polled_client = (front.accept()[0] for _ in range(2))
never, _ = os.pipe()
mutex = ctypes.create_string_buffer(64)

def of_peer():
    peer.send(b"x")
    timed("recvfrom peer", lambda: peer.recv(1))

def of_client():
    timed("recvfrom client", lambda: client.recv(1))

# As libraries wait that have a timeout for an answer: alone, beside others, and by the older call.
def asks(connection, name, wait):
    def once():
        connection.send(b"x")
        timed(name, wait)
        connection.recv(1)
    return once

def poll_of(*files):
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return poll

of_one = asks(one, "poll peer", lambda poll=poll_of(one): poll.poll(5000))
of_either = asks(either, "poll peer or others", lambda poll=poll_of(never, front, either): poll.poll(5000))
of_chosen = asks(chosen, "select peer", lambda: select.select([chosen], [], [], 5))

def of_polled_client(poll=poll_of(polled_client)):
    timed("poll client", lambda: poll.poll(5000))
    polled_client.recv(1)

def of_pipe():
    timed("poll pipe", lambda poll=poll_of(never): poll.poll(9))

def of_counter():
    timed("read eventfd", lambda: os.eventfd_read(counter))

wanted = open(lock_file, "w")
def of_file():
    timed("flock", lambda: fcntl.flock(wanted, fcntl.LOCK_EX))
    fcntl.flock(wanted, fcntl.LOCK_UN)
    timed("clock_nanosleep", lambda: time.sleep(0.002))

def of_mutex():
    timed("futex lock", lambda: libc.pthread_mutex_lock(mutex))
    libc.pthread_mutex_unlock(mutex)
    timed("clock_nanosleep", lambda: time.sleep(0.002))

def holder():
    libc.pthread_mutex_lock(mutex)
    timed("clock_nanosleep", lambda: time.sleep(0.010))
    libc.pthread_mutex_unlock(mutex)
    timed("clock_nanosleep", lambda: time.sleep(0.002))

def again(what):
    while time.monotonic() < stop:
        what()

works = (of_peer, of_client, of_counter, of_file, of_mutex, holder)
works += (of_one, of_either, of_chosen, of_polled_client, of_pipe)
threads = [threading.Thread(target=again, args=(what,)) for what in works]
for thread in threads:
    thread.start()
timed("clock_nanosleep", lambda: time.sleep(max(0.0, stop - time.monotonic())))
for thread in threads:
    thread.join()
with open(sys.argv[1], "w") as told:
    told.write(f"{os.getpid()}\n" + "".join(f"{ns} {name}\n" for name, ns in spent.items()))
for pid in children:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
"#;

/// Sleep of the process by what it was on, in seconds.
fn recorded(recording: &Path, pid: u32) -> BTreeMap<&'static str, f64> {
    let connection = Connection::open(recording).unwrap();
    let sql = "SELECT s.call, s.slept_on, s.ns FROM sleep s JOIN processes p ON p.proc = s.proc
               WHERE p.pid = ? AND s.state = 'asleep'";
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([pid], |row| {
        let (call, on): (String, String) = (row.get(0)?, row.get(1)?);
        Ok((call, serde_json::from_str::<serde_json::Value>(&on).unwrap(), row.get::<_, i64>(2)?))
    });
    let mut all = BTreeMap::new();
    for (call, on, ns) in rows.unwrap().map(Result::unwrap) {
        let name = match (call.as_str(), on["kind"].as_str().unwrap()) {
            ("recvfrom", "inet") if on["listens"] == true => "recvfrom client",
            ("recvfrom", "inet") if on["remote"].is_string() => "recvfrom peer",
            ("poll", "inet") if on["ready"] == true => "poll peer or others",
            ("poll", "inet") if on["listens"] == true => "poll client",
            ("poll", "inet") if on["remote"].is_string() => "poll peer",
            ("select" | "pselect6", "inet") if on["remote"].is_string() => "select peer",
            ("poll", "pipe") => "poll pipe",
            ("read", "anonymous") if on["name"] == "eventfd" => "read eventfd",
            ("flock", _) => "flock",
            ("futex", "futex") if on["value"] == 2 && on["op"] == 0 => "futex lock",
            ("clock_nanosleep", _) => "clock_nanosleep",
            _ => "other",
        };
        *all.entry(name).or_default() += ns as f64 / 1e9;
    }
    all
}

#[test]
fn sleep_is_divided_as_the_sleepers_measured_it() {
    const TEST: &str = "sleep_is_divided_as_the_sleepers_measured_it";
    common::tried("kernel", TEST, || {
        if common::root_or_skip("kernel", TEST) {
            try_sleep_is_divided_as_the_sleepers_measured_it();
        }
    });
}

fn try_sleep_is_divided_as_the_sleepers_measured_it() {
    let scratch = tempfile::tempdir().unwrap();
    let [recording, told] = ["x.deburr", "told"].map(|name| scratch.path().join(name));
    let mut record = Command::new(env!("CARGO_BIN_EXE_deburr"));
    record.args(["record", "-q", "--force", "-o"]).arg(&recording);
    record.args(["--", "python3", "-c", SLEEPERS]).arg(&told).arg(scratch.path().join("lock"));
    assert!(record.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap().success());

    let text = std::fs::read_to_string(&told).unwrap();
    let (pid, rows) = text.split_once('\n').unwrap();
    let measured: BTreeMap<&str, f64> = rows
        .lines()
        .map(|row| row.split_once(' ').unwrap())
        .map(|(seconds, name)| (name, seconds.parse().unwrap()))
        .collect();
    assert_eq!(measured.len(), 11, "{text}");
    let recorded = recorded(&recording, pid.parse().unwrap());
    for (name, seconds) in &measured {
        let sleep = recorded.get(name).copied().unwrap_or_default();
        // A thread that was woken may wait for the interpreter before it can look at the clock: 2 % of its time, and a
        // record stands for a millisecond.
        let slack = 0.002 + 0.02 * 3.0 * if *name == "clock_nanosleep" { 4.0 } else { 1.0 };
        assert!((sleep - seconds).abs() < slack, "{name}: {sleep} s, {seconds} s: {recorded:?}");
    }
    verdicts(&recording);
}

/// What the report makes of it.
fn verdicts(recording: &Path) {
    let mut report = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let output = report.args(["report", "--json"]).arg(recording).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let ledgers = report["ledger"].as_array().unwrap();
    let ledger = ledgers.iter().find(|it| !it["asleep"].is_null()).unwrap();
    let asleep = ledger["asleep"].as_array().unwrap();
    let ns = |part: &serde_json::Value| part["ns"].as_u64().unwrap();
    for state in ["sleep", "uninterruptible", "mem_stall"] {
        let of = |all: &[serde_json::Value]| -> u64 {
            all.iter().filter(|part| part["state"] == state).map(ns).sum()
        };
        let parts = ledger["parts"].as_array().unwrap();
        assert_eq!(of(asleep), of(parts), "{state}: {ledger:#}");
    }
    let kind_of = |call: &str, on: &str| {
        let has = |part: &&serde_json::Value| {
            part["call"] == call && part["on"].as_str().unwrap_or_default().contains(on)
        };
        let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
        for part in asleep.iter().filter(has) {
            *kinds.entry(part["kind"].as_str().unwrap()).or_default() += ns(part);
        }
        let most = kinds.iter().max_by_key(|(_, ns)| **ns).unwrap_or_else(|| panic!("{call}"));
        // The first sleep on a connection, and those whose end was not seen.
        let all: u64 = kinds.values().sum();
        assert!(10 * most.1 > 9 * all, "{call} on {on}: {kinds:?}, {ledger:#}");
        (*most.0).to_owned()
    };
    assert_eq!(kind_of("recvfrom", "clients of port"), "waits_for_work");
    assert_eq!(kind_of("recvfrom", "127.0.0.1:"), "waits_for_others");
    assert_eq!(kind_of("poll", "127.0.0.1:"), "waits_for_others");
    assert_eq!(kind_of("poll", "clients of port"), "waits_for_work");
    assert_eq!(kind_of("poll", "pipe"), "own_timer");
    assert_eq!(kind_of("flock", ""), "waits_for_others");
    assert_eq!(kind_of("futex", "a lock"), "waits_for_others");
    assert_eq!(kind_of("clock_nanosleep", ""), "own_timer");
    // Each of them waits for most of the window; no thread is late.
    let findings = report["findings"].as_array().unwrap();
    let found = |code: &str| findings.iter().find(|it| it["code"] == code);
    for code in ["OFF001", "OFF002", "OFF007"] {
        let finding = found(code).unwrap_or_else(|| panic!("{code}: {findings:#?}"));
        let first = &finding["causes"][0];
        assert_eq!(first["comm"], "python3", "{code}: {finding:#}");
        assert!(first["share"].as_f64().unwrap() > 0.5, "{code}: {finding:#}");
    }
    assert!(found("OFF003").is_none(), "{findings:#?}");
    let title = found("OFF007").unwrap()["title"].as_str().unwrap();
    assert!(title.contains("/lock`"), "the file is named: {title}");
    // The one that ends it is another process, which sleeps by a timer: whether that one is at rest is not known.
    assert_eq!(kind_of("read", "eventfd"), "not_known");
}

/// Asks another process 50 times a second, each time on a new connection.
const ASKS_ANEW: &str = r#"
import os, signal, socket, sys, time
listening = socket.socket()
listening.bind(("127.0.0.1", 0))
listening.listen(8)
server = os.fork()
if server == 0:
    while True:
        connection, _ = listening.accept()
        connection.recv(1)
        time.sleep(0.020)
        connection.send(b"x")
        connection.close()
address = listening.getsockname()
schedstat = os.open("/proc/self/schedstat", os.O_RDONLY)

def now():
    # How long it waits for a CPU is no sleep.
    return time.monotonic() - int(os.pread(schedstat, 99, 0).split()[1]) / 1e9

spent, stop = 0.0, time.monotonic() + 3.0
while time.monotonic() < stop:
    with socket.create_connection(address) as connection:
        connection.send(b"x")
        begin = now()
        connection.recv(1)
        spent += now() - begin
with open(sys.argv[1], "w") as told:
    told.write(f"{os.getpid()} {spent}")
os.kill(server, signal.SIGKILL)
os.waitpid(server, 0)
"#;

#[test]
fn a_connection_for_each_question_is_one_for_answers() {
    const TEST: &str = "a_connection_for_each_question_is_one_for_answers";
    common::tried("kernel", TEST, || {
        if common::root_or_skip("kernel", TEST) {
            try_a_connection_for_each_question();
        }
    });
}

fn try_a_connection_for_each_question() {
    let scratch = tempfile::tempdir().unwrap();
    let [recording, told] = ["x.deburr", "told"].map(|name| scratch.path().join(name));
    let mut record = Command::new(env!("CARGO_BIN_EXE_deburr"));
    record.args(["record", "-q", "-o"]).arg(&recording);
    record.args(["--", "python3", "-c", ASKS_ANEW]).arg(&told);
    assert!(record.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap().success());
    let text = std::fs::read_to_string(&told).unwrap();
    let (pid, seconds) = text.split_once(' ').unwrap();
    let measured: f64 = seconds.parse().unwrap();
    let connection = Connection::open(&recording).unwrap();
    let sql = "SELECT sum(s.ns) / 1e9 FROM sleep s JOIN processes p ON p.proc = s.proc
               WHERE p.pid = ? AND s.call = 'recvfrom' AND json_extract(s.slept_on, '$.asked')";
    let asked: Option<f64> = connection.query_row(sql, [pid], |row| row.get(0)).unwrap();
    let asked = asked.unwrap_or_default();
    // In the first moments it is not known yet who listens.
    let range = 0.8 * measured..1.05 * measured;
    assert!(measured > 1.0 && range.contains(&asked), "{asked} s, {measured} s");
}
