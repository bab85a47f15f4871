// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU time in the program and in the kernel, against what a process sees of itself.

use crate::common;
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

/// Computes for a part of the time, by its own account, and reads zeroes for the rest.
const WORKER: &str = r#"
import os, resource, sys
part = float(sys.argv[1])
zeroes = os.open("/dev/zero", os.O_RDONLY)

def used():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime, usage.ru_stime

begin = used()
print("ready", flush=True)
while True:
    user, system = (now - then for now, then in zip(used(), begin))
    if user < part * (user + system):
        sum(range(20000))
    else:
        os.pread(zeroes, 1 << 20, 0)
"#;

/// The report on a process that computes for that part of its time.
fn report(part: &str) -> Value {
    let mut worker = Command::new("python3")
        .args(["-c", WORKER, part])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(worker.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let pid = worker.id().to_string();
    let mut observe = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let output = observe.args(["--json", "-q", "-d", "4", "-p", &pid]).output().unwrap();
    worker.kill().unwrap();
    worker.wait().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn cpu_time_in_the_kernel_is_what_a_process_sees_of_itself() {
    const TEST: &str = "cpu_time_in_the_kernel_is_what_a_process_sees_of_itself";
    common::tried("kernel", TEST, || {
        if !common::root_or_skip("kernel", TEST) {
            return;
        }
        for (part, in_kernel, found) in [("0.8", 0.2, false), ("0.25", 0.75, true)] {
            let report = report(part);
            let ledgers = report["ledger"].as_array().unwrap();
            let share = ledgers.iter().find_map(|it| it["in_kernel"].as_f64()).unwrap();
            // Sampled by the clock tick: hundreds of samples.
            assert!((share - in_kernel).abs() < 0.12, "{part}: {share}, {ledgers:#?}");
            let findings = report["findings"].as_array().unwrap();
            let fired = findings.iter().any(|it| it["code"] == "CPU005");
            assert_eq!(fired, found, "{part}: {findings:#?}");
        }
    });
}
