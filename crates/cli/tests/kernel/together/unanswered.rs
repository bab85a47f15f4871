// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits for answers that need no connection of TCP with a conversation on it: of datagrams, for a connection to be made, for a
//! process that serves a filesystem, until somebody reads from a terminal, and for children; against what the program that waits
//! measured itself.

use crate::common;
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// The other end. It prints what the program needs to reach it, and ends with its standard input.
const AROUND: &str = r#"
import ctypes, os, random, signal, socket, struct, sys, threading, time
mode, scratch = sys.argv[1:]
signal.alarm(60)

def datagrams():
    it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    it.bind(("127.0.0.1", 0))
    return it

def answers_some(it):
    "One of three questions has no answer, and another one has it after a while."
    for n in range(1 << 30):
        data, peer = it.recvfrom(100)
        time.sleep(0.05 if n % 3 == 1 else 0.0)
        if n % 3:
            it.sendto(data, peer)

def answers_nothing(it):
    while True:
        it.recvfrom(100)

def pushes(it):
    "Whoever has said that he is there has something at once, and every now and then."
    data, peer = it.recvfrom(100)
    while True:
        it.sendto(data, peer)
        time.sleep(random.uniform(0.05, 0.15))

def asks(target):
    it = datagrams()
    while True:
        time.sleep(random.uniform(0.01, 0.03))
        it.sendto(b"question", ("127.0.0.1", target))

def opens(path):
    while True:
        time.sleep(random.uniform(0.3, 0.5))
        try:
            with open(path, "w") as pipe:
                pipe.write("line")
        except BrokenPipeError:
            pass

def makes_room(listening, rest):
    "One more is let in every now and then."
    while True:
        time.sleep(0.2)
        rest.append(listening.accept()[0])

def full(listening):
    "Nobody accepts, and there is room for nobody more."
    rest = []
    for _ in range(3):
        it = socket.socket(listening.family)
        it.setblocking(False)
        try:
            it.connect(listening.getsockname())
        except BlockingIOError:
            pass
        rest.append(it)
    return rest

def answer(fuse, request):
    size, op, unique, node = struct.unpack("<IIQQ", request[:24])
    def reply(data=b"", error=0):
        os.write(fuse, struct.pack("<IiQ", 16 + len(data), error, unique) + data)
    def attributes(inode):
        mode, size = (0o40755, 0) if inode == 1 else (0o100644, 1 << 30)
        return struct.pack("<6Q10I", inode, size, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
    if op == 26: # INIT
        # Pages are read ahead without waiting for them, and then waited for like those of a disk.
        flags = 0 if mode == "reads-file" else 1
        reply(struct.pack("<4I2H2I2H8I", 7, 31, 65536, flags, 12, 10, 65536, 1, 16, 0, *[0] * 8))
    elif op == 1: # LOOKUP: it is forgotten at once
        time.sleep(0.02)
        reply(struct.pack("<4Q2I", 2, 0, 0, 0, 0, 0) + attributes(2))
    elif op == 3: # GETATTR
        reply(struct.pack("<Q2I", 0, 0, 0) + attributes(node))
    elif op == 14: # OPEN
        reply(struct.pack("<Q2I", 1, 1 if mode == "reads-file" else 0, 0)) # For direct IO.
    elif op == 15: # READ
        time.sleep(0.03)
        reply(b"z" * struct.unpack("<I", request[56:60])[0])
    elif op in (18, 25): # RELEASE, FLUSH
        reply()
    elif op not in (2, 42): # FORGET, BATCH_FORGET
        reply(error=-38)

def serves_files(fuse):
    while True:
        try:
            answer(fuse, os.read(fuse, 1 << 20))
        except OSError:
            return

def start(work, *of):
    threading.Thread(target=work, args=of, daemon=True, name="python3").start()

end, reach = lambda: None, "nobody"
if mode in ("asks-anew", "asks-again"):
    it = datagrams()
    start(answers_some if mode == "asks-anew" else answers_nothing, it)
    reach = it.getsockname()[1]
elif mode == "listens":
    it = datagrams()
    start(pushes, it)
    reach = it.getsockname()[1]
elif mode == "serves":
    it = datagrams()
    reach = it.getsockname()[1]
    it.close()
    start(asks, reach)
elif mode in ("connects", "connects-polling"):
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(0)
    rest = full(listening)
    reach = listening.getsockname()[1]
elif mode == "connects-late":
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(0)
    start(makes_room, listening, full(listening))
    reach = listening.getsockname()[1]
elif mode == "opens":
    reach = f"{scratch}/pipe"
    os.mkfifo(reach)
    start(opens, reach)
elif mode == "connects-unix":
    listening = socket.socket(socket.AF_UNIX)
    reach = f"{scratch}/socket"
    listening.bind(reach)
    listening.listen(0)
    rest = full(listening)
elif mode.startswith("reads-"):
    fuse, mounted = os.open("/dev/fuse", os.O_RDWR), f"{scratch}/mounted".encode()
    os.mkdir(mounted)
    libc = ctypes.CDLL(None, use_errno=True)
    options = b"fd=%d,rootmode=40000,user_id=0,group_id=0" % fuse
    if libc.mount(b"slow", mounted, b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), "mount")
    start(serves_files, fuse)
    end = lambda: libc.umount2(mounted, 2)
    reach = f"{scratch}/mounted/file"
elif mode == "sends":
    class Attributes(ctypes.Structure):
        _fields_ = [(name, ctypes.c_long) for name in "flags most bytes now a b c d".split()]
    rt, attributes = ctypes.CDLL("librt.so.1", use_errno=True), Attributes(0, 4, 128)
    reach = f"/deburr-{os.getpid()}"
    queue = rt.mq_open(reach.encode(), os.O_CREAT | os.O_RDONLY, 0o600, ctypes.byref(attributes))
    def takes():
        message = ctypes.create_string_buffer(128)
        while True:
            time.sleep(0.05)
            rt.mq_receive(queue, message, 128, None)
    start(takes)
    end = lambda: rt.mq_unlink(reach.encode())
elif mode == "writes":
    import tty
    master, slave = os.openpty()
    tty.setraw(slave)
    def reads():
        while True:
            time.sleep(0.05)
            os.read(master, 1 << 16)
    start(reads)
    reach = os.ttyname(slave)
print(reach, flush=True)
sys.stdin.read()
end()
"#;

/// Waits for three seconds, and tells how long that was, for answers and for whatever comes.
const PROGRAM: &str = r#"
import ctypes, json, os, select, signal, socket, struct, subprocess, sys, threading, time
told, mode, reach = sys.argv[1:]
signal.alarm(30)
waited, stop = 0.0, time.monotonic() + 3.2

def delayed():
    return int(open("/proc/self/schedstat").read().split()[1]) / 1e9

def timed(call):
    # How long it waits for a CPU afterwards is no sleep.
    global waited
    begin = time.monotonic() - delayed()
    try:
        return call()
    except (OSError, TimeoutError):
        return None
    finally:
        waited += time.monotonic() - delayed() - begin

def asker():
    it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    it.connect(("127.0.0.1", int(reach)))
    return it

def connects(family, to, timeout):
    it = socket.socket(family)
    if timeout:
        it.settimeout(timeout)
    else:
        it.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 250_000))
    timed(lambda: it.connect(to))
    it.close()

work = lambda: sum(range(20_000))
if mode == "asks-anew":
    while time.monotonic() < stop:
        it, poll = asker(), select.poll()
        poll.register(it, select.POLLIN)
        it.send(b"question")
        timed(lambda: poll.poll(150))
        it.close()
        work()
elif mode == "asks-again":
    it = asker()
    it.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 150_000))
    while time.monotonic() < stop:
        it.send(b"question")
        timed(lambda: it.recv(100))
        work()
elif mode == "listens":
    it = asker()
    it.send(b"I am here")
    while time.monotonic() < stop:
        timed(lambda: it.recv(100))
        work()
elif mode == "serves":
    it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    it.bind(("127.0.0.1", int(reach)))
    while time.monotonic() < stop:
        data, peer = timed(lambda: it.recvfrom(100))
        it.sendto(data, peer)
elif mode == "connects":
    while time.monotonic() < stop:
        connects(socket.AF_INET, ("127.0.0.1", int(reach)), None)
elif mode == "connects-polling":
    while time.monotonic() < stop:
        connects(socket.AF_INET, ("127.0.0.1", int(reach)), 0.25)
elif mode == "connects-late":
    while time.monotonic() < stop:
        connects(socket.AF_INET, ("127.0.0.1", int(reach)), 4.0)
elif mode == "opens":
    while time.monotonic() < stop:
        timed(lambda: open(reach)).close()
elif mode == "connects-unix":
    while time.monotonic() < stop:
        connects(socket.AF_UNIX, reach, None)
elif mode == "reads-file":
    file = os.open(reach, os.O_RDONLY)
    while time.monotonic() < stop:
        timed(lambda: os.pread(file, 4096, 0))
        timed(lambda: os.stat(reach))
        work()
elif mode == "starts":
    while time.monotonic() < stop:
        child = subprocess.Popen(["sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done"])
        timed(child.wait)
elif mode == "rests":
    while time.monotonic() < stop:
        child = subprocess.Popen(["sleep", "0.5"])
        timed(child.wait)
elif mode == "keeps":
    # It ends with this program.
    prctl = ctypes.CDLL(None).prctl
    child = subprocess.Popen(["sleep", "60"], preexec_fn=lambda: prctl(1, signal.SIGKILL))
    threading.Thread(target=child.wait, daemon=True).start()
    time.sleep(3.2)
    waited = 3.2
elif mode == "reads-pages":
    file, at = os.open(reach, os.O_RDONLY), 0
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    while time.monotonic() < stop:
        timed(lambda: os.pread(file, 4096, at))
        at += 1 << 20
        work()
elif mode == "sends":
    rt = ctypes.CDLL("librt.so.1", use_errno=True)
    queue = rt.mq_open(reach.encode(), os.O_WRONLY)
    while time.monotonic() < stop:
        timed(lambda: rt.mq_send(queue, b"message", 7, 0))
elif mode == "writes":
    file = os.open(reach, os.O_WRONLY | os.O_NOCTTY)
    while time.monotonic() < stop:
        timed(lambda: os.write(file, b"x" * 1000))
json.dump(waited, open(told, "w"))
# Who listens at the ports that were met last is read once a second.
time.sleep(1.1)
os._exit(0)
"#;

/// What became of a program.
struct Waited {
    /// By its own count.
    waited_s: f64,
    report: Value,
}

impl Waited {
    /// Sleep of that kind, by the report.
    fn told_s(&self, kind: &str) -> f64 {
        let ledgers = self.report["ledger"].as_array().unwrap();
        let own = ledgers.iter().filter(|ledger| ledger["awaited"] != true);
        let parts = own.filter_map(|ledger| ledger["asleep"].as_array()).flatten();
        let of_kind = parts.filter(|part| part["kind"] == kind);
        of_kind.map(|part| part["ns"].as_f64().unwrap() / 1e9).sum()
    }

    fn finding(&self, code: &str) -> Option<&Value> {
        self.report["findings"].as_array().unwrap().iter().find(|it| it["code"] == code)
    }
}

fn waited(mode: &str) -> Waited {
    let scratch = tempfile::tempdir().unwrap();
    let [recording, told] = ["x.deburr", "told"].map(|name| scratch.path().join(name));
    let mut around = Command::new("python3");
    around.args(["-c", AROUND, mode]).arg(scratch.path());
    let mut around = around.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut reach = String::new();
    BufReader::new(around.stdout.as_mut().unwrap()).read_line(&mut reach).unwrap();
    let mut record = Command::new(env!("CARGO_BIN_EXE_deburr"));
    record.args(["record", "-q", "-o"]).arg(&recording);
    record.args(["--", "python3", "-c", PROGRAM]).arg(&told).args([mode, reach.trim()]);
    let recorded = record.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap();
    drop(around.stdin.take());
    // If the other end was killed.
    let _ =
        rustix::mount::unmount(scratch.path().join("mounted"), rustix::mount::UnmountFlags::DETACH);
    assert!(around.wait().unwrap().success() && recorded.success(), "{mode}");
    let mut report = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let output = report.args(["report", "--json"]).arg(&recording).output().unwrap();
    Waited {
        waited_s: read(&told).as_f64().unwrap(),
        report: serde_json::from_slice(&output.stdout).unwrap(),
    }
}

fn read(told: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(told).unwrap()).unwrap()
}

/// All modes, `others` those whose program waits for others, with the finding and words of its title; the rest are decoys.
fn try_modes(test: &str, others: &[(&str, &str, &str)], decoys: &[(&str, &str)]) {
    common::tried("kernel", test, || {
        if !common::root_or_skip("kernel", test) {
            return;
        }
        for (mode, code, says) in others {
            let it = waited(mode);
            let found = it.finding(code).unwrap_or_else(|| panic!("{mode}: {:#}", it.report));
            // The ledger has waiting for pages as block IO.
            let told_s = match *mode {
                "reads-pages" => found["evidence"][0]["value"].as_f64().unwrap() / 1e9,
                _ => it.told_s("waits_for_others"),
            };
            eprintln!("{mode}: {told_s:.2} of {:.2} s", it.waited_s);
            assert!(it.waited_s > 1.5, "{mode}: {} s", it.waited_s);
            // What Python waits for as it starts is in it.
            let range = 0.75 * it.waited_s..1.1 * it.waited_s;
            assert!(
                range.contains(&told_s),
                "{mode}: {told_s} of {} s: {:#}",
                it.waited_s,
                it.report["ledger"]
            );
            assert!(found["title"].as_str().unwrap().contains(says), "{mode}: {found:#}");
        }
        for (mode, kind) in decoys {
            let it = waited(mode);
            let (told_s, others_s) = (it.told_s(kind), it.told_s("waits_for_others"));
            eprintln!(
                "{mode}: {told_s:.2} of {:.2} s {kind}, {others_s:.2} s for others",
                it.waited_s
            );
            assert!(it.waited_s > 1.5, "{mode}: {} s", it.waited_s);
            assert!(told_s > 0.75 * it.waited_s, "{mode}: {told_s} of {} s", it.waited_s);
            assert!(others_s < 0.1 * it.waited_s, "{mode}: {others_s} of {} s", it.waited_s);
            assert!(it.finding("OFF002").is_none(), "{mode}: {:#}", it.report);
        }
    });
}

#[test]
fn answers_to_datagrams_are_waited_for_and_datagrams_that_come_are_not() {
    try_modes(
        "answers_to_datagrams_are_waited_for_and_datagrams_that_come_are_not",
        &[
            ("asks-anew", "OFF002", "(udp) that do not come in time"),
            ("asks-again", "OFF002", "(udp) that do not come in time"),
        ],
        &[("listens", "not_known"), ("serves", "waits_for_work")],
    );
}

#[test]
fn who_connects_waits_for_whoever_listens() {
    try_modes(
        "who_connects_waits_for_whoever_listens",
        &[
            ("connects", "OFF002", "(tcp) that do not come in time"),
            ("connects-polling", "OFF002", "for answers of 127.0.0.1:"),
            ("connects-late", "OFF002", "for answers of 127.0.0.1:"),
            ("connects-unix", "OFF002", "that do not come in time"),
        ],
        // Whoever opens the other end of a named pipe may have nothing to do.
        &[("opens", "not_known")],
    );
}

#[test]
fn who_reads_a_file_that_a_process_serves_waits_for_that_one() {
    if !Path::new("/dev/fuse").exists() {
        let test = "who_reads_a_file_that_a_process_serves_waits_for_that_one";
        return common::skip("kernel", test, "there is no /dev/fuse here");
    }
    try_modes(
        "who_reads_a_file_that_a_process_serves_waits_for_that_one",
        &[
            ("reads-file", "OFF002", "for answers of `python3`, which sleeps"),
            ("reads-pages", "OFF002", "for answers of `python3`, which sleeps"),
        ],
        &[],
    );
}

#[test]
fn who_writes_to_a_terminal_or_a_queue_waits_for_whoever_reads_from_it() {
    let title = "until `python3` reads what it sent, which sleeps";
    try_modes(
        "who_writes_to_a_terminal_or_a_queue_waits_for_whoever_reads_from_it",
        &[("writes", "OFF006", title), ("sends", "OFF006", title)],
        &[],
    );
}

#[test]
fn who_starts_a_child_waits_until_it_ends_and_who_keeps_one_has_nothing_to_do() {
    try_modes(
        "who_starts_a_child_waits_until_it_ends_and_who_keeps_one_has_nothing_to_do",
        &[("starts", "OFF002", "until its child `sh` ends, which computes")],
        &[("keeps", "not_known"), ("rests", "not_known")],
    );
}
