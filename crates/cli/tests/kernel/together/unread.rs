// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What waits unread for an event loop, as recorded, against what the loop and its clients measured themselves.

use crate::common;
use rusqlite::Connection;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// Loops with clients in another process, which write down when they sent each request. Now and then a loop does for long what it
/// was asked for (`computes`, `sleeps`; `succeeds`: it computes in a thread of its own, which ends after half of the time, and in
/// its successor; `pair`: two loops of the process sleep, each for its own clients; `pool`: four threads sleep that wait in one
/// event poll), or what it does for a client that streams to it (`streams`); or it serves nobody for as long, because it does not
/// want to (`holds-off`): it waits in its event poll, and has told that not to watch its clients; or it leaves its event poll
/// alone, in which the last words of clients come that wait for nothing (`leaves`).
const PROGRAM: &str = r#"
import json, os, random, select, signal, socket, struct, sys, threading, time
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

def leave():
    all = [socket.create_connection(listener.getsockname()) for _ in range(CLIENTS)]
    time.sleep(1.2)
    for it in all[:3]:
        it.send(bytes(24))
        it.close()
    time.sleep(3.3)
    for it in all[3:]:
        it.send(bytes(24))
    time.sleep(60)

def child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid

pids = [child({"streams": stream, "leaves": leave}.get(MODE, ask))]
polls = [select.epoll() for _ in range(2 if MODE == "pair" else 1)]
all, waited = [], [[] for _ in polls]
for n in range(1 if MODE == "streams" else CLIENTS):
    it, _ = listener.accept()
    it.setblocking(False)
    polls[n % len(polls)].register(it, select.EPOLLIN)
    all.append(it)
by_fd = {it.fileno(): it for it in all}

def hold(poll, length_ns):
    begin = now()
    if MODE in ("computes", "succeeds"):
        while now() < begin + length_ns:
            pass
    elif MODE in ("sleeps", "pair", "pool"):
        time.sleep(length_ns / S)
    else:
        for it in all:
            poll.modify(it, 0)
        while now() < begin + length_ns:
            poll.poll(max(0, begin + length_ns - now()) / S)
        for it in all:
            poll.modify(it, select.EPOLLIN)

def answer(fd, waited):
    try:
        sent = struct.unpack("q", by_fd[fd].recv(8))[0]
    except BlockingIOError:
        return
    waited.append((sent, now()))
    by_fd[fd].send(b"x")

def serve(until, n=0):
    next_hold = now() + S // 4
    while now() < until:
        for fd, _ in polls[n].poll(0.05, 1 if MODE == "pool" else -1):
            if MODE == "streams":
                by_fd[fd].recv(1 << 14)
                computed = now() + 1_000_000
                while now() < computed:
                    pass
            else:
                answer(fd, waited[n])
        if MODE != "streams" and now() >= next_hold:
            hold(polls[n], random.randrange(60_000_000, 300_000_000))
            next_hold = now() + random.randrange(100_000_000, 400_000_000)

def in_threads(all):
    threads = [threading.Thread(target=serve, args=args) for args in all]
    for it in threads:
        it.start()
    for it in threads:
        it.join()
    return [it.native_id for it in threads]

end, tids = now() + 9 * S, [os.getpid()]
if MODE == "succeeds":
    tids = in_threads([(end - 9 * S // 2,)]) + in_threads([(end,)])
elif MODE == "pair":
    tids = in_threads([(end, 0), (end, 1)])
elif MODE == "pool":
    tids = in_threads([(end,)] * 4)
elif MODE == "leaves":
    for _ in range(20):
        polls[0].poll(0.05)
    time.sleep((end - now()) / S)
else:
    serve(end)

def late(waited):
    "The time in which some request had waited for longer than a look leaves out, at least one jiffy more."
    late, end = 0, 0
    for sent, read in sorted((sent + 9_000_000, read) for sent, read in waited):
        if read > max(sent, end):
            late += read - max(sent, end)
            end = read
    return late

for pid in pids:
    os.kill(pid, signal.SIGKILL)
longest = max((read - sent for all in waited for sent, read in all), default=0)
with open(sys.argv[1], "w") as told:
    json.dump({"pid": os.getpid(), "tids": tids, "late": [late(it) for it in waited], "longest": longest}, told)
"#;

/// Sums of what was recorded of a thread that should have read, or of one that is not known.
#[derive(Debug)]
struct Recorded {
    tid: Option<u64>,
    late: f64,
    unread: f64,
    on_cpu: f64,
    queued: f64,
    asleep: f64,
    longest: f64,
}

struct Run {
    told: Value,
    recorded: Vec<Recorded>,
    finding: Option<Value>,
}

impl Run {
    /// Threads that read, by the loop's own account.
    fn tids(&self) -> Vec<u64> {
        self.told["tids"].as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).collect()
    }

    /// How long something waited for the loop with that number, by both ends' own clocks.
    fn true_ns(&self, n: usize) -> f64 {
        self.told["late"][n].as_f64().unwrap()
    }

    /// The sum over all threads.
    fn sum(&self, of: impl Fn(&Recorded) -> f64) -> f64 {
        self.recorded.iter().map(of).sum()
    }

    /// In which a reader is known and was occupied.
    fn occupied_ns(&self) -> f64 {
        self.sum(|it| it.on_cpu + it.asleep)
    }
}

fn recorded(recording: &Path, pid: i64) -> Vec<Recorded> {
    let connection = Connection::open(recording).unwrap();
    let sql = "SELECT tid, sum(late_ns), sum(unread_ns), sum(on_cpu_ns), sum(queued_ns), sum(asleep_ns), max(longest_ns)
               FROM unread JOIN processes USING (proc) WHERE pid = ? GROUP BY tid";
    let mut all = connection.prepare(sql).unwrap();
    let rows = all.query_map([pid], |row| {
        let of = |at| row.get::<_, i64>(at).map(|it| it as f64);
        Ok(Recorded {
            tid: row.get::<_, Option<i64>>(0)?.map(|tid| u64::try_from(tid).unwrap()),
            late: of(1)?,
            unread: of(2)?,
            on_cpu: of(3)?,
            queued: of(4)?,
            asleep: of(5)?,
            longest: of(6)?,
        })
    });
    rows.unwrap().map(Result::unwrap).collect()
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
fn is_as_long(found_ns: f64, true_ns: f64, run: &Run) {
    let (found, truly) = (found_ns / 9e9, true_ns / 9e9);
    assert!(truly > 0.2, "{}", run.told);
    assert!((found - truly).abs() < 0.2, "{found} of {truly}: {:?} {}", run.recorded, run.told);
}

fn waits_as_long_as_the_requests(run: &Run) {
    is_as_long(run.sum(|it| it.late), run.true_ns(0), run);
    // Most clients have asked before long, and then wait all.
    assert!(run.sum(|it| it.unread) > 3.0 * run.sum(|it| it.late), "{:?}", run.recorded);
    let longest = run.told["longest"].as_f64().unwrap();
    assert!(run.recorded.iter().all(|it| it.longest <= longest + 2e7), "{:?}", run.recorded);
    let known: Vec<u64> = run.recorded.iter().filter_map(|it| it.tid).collect();
    assert!(known.iter().all(|tid| run.tids().contains(tid)), "{:?} {}", run.recorded, run.told);
}

#[test]
fn what_waits_for_a_loop_that_computes_is_what_its_clients_wait() {
    with_recording("what_waits_for_a_loop_that_computes_is_what_its_clients_wait", |recording| {
        let run = watched("computes", recording);
        waits_as_long_as_the_requests(&run);
        // Others of this machine may take its CPU.
        let (late, on_cpu) = (run.sum(|it| it.late), run.sum(|it| it.on_cpu));
        assert!(
            on_cpu > 0.6 * late && on_cpu + run.sum(|it| it.queued) > 0.9 * late,
            "{:?}",
            run.recorded
        );
        let finding = run.finding.expect("it is found");
        assert_eq!(finding["severity"], "high", "{finding:#}");
        assert!(finding["title"].as_str().unwrap().contains("is on a CPU"), "{finding:#}");
    });
}

#[test]
fn what_waits_for_a_loop_that_sleeps_elsewhere_is_what_its_clients_wait() {
    with_recording(
        "what_waits_for_a_loop_that_sleeps_elsewhere_is_what_its_clients_wait",
        |recording| {
            let run = watched("sleeps", recording);
            waits_as_long_as_the_requests(&run);
            let (late, asleep) = (run.sum(|it| it.late), run.sum(|it| it.asleep));
            assert!(asleep > 0.8 * late, "{:?}", run.recorded);
            let finding = run.finding.expect("it is found");
            assert!(finding["title"].as_str().unwrap().contains("sleeps"), "{finding:#}");
        },
    );
}

#[test]
fn a_thread_that_takes_over_the_loop_is_the_one_that_should_read() {
    with_recording("a_thread_that_takes_over_the_loop_is_the_one_that_should_read", |recording| {
        let run = watched("succeeds", recording);
        waits_as_long_as_the_requests(&run);
        // Of each thread, it is known after it was seen to wait often.
        for tid in run.tids() {
            let of = run.recorded.iter().find(|it| it.tid == Some(tid));
            let of = of.unwrap_or_else(|| panic!("{tid}: {:?}", run.recorded));
            assert!(of.on_cpu + of.queued > 0.9 * of.late, "{:?}", run.recorded);
            assert!(of.late > 0.1 * run.sum(|it| it.late), "{:?}", run.recorded);
        }
    });
}

#[test]
fn each_loop_of_a_process_is_late_for_its_own_clients() {
    with_recording("each_loop_of_a_process_is_late_for_its_own_clients", |recording| {
        let run = watched("pair", recording);
        for (n, tid) in run.tids().into_iter().enumerate() {
            let of = run.recorded.iter().find(|it| it.tid == Some(tid));
            let found_ns = of.map_or(0.0, |it| it.late);
            // What waited before it was known.
            let unknown = run.recorded.iter().find(|it| it.tid.is_none()).map_or(0.0, |it| it.late);
            is_as_long(
                found_ns + unknown.min(run.true_ns(n) - found_ns).max(0.0),
                run.true_ns(n),
                &run,
            );
            assert!(found_ns > 0.4 * run.true_ns(n), "{tid}: {:?} {}", run.recorded, run.told);
        }
    });
}

/// The decoy: as much waits as long, because the loop does not want to read it.
#[test]
fn what_a_loop_does_not_want_to_read_does_not_wait_for_it() {
    with_recording("what_a_loop_does_not_want_to_read_does_not_wait_for_it", |recording| {
        let run = watched("holds-off", recording);
        assert!(run.true_ns(0) > 0.2 * 9e9, "{}", run.told);
        // A look may meet the moment at which it wants to again.
        let late = run.sum(|it| it.late);
        assert!(late < 0.05 * run.true_ns(0), "{:?} {}", run.recorded, run.told);
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

/// The decoy: threads that sleep for long while something waits, and others of them fetch it.
#[test]
fn threads_that_take_turns_at_an_event_poll_are_not_known_to_be_late() {
    with_recording(
        "threads_that_take_turns_at_an_event_poll_are_not_known_to_be_late",
        |recording| {
            let run = watched("pool", recording);
            // At the beginning, one may have been the only one that was seen.
            assert!(run.occupied_ns() < 0.05 * 9e9, "{:?} {}", run.recorded, run.told);
            assert_eq!(run.finding, None);
        },
    );
}

/// The decoy: something is unread for seconds while its reader sleeps elsewhere, and nobody waits for an answer.
#[test]
fn an_event_poll_that_is_left_alone_keeps_nobody_waiting() {
    with_recording("an_event_poll_that_is_left_alone_keeps_nobody_waiting", |recording| {
        let run = watched("leaves", recording);
        // A look, which stands for a tenth of a second, may find it awake between two sleeps.
        assert!(run.occupied_ns() < 0.25e9, "{:?}", run.recorded);
        assert_eq!(run.finding, None);
    });
}
