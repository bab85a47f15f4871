// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Profiles, against the clock of the thread that is profiled; and programs that have no names, or bad ones.

use crate::golang::{start, toolchains};
use crate::scratch::{compiled, in_scratch, record};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// A profile of the program, and what it told: its pid, and the CPU time of each function in nanoseconds.
struct Run {
    recording: PathBuf,
    pid: u32,
    told_ns: Vec<f64>,
}

impl Run {
    fn of(scratch: &Path, flags: &[&str], arguments: &[&str]) -> Self {
        let [program, recording, told] = ["worker", "x.deburr", "told"].map(|it| scratch.join(it));
        let _ = std::fs::remove_file(&recording);
        assert!(compiled("profile.c", flags, &program), "cc");
        let mut run = record(&recording, &["--profile"]);
        let ended = run.arg(program).args(arguments).arg(&told).status().unwrap();
        assert!(ended.success(), "{ended}");
        let told = std::fs::read_to_string(told).unwrap();
        let (pid, times) = told.trim().split_once(' ').unwrap();
        let told_ns = times.split(' ').map(|ns| ns.parse().unwrap()).collect();
        Self { recording, pid: pid.parse().unwrap(), told_ns }
    }

    /// Samples of its stacks that meet a condition.
    fn samples(&self, condition: &str) -> f64 {
        let connection = Connection::open(&self.recording).unwrap();
        let sql = format!(
            "SELECT sum(samples) FROM profile_stack JOIN processes USING (proc) WHERE pid = ? AND ({condition})"
        );
        let sum = connection.query_row(&sql, [self.pid], |row| row.get::<_, Option<i64>>(0));
        sum.unwrap().unwrap_or(0) as f64
    }

    fn period_ns(&self) -> f64 {
        let connection = Connection::open(&self.recording).unwrap();
        let sql = "SELECT period_ns FROM profile_span";
        connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap() as f64
    }
}

fn seed() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos().into()
}

/// Samples of a share are off by chance: less than four standard deviations in 99.99 of 100 cases. What a thread does
/// between two looks at the clock adds a point.
#[test]
fn shares_of_functions_are_those_of_the_threads_own_clock() {
    in_scratch("shares_of_functions_are_those_of_the_threads_own_clock", |scratch| {
        // With the first seed the functions take turns with a clock that beats evenly: one had 22 % instead of 15 %.
        for seed in [345_337, seed() % 1_000_000] {
            let seed = seed.to_string();
            let run = Run::of(scratch, &["-fno-omit-frame-pointer"], &[&seed, "4500"]);
            let all = run.samples("true");
            let told_ns: f64 = run.told_ns.iter().sum();
            let sampled = all * run.period_ns() / told_ns;
            assert!((0.8..1.2).contains(&sampled), "seed {seed}: {all} samples of {told_ns} ns");
            // `read` of the C library leaves no frame, so what calls it may be missing.
            let functions = ["adds", "multiplies", "shifts", "read%"];
            for (name, ns) in functions.into_iter().zip(&run.told_ns) {
                let within = format!("(';' || stack || ';') LIKE '%;{name};%'");
                let (sampled, told) = (run.samples(&within) / all, ns / told_ns);
                let chance = 4.0 * (told * (1.0 - told) / all).sqrt() + 0.01;
                assert!((sampled - told).abs() < chance, "seed {seed}: {name} {sampled} of {told}");
            }
            let reads = run.told_ns[3] / told_ns;
            let in_kernel = run.samples("stack LIKE '%;read%' AND stack LIKE '%_[k]'") / all;
            assert!(in_kernel > reads * 0.7, "seed {seed}: {in_kernel} of {reads}");
        }
        None
    });
}

#[test]
fn functions_of_a_program_without_symbols_have_no_name_rather_than_a_wrong_one() {
    in_scratch(
        "functions_of_a_program_without_symbols_have_no_name_rather_than_a_wrong_one",
        |scratch| {
            let run = Run::of(scratch, &["-s", "-fno-omit-frame-pointer"], &["5", "2000"]);
            let all = run.samples("true");
            let program = run.samples("stack LIKE '%[worker]'");
            let kernel = run.samples("stack LIKE '%_[k]'");
            assert!(all > 100.0 && program > 0.0, "{all} samples, {program} in the program");
            assert!(program + kernel > 0.95 * all, "{program} + {kernel} of {all}");
            None
        },
    );
}

/// Headers and tables of a program with random bytes in them: whatever becomes of the names, the samples are there.
#[test]
fn a_program_with_damaged_tables_is_profiled_all_the_same() {
    in_scratch("a_program_with_damaged_tables_is_profiled_all_the_same", |scratch| {
        if !cfg!(target_arch = "x86_64") {
            return Some("the loop is written for x86-64");
        }
        let file = scratch.join("damaged");
        for round in 0..4 {
            let mut bytes = std::fs::read(env!("CARGO_BIN_EXE_deburr")).unwrap();
            bytes.truncate(1 << 20);
            let mut random = seed() | 1;
            let mut next = || {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random
            };
            for _ in 0..round * 20 {
                let at = (next() % 1024) as usize;
                bytes[at] = next() as u8;
            }
            // `jmp` to itself.
            bytes[4096..4098].copy_from_slice(&[0xeb, 0xfe]);
            std::fs::write(&file, &bytes).unwrap();
            let run = Run::of(scratch, &[], &["in", file.to_str().unwrap(), "1200"]);
            let (all, told_ns) = (run.samples("true"), run.told_ns[0]);
            let sampled = all * run.period_ns() / told_ns;
            assert!((0.6..1.4).contains(&sampled), "{all} samples of {told_ns} ns");
        }
        None
    });
}

/// The decoys: lists that somebody else may have put there, or that another process with that number left.
#[test]
fn code_that_is_made_at_run_time_has_the_names_that_its_process_lists() {
    in_scratch("code_that_is_made_at_run_time_has_the_names_that_its_process_lists", |scratch| {
        for (how, is_believed) in [("good", true), ("foreign", false), ("old", false)] {
            let run = Run::of(scratch, &[], &["made", how, "1500"]);
            let all = run.samples("true");
            let named = run.samples("stack LIKE '%made_at_run_time'") / all;
            let nameless = run.samples("stack LIKE '%[anonymous]'") / all;
            let expected = if is_believed { named } else { nameless };
            assert!(all > 50.0 && expected > 0.9, "{how}: {all} samples, {named}, {nameless}");
        }
        None
    });
}

/// Go's linker keeps the runtime's own table of functions.
#[test]
fn functions_of_stripped_programs_in_go_have_their_names() {
    in_scratch("functions_of_stripped_programs_in_go_have_their_names", |scratch| {
        let Ok(toolchains) = toolchains() else {
            return Some("no Go is installed (`scripts/setup --lab` does it)");
        };
        for toolchain in toolchains {
            for more in [&[][..], &["-buildmode=pie"]] {
                let arguments = [&["-ldflags=-s -w"], more].concat();
                let program = toolchain.build("spinner", "1.18", &arguments, &[]);
                let spins = start(Command::new(&program.file).arg("spin"));
                let recording = scratch.join("x.deburr");
                let mut profile = Command::new(env!("CARGO_BIN_EXE_deburr"));
                profile.args(["record", "-q", "--force", "--profile", "-d", "1.5", "-o"]);
                let profiled = profile.arg(&recording).args(["--comm", "spinner"]).status();
                assert!(profiled.unwrap().success());
                let pid = spins.0.id();
                let run = Run { recording, pid, told_ns: vec![] };
                let (all, named) =
                    (run.samples("true"), run.samples("stack LIKE '%main.main.func1'"));
                let version = &toolchain.version;
                assert!(all > 100.0 && named > 0.9 * all, "{version} {more:?}: {named} of {all}");
            }
        }
        None
    });
}
