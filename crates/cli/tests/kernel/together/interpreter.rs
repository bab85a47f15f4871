// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lock of CPython's interpreter, for which threads wait in pieces of some milliseconds that a timer ends, against how
//! late a thread is by its own clock; and threads that wait in the same way for something else.

use crate::scratch::{in_scratch, record};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// One thread naps for 20 ms again and again, and measures what the rest takes. Another one does what the mode says.
const PROGRAM: &str = r#"
import ctypes, json, os, queue, random, sys, threading, time
told, mode = sys.argv[1:]
stop = time.monotonic() + 3.2

def goes_on():
    return time.monotonic() < stop

def calls(lib):
    "`PyDLL` keeps the interpreter's lock during a call, `CDLL` does not."
    while goes_on():
        lib.usleep(random.randrange(50_000, 90_000))
        time.sleep(0.005)

def computes():
    "The interpreter lets go of its lock when it is asked to, between two instructions."
    while goes_on():
        sum(range(1000))

def waits(event):
    while goes_on():
        event.wait(0.005)

def takes(jobs):
    while goes_on():
        try:
            jobs.get(timeout=0.005)
        except queue.Empty:
            pass

jobs = queue.Queue()
work = {
    "naps": [(calls, ctypes.PyDLL(None))],
    "computes": [(computes,)],
    "lets-go": [(calls, ctypes.CDLL(None))],
    "waits": [(waits, threading.Event()) for _ in range(3)],
    "takes": [(takes, jobs) for _ in range(3)],
}[mode]
threads = [threading.Thread(target=of[0], args=of[1:]) for of in work]
for it in threads:
    it.start()

def awake():
    "What it ran, and how long it waited for a CPU, is no wait for the lock."
    return time.thread_time() + int(open("/proc/thread-self/schedstat").read().split()[1]) / 1e9

begin, naps = time.monotonic() - awake(), 0
while goes_on():
    time.sleep(0.02)
    naps += 1
    jobs.put(1)
late = time.monotonic() - awake() - begin - 0.02 * naps
json.dump([os.getpid(), late], open(told, "w"))
"#;

/// What the program measured, in seconds, and what is told of it: its waits for the interpreter's lock, and all for others.
struct Told {
    report: Value,
    late_s: f64,
    lock_s: f64,
    for_others_s: f64,
    slept_s: f64,
}

fn told_of(scratch: &Path, mode: &str) -> Told {
    let [recording, told] = ["x.deburr", "told"].map(|it| scratch.join(it));
    let mut run = record(&recording, &[]);
    assert!(run.args(["python3", "-c", PROGRAM]).arg(&told).arg(mode).status().unwrap().success());
    let told = std::fs::read_to_string(told).unwrap();
    let (pid, late_s): (u64, f64) = serde_json::from_str(&told).unwrap();
    let mut report = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let output = report.args(["report", "--json"]).arg(recording).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ledgers = report["ledger"].as_array().unwrap();
    let ledger = ledgers.iter().find(|it| it["victim"]["pid"] == pid).unwrap();
    let parts = ledger["asleep"].as_array().unwrap();
    let slept_s = |is: &dyn Fn(&Value) -> bool| {
        let its = parts.iter().filter(|part| is(part));
        its.map(|part| part["ns"].as_f64().unwrap()).sum::<f64>() / 1e9
    };
    let lock_s = slept_s(&|part| part["on"] == "the interpreter's lock");
    let for_others_s = slept_s(&|part| part["kind"] == "waits_for_others");
    Told { late_s, lock_s, for_others_s, slept_s: slept_s(&|_| true), report }
}

#[test]
fn who_waits_for_the_interpreters_lock_waits_for_its_holder() {
    const TEST: &str = "who_waits_for_the_interpreters_lock_waits_for_its_holder";
    in_scratch(TEST, |scratch| {
        for (mode, holder) in [("naps", "while it sleeps"), ("computes", "while it computes")] {
            let told = told_of(scratch, mode);
            let (late_s, lock_s) = (told.late_s, told.lock_s);
            eprintln!("{mode}: late by {late_s:.3} s, waits for the lock told: {lock_s:.3} s");
            assert!(late_s > 0.3, "{mode}: late by {late_s} s only");
            assert!((0.75..1.1).contains(&(lock_s / late_s)), "{mode}: {lock_s} of {late_s} s");
            let findings = told.report["findings"].as_array().unwrap();
            let found = findings.iter().find(|it| it["code"] == "OFF001");
            let title = found.and_then(|it| it["title"].as_str()).unwrap_or_default();
            assert!(title.contains("the interpreter's lock") && title.contains(holder), "{title}");
        }
        None
    });
}

#[test]
fn who_sets_a_limit_and_waits_for_something_else_waits_for_no_lock() {
    const TEST: &str = "who_sets_a_limit_and_waits_for_something_else_waits_for_no_lock";
    in_scratch(TEST, |scratch| {
        for mode in ["lets-go", "waits", "takes"] {
            let told = told_of(scratch, mode);
            let Told { late_s, lock_s, for_others_s, slept_s, report } = told;
            eprintln!(
                "{mode}: late by {late_s:.3} s, told {lock_s:.3} s, {for_others_s:.3} s in all"
            );
            // Its start is in it, in which threads wait for each other.
            assert!(
                for_others_s < 0.06 * slept_s,
                "{mode}: {for_others_s} of {slept_s} s for others"
            );
            let findings = report["findings"].as_array().unwrap();
            assert!(findings.iter().all(|it| it["code"] != "OFF001"), "{mode}: {findings:#?}");
        }
        None
    });
}
