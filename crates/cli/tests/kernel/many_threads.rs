// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A target with thousands of threads at rest and some that wait for each other: what is told of their sleep, and what is said
//! not to be known, is all of it, and the threads at rest do not hide the others.

use crate::scratch::{compiled, in_scratch};
use rusqlite::Connection;
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Threads of the target, pairs that wait for each other, and the seconds for which they are looked at.
const THREADS: u32 = 10_000;
const PAIRS: u32 = 25;
const SECONDS: u64 = 6;

/// Ends with the test, whatever that comes to.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program with so many threads that runs until it is dropped; `None` = this process may not have that many.
fn threads(scratch: &Path) -> Option<Ended> {
    let program = scratch.join("many");
    assert!(compiled("many_threads.c", &["-pthread"], &program), "cc");
    let mut command = Command::new(program);
    command.arg(THREADS.to_string()).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let child = Ended(child);
    (said.trim() == THREADS.to_string()).then_some(child)
}

/// Sleep of a process in nanoseconds, for a condition.
fn slept(recording: &Path, pid: u32, condition: &str) -> f64 {
    let sql = format!(
        "SELECT sum(s.ns) FROM sleep s JOIN processes p ON p.proc = s.proc WHERE p.pid = ? AND ({condition})"
    );
    let connection = Connection::open(recording).unwrap();
    let sum = connection.query_row(&sql, [pid], |row| row.get::<_, Option<i64>>(0)).unwrap();
    sum.unwrap_or(0) as f64
}

#[test]
fn thousands_of_threads_at_rest_do_not_hide_those_that_wait() {
    in_scratch("thousands_of_threads_at_rest_do_not_hide_those_that_wait", |scratch| {
        let Some(target) = threads(scratch) else {
            return Some("this process may not start 10 000 threads");
        };
        let (recording, pid) = (scratch.join("x.deburr"), target.0.id());
        let mut record = Command::new(env!("CARGO_BIN_EXE_deburr"));
        record.args(["record", "-q", "--force", "-d", &SECONDS.to_string(), "-o"]).arg(&recording);
        let began = Instant::now();
        let ended = record.args(["-p", &pid.to_string()]).stdout(Stdio::null()).status().unwrap();
        assert!(ended.success(), "{ended}");
        let took = began.elapsed();
        assert!(took < 3 * Duration::from_secs(SECONDS), "{SECONDS} s take {took:?}");
        judge(&recording, pid);
        None
    });
}

fn judge(recording: &Path, pid: u32) {
    let mut report = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let output = report.args(["report", "--json"]).arg(recording).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let window_ns = report["window"]["seconds"].as_f64().unwrap() * 1e9;
    let of_target = |it: &&Value| it["victim"]["pid"] == pid;
    let ledger = report["ledger"].as_array().unwrap().iter().find(of_target).unwrap();
    let parts = ledger["asleep"].as_array().unwrap();
    let sum = |is: &dyn Fn(&Value) -> bool| -> f64 {
        parts.iter().filter(|it| is(it)).map(|it| it["ns"].as_f64().unwrap()).sum()
    };
    let all = sum(&|_| true);
    let context = format!("{all} ns in {window_ns} ns, of {}: {parts:#?}", ledger["parts"]);
    // Each thread sleeps nearly all the time, and all of that is in the ledger.
    let whole = f64::from(THREADS) * window_ns;
    let states = ledger["parts"].as_array().unwrap().iter();
    let wall: f64 = states.map(|it| it["ns"].as_f64().unwrap()).sum();
    assert!(all > 0.97 * wall, "{context}");
    // A slow machine needs some tenths of a second to find them all.
    assert!(wall > 0.85 * whole && wall < 1.01 * whole, "{context}");
    // What is not told is that of threads that are said not to be watched.
    let not_told = sum(&|it| it["call"] == "(not recorded)");
    let lost = &report["observer"]["lost_detail"];
    let unwatched = lost["threads_unwatched"].as_f64().unwrap_or(0.0);
    assert!(
        not_told < (unwatched / f64::from(THREADS) + 0.02) * all,
        "{not_told}, {lost}: {context}"
    );
    let told = slept(recording, pid, "1");
    assert!(told < 1.02 * all && told + not_told > 0.95 * all, "{told}: {context}");
    // Who asks waits for a thread that naps, and is seen to.
    let asked = slept(recording, pid, "call = 'read' AND thread = 'asker'");
    let most = f64::from(PAIRS) * window_ns;
    let napped = slept(recording, pid, "call = 'read' AND behind LIKE '%nanosleep%'");
    eprintln!(
        "{asked} of {most} ns by name, {napped} ns behind a nap, {not_told} ns not told, {unwatched} threads unwatched"
    );
    assert!(napped > 0.75 * most && napped < 1.05 * most, "{napped} ns of {most}: {context}");
    // Nobody is to blame for threads that wait for nothing. That a machine has too few CPUs may be found.
    let findings = report["findings"].as_array().unwrap();
    let of_locks =
        |it: &&Value| matches!(it["code"].as_str(), Some("OFF001" | "OFF005" | "OFF008"));
    let found: Vec<_> = findings.iter().filter(of_locks).map(|it| &it["title"]).collect();
    assert!(found.is_empty(), "{found:?}");
    let at_rest = sum(&|it| it["call"] == "futex" && it["kind"] == "waits_for_others");
    assert!(at_rest < 0.001 * all, "{at_rest} ns: {context}");
}
