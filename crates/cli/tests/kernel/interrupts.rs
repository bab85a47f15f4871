// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts, as recorded, against the kernel's own counts of them, and against a thread that looks at the clock all the time
//! and notices when it stands still.

use crate::common;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Sends datagrams to this host, some at a time, for ever, and writes to the disk.
const SOME: &str = r#"
import os, socket, sys, time
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("127.0.0.1", 0))
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.connect(receiver.getsockname())
print("ready", flush=True)
file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
while True:
    for _ in range(20):
        sender.send(bytes(64))
    os.pwrite(file, bytes(4096), 0)
    os.fdatasync(file)
    time.sleep(0.01)
"#;

/// Sends as many datagrams to this host as it can, for ever.
const MANY: &str = r#"
import socket
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("127.0.0.1", 0))
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.connect(receiver.getsockname())
print("ready", flush=True)
while True:
    sender.send(bytes(64))
"#;

/// Sends datagrams in a network namespace of its own to many sockets, and has another CPU receive them.
const STEERED: &str = r#"
import ctypes, os, socket, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWNET = 0x20000, 0x40000000
if libc.unshare(CLONE_NEWNS | CLONE_NEWNET):
    raise OSError(ctypes.get_errno(), "unshare")
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
subprocess.run(["mount", "-t", "sysfs", "none", "/sys"], check=True)
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
with open("/sys/class/net/lo/queues/rx-0/rps_cpus", "w") as steer:
    steer.write("%x" % (1 << int(sys.argv[1])))
receivers = []
for _ in range(16):
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    receiver.bind(("", 9))
    receivers.append(receiver)
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
sender.connect(("127.255.255.255", 9))
print("ready", flush=True)
while True:
    for _ in range(200):
        sender.send(bytes(64))
    time.sleep(0.0015)
"#;

/// A process that is killed when it is dropped.
struct Load(Child);

impl Load {
    fn start(program: &str, arguments: &[&str]) -> Self {
        let mut python = Command::new("python3");
        python.args(["-c", program]).args(arguments);
        let mut child = python.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Time of `CLOCK_MONOTONIC`.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn record(arguments: &[&str], file: &Path) {
    let mut deburr = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let output =
        deburr.args(["record", "-q"]).args(arguments).arg("-o").arg(file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn number(file: &Path, sql: &str) -> u64 {
    let connection = Connection::open(file).unwrap();
    let number: Option<i64> = connection.query_row(sql, [], |row| row.get(0)).unwrap();
    u64::try_from(number.unwrap_or(0)).unwrap()
}

/// The window of a recording on `CLOCK_MONOTONIC`.
fn window(file: &Path) -> (u64, u64) {
    let start = number(file, "SELECT start_mono_ns FROM meta");
    (start, start + number(file, "SELECT window_ns FROM ending"))
}

/// The kernel's counts by name, over all CPUs: soft interrupts, numbered interrupts of devices, and `LOC`.
fn counts() -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for file in ["/proc/softirqs", "/proc/interrupts"] {
        for line in std::fs::read_to_string(file).unwrap().lines().skip(1) {
            let Some((name, rest)) = line.split_once(':') else { continue };
            let numbers = rest.split_whitespace().map_while(|it| it.parse::<u64>().ok());
            counts.insert(name.trim().to_owned(), numbers.sum());
        }
    }
    counts
}

/// What is between the end of a window and the last reading of the counts in it, at most: a reader that waits for a CPU reads
/// late, at either end.
const LATE_NS: u64 = 200_000_000;

#[test]
fn interrupts_are_as_many_as_the_kernel_counts() {
    const TEST: &str = "interrupts_are_as_many_as_the_kernel_counts";
    common::tried("kernel", TEST, || {
        if common::root_or_skip("kernel", TEST) {
            as_many_as_the_kernel_counts();
        }
    });
}

fn as_many_as_the_kernel_counts() {
    let dir = tempfile::tempdir().unwrap();
    let (file, written) = (dir.path().join("x.deburr"), dir.path().join("written"));
    let _load = Load::start(SOME, &[written.to_str().unwrap()]);
    let stop = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut seen = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                seen.push((now_ns(), counts()));
                thread::sleep(Duration::from_millis(10));
            }
            seen
        });
        record(&["-d", "4"], &file);
        thread::sleep(Duration::from_nanos(2 * LATE_NS));
        stop.store(true, Ordering::Relaxed);
        looks.join().unwrap()
    });
    let (from, to) = window(&file);
    // The first look after a time, and the last one before it.
    let after = |ns| seen.iter().find(|look| look.0 >= ns).expect("it looks until after the end");
    let before = |ns| seen.iter().rev().find(|look| look.0 < ns).expect("it looks from before");
    let between =
        |a: &(u64, BTreeMap<String, u64>), b: &(u64, BTreeMap<String, u64>), name: &str| {
            let of = |look: &(u64, BTreeMap<String, u64>)| look.1.get(name).copied().unwrap_or(0);
            of(b) - of(a)
        };
    let within = |name: &str| between(after(from + LATE_NS), before(to - LATE_NS), name);
    let around = |name: &str| between(before(from - LATE_NS), after(to + LATE_NS), name);
    let mut compared = 0;
    for name in seen[0].1.keys() {
        let kind = match name.as_str() {
            "LOC" => "kind = 'timer'".to_owned(),
            "CAL" => "kind = 'processor' AND name = 'CAL'".to_owned(),
            name if name.parse::<u32>().is_ok() => format!("kind = 'device' AND irq = {name}"),
            name if around(name) > 0
                && ["NET_RX", "NET_TX", "TIMER", "BLOCK", "TASKLET", "SCHED", "RCU"]
                    .contains(&name) =>
            {
                format!("kind = 'soft' AND name = '{name}'")
            }
            _ => continue,
        };
        let told = number(&file, &format!("SELECT sum(count) FROM interrupts WHERE {kind}"));
        let (least, most) = (within(name), around(name));
        assert!((least..=most).contains(&told), "{name}: {told}, {least} to {most}");
        compared += u32::from(least >= 100);
    }
    assert!(compared >= 3, "{compared} kinds of interrupts came");
    assert!(within("NET_RX") > 1000, "of what is sent");
}

/// Computes on that CPU until it is told to stop. Returns the times between which it stood still.
fn stood_still(cpu: usize, stop: &AtomicBool) -> Vec<(u64, u64)> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).unwrap();
    let mut gaps = Vec::with_capacity(1 << 20);
    let mut before = now_ns();
    while !stop.load(Ordering::Relaxed) {
        let now = now_ns();
        if now - before > 1000 {
            gaps.push((before, now));
        }
        before = now;
    }
    gaps
}

/// What interrupts took from this process by a recording, the time in which its thread stood still without waiting for the
/// CPU, and what the recording says in all.
fn taken(cpu: usize, file: &Path) -> (u64, u64) {
    let stop = AtomicBool::new(false);
    let pid = std::process::id();
    let gaps = thread::scope(|scope| {
        let computes = scope.spawn(|| stood_still(cpu, &stop));
        record(&["-d", "3", "-p", &pid.to_string()], file);
        stop.store(true, Ordering::Relaxed);
        computes.join().unwrap()
    });
    let (from, to) = window(file);
    let in_window = |&(begin, end): &(u64, u64)| end.min(to).saturating_sub(begin.max(from));
    let stood: u64 = gaps.iter().map(in_window).sum();
    let of_this = format!("proc IN (SELECT proc FROM process WHERE pid = {pid})");
    let told = format!("SELECT sum(ns) FROM interrupts WHERE {of_this} AND context = 'interrupts'");
    let waited = format!("SELECT sum(queued_ns) FROM process_tick WHERE {of_this}");
    (number(file, &told), stood.saturating_sub(number(file, &waited)))
}

#[test]
fn what_interrupts_take_is_what_the_interrupted_thread_misses() {
    const TEST: &str = "what_interrupts_take_is_what_the_interrupted_thread_misses";
    common::tried("kernel", TEST, || {
        if !common::root_or_skip("kernel", TEST) {
            return;
        }
        if !Path::new("/sys/class/net/lo/queues/rx-0/rps_cpus").exists() {
            return common::skip("kernel", TEST, "the kernel steers no packets (CONFIG_RPS)");
        }
        let cpus = rustix::thread::sched_getaffinity(None).unwrap();
        let Some(cpu) = (1..32).find(|&cpu| cpus.is_set(cpu)) else {
            return common::skip("kernel", TEST, "it needs a second CPU");
        };
        let dir = tempfile::tempdir().unwrap();
        let (quiet, flooded) = (dir.path().join("quiet"), dir.path().join("flooded"));
        let (told_quiet, _) = taken(cpu, &quiet);
        let _load = Load::start(STEERED, &[&cpu.to_string()]);
        let (told, missed) = taken(cpu, &flooded);
        assert!(told > 3 * told_quiet, "{told} ns with packets, {told_quiet} ns without");
        // What it misses has the way into each interrupt and out of it too, and interrupts that are not told.
        assert!(told as f64 <= 1.1 * missed as f64 + 20e6, "{told} ns of {missed} ns");
        assert!(told as f64 >= 0.5 * missed as f64 - 20e6, "{told} ns of {missed} ns");
        let most = "SELECT sum(ns) FROM interrupts WHERE name = 'NET_RX' AND context = 'interrupts' AND cpu ";
        let [here, elsewhere] =
            ["=", "<>"].map(|is| number(&flooded, &format!("{most}{is} {cpu}")));
        assert!(here > 5 * elsewhere, "{here} ns on CPU {cpu}, {elsewhere} ns on others");
        // The ledger, too: most of what the thread misses are packets, and what came on other CPUs is not in it.
        let by = in_ledger(&flooded);
        let (sum, packets) = (by.values().sum::<u64>(), by[&("soft".into(), "NET_RX".into())]);
        assert!(sum as f64 <= 1.1 * missed as f64 + 20e6, "{by:#?}, {missed} ns missed");
        assert!(sum as f64 >= 0.5 * missed as f64 - 20e6, "{by:#?}, {missed} ns missed");
        assert!(2 * packets > sum, "{by:#?}");
    });
}

/// What interrupts took from a target, as the ledger of a recording's report says: nanoseconds by kind and name.
fn in_ledger(file: &Path) -> BTreeMap<(String, String), u64> {
    let mut report = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let output = report.args(["report", "--json"]).arg(file).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let ledger = &report["ledger"][0];
    let parts = ledger["interrupted_by"].as_array().map_or(&[][..], Vec::as_slice);
    let text = |of: &serde_json::Value| of.as_str().unwrap_or("").to_owned();
    let told = |it: &serde_json::Value| ((text(&it["kind"]), text(&it["name"])), ns(&it["ns"]));
    let told: BTreeMap<_, _> = parts.iter().map(told).collect();
    // They sum to what the share is of.
    let mut on_cpu = ledger["parts"].as_array().unwrap().iter();
    let on_cpu = on_cpu.find(|it| it["state"] == "on_cpu").map_or(0, |it| ns(&it["ns"]));
    let of_share = ledger["interrupted"].as_f64().unwrap() * on_cpu as f64;
    let sum: u64 = parts.iter().map(|it| ns(&it["ns"])).sum();
    assert!((sum as f64 - of_share).abs() < 2.0, "{sum} ns, {of_share} ns: {parts:#?}");
    told
}

fn ns(of: &serde_json::Value) -> u64 {
    of.as_u64().unwrap()
}

/// Has all threads of its process interrupted on the CPUs that they run on, 20 000 times a second at most, by a system call
/// for that; or does the same in a process of its own.
const BARRIERS: &str = r#"
import ctypes, os, sys, threading, time
# The number of the call on x86-64.
MEMBARRIER, PRIVATE_EXPEDITED, REGISTER = 324, 8, 16
libc = ctypes.CDLL(None, use_errno=True)
cpus = sorted(os.sched_getaffinity(0))[:2]

def calls(cpu):
    os.sched_setaffinity(0, {cpu})
    if libc.syscall(MEMBARRIER, REGISTER, 0, 0):
        os._exit(2)
    # The interpreter's lock is not held in these calls.
    while True:
        libc.syscall(MEMBARRIER, PRIVATE_EXPEDITED, 0, 0)
        libc.usleep(50)

PR_SET_PDEATHSIG, SIGKILL = 1, 9
if sys.argv[1] == "apart" and os.fork() == 0:
    libc.prctl(PR_SET_PDEATHSIG, SIGKILL)
    if os.getppid() > 1:
        calls(cpus[0])
if sys.argv[1] == "within":
    threading.Thread(target=calls, args=(cpus[0],), daemon=True).start()
os.sched_setaffinity(0, {cpus[1]})
print("ready", flush=True)
# Most of its time is outside of the interpreter, on a CPU.
text = bytes(1 << 16)
import zlib
while True:
    zlib.crc32(text)
"#;

/// Threads of a process have each other interrupted. The decoy is a process that does as much in its own.
#[test]
fn calls_by_other_cpus_interrupt_whom_they_are_for() {
    const TEST: &str = "calls_by_other_cpus_interrupt_whom_they_are_for";
    common::tried("kernel", TEST, || {
        if !common::root_or_skip("kernel", TEST) {
            return;
        }
        let cpus = rustix::thread::sched_getaffinity(None).unwrap();
        if !cfg!(target_arch = "x86_64") || (0..1024).filter(|&cpu| cpus.is_set(cpu)).count() < 2 {
            return common::skip("kernel", TEST, "it needs two CPUs, of x86-64");
        }
        let dir = tempfile::tempdir().unwrap();
        let told = |how: &str| {
            let file = dir.path().join(how);
            let load = Load::start(BARRIERS, &[how]);
            let pid = load.0.id().to_string();
            let before = counts()["CAL"];
            record(&["-d", "3", "-p", &pid], &file);
            let counted = counts()["CAL"] - before;
            let of = |what: &str| {
                let sql = format!(
                    "SELECT sum({what}) FROM interrupts WHERE kind = 'processor' AND name = 'CAL'
                     AND context = 'interrupts' AND proc IN (SELECT proc FROM process WHERE pid = {pid})"
                );
                number(&file, &sql)
            };
            // The ledger says the same, and of the decoy too.
            let ledger = in_ledger(&file).get(&("processor".into(), "CAL".into())).copied();
            assert_eq!(ledger.unwrap_or(0), of("ns"), "{how}");
            (of("count"), of("ns"), counted)
        };
        let (within, within_ns, counted) = told("within");
        assert!(within > 5000 && within <= counted, "{within} told, {counted} counted");
        // An interrupt takes 0.1 us at least.
        assert!(within_ns > 100 * within, "{within_ns} ns for {within}");
        let (apart, ..) = told("apart");
        assert!(apart < within / 5, "{apart} from the decoy, {within} from its own");
    });
}

/// The decoy: a process that serves tens of thousands of soft interrupts a second, all of which it asked for itself.
#[test]
fn who_sends_to_itself_serves_its_own_interrupts() {
    const TEST: &str = "who_sends_to_itself_serves_its_own_interrupts";
    common::tried("kernel", TEST, || {
        if !common::root_or_skip("kernel", TEST) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.deburr");
        let load = Load::start(MANY, &[]);
        let pid = load.0.id().to_string();
        let (before, since) = (counts()["NET_RX"], now_ns());
        record(&["-d", "3", "-p", &pid], &file);
        let counted_per_s = (counts()["NET_RX"] - before) as f64 * 1e9 / (now_ns() - since) as f64;
        let of = |what: &str, context: &str| {
            number(
                &file,
                &format!(
                    "SELECT sum({what}) FROM interrupts WHERE name = 'NET_RX' AND context = '{context}'
                     AND proc IN (SELECT proc FROM process WHERE pid = {pid})"
                ),
            )
        };
        let (own, taken) = (of("ns", "own_call"), of("ns", "interrupts"));
        assert!(of("count", "own_call") > 10_000, "a tenth of what it sends");
        assert!(own > 20 * taken, "{own} ns in its own calls, {taken} ns taken from it");
        // There are too many to watch them all the time: what was watched stands for the rest.
        let told = number(&file, "SELECT sum(count) FROM interrupts WHERE name = 'NET_RX'");
        let (from, to) = window(&file);
        let told_per_s = told as f64 * 1e9 / (to - from) as f64;
        let ratio = told_per_s / counted_per_s;
        assert!((0.7..1.4).contains(&ratio), "{told_per_s} a second, counted {counted_per_s}");
        let mut report = Command::new(env!("CARGO_BIN_EXE_deburr"));
        let output = report.args(["report", "--json"]).arg(&file).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let findings = report["findings"].as_array().unwrap();
        assert!(findings.iter().all(|it| it["code"] != "IRQ001"), "{findings:#?}");
    });
}
