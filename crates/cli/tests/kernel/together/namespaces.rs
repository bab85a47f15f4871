// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sleeps of a process in namespaces of its own: those that it waits for are named by what the host knows of them, and nobody
//! of the host is named who has the same numbers there.

use crate::scratch::{in_scratch, is_near, record, slept};
use rusqlite::Connection;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// A process in a namespace of processes, one of the network and one of mounts asks two others in turn: one beside it, by TCP,
/// and one of the host, by a unix socket. Both ports of its connection are those of listeners of the host, too, which others
/// ask all the time. Writes the ids of the host, and how long the process waited for either.
const NAMESPACES: &str = r#"
import ctypes, fcntl, os, signal, socket, struct, sys, threading, time
told, path = sys.argv[1:]
CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x20000000, 0x40000000
MS_REC, MS_PRIVATE, SIOCSIFFLAGS, IFF_UP = 0x4000, 0x40000, 0x8914, 1
libc = ctypes.CDLL(None)
children = []

def named(name):
    with open("/proc/self/comm", "w") as comm:
        comm.write(name)

def child(work, *given):
    pid = os.fork()
    if pid == 0:
        try:
            work(*given)
        finally:
            os._exit(0)
    children.append(pid)
    return pid

def end():
    for pid in children:
        os.kill(pid, signal.SIGKILL)

def answers(name, listening, seconds):
    named(name)
    while True:
        threading.Thread(target=answer, args=(listening.accept()[0], seconds)).start()

def answer(connection, seconds):
    while connection.recv(1):
        time.sleep(seconds)
        connection.send(b"x")

def bound(port):
    it = socket.socket()
    it.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    it.bind(("127.0.0.1", port))
    return it

def listener(port):
    it = bound(port)
    it.listen(8)
    return it

def chats(address):
    named("decoy-client")
    with socket.create_connection(address) as it:
        while True:
            it.send(b"x")
            it.recv(1)

def of_path():
    it = socket.socket(socket.AF_UNIX)
    it.bind(path)
    it.listen(8)
    answers("across", it, 0.012)

decoys = [listener(0), listener(0)]
port, own_port = (it.getsockname()[1] for it in decoys)
for it in decoys:
    child(answers, "decoy", it, 0.004)
    child(chats, it.getsockname())
    it.close()
across = child(of_path)
if libc.unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET):
    end()
    sys.exit(9)

def is_init():
    libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    libc.mount(b"proc", b"/proc", b"proc", 0, None)
    with socket.socket() as it:
        fcntl.ioctl(it, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
    os.write(ready[1], b"x")
    signal.pause()

def delayed():
    return int(os.pread(schedstat, 99, 0).split()[1]) / 1e9

def asks():
    global schedstat
    named("asker")
    schedstat = os.open("/proc/self/schedstat", os.O_RDONLY)
    beside = bound(own_port)
    beside.connect(("127.0.0.1", port))
    outside = socket.socket(socket.AF_UNIX)
    outside.connect(path)
    spent, stop = [0.0, 0.0], time.monotonic() + 4
    while time.monotonic() < stop:
        for at, it in enumerate((beside, outside)):
            it.send(b"x")
            # How long it waits for a CPU afterwards is no sleep.
            begin = time.monotonic() - delayed()
            it.recv(1)
            spent[at] += time.monotonic() - delayed() - begin
    os.write(measured[1], f"{os.getpid()} {spent[0]} {spent[1]}".encode())

ready, measured = os.pipe(), os.pipe()
child(is_init)
os.read(ready[0], 1)
peer = child(lambda: answers("peer", listener(port), 0.018))
time.sleep(0.5)
asker = child(asks)
with open(told, "w") as file:
    print(asker, peer, across, os.read(measured[0], 99).decode(), file=file)
os.waitpid(asker, 0)
children.remove(asker)
end()
"#;

/// Sleep of a process in `recvfrom`, in seconds, by the kind of socket, the process that the kernel has noted at the other end, the one that
/// ended it, and the first one that it waited for: host ids, and 0 = none.
fn by_whom(recording: &Path, pid: u32) -> BTreeMap<(String, [u32; 3]), f64> {
    let connection = Connection::open(recording).unwrap();
    let sql = "SELECT json_extract(s.slept_on, '$.kind'),
                      (SELECT pid FROM processes WHERE proc = json_extract(s.slept_on, '$.peer')),
                      (SELECT pid FROM processes WHERE proc = json_extract(s.woken, '$.proc')),
                      (SELECT pid FROM processes WHERE proc = json_extract(s.behind, '$[0].proc')), s.ns
               FROM sleep s JOIN processes p ON p.proc = s.proc WHERE p.pid = ? AND s.call = 'recvfrom'";
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([pid], |row| {
        let id = |at| row.get::<_, Option<u32>>(at).map(Option::unwrap_or_default);
        Ok(((row.get(0)?, [id(1)?, id(2)?, id(3)?]), row.get::<_, i64>(4)? as f64 / 1e9))
    });
    let mut all = BTreeMap::new();
    for (key, seconds) in rows.unwrap().map(Result::unwrap) {
        *all.entry(key).or_default() += seconds;
    }
    all
}

#[test]
fn who_is_waited_for_in_other_namespaces_is_named_by_the_hosts_ids() {
    in_scratch("who_is_waited_for_in_other_namespaces_is_named_by_the_hosts_ids", |scratch| {
        let [recording, told, path] = ["x.deburr", "told", "path"].map(|it| scratch.join(it));
        let mut run = record(&recording, &[]);
        let ended = run.args(["python3", "-c", NAMESPACES]).arg(&told).arg(&path).status().unwrap();
        assert!(ended.success(), "{ended}");
        let Ok(text) = std::fs::read_to_string(told) else {
            return Some("this process may make no namespaces");
        };
        let numbers: Vec<f64> = text.split_whitespace().map(|it| it.parse().unwrap()).collect();
        let [asker, peer, across, inner, beside_s, outside_s] = numbers[..] else {
            panic!("{text}")
        };
        let [asker, peer, across] = [asker, peer, across].map(|pid| pid as u32);
        assert!(inner < 10.0, "it has an id of its own in its namespace: {text}");
        let all = by_whom(&recording, asker);
        let of = |key: (&str, [u32; 3])| all.get(&(key.0.to_owned(), key.1)).copied();
        let beside = of(("inet", [0, peer, peer])).unwrap_or_default();
        let outside = of(("unix", [across, across, across])).unwrap_or_default();
        let context = format!("{all:?}, {text}");
        assert!(beside_s > 1.0 && is_near(beside, beside_s), "beside it: {context}");
        assert!(outside_s > 0.6 && is_near(outside, outside_s), "across: {context}");
        // Of the connection, its own end is nobody's who listens.
        let remote = "json_extract(slept_on, '$.listens') = 0
                      AND json_extract(slept_on, '$.remote') LIKE '127.0.0.1:%'";
        assert!(is_near(slept(&recording, asker, remote), beside_s), "{context}");
        nobody_of_the_same_ports_is_named(&recording);
        None
    });
}

/// The one that it asks by TCP is named first, and nobody but those two. Whether one that sleeps before it answers on a unix
/// socket is at rest is not known.
fn nobody_of_the_same_ports_is_named(recording: &Path) {
    let mut report = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let output = report.args(["report", "--json"]).arg(recording).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let of_asker = |it: &&Value| it["code"] == "OFF002" && it["victim"]["comm"] == "asker";
    let finding = findings.iter().find(of_asker).unwrap_or_else(|| panic!("{findings:#?}"));
    let causes = finding["causes"].as_array().unwrap();
    assert_eq!(causes[0]["comm"], "peer", "{finding:#}");
    assert!(causes.iter().all(|it| it["comm"] == "peer" || it["comm"] == "across"), "{finding:#}");
    // The command to look at it has the host's number, too.
    let command = finding["fix"][0]["command"].as_str().unwrap();
    assert!(command.contains(&format!("-p {} ", causes[0]["pid"])), "{finding:#}");
}
