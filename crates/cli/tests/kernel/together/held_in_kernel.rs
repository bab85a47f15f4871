// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits in the kernel for another process that holds something there: a scanner of files, a frozen filesystem, a grace period of
//! RCU, a supervisor of system calls; against what the program that waits measured itself.

use crate::common;
use crate::disk::Disk;
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// The other process. It prints a line when it is ready, and ends with its standard input.
const HOLDER: &str = r#"
import ctypes, fcntl, os, signal, struct, sys, threading, time
mode, at = sys.argv[1:]
FREEZE, THAW = 0xC0045877, 0xC0045878
libc = ctypes.CDLL(None, use_errno=True)

def scans(fd, delay_s):
    while True:
        events, offset = os.read(fd, 4096), 0
        while offset < len(events):
            length, _, _, _, mask, file, pid = struct.unpack_from("IBBHQii", events, offset)
            offset += length
            time.sleep(delay_s)
            os.write(fd, struct.pack("iI", file, 1))
            os.close(file)

def freezes(fd):
    while not over.is_set():
        fcntl.ioctl(fd, FREEZE, 0)
        over.wait(0.3)
        fcntl.ioctl(fd, THAW, 0)
        time.sleep(0.1)

over = threading.Event()
# Who is killed leaves it frozen.
signal.signal(signal.SIGALRM, lambda *_: over.set())
signal.alarm(40)
if mode.startswith("scanned"):
    fd = libc.fanotify_init(4, 0)
    # FAN_MARK_ADD | FAN_MARK_MOUNT, FAN_OPEN_PERM
    if fd < 0 or libc.fanotify_mark(fd, 0x11, ctypes.c_uint64(0x10000), -100, at.encode()):
        raise OSError(ctypes.get_errno(), "fanotify")
    work = lambda: scans(fd, 0.0 if mode == "scanned-at-once" else 0.03)
else:
    work = lambda fd=os.open(at, os.O_RDONLY): freezes(fd)
thread = threading.Thread(target=work, daemon=True)
thread.start()
print("ready", flush=True)
sys.stdin.read()
over.set()
if mode == "frozen":
    thread.join()
"#;

/// Waits for three seconds, and tells how long that was.
const PROGRAM: &str = r#"
import array, ctypes, fcntl, json, os, platform, signal, socket, struct, sys, time
told, mode, at = sys.argv[1:]
waited, stop = 0.0, time.monotonic() + 3.2
libc = ctypes.CDLL(None, use_errno=True)
MEMBARRIER, SECCOMP, MKDIRAT = (283, 277, 34) if platform.machine() == "aarch64" else (324, 317, 258)

def delayed():
    return int(open("/proc/self/schedstat").read().split()[1]) / 1e9

def timed(call):
    # How long it waits for a CPU afterwards is no sleep.
    global waited
    begin = time.monotonic() - delayed()
    try:
        return call()
    except OSError:
        return None
    finally:
        waited += time.monotonic() - delayed() - begin

def supervises(pair):
    fd = socket.recv_fds(pair, 1, 1)[1][0]
    while True:
        request = bytearray(80)
        try:
            fcntl.ioctl(fd, 0xC0502100, request)
        except OSError:
            os._exit(0)
        time.sleep(0.03)
        fcntl.ioctl(fd, 0xC0182101, struct.pack("QqiI", struct.unpack_from("Q", request)[0], 0, -17, 0))

def is_supervised():
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        libc.prctl(1, signal.SIGKILL)
        supervises(theirs)
    code = struct.pack("HBBI" * 4, 0x20, 0, 0, 0, 0x15, 0, 1, MKDIRAT, 6, 0, 0, 0x7FC00000, 6, 0, 0, 0x7FFF0000)
    code = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxQ", 4, ctypes.addressof(code))
    libc.prctl(38, 1, 0, 0, 0)
    fd = libc.syscall(SECCOMP, 1, 8, ctypes.create_string_buffer(program))
    if fd < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    socket.send_fds(ours, [b"x"], [fd])

work = lambda: sum(range(20_000))
if mode.startswith("scanned"):
    path = os.path.join(at, "file")
    while time.monotonic() < stop:
        os.close(timed(lambda: os.open(path, os.O_RDONLY)))
        # Where it is allowed at once, it takes a hundredth of the time.
        for _ in range(1 if mode == "scanned" else 30):
            work()
elif mode == "frozen":
    file = os.open(os.path.join(at, "file"), os.O_CREAT | os.O_WRONLY)
    while time.monotonic() < stop:
        timed(lambda: os.pwrite(file, b"x", 0))
        work()
elif mode == "grace-period":
    while time.monotonic() < stop:
        timed(lambda: libc.syscall(MEMBARRIER, 1, 0, 0))
        work()
elif mode == "supervised":
    directory = os.open("/", os.O_RDONLY)
    is_supervised()
    while time.monotonic() < stop:
        timed(lambda: os.mkdir("nothing", dir_fd=directory))
        work()
json.dump(waited, open(told, "w"))
os._exit(0)
"#;

/// What became of a program.
struct Held {
    /// By its own count.
    waited_s: f64,
    report: Value,
}

impl Held {
    /// What the finding says that it lost.
    fn told_s(&self, code: &str) -> Option<f64> {
        Some(self.finding(code)?["evidence"][0]["value"].as_f64().unwrap() / 1e9)
    }

    fn finding(&self, code: &str) -> Option<&Value> {
        self.report["findings"].as_array().unwrap().iter().find(|it| it["code"] == code)
    }
}

/// Runs the program in a directory, with the holder beside it where there is one.
fn held(mode: &str, at: &Path) -> Held {
    let scratch = tempfile::tempdir().unwrap();
    let [recording, told] = ["x.deburr", "told"].map(|name| scratch.path().join(name));
    let mut holder = matches!(mode, "scanned" | "scanned-at-once" | "frozen").then(|| {
        let mut holder = Command::new("python3");
        holder.args(["-c", HOLDER, mode]).arg(at);
        let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(holder.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n", "{mode}");
        holder
    });
    let mut record = Command::new(env!("CARGO_BIN_EXE_deburr"));
    record.args(["record", "-q", "-o"]).arg(&recording);
    record.args(["--", "python3", "-c", PROGRAM]).arg(&told).arg(mode).arg(at);
    let recorded = record.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap();
    if let Some(holder) = &mut holder {
        drop(holder.stdin.take());
        assert!(holder.wait().unwrap().success(), "{mode}");
    }
    assert!(recorded.success(), "{mode}");
    let mut report = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let output = report.args(["report", "--json"]).arg(&recording).output().unwrap();
    Held {
        waited_s: std::fs::read_to_string(&told).unwrap().parse().unwrap(),
        report: serde_json::from_slice(&output.stdout).unwrap(),
    }
}

fn is_told(mode: &str, at: &Path, code: &str, says: &str) {
    let it = held(mode, at);
    let told_s = it.told_s(code).unwrap_or_else(|| panic!("{mode}: {:#}", it.report));
    eprintln!("{mode}: {told_s:.2} of {:.2} s", it.waited_s);
    assert!(it.waited_s > 1.5, "{mode}: {} s", it.waited_s);
    let range = 0.75 * it.waited_s..1.1 * it.waited_s;
    assert!(range.contains(&told_s), "{mode}: {told_s} of {} s: {:#}", it.waited_s, it.report);
    let found = it.finding(code).unwrap();
    assert!(found["title"].as_str().unwrap().contains(says), "{mode}: {found:#}");
    assert_eq!(found["severity"], "high", "{mode}: {found:#}");
}

#[test]
fn who_waits_in_the_kernel_waits_for_whoever_lets_it_go_on() {
    const TEST: &str = "who_waits_in_the_kernel_waits_for_whoever_lets_it_go_on";
    common::tried("kernel", TEST, || {
        if !common::root_or_skip("kernel", TEST) {
            return;
        }
        // A mount of its own: nobody else is scanned.
        let mut disk = match Disk::new(64) {
            Ok(disk) => disk,
            Err(why) => return common::skip("kernel", TEST, &why),
        };
        let device = disk.device.clone();
        let at = disk.mount(&device, "ext4").unwrap();
        std::fs::write(at.join("file"), "x").unwrap();
        is_told("scanned", &at, "OFF009", "in openat, until `python3` lets it go on");
        is_told("frozen", &at, "OFF009", "until `python3` lets it go on");
        is_told("grace-period", &at, "OFF009", "in membarrier, until all CPUs have switched");
        let it = held("scanned-at-once", &at);
        eprintln!("scanned-at-once: {:?} of {:.2} s", it.told_s("OFF009"), it.waited_s);
        assert_ne!(it.finding("OFF009").map_or("", |it| it["severity"].as_str().unwrap()), "high");
    });
}

#[test]
fn whose_calls_a_process_supervises_waits_for_that_one() {
    const TEST: &str = "whose_calls_a_process_supervises_waits_for_that_one";
    common::tried("kernel", TEST, || {
        if !common::root_or_skip("kernel", TEST) {
            return;
        }
        is_told("supervised", Path::new("/"), "OFF002", "for answers of `python3`, which sleeps");
    });
}
