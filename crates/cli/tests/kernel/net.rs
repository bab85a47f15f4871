// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the network lost, as recorded, against what both ends and the kernel counted: each test has a network namespace of
//! its own, in which nobody else sends anything.

use crate::common;
use rusqlite::Connection;
use std::path::Path;
use std::process::{Command, Stdio};

/// What the programs share: a network namespace of their own, and what they write down at the end.
const SHARED: &str = r#"
import ctypes, json, os, signal, socket, struct, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)

def unshare():
    if libc.unshare(0x40000000):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)

def counter(name, file="netstat"):
    lines = [line.split() for line in open(f"/proc/self/net/{file}")]
    for names, values in zip(lines[::2], lines[1::2]):
        if name in names:
            return int(values[names.index(name)])

def drops(it):
    return struct.unpack("9I", it.getsockopt(socket.SOL_SOCKET, 55, 36))[8]

def child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid

def tell(**what):
    with open(sys.argv[1], "w") as told:
        json.dump(what | {"pid": os.getpid()}, told)
"#;

/// A client sends messages through a bridge and waits for an answer to each. If the path is lossy, the bridge's way out is
/// a token bucket, and datagrams of the client's network namespace fill its queue.
const LOSSY: &str = r#"
import threading
unshare()
LOSSY, SIZE = sys.argv[2] == "lossy", 6000

def elsewhere(work):
    ready, go = os.pipe(), os.pipe()
    def begin():
        unshare()
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        work(ready[1])
    pid = child(begin)
    os.read(ready[0], 1)
    return pid, ready[0], go[1]

def serve(ready):
    listener = socket.create_server(("10.111.0.2", 7))
    os.write(ready, b"x")
    connection, _ = listener.accept()
    while True:
        left = SIZE
        while left:
            got = len(connection.recv(left))
            if not got:
                return
            left -= got
        connection.send(b"x")

server, ready, go = elsewhere(serve)
bridge, _, _ = elsewhere(lambda _: time.sleep(100))

def ip(line, pid=None):
    of = f"nsenter -t {pid} -n " if pid else ""
    subprocess.run((of + line).split(), check=True)

ip(f"ip link add near type veth peer name near-b netns {bridge}")
ip(f"ip link add far type veth peer name far-b netns {bridge}", server)
ip("ip link add name br0 type bridge", bridge)
for name in ("near-b", "far-b"):
    ip(f"ip link set {name} master br0 up", bridge)
ip("ip link set br0 up", bridge)
ip("ip addr add 10.111.0.1/24 dev near")
ip("ip link set near up")
ip("ip addr add 10.111.0.2/24 dev far", server)
ip("ip link set far up", server)
os.write(go, b"x")
os.read(ready, 1)
peer = socket.create_connection(("10.111.0.2", 7))
stop, took = time.monotonic() + 5.0, []

def flood():
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    while time.monotonic() < stop:
        for _ in range(50):
            sender.sendto(bytes(500), ("10.111.0.2", 9))
        time.sleep(0.02)

if LOSSY:
    ip("tc qdisc add dev far-b root tbf rate 2mbit burst 3000 limit 6000", bridge)
    threading.Thread(target=flood).start()
while time.monotonic() < stop:
    begin = time.monotonic()
    peer.sendall(bytes(SIZE))
    peer.recv(1)
    took.append(time.monotonic() - begin)
    time.sleep(0.02)
info = peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
tell(total_retrans=struct.unpack_from("I", info, 100)[0], timeouts=counter("TCPTimeouts"), took=took,
     local="%s:%d" % peer.getsockname(), remote="%s:%d" % peer.getpeername())
for pid in (server, bridge):
    os.kill(pid, signal.SIGKILL)
"#;

/// A sender of datagrams, and a receiver with a small buffer that does nothing but sleep now and then.
const DATAGRAMS: &str = r#"
unshare()
it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
it.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
it.bind(("127.0.0.1", 5353))
time.sleep(1.3)
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sent = received = 0
for burst in range(20):
    for _ in range(100):
        sender.sendto(bytes(500), ("127.0.0.1", 5353))
        sent += 1
    time.sleep(0.03)
    try:
        while True:
            it.recv(1000, socket.MSG_DONTWAIT)
            received += 1
    except BlockingIOError:
        pass
# Until the socket was looked at again.
time.sleep(1.5)
tell(sent=sent, received=received, drops=drops(it), buffer=it.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
"#;

/// Connections over which as much is sent as the other end takes, to readers of random pace, with random buffers. Those of
/// clients were asked for by the other end; what servers read slowly, this end had asked for.
const SENDERS: &str = r#"
import random, select, threading
KINDS, SEED = sys.argv[2].split(","), int(sys.argv[3])
random.seed(SEED)
asks, hears = socket.socketpair()

def of_host():
    "Has the same two ends open as each connection below, in the host's own network namespace."
    asks.close()
    both = []
    while said := hears.recv(99):
        local, remote = map(int, said.split())
        listener, it = socket.socket(), socket.socket()
        for end, port in ((listener, remote), (it, local)):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                end.bind(("127.0.0.1", port))
            except OSError:
                pass
        listener.listen()
        it.connect(listener.getsockname())
        both.append((listener, it, listener.accept()[0]))
        hears.send(b"x")

decoy = child(of_host)
hears.close()
unshare()

def info(it):
    busy, window, buffer = struct.unpack_from("3Q", it.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192), 168)
    return {"busy": busy * 1000, "window": window * 1000, "buffer": buffer * 1000}

def read(it, pause_s, size):
    while it.recv(size):
        time.sleep(pause_s)

def read_beside_another(it, pause_s, size):
    "Two processes have that end open."
    reader = os.getpid()
    if os.fork() == 0:
        while os.getppid() == reader:
            time.sleep(0.1)
        os._exit(0)
    read(it, pause_s, size)

def connection(kind):
    "Both ends, of which another process has the other one, and reads."
    listener = socket.socket()
    pause_s, size = (0, 1 << 20) if kind == "fast" else (random.uniform(0.002, 0.03), random.randrange(4096, 32768))
    buffer, own = random.choice([16384, 65536]), random.choice([0, 0, 16384])
    if kind != "fast":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    if kind == "client":
        def ask():
            other = socket.socket()
            other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            other.connect(listener.getsockname())
            read(other, pause_s, size)
        pid = child(ask)
        it, _ = listener.accept()
    else:
        reads = read_beside_another if kind == "shared" else read
        pid = child(lambda: reads(listener.accept()[0], pause_s, size))
        it = socket.socket()
        if own and kind != "fast":
            it.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, own)
        it.connect(listener.getsockname())
    asks.send(b"%d %d" % (it.getsockname()[1], it.getpeername()[1]))
    asks.recv(1)
    # It listens on, so that it can be seen who asked.
    return kind, it, pid, listener

def send(it):
    it.setblocking(False)
    while time.monotonic() < stop:
        try:
            it.send(bytes(random.randrange(1, 60000)))
        except BlockingIOError:
            select.select([], [it], [], 0.1)
        time.sleep(0.0005)

time.sleep(1.3)
all = [connection(kind) for kind in KINDS]
stop = time.monotonic() + 3.5
threads = [threading.Thread(target=send, args=[it]) for _, it, _, _ in all]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
# Until everything was read, and looked at again.
for _, it, _, _ in all:
    while struct.unpack("i", __import__("fcntl").ioctl(it, 0x5411, bytes(4)))[0]:
        time.sleep(0.05)
time.sleep(2.5)
tell(all=[{"kind": kind, "peer": pid, "local": "%s:%d" % it.getsockname(), "remote": "%s:%d" % it.getpeername()} | info(it)
          for kind, it, pid, _ in all])
os.kill(decoy, signal.SIGKILL)
for _, it, pid, _ in all:
    it.close()
    os.kill(pid, signal.SIGKILL)
"#;

/// A connection whose window was full as the other end reset it. Its owner keeps it open.
const RESET: &str = r#"
unshare()
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
listener.bind(("127.0.0.1", 0))
listener.listen()
time.sleep(1.3)
pid = child(lambda: (listener.accept(), time.sleep(100)))
it = socket.create_connection(listener.getsockname())
it.setblocking(False)
begin = time.monotonic()
try:
    while True:
        it.send(bytes(65536))
except BlockingIOError:
    pass
time.sleep(1.5)
# What it has not read makes it a reset.
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)
held = time.monotonic() - begin
time.sleep(4)
tell(held_ns=int(held * 1e9))
"#;

/// Clients that connect to a server with a short queue, which accepts none of them for a while.
const REFUSED: &str = r#"
unshare()
listener = socket.socket()
listener.bind(("127.0.0.1", 8080))
listener.listen(2)
time.sleep(2.5)
clients = []
for _ in range(8):
    client = socket.socket()
    client.setblocking(False)
    client.connect_ex(("127.0.0.1", 8080))
    clients.append(client)
time.sleep(2.5)
connected = sum(client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == 1 for client in clients)
tell(connected=connected, drops=drops(listener), overflows=counter("ListenOverflows"), all=counter("ListenDrops"))
"#;

/// Records a program, and returns what it wrote down.
fn recorded(program: &str, arguments: &[&str], recording: &Path) -> serde_json::Value {
    let told = recording.with_extension("told");
    let mut record = Command::new(env!("CARGO_BIN_EXE_deburr"));
    record.args(["record", "-q", "--force", "-o"]).arg(recording);
    record.args(["--", "python3", "-c", &format!("{SHARED}{program}")]).arg(&told).args(arguments);
    let ended = record.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap();
    assert!(ended.success(), "{ended}");
    serde_json::from_str(&std::fs::read_to_string(&told).unwrap()).unwrap()
}

fn number(told: &serde_json::Value, name: &str) -> i64 {
    told[name].as_i64().unwrap_or_else(|| panic!("no `{name}` in {told}"))
}

fn sum(recording: &Path, sql: &str, values: impl rusqlite::Params) -> i64 {
    let connection = Connection::open(recording).unwrap();
    connection.query_row(sql, values, |row| row.get::<_, Option<i64>>(0)).unwrap().unwrap_or(0)
}

/// The answer of the rule with that code: the finding's victim, or `None` if it was checked and quiet.
fn found(recording: &Path, code: &str) -> Option<serde_json::Value> {
    let mut report = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let output = report.args(["report", "--json"]).arg(recording).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = |list: &str| report[list].as_array().unwrap().clone();
    assert!(!all("not_checked").iter().any(|it| it["code"] == code), "{code} was not checked");
    all("findings").into_iter().find(|it| it["code"] == code)
}

fn in_namespace(test: &'static str, run: impl Fn(&Path)) {
    common::tried("kernel", test, || {
        if common::root_or_skip("kernel", test) {
            let scratch = tempfile::tempdir().unwrap();
            run(&scratch.path().join("x.deburr"));
        }
    });
}

#[test]
fn what_a_connection_sent_again_is_what_its_socket_counts() {
    in_namespace("what_a_connection_sent_again_is_what_its_socket_counts", |recording| {
        let told = recorded(LOSSY, &["lossy"], recording);
        let ends = [told["local"].as_str().unwrap(), told["remote"].as_str().unwrap()];
        let of = |column: &str| {
            let sql = format!(
                "SELECT sum({column}) FROM resent JOIN processes USING (proc)
                 WHERE pid = ?1 AND local = ?2 AND remote = ?3"
            );
            sum(recording, &sql, rusqlite::params![number(&told, "pid"), ends[0], ends[1]])
        };
        let total = number(&told, "total_retrans");
        // Timeouts grow with each that follows another: with bad luck five of them take all the time there is.
        assert!(total > 4, "{told}");
        assert_eq!(of("segments"), total, "{told}");
        // A timeout for which the segment was still in this host's own queue sends nothing again.
        let (timeouts, counted) = (of("timeouts"), number(&told, "timeouts"));
        assert!(timeouts <= counted && timeouts * 2 >= counted, "{timeouts} of {counted}");
        // What it was held up by at least is part of what it took.
        let held_s = of("timeout_ns") as f64 / 1e9;
        let took: Vec<f64> =
            told["took"].as_array().unwrap().iter().map(|it| it.as_f64().unwrap()).collect();
        let took_s: f64 = took.iter().sum();
        assert!(held_s > 0.0 && held_s <= took_s, "{held_s} s of {took_s} s: {told}");
        let finding = found(recording, "NET001").expect("it is found");
        assert_eq!(finding["victim"]["comm"], "python3", "{finding:#}");
    });
}

#[test]
fn a_connection_that_loses_nothing_is_quiet() {
    in_namespace("a_connection_that_loses_nothing_is_quiet", |recording| {
        let told = recorded(LOSSY, &["sound"], recording);
        assert_eq!(number(&told, "total_retrans"), 0, "{told}");
        assert!(told["took"].as_array().unwrap().len() > 50, "{told}");
        let sql = "SELECT count(*) FROM resent JOIN processes USING (proc) WHERE pid = ?";
        assert_eq!(sum(recording, sql, [number(&told, "pid")]), 0);
        assert_eq!(found(recording, "NET001"), None);
    });
}

#[test]
fn datagrams_that_are_dropped_are_what_was_sent_and_not_received() {
    in_namespace("datagrams_that_are_dropped_are_what_was_sent_and_not_received", |recording| {
        let told = recorded(DATAGRAMS, &[], recording);
        let lost = number(&told, "sent") - number(&told, "received");
        assert!(lost > 100, "{told}");
        assert_eq!(number(&told, "drops"), lost, "{told}");
        let of = |column: &str| {
            let sql = format!(
                "SELECT {column} FROM datagrams JOIN processes USING (proc)
                 WHERE pid = ? AND local = '127.0.0.1:5353'"
            );
            sum(recording, &sql, [number(&told, "pid")])
        };
        assert_eq!(of("sum(drops)"), lost);
        assert_eq!(of("max(buffer_bytes)"), number(&told, "buffer"));
        let finding = found(recording, "NET003").expect("it is found");
        assert_eq!(finding["victim"]["comm"], "python3", "{finding:#}");
        assert!(finding["title"].as_str().unwrap().contains("127.0.0.1:5353"), "{finding:#}");
    });
}

/// The decoy: the target does nothing, and another process drops datagrams beside it.
#[test]
fn what_others_drop_is_no_loss_of_the_target() {
    in_namespace("what_others_drop_is_no_loss_of_the_target", |recording| {
        let beside = recording.with_extension("beside");
        let program = format!("{SHARED}{}", DATAGRAMS.replace("unshare()", ""));
        let mut other = Command::new("python3");
        let mut other = other.args(["-c", &program]).arg(&beside).spawn().unwrap();
        let told = recorded("tell(n=1)\ntime.sleep(4.5)\n", &[], recording);
        assert!(other.wait().unwrap().success());
        let lost: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(&beside).unwrap()).unwrap();
        assert!(number(&lost, "drops") > 100, "{lost}");
        // It was seen, and is nobody's of the target.
        let sql =
            "SELECT sum(drops) FROM datagrams WHERE local = '127.0.0.1:5353' AND proc IS NULL";
        assert!(sum(recording, sql, []) > 0, "{told}");
        assert_eq!(found(recording, "NET003"), None);
    });
}

#[test]
fn requests_that_are_dropped_are_those_that_the_listener_counts() {
    in_namespace("requests_that_are_dropped_are_those_that_the_listener_counts", |recording| {
        let told = recorded(REFUSED, &[], recording);
        let drops = number(&told, "drops");
        // A queue for two takes three.
        assert!(drops >= 5 && number(&told, "connected") <= 4, "{told}");
        let sql = "SELECT sum(overflows) FROM netns WHERE netns IN (SELECT netns FROM listener)";
        assert_eq!(sum(recording, sql, []), number(&told, "overflows"), "{told}");
        let of = |column: &str| {
            let sql = format!(
                "SELECT {column} FROM listener JOIN processes USING (proc)
                 WHERE pid = ? AND local = '127.0.0.1:8080'"
            );
            sum(recording, &sql, [number(&told, "pid")])
        };
        assert_eq!(of("sum(drops)"), drops, "{told}");
        assert_eq!((of("max(most_waiting)"), of("max(waiting)")), (2, 3));
        let finding = found(recording, "NET002").expect("it is found");
        assert!(finding["title"].as_str().unwrap().contains("127.0.0.1:8080"), "{finding:#}");
    });
}

/// What was recorded of a connection: busy, window and buffer in nanoseconds, and who had asked for it.
fn recorded_of(recording: &Path, it: &serde_json::Value) -> ([i64; 3], Option<bool>) {
    let ends = [it["local"].as_str().unwrap(), it["remote"].as_str().unwrap()];
    let connection = Connection::open(recording).unwrap();
    let sql = "SELECT sum(busy_ns), sum(window_ns), sum(buffer_ns), max(accepted) FROM sending
               WHERE local = ?1 AND remote = ?2";
    let number = |row: &rusqlite::Row<'_>, at| row.get::<_, Option<i64>>(at);
    let all = connection.query_row(sql, ends, |row| {
        let [busy, window, buffer] = [0, 1, 2].map(|at| number(row, at).map(|it| it.unwrap_or(0)));
        Ok(([busy?, window?, buffer?], number(row, 3)?.map(|it| it == 1)))
    });
    all.unwrap()
}

/// The process at the other end of such a connection, by its pid.
fn peer_of(recording: &Path, it: &serde_json::Value) -> Option<i64> {
    let ends = [it["local"].as_str().unwrap(), it["remote"].as_str().unwrap()];
    let sql = "SELECT pid FROM sending JOIN processes ON peer = processes.proc
               WHERE local = ?1 AND remote = ?2 GROUP BY pid";
    let connection = Connection::open(recording).unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    let all: Vec<i64> =
        statement.query_map(ends, |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert!(all.len() <= 1, "{all:?} at the other end of {it}");
    all.first().copied()
}

/// The kernel itself is the witness, asked through the socket by its owner, which knows both ends.
#[test]
fn what_holds_up_connections_is_what_their_sockets_count() {
    in_namespace("what_holds_up_connections_is_what_their_sockets_count", |recording| {
        let seed = std::process::id().to_string();
        let kinds = "server,client,fast,server,client,shared,server";
        let told = recorded(SENDERS, &[kinds, &seed], recording);
        let all = told["all"].as_array().unwrap();
        let (mut of_servers, mut worst) = (0, (0, ""));
        for it in all {
            let ([_, window, buffer], accepted) = recorded_of(recording, it);
            // The kernel's jiffies, of up to 10 ms, at each of some ten looks at most.
            let near = |now: i64, name: &str| {
                let own = number(it, name);
                assert!((now - own).abs() <= 60_000_000 + own / 20, "{name} {now}: {it} of {told}");
            };
            near(window, "window");
            near(buffer, "buffer");
            let kind = it["kind"].as_str().unwrap();
            if window + buffer > 0 {
                assert_eq!(accepted, Some(kind == "client"), "{it} of {told}");
                // Of clients nobody asks, and what two have open is nobody's.
                let peer = (kind == "server" || kind == "fast").then(|| number(it, "peer"));
                assert_eq!(peer_of(recording, it), peer, "{it} of {told}");
            }
            if kind == "server" || kind == "shared" {
                of_servers += window;
                worst = worst.max((window + buffer, it["remote"].as_str().unwrap()));
            }
        }
        assert!(of_servers > 1_000_000_000, "{told}");
        let finding = found(recording, "NET004").expect("it is found");
        assert_eq!(finding["victim"]["comm"], "python3", "{finding:#}");
        assert!(finding["title"].as_str().unwrap().contains(worst.1), "{finding:#}");
        for cause in finding["causes"].as_array().unwrap() {
            let of = |it: &&serde_json::Value| it["remote"] == cause["address"];
            match all.iter().find(of).filter(|it| it["kind"] == "server") {
                Some(it) => assert_eq!(cause["pid"], it["peer"], "{finding:#} of {told}"),
                None => assert_eq!(cause["kind"], "socket", "{finding:#} of {told}"),
            }
        }
    });
}

/// The decoy: as much waits for as long, for clients, and beside it a bulk transfer.
#[test]
fn clients_that_read_slowly_are_no_loss() {
    in_namespace("clients_that_read_slowly_are_no_loss", |recording| {
        let told = recorded(SENDERS, &["client,client,fast", "7"], recording);
        let all = told["all"].as_array().unwrap();
        let late: i64 = all.iter().map(|it| recorded_of(recording, it).0[1]).sum();
        assert!(late > 1_000_000_000, "{told}");
        assert_eq!(found(recording, "NET004"), None);
    });
}

/// Whatever state it was in last: nothing is sent on it any more.
#[test]
fn a_connection_that_was_reset_is_held_up_by_nobody() {
    in_namespace("a_connection_that_was_reset_is_held_up_by_nobody", |recording| {
        let told = recorded(RESET, &[], recording);
        let sql = "SELECT sum(window_ns) FROM sending JOIN processes USING (proc) WHERE pid = ?";
        let (window, held) =
            (sum(recording, sql, [number(&told, "pid")]), number(&told, "held_ns"));
        // What came after the last look at it is not seen.
        assert!(window > 0 && window <= held + 20_000_000, "{window} ns of {held} ns: {told}");
    });
}
