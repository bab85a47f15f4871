// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Locks in memory, told apart from words on which threads wait for work, against what the threads measured themselves: of
//! programs with glibc and musl, linked dynamically and statically, and of one in Rust. What a mutex of one of them holds while somebody waits
//! is what a condition of the other does.

use crate::scratch::{in_scratch, record};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// How a program is made, from which source, and whether it is known then whose code waits.
const LINKED: [(&str, &[&str], &str, bool); 5] = [
    ("cc", &["-O1", "-w", "-pthread"], "whose_futex.c", true),
    ("cc", &["-O1", "-w", "-pthread", "-static"], "whose_futex.c", false),
    ("musl-gcc", &["-O1", "-w", "-pthread"], "whose_futex.c", true),
    ("musl-gcc", &["-O1", "-w", "-pthread", "-static"], "whose_futex.c", false),
    ("rustc", &["-O", "--edition=2021"], "whose_futex_rust.rs", false),
];

const MISSING: &str = "musl-gcc, a static glibc or rustc is not here";

fn compiled(compiler: &str, flags: &[&str], source: &str, to: &Path) -> bool {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel/programs").join(source);
    let mut compile = Command::new(compiler);
    compile.args(flags).arg("-o").arg(to).arg(source);
    // Which musl-gcc starts.
    compile.env("REALGCC", "cc");
    compile.stdin(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|it| it.success())
}

/// The report of a program, what `deburr` says of its process, and what its threads measured, in seconds.
struct Told {
    report: Value,
    ledger: Value,
    work_s: f64,
    locks_s: f64,
    lone_s: f64,
}

fn told_of(scratch: &Path, made: (&str, &[&str], &str, bool), mode: &str) -> Option<Told> {
    let [program, recording, told] = ["futexes", "x.deburr", "told"].map(|it| scratch.join(it));
    let (compiler, flags, source, _) = made;
    if !compiled(compiler, flags, source, &program) {
        return None;
    }
    let mut run = record(&recording, &[]);
    assert!(run.arg(program).arg(&told).args(["2", mode]).status().unwrap().success());
    let told = std::fs::read_to_string(told).unwrap();
    let [pid, work_s, locks_s, lone_s] =
        told.split_whitespace().map(|it| it.parse::<f64>().unwrap()).collect::<Vec<_>>()[..]
    else {
        panic!("{told}")
    };
    let mut report = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let output = report.args(["report", "--json"]).arg(recording).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ledgers = report["ledger"].as_array().unwrap();
    let is_its = |it: &&Value| it["victim"]["pid"] == pid as u64;
    let ledger = ledgers.iter().find(is_its).unwrap().clone();
    Some(Told { report, ledger, work_s, locks_s, lone_s })
}

impl Told {
    /// Sleep in seconds, of the parts for which that holds.
    fn slept_s(&self, is: impl Fn(&Value) -> bool) -> f64 {
        let parts = self.ledger["asleep"].as_array().unwrap();
        let its = parts.iter().filter(|part| part["call"] == "futex" && is(part));
        its.map(|part| part["ns"].as_f64().unwrap()).sum::<f64>() / 1e9
    }

    fn locks_s(&self) -> f64 {
        self.slept_s(|part| part["on"].as_str().is_some_and(|on| on.starts_with("a lock")))
    }

    fn for_others_s(&self) -> f64 {
        self.slept_s(|part| part["kind"] == "waits_for_others")
    }

    fn codes(&self) -> Vec<&str> {
        let findings = self.report["findings"].as_array().unwrap();
        findings.iter().filter_map(|it| it["code"].as_str()).collect()
    }
}

/// The last sleep of each thread may be one that was not looked at, and who had just unlocked takes a turn before others.
fn is_near(told_s: f64, measured_s: f64) -> bool {
    (told_s - measured_s).abs() < 0.15 + 0.05 * measured_s
}

#[test]
fn who_waits_for_work_on_a_word_waits_for_no_lock() {
    in_scratch("who_waits_for_work_on_a_word_waits_for_no_lock", |scratch| {
        let mut missing = None;
        for made in LINKED {
            let Some(told) = told_of(scratch, made, "idle") else {
                missing = Some(MISSING);
                continue;
            };
            let what = format!("{made:?}: {:#}", told.ledger);
            let slept_s = told.slept_s(|_| true);
            assert!(is_near(slept_s, told.work_s), "{slept_s} of {} s: {what}", told.work_s);
            // Until a thread that wakes them gets a CPU, they wait for that.
            assert!(
                told.locks_s() < 0.05 * slept_s && told.for_others_s() < 0.2 * slept_s,
                "{what}"
            );
            let of_waiting: Vec<_> =
                told.codes().into_iter().filter(|code| code.starts_with("OFF00")).collect();
            // Where a CPU takes long to wake up, so does who wakes them.
            let allowed = |code: &&str| matches!(*code, "OFF003" | "OFF004");
            assert!(of_waiting.iter().all(allowed), "{of_waiting:?}, {what}");
        }
        missing
    });
}

#[test]
fn locks_are_told_whoever_s_they_are() {
    in_scratch("locks_are_told_whoever_s_they_are", |scratch| {
        let mut missing = None;
        for made in LINKED {
            let Some(told) = told_of(scratch, made, "locks") else {
                missing = Some(MISSING);
                continue;
            };
            let what = format!("{made:?}: {:#}", told.ledger);
            let (.., is_known) = made;
            assert!(told.locks_s > 1.5 && told.lone_s > 0.5, "{} {}", told.locks_s, told.lone_s);
            // Where it is not known whose code waits, a lock is one for which several threads do.
            let locks_s = told.locks_s + if is_known { told.lone_s } else { 0.0 };
            assert!(is_near(told.locks_s(), locks_s), "{} of {locks_s} s: {what}", told.locks_s());
            assert!(is_near(told.for_others_s(), locks_s), "{} s: {what}", told.for_others_s());
            assert_eq!(told.codes().first(), Some(&"OFF001"), "{what}");
        }
        missing
    });
}

/// Of glibc only: in others such words have other values.
#[test]
fn locks_for_readers_and_writers_are_told_by_who_takes_turns() {
    in_scratch("locks_for_readers_and_writers_are_told_by_who_takes_turns", |scratch| {
        let Some(told) = told_of(scratch, LINKED[0], "shared") else {
            return Some(MISSING);
        };
        let what = format!("{:#}", told.ledger);
        assert!(told.locks_s > 1.5, "{}", told.locks_s);
        // Each word is known to be a lock from its second turn on.
        let share = told.locks_s() / told.locks_s;
        assert!((0.85..1.05).contains(&share), "{} of {} s: {what}", told.locks_s(), told.locks_s);
        assert_eq!(told.codes().first(), Some(&"OFF001"), "{what}");
        None
    });
}
