// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads that wait in unusual ways, as recorded, against what they, or who held them, measured: in calls of the 32-bit
//! interface, for a child of `vfork`, held by a tracer, for a ring of io_uring, for a lock that another process holds, and on
//! a connection that somebody else made and passed on.

use crate::scratch::{compiled, in_scratch, is_near, record, slept, sum};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A recording of a program that waits in this way, who waited, and how long that took, in seconds; `None` = this kernel
/// does not let it.
fn recorded(scratch: &Path, mode: &str, more: &[&str]) -> Option<(PathBuf, u32, f64)> {
    let [program, recording, told] = ["odd", "x.deburr", "told"].map(|it| scratch.join(it));
    // The 32-bit interface takes addresses of 32 bits.
    assert!(compiled("odd_threads.c", &["-no-pie", "-pthread"], &program), "cc");
    let ended = record(&recording, more).arg(program).arg(mode).arg(&told).status().unwrap();
    if !ended.success() {
        return None;
    }
    let told = std::fs::read_to_string(told).unwrap();
    let (pid, seconds) = told.trim().split_once(' ').unwrap();
    Some((recording, pid.parse().unwrap(), seconds.parse().unwrap()))
}

/// `read` has the number there that `close` has elsewhere.
#[test]
fn calls_of_the_32_bit_interface_are_not_told_as_others() {
    in_scratch("calls_of_the_32_bit_interface_are_not_told_as_others", |scratch| {
        if !cfg!(target_arch = "x86_64") {
            return Some("only x86-64 has it for 64-bit programs");
        }
        let Some((recording, pid, seconds)) = recorded(scratch, "int80", &["--syscalls"]) else {
            return Some("the kernel has no 32-bit interface");
        };
        let of_32_bit = slept(&recording, pid, "call = '(32-bit call)'");
        assert!(seconds > 2.0 && is_near(of_32_bit, seconds), "{of_32_bit} s of {seconds} s");
        assert!(slept(&recording, pid, "call = 'close'") < 0.01);
        let calls = |name: &str| {
            let connection = Connection::open(&recording).unwrap();
            let sql = "SELECT sum(calls) FROM syscall WHERE name = ?";
            let calls = connection.query_row(sql, [name], |row| row.get::<_, Option<i64>>(0));
            calls.unwrap().unwrap_or(0)
        };
        assert!(calls("(32-bit calls)") > 100 && calls("close") < 100);
        None
    });
}

#[test]
fn calls_of_32_bit_programs_have_no_name() {
    in_scratch("calls_of_32_bit_programs_have_no_name", |scratch| {
        let [program, recording] = ["program_32", "x.deburr"].map(|it| scratch.join(it));
        let flags = ["-m32", "-static", "-nostdlib", "-ffreestanding", "-fno-stack-protector"];
        if !cfg!(target_arch = "x86_64") || !compiled("program_32.c", &flags, &program) {
            return Some("`cc -m32` compiles nothing here");
        }
        let feed = r#"exec 3>"$2"; for n in 1 2 3 4 5 6; do sleep 0.5; printf x; done | { "$1" & echo $! >&3; wait; }"#;
        let told = scratch.join("told");
        let mut run = record(&recording, &[]);
        assert!(
            run.args(["bash", "-c", feed, "bash"])
                .arg(program)
                .arg(&told)
                .status()
                .unwrap()
                .success()
        );
        let pid: u32 = std::fs::read_to_string(told).unwrap().trim().parse().unwrap();
        let all = slept(&recording, pid, "1");
        if all < 0.5 {
            return Some("the kernel runs no 32-bit programs");
        }
        let of_32_bit = slept(&recording, pid, "call = '(32-bit call)'");
        assert!(all > 2.0 && of_32_bit > 0.95 * all, "{of_32_bit} s of {all} s");
        None
    });
}

#[test]
fn who_waits_for_a_child_of_vfork_waits_for_that() {
    in_scratch("who_waits_for_a_child_of_vfork_waits_for_that", |scratch| {
        let (recording, pid, seconds) = recorded(scratch, "vfork", &[]).unwrap();
        let of_call = slept(&recording, pid, "call IN ('vfork', 'clone', 'clone3')");
        assert!(seconds > 1.5 && is_near(of_call, seconds), "{of_call} s of {seconds} s");
        // The child sleeps by a timer, and is what it waits for.
        let behind = slept(
            &recording,
            pid,
            "call IN ('vfork', 'clone', 'clone3') AND behind LIKE '%nanosleep%'",
        );
        assert!(behind > 0.9 * of_call, "{behind} s of {of_call} s");
        None
    });
}

#[test]
fn who_is_held_by_a_tracer_is_stopped() {
    in_scratch("who_is_held_by_a_tracer_is_stopped", |scratch| {
        let (recording, pid, seconds) = recorded(scratch, "traced", &[]).unwrap();
        let sql =
            "SELECT sum(stopped_ns) FROM process_tick JOIN processes USING (proc) WHERE pid = ?";
        let stopped = sum(&recording, sql, pid) / 1e9;
        assert!(seconds > 1.0 && is_near(stopped, seconds), "{stopped} s of {seconds} s");
        None
    });
}

#[test]
fn who_waits_for_a_ring_waits_in_its_call() {
    in_scratch("who_waits_for_a_ring_waits_in_its_call", |scratch| {
        let Some((recording, pid, seconds)) = recorded(scratch, "uring", &[]) else {
            return Some("the kernel lets nobody make a ring of io_uring");
        };
        let of_call =
            slept(&recording, pid, "call = 'io_uring_enter' AND slept_on LIKE '%io_urin%'");
        assert!(seconds > 2.0 && is_near(of_call, seconds), "{of_call} s of {seconds} s");
        // The kernel's thread that reads for it belongs to the process and is in no call.
        let of_worker = slept(&recording, pid, "call = '(kernel work)'");
        assert!(of_worker > 0.5 * seconds, "{of_worker} s beside {seconds} s");
        None
    });
}

/// The kinds of a process's sleep in a call, by the report, and what stands first behind it: nanoseconds.
fn kinds(recording: &Path, comm: &str, call: &str) -> BTreeMap<(String, String), u64> {
    let mut report = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let output = report.args(["report", "--json"]).arg(recording).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let ledgers = report["ledger"].as_array().unwrap();
    let its = |it: &&serde_json::Value| it["victim"]["comm"] == comm && !it["asleep"].is_null();
    let ledger = ledgers.iter().find(its).unwrap();
    let mut all = BTreeMap::new();
    for part in ledger["asleep"].as_array().unwrap().iter().filter(|it| it["call"] == call) {
        let text = |it: &serde_json::Value| it.as_str().unwrap_or_default().to_owned();
        let key = (text(&part["kind"]), text(&part["behind"][0]["who"]));
        *all.entry(key).or_default() += part["ns"].as_u64().unwrap();
    }
    all
}

#[test]
fn a_lock_in_shared_memory_is_held_by_another_process() {
    in_scratch("a_lock_in_shared_memory_is_held_by_another_process", |scratch| {
        let (recording, pid, seconds) = recorded(scratch, "shared", &[]).unwrap();
        let of_lock = slept(&recording, pid, "call = 'futex'");
        assert!(seconds > 2.0 && is_near(of_lock, seconds), "{of_lock} s of {seconds} s");
        let kinds = kinds(&recording, "odd", "futex");
        let held = kinds[&("waits_for_others".into(), "`holder`".into())];
        assert!(held * 10 > kinds.values().sum::<u64>() * 9, "{kinds:?}");
        None
    });
}

/// The kernel says that the other end belongs to whoever made the connection. Who sleeps before it answers may as well be at
/// rest: that is not known, and its timer is not the client's own.
#[test]
fn on_a_connection_that_was_passed_on_whoever_answers_is_named() {
    in_scratch("on_a_connection_that_was_passed_on_whoever_answers_is_named", |scratch| {
        let (recording, pid, seconds) = recorded(scratch, "passed", &[]).unwrap();
        let of_peer = slept(&recording, pid, "call = 'read' AND slept_on LIKE '%unix%'");
        assert!(seconds > 2.0 && is_near(of_peer, seconds), "{of_peer} s of {seconds} s");
        let kinds = kinds(&recording, "odd", "read");
        let all: u64 = kinds.values().sum();
        let of = |test: &dyn Fn(&(String, String)) -> bool| -> u64 {
            kinds.iter().filter(|(key, _)| test(key)).map(|(_, ns)| ns).sum()
        };
        assert!(of(&|(_, who)| who == "`server`") * 10 > all * 9, "{kinds:?}");
        assert_eq!(of(&|(kind, _)| kind == "own_timer"), 0, "{kinds:?}");
        None
    });
}
