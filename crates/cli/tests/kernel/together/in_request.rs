// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What threads wait for while a client waits for their answer, as recorded, against what they measured themselves.

use crate::common;
use rusqlite::Connection;
use std::path::Path;
use std::process::{Command, Stdio};

/// What the servers share: how long a call took without the waiting for a CPU, and clients that are processes of their own.
const PRELUDE: &str = r#"
import collections, os, queue, random, select, signal, socket, sys, threading, time
stop = time.monotonic() + 3.0
own, spent, clients = threading.local(), collections.Counter(), []

def delayed():
    # How long it waits for a CPU is no sleep.
    if not hasattr(own, "schedstat"):
        own.schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    return int(os.pread(own.schedstat, 99, 0).split()[1]) / 1e9

def timed(name, call):
    begin = time.monotonic() - delayed()
    result = call()
    # Threads add to what is their own: others may be in the middle of it.
    spent[name, threading.get_ident()] += time.monotonic() - delayed() - begin
    return result

def waited(name):
    return sum(took for (of, _), took in spent.items() if of == name)

def start(ask, number):
    for _ in range(number):
        pid = os.fork()
        if pid == 0:
            try:
                ask()
            finally:
                os._exit(0)
        clients.append(pid)

def serve_with(works, said):
    threads = [threading.Thread(target=work, args=args) for work, *args in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with open(sys.argv[1], "w") as told:
        told.write(f"{os.getpid()} {said()}")
    for pid in clients:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
"#;

/// A thread for each connection, which wants a lock of the interpreter before it answers; a holder; and waits of the same kind for
/// which nobody waits: those of workers without work, and of a connection's thread after its answer.
const SERVER: &str = r#"
row, work, rest = threading.Lock(), queue.SimpleQueue(), threading.Semaphore(0)

listening = socket.socket()
listening.bind(("127.0.0.1", 0))
listening.listen(8)

def ask():
    connection = socket.create_connection(listening.getsockname())
    while True:
        time.sleep(0.020)
        connection.send(b"x")
        connection.recv(1)

start(ask, 2)

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
serve_with(works, lambda: f"{waited('row')} {waited('rest')}")
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
    record.args(["--", "python3", "-c"]).arg(format!("{PRELUDE}{SERVER}")).arg(&told);
    assert!(record.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap().success());
    let text = std::fs::read_to_string(&told).unwrap();
    let [pid, row, rest] = text.split(' ').collect::<Vec<_>>()[..] else { panic!("{text}") };
    let [row, rest]: [f64; 2] = [row, rest].map(|it| it.parse().unwrap());
    let [inside, outside] = slept_in_futex(&recording, pid);
    // Waits for the interpreter are inside, too. In the first moments it is not known yet who listens.
    assert!(row > 1.0 && (0.85 * row..1.1 * row + 0.1).contains(&inside), "{inside} s, {row} s");
    // Two workers without work, and the waits after an answer.
    assert!(rest > 0.5 && outside > rest + 3.0, "{outside} s outside, {rest} s after answers");
    // A remark, for the holder slept.
    let report = reported(&recording);
    let it = finding(&report);
    assert_eq!(it["severity"], "info", "{it:#}");
    let title = it["title"].as_str().unwrap();
    assert!(title.contains("while clients wait") && title.contains("sleeps"), "{title}");
}

/// Seconds of sleep in `futex` while a client waited, and otherwise.
fn slept_in_futex(recording: &Path, pid: &str) -> [f64; 2] {
    let connection = Connection::open(recording).unwrap();
    ["= 1", "IS NULL"].map(|in_request| {
        let sql = format!(
            "SELECT coalesce(sum(s.ns), 0) / 1e9 FROM sleep s JOIN processes p ON p.proc = s.proc
             WHERE p.pid = ? AND s.call = 'futex' AND s.in_request {in_request}"
        );
        connection.query_row(&sql, [pid], |row| row.get(0)).unwrap()
    })
}

fn reported(recording: &Path) -> serde_json::Value {
    let mut report = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let output = report.args(["report", "--json"]).arg(recording).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

fn finding(report: &serde_json::Value) -> &serde_json::Value {
    let findings = report["findings"].as_array().unwrap();
    findings.iter().find(|it| it["code"] == "OFF003").expect("OFF003")
}

/// What servers do with clients that ask again at once; it counts how long threads wait for their turn, and for work. Each thread
/// with a connection of its own to a client has one to a database, too, which has greeted it.
///
/// - `turns`: a thread for each connection, of which one at a time holds a row while it naps, in the order in which they asked.
/// - `transactions`: the same, in any order, but who holds the row waits for what its client asks next, in an event poll.
/// - `workers`: workers that a dispatcher gives connections with something to read, which wait for the second half of it, and give
///   them back.
/// - `pool`: the same, but all is there to read, and they take turns at a row, in any order.
/// - `tasks`: workers that read what is asked, and go on with whatever comes next; another thread answers later, and gives them the
///   next one.
const SESSIONS: &str = r#"
told, family, mode = sys.argv[1:]
in_halves = mode in ("turns", "workers")

if family == "unix":
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(told + ".socket")
else:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
listening.listen(8)

def ask():
    connection = socket.socket(listening.family)
    connection.connect(listening.getsockname())
    while True:
        if in_halves:
            connection.send(b"x")
            time.sleep(0.003)
            connection.send(b"y")
        else:
            connection.send(b"xy")
        connection.recv(1)
        if mode == "transactions":
            time.sleep(0.015)

start(ask, 6 if mode == "tasks" else 4)
connections = [listening.accept()[0] for _ in clients]

database = socket.socket()
database.bind(("127.0.0.1", 0))
database.listen(8)

def greet():
    ends = [database.accept()[0] for _ in connections]
    time.sleep(0.010)
    for end in ends:
        end.send(b"x")
    time.sleep(60)

start(greet, 1)

guard, waiting, held = threading.Lock(), [], False

def acquire():
    global held
    with guard:
        if not held:
            held = True
            return
        turn = threading.Lock()
        turn.acquire()
        waiting.append(turn)
    timed("turn", turn.acquire)

def release():
    global held
    with guard:
        if waiting:
            at = 0 if mode == "turns" else random.randrange(len(waiting))
            waiting.pop(at).release()
        else:
            held = False

def read(connection):
    connection.recv(1)
    connection.recv(1)

def serve(connection):
    # What it has read there first is no question of a client.
    asks = socket.create_connection(database.getsockname())
    asks.recv(1)
    while time.monotonic() < stop:
        read(connection)
        acquire()
        time.sleep(0.015)
        release()
        connection.send(b"x")

def session(connection):
    poll = select.epoll()
    poll.register(connection, select.EPOLLIN)
    def next():
        poll.poll()
        connection.recv(2)
    while time.monotonic() < stop:
        next()
        acquire()
        connection.send(b"x")
        next()
        release()
        connection.send(b"x")

work, back = queue.SimpleQueue(), queue.SimpleQueue()

def worker():
    while True:
        connection = timed("work", work.get)
        if connection is None:
            return
        if mode == "workers":
            read(connection)
            time.sleep(0.015)
        else:
            connection.recv(2)
        if mode == "tasks":
            later.put((time.monotonic() + 0.030, connection))
            continue
        if mode == "pool":
            acquire()
            time.sleep(0.015)
            release()
        connection.send(b"x")
        back.put(connection)

later = queue.SimpleQueue()

def answer():
    while time.monotonic() < stop:
        due, connection = later.get()
        time.sleep(max(0, due - time.monotonic()))
        connection.send(b"x")
        work.put(connection)
    for _ in range(3):
        work.put(None)

def dispatch():
    idle = set(connections)
    while time.monotonic() < stop:
        while not back.empty():
            idle.add(back.get())
        for ready in select.select(list(idle), [], [], 0.002)[0]:
            idle.remove(ready)
            work.put(ready)
    for _ in range(6):
        work.put(None)

if mode == "turns":
    works = [(serve, it) for it in connections]
elif mode == "transactions":
    works = [(session, it) for it in connections]
elif mode == "tasks":
    for connection in connections:
        work.put(connection)
    works = [(answer,)] + [(worker,)] * 3
else:
    works = [(dispatch,)] + [(worker,)] * 6
serve_with(works, lambda: f"{waited('turn')} {waited('work')}")
"#;

/// What became of a server of [`SESSIONS`]: seconds.
struct Served {
    /// For their turn, and for work, by its own count.
    waited: f64,
    idle: f64,
    /// In `futex` while a client waited, and otherwise, by the recording.
    inside: f64,
    outside: f64,
    report: serde_json::Value,
}

fn sessions(family: &str, mode: &str) -> Served {
    let scratch = tempfile::tempdir().unwrap();
    let [recording, told] = ["x.deburr", "told"].map(|name| scratch.path().join(name));
    let mut record = Command::new(env!("CARGO_BIN_EXE_deburr"));
    record.args(["record", "-q", "-o"]).arg(&recording).args(["--", "python3", "-c"]);
    record.arg(format!("{PRELUDE}{SESSIONS}"));
    record.arg(&told).args([family, mode]).stdin(Stdio::null()).stdout(Stdio::null());
    assert!(record.status().unwrap().success());
    let text = std::fs::read_to_string(&told).unwrap();
    let [pid, waited, idle] = text.split(' ').collect::<Vec<_>>()[..] else { panic!("{text}") };
    let [waited, idle] = [waited, idle].map(|it| it.parse().unwrap());
    let [inside, outside] = slept_in_futex(&recording, pid);
    Served { waited, idle, inside, outside, report: reported(&recording) }
}

#[test]
fn who_takes_turns_at_a_row_while_clients_wait_is_told() {
    const TEST: &str = "who_takes_turns_at_a_row_while_clients_wait_is_told";
    common::tried("kernel", TEST, || {
        if !common::root_or_skip("kernel", TEST) {
            return;
        }
        for family in ["unix", "inet"] {
            let Served { waited, inside, outside, report, .. } = sessions(family, "turns");
            // In the first moments it is not known yet who listens, or of whom the clients are.
            let known = 0.75 * waited..1.05 * waited + 0.2;
            assert!(waited > 3.0 && known.contains(&inside), "{family}: {inside} s, {waited} s");
            let it = finding(&report);
            assert_ne!(it["severity"], "info", "{it:#}");
            let title = it["title"].as_str().unwrap();
            assert!(
                title.contains("while clients wait") && title.contains("take turns"),
                "{title}"
            );
            // The first thread waits for the others to end.
            assert!(outside < 3.2 + 0.2 * waited, "{family}: {outside} s outside, {waited} s");
        }
    });
}

#[test]
fn workers_to_whom_nobody_gives_work_keep_no_client_waiting() {
    const TEST: &str = "workers_to_whom_nobody_gives_work_keep_no_client_waiting";
    common::tried("kernel", TEST, || {
        if !common::root_or_skip("kernel", TEST) {
            return;
        }
        for family in ["unix", "inet"] {
            let Served { idle, inside, outside, report, .. } = sessions(family, "workers");
            assert!(idle > 4.0 && outside > 0.8 * idle, "{family}: {outside} s, {idle} s");
            assert!(inside < 0.08 * idle, "{family}: {inside} s of {idle} s");
            assert!(turns(&report).is_none(), "{report:#}");
        }
    });
}

/// What is read from a connection without a sleep is known, too.
#[test]
fn workers_that_take_turns_while_clients_wait_are_told_apart_from_those_without_work() {
    const TEST: &str =
        "workers_that_take_turns_while_clients_wait_are_told_apart_from_those_without_work";
    common::tried("kernel", TEST, || {
        if !common::root_or_skip("kernel", TEST) {
            return;
        }
        let Served { waited, idle, inside, outside, report } = sessions("inet", "pool");
        let known = 0.75 * waited..1.05 * waited + 0.2;
        assert!(waited > 3.0 && known.contains(&inside), "{inside} s, {waited} s");
        assert!(idle > 4.0 && outside > 0.9 * idle, "{outside} s, {idle} s");
        assert!(turns(&report).is_some(), "{report:#}");
    });
}

/// Who holds what they wait for was waiting for a client itself.
#[test]
fn who_waits_for_a_transaction_that_waits_for_its_client_keeps_its_own_waiting() {
    const TEST: &str =
        "who_waits_for_a_transaction_that_waits_for_its_client_keeps_its_own_waiting";
    common::tried("kernel", TEST, || {
        if !common::root_or_skip("kernel", TEST) {
            return;
        }
        let Served { waited, inside, report, .. } = sessions("inet", "transactions");
        let known = 0.75 * waited..1.05 * waited + 0.2;
        assert!(waited > 3.0 && known.contains(&inside), "{inside} s, {waited} s: {report:#}");
        finding(&report);
    });
}

/// The thread that has read a request is not the one for whose answer its client waits.
#[test]
fn workers_whose_tasks_others_go_on_with_keep_no_client_waiting() {
    const TEST: &str = "workers_whose_tasks_others_go_on_with_keep_no_client_waiting";
    common::tried("kernel", TEST, || {
        if !common::root_or_skip("kernel", TEST) {
            return;
        }
        let Served { idle, inside, report, .. } = sessions("inet", "tasks");
        assert!(idle > 5.0 && inside < 0.1 * idle, "{inside} s of {idle} s");
        assert!(turns(&report).is_none(), "{report:#}");
    });
}

fn turns(report: &serde_json::Value) -> Option<&serde_json::Value> {
    let findings = report["findings"].as_array().unwrap();
    findings.iter().find(|it| it["title"].as_str().unwrap().contains("take turns"))
}
