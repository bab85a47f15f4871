// SPDX-License-Identifier: Apache-2.0 OR MIT
//! In what functions threads go to sleep and are woken, against the clocks of the threads themselves.

use crate::odd_threads::{compiled, in_scratch, record};
use rusqlite::Connection;
use std::path::Path;
use std::time::SystemTime;

/// What was told of a process's sleep, in nanoseconds, for a condition.
fn told_ns(recording: &Path, pid: u32, condition: &str) -> f64 {
    let connection = Connection::open(recording).unwrap();
    let sql = format!(
        "SELECT sum(ns) FROM sleep_stack JOIN processes USING (proc) WHERE pid = ? AND ({condition})"
    );
    let sum = connection.query_row(&sql, [pid], |row| row.get::<_, Option<i64>>(0));
    sum.unwrap().unwrap_or(0) as f64
}

fn within(function: &str) -> String {
    format!("(';' || stack || ';') LIKE '%;{function};%'")
}

fn seed() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos().into()
}

/// What is looked at is chosen by chance where there are many sleeps: five points. At rest it is less than one.
#[test]
fn sleep_by_function_is_that_of_the_threads_own_clock() {
    in_scratch("sleep_by_function_is_that_of_the_threads_own_clock", |scratch| {
        let [program, recording, told] = ["worker", "x.deburr", "told"].map(|it| scratch.join(it));
        assert!(compiled("stacks.c", &["-fno-omit-frame-pointer", "-pthread"], &program), "cc");
        for seed in [5, seed() % 1_000_000] {
            let mut run = record(&recording, &["--profile"]);
            let run = run.arg(&program).args([&seed.to_string(), "4000"]).arg(&told).status();
            assert!(run.unwrap().success());
            let text = std::fs::read_to_string(&told).unwrap();
            let (pid, times) = text.trim().split_once(' ').unwrap();
            let pid = pid.parse().unwrap();
            let measured_ns: Vec<f64> = times.split(' ').map(|ns| ns.parse().unwrap()).collect();
            let whole_ns: f64 = measured_ns.iter().sum();
            let functions = ["sleeps_little", "sleeps_long", "awaits", "takes"];
            for (name, ns) in functions.into_iter().zip(measured_ns) {
                let of = format!("waker IS NULL AND {}", within(name));
                let told = told_ns(&recording, pid, &of) / whole_ns;
                let measured = ns / whole_ns;
                assert!((told - measured).abs() < 0.05, "seed {seed}: {name} {told} of {measured}");
            }
            // Whoever waits for the lock is woken where it is released, and by nobody else.
            let takes = format!("call = 'futex' AND address IS NOT NULL AND {}", within("takes"));
            let takes_ns = told_ns(&recording, pid, &takes);
            let ended = "call = 'futex' AND address IS NOT NULL AND waker = proc";
            let by_holder = told_ns(&recording, pid, &format!("{ended} AND {}", within("holds")));
            let by_others = told_ns(&recording, pid, ended) - by_holder;
            assert!(
                by_holder > takes_ns * 0.9 && by_others < takes_ns * 0.1,
                "seed {seed}: {takes_ns} ns, {by_holder} by the holder, {by_others} by others"
            );
            // A timer ends these: the thread that the CPU ran meanwhile has nothing to do with it.
            let sleeps = format!("waker IS NULL AND {}", within("sleeps_long"));
            let sleeps_ns = told_ns(&recording, pid, &sleeps);
            let blamed_ns = told_ns(&recording, pid, "call = 'clock_nanosleep' AND waker NOTNULL");
            assert!(blamed_ns < sleeps_ns * 0.1, "seed {seed}: {blamed_ns} of {sleeps_ns} ns");
        }
        None
    });
}
