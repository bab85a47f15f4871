// SPDX-License-Identifier: Apache-2.0 OR MIT
//! In what functions threads go to sleep and are woken, against the clocks of the threads themselves.

use crate::scratch::{compiled, in_scratch, record};
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

/// The stacks of a call, those with which sleeps begin or end: time in nanoseconds, and functions from the outermost on.
fn stacks_of(recording: &Path, call: &str, of_wakers: bool) -> Vec<(i64, Vec<String>)> {
    let connection = Connection::open(recording).unwrap();
    let null = if of_wakers { "NOTNULL" } else { "ISNULL" };
    let sql = format!("SELECT ns, stack FROM sleep_stack WHERE call = ? AND waker {null}");
    let mut statement = connection.prepare(&sql).unwrap();
    let rows = statement.query_map([call], |row| {
        let stack: String = row.get(1)?;
        Ok((row.get(0)?, stack.split(';').map(str::to_owned).collect()))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

/// Where a thread waits for the kernel itself, the call does not say for what. The decoy is a sleep in a call that does.
#[test]
fn waits_for_the_kernel_itself_have_its_functions() {
    in_scratch("waits_for_the_kernel_itself_have_its_functions", |scratch| {
        let [program, recording] = ["vforks", "x.deburr"].map(|it| scratch.join(it));
        assert!(compiled("vforks.c", &["-fno-omit-frame-pointer"], &program), "cc");
        let mut run = record(&recording, &["--profile"]);
        assert!(run.arg(&program).arg("40").status().unwrap().success());
        let of_kernel = |it: &String| it.ends_with("_[k]");
        for of_wakers in [false, true] {
            let told = stacks_of(&recording, "vfork", of_wakers);
            let all_ns: i64 = told.iter().map(|(ns, _)| ns).sum();
            // 40 times 30 ms, and what a loaded machine adds to them.
            assert!(all_ns > 1_000_000_000, "{all_ns} ns, {told:?}");
            for (_, stack) in &told {
                let (program, kernel): (Vec<_>, Vec<_>) =
                    stack.iter().partition(|it| !of_kernel(it));
                assert!(of_wakers || program.iter().any(|it| *it == "lends"), "{stack:?}");
                let innermost = kernel.last().unwrap();
                let is_of_switch =
                    ["schedule", "bpf", "wake_up"].iter().any(|it| innermost.contains(it));
                assert!(kernel.len() > 1 && !is_of_switch, "{stack:?}");
                assert!(
                    stack.ends_with(&kernel.into_iter().cloned().collect::<Vec<_>>()),
                    "{stack:?}"
                );
            }
        }
        let rests = stacks_of(&recording, "clock_nanosleep", false);
        assert!(!rests.is_empty());
        assert!(!rests.iter().flat_map(|(_, stack)| stack).any(of_kernel), "{rests:?}");
        None
    });
}
