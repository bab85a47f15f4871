// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What waits unread for an event loop, as recorded, against what the loop and its clients measured themselves.

use crate::common;
use rusqlite::Connection;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// A loop with clients in another process, which write down when they sent each request. Now and then it does for long what it
/// was asked for (`computes`, `sleeps`), or what it does for a client that streams to it (`streams`); or it serves nobody for as
/// long, because it does not want to (`holds-off`): it waits in its event poll, and has told that not to watch its clients.
const PROGRAM: &str = r#"
import json, os, random, select, signal, socket, struct, sys, time
MODE = sys.argv[2]
random.seed(int(sys.argv[3]))
CLIENTS, S = 6, 1_000_000_000
listener = socket.create_server(("127.0.0.1", 0))
now = time.monotonic_ns

def ask():
    "All clients, in one process: each asks again some milliseconds after it was answered."
    poll, due, all = select.epoll(), [], {}
    for _ in range(CLIENTS):
        it = socket.create_connection(listener.getsockname())
        all[it.fileno()] = it
        poll.register(it, select.EPOLLIN)
        due.append((now(), it))
    while True:
        due.sort(key=lambda one: one[0])
        left = max(0, due[0][0] - now()) / S if due else 1
        for fd, _ in poll.poll(left):
            if not all[fd].recv(1):
                return
            due.append((now() + random.randrange(3_000_000, 9_000_000), all[fd]))
        while due and due[0][0] <= now():
            due.pop(0)[1].send(struct.pack("q", now()))

def stream():
    it = socket.create_connection(listener.getsockname())
    while True:
        it.sendall(bytes(1 << 16))

def child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid

pids = [child(stream)] if MODE == "streams" else [child(ask)]
poll, all, waited, held = select.epoll(), [], [], []
for _ in range(1 if MODE == "streams" else CLIENTS):
    it, _ = listener.accept()
    it.setblocking(False)
    poll.register(it, select.EPOLLIN)
    all.append(it)
by_fd = {it.fileno(): it for it in all}

def hold(length_ns):
    begin = now()
    if MODE == "computes":
        while now() < begin + length_ns:
            pass
    elif MODE == "sleeps":
        time.sleep(length_ns / S)
    else:
        for it in all:
            poll.modify(it, 0)
        while now() < begin + length_ns:
            poll.poll(max(0, begin + length_ns - now()) / S)
        for it in all:
            poll.modify(it, select.EPOLLIN)
    held.append((begin, now()))

begin = now()
next_hold = begin + S // 4
while now() < begin + 9 * S:
    for fd, _ in poll.poll(0.05):
        if MODE == "streams":
            by_fd[fd].recv(1 << 14)
            until = now() + 1_000_000
            while now() < until:
                pass
            continue
        sent = struct.unpack("q", by_fd[fd].recv(8))[0]
        waited.append((sent, now()))
        by_fd[fd].send(b"x")
    if MODE != "streams" and now() >= next_hold:
        hold(random.randrange(60_000_000, 300_000_000))
        next_hold = now() + random.randrange(100_000_000, 400_000_000)
# The time in which some request had waited for longer than a look leaves out, at least one jiffy more.
late, end = 0, 0
for sent, read in sorted((sent + 9_000_000, read) for sent, read in waited):
    if read > max(sent, end):
        late += read - max(sent, end)
        end = read
for pid in pids:
    os.kill(pid, signal.SIGKILL)
with open(sys.argv[1], "w") as told:
    json.dump({"pid": os.getpid(), "late": late, "longest": max((read - sent for sent, read in waited), default=0),
               "held": sum(end - begin for begin, end in held)}, told)
"#;

/// Sums of what was recorded of the loop.
#[derive(Debug)]
struct Recorded {
    late: f64,
    unread: f64,
    on_cpu: f64,
    queued: f64,
    asleep: f64,
    longest: f64,
    tid: Option<i64>,
}

struct Run {
    told: Value,
    recorded: Recorded,
    finding: Option<Value>,
}

impl Run {
    fn number(&self, name: &str) -> f64 {
        self.told[name].as_f64().unwrap_or_else(|| panic!("no `{name}` in {}", self.told))
    }
}

fn recorded(recording: &Path, pid: i64) -> Recorded {
    let connection = Connection::open(recording).unwrap();
    let sql = "SELECT sum(late_ns), sum(unread_ns), sum(on_cpu_ns), sum(queued_ns), sum(asleep_ns), max(longest_ns), max(tid)
               FROM unread JOIN processes USING (proc) WHERE pid = ?";
    let all = connection.query_row(sql, [pid], |row| {
        let of = |at| row.get::<_, Option<i64>>(at).map(|it| it.unwrap_or(0) as f64);
        Ok(Recorded {
            late: of(0)?,
            unread: of(1)?,
            on_cpu: of(2)?,
            queued: of(3)?,
            asleep: of(4)?,
            longest: of(5)?,
            tid: row.get(6)?,
        })
    });
    all.unwrap()
}

fn watched(mode: &str, recording: &Path) -> Run {
    let told = recording.with_extension("told");
    let mut record = Command::new(env!("CARGO_BIN_EXE_deburr"));
    record.args(["record", "-q", "--force", "-o"]).arg(recording);
    record.args(["--", "python3", "-c", PROGRAM]).arg(&told);
    record.args([mode, &std::process::id().to_string()]);
    let ended = record.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap();
    assert!(ended.success(), "{ended}");
    let told: Value = serde_json::from_str(&std::fs::read_to_string(&told).unwrap()).unwrap();
    let recorded = recorded(recording, told["pid"].as_i64().unwrap());
    let mut report = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let output = report.args(["report", "--json"]).arg(recording).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = |list: &str| report[list].as_array().unwrap().clone();
    assert!(!all("not_checked").iter().any(|it| it["code"] == "NET005"), "{report:#}");
    let finding = all("findings").into_iter().find(|it| it["code"] == "NET005");
    Run { told, recorded, finding }
}

fn with_recording(test: &'static str, check: impl Fn(&Path)) {
    common::tried("kernel", test, || {
        if common::root_or_skip("kernel", test) {
            let scratch = tempfile::tempdir().unwrap();
            check(&scratch.path().join("x.deburr"));
        }
    });
}

/// Some ninety looks, of which each block of the loop spans one to three: what is found is within a fifth of the window of what
/// the requests waited by both ends' own clocks.
fn waits_as_long_as_the_requests(run: &Run) {
    let (found, true_ns) = (run.recorded.late / 9e9, run.number("late") / 9e9);
    assert!(true_ns > 0.2, "{}", run.told);
    assert!((found - true_ns).abs() < 0.2, "{found} of {true_ns}: {:?} {}", run.recorded, run.told);
    // Most clients have asked before long, and then wait all.
    assert!(run.recorded.unread > 3.0 * run.recorded.late, "{:?}", run.recorded);
    assert!(run.recorded.longest <= run.number("longest") + 2e7, "{:?}", run.recorded);
    assert_eq!(run.recorded.tid, run.told["pid"].as_i64());
}

#[test]
fn what_waits_for_a_loop_that_computes_is_what_its_clients_wait() {
    with_recording("what_waits_for_a_loop_that_computes_is_what_its_clients_wait", |recording| {
        let run = watched("computes", recording);
        waits_as_long_as_the_requests(&run);
        // Others of this machine may take its CPU.
        let Recorded { late, on_cpu, queued, .. } = run.recorded;
        assert!(on_cpu > 0.6 * late && on_cpu + queued > 0.9 * late, "{:?}", run.recorded);
        let finding = run.finding.expect("it is found");
        assert_eq!(finding["severity"], "high", "{finding:#}");
        assert!(finding["title"].as_str().unwrap().contains("computes"), "{finding:#}");
    });
}

#[test]
fn what_waits_for_a_loop_that_sleeps_elsewhere_is_what_its_clients_wait() {
    with_recording(
        "what_waits_for_a_loop_that_sleeps_elsewhere_is_what_its_clients_wait",
        |recording| {
            let run = watched("sleeps", recording);
            waits_as_long_as_the_requests(&run);
            assert!(run.recorded.asleep > 0.8 * run.recorded.late, "{:?}", run.recorded);
            let finding = run.finding.expect("it is found");
            assert!(finding["title"].as_str().unwrap().contains("sleeps"), "{finding:#}");
        },
    );
}

/// The decoy: as much waits as long, because the loop does not want to read it.
#[test]
fn what_a_loop_does_not_want_to_read_does_not_wait_for_it() {
    with_recording("what_a_loop_does_not_want_to_read_does_not_wait_for_it", |recording| {
        let run = watched("holds-off", recording);
        assert!(run.number("late") > 0.2 * 9e9, "{}", run.told);
        // A look may meet the moment at which it wants to again.
        assert!(run.recorded.late < 0.05 * run.number("late"), "{:?} {}", run.recorded, run.told);
        assert_eq!(run.finding, None);
    });
}

/// The decoy: something is unread all the time, while the loop computes all the time, but nothing of it is old.
#[test]
fn a_stream_that_is_read_as_it_comes_is_not_late() {
    with_recording("a_stream_that_is_read_as_it_comes_is_not_late", |recording| {
        let run = watched("streams", recording);
        assert_eq!(run.finding, None, "{:?}", run.recorded);
    });
}
