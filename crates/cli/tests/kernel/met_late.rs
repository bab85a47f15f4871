// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads of the target that are met in unusual ways are watched like others: the sleep that is told of them is what they
//! measured.

use crate::scratch::{compiled, in_scratch, is_near, record, slept};
use std::path::Path;

/// What a program that is started in this way told of its naps, and what was recorded, in seconds; `None` = it may not run so.
fn naps(scratch: &Path, mode: &str) -> Option<(f64, f64)> {
    let [program, recording, told] = ["met_late", "x.deburr", "told"].map(|it| scratch.join(it));
    assert!(compiled("met_late.c", &["-pthread"], &program), "cc");
    let ended = record(&recording, &[]).arg(program).arg(mode).arg(&told).status().unwrap();
    if ended.code() == Some(2) {
        return None;
    }
    assert!(ended.success(), "{ended}");
    let told = std::fs::read_to_string(told).unwrap();
    let (pid, seconds) = told.trim().split_once(' ').unwrap();
    let recorded = slept(&recording, pid.parse().unwrap(), "call = 'clock_nanosleep'");
    Some((seconds.parse().unwrap(), recorded))
}

fn are_told(test: &'static str, mode: &str) {
    in_scratch(test, |scratch| {
        let Some((measured, recorded)) = naps(scratch, mode) else {
            return Some("this process may have no real-time priority");
        };
        assert!(measured > 1.4 && is_near(recorded, measured), "{recorded} s of {measured} s");
        None
    });
}

/// It is met by the list of waiting threads, before any switch.
#[test]
fn a_thread_that_waits_long_for_its_first_cpu_is_watched() {
    are_told("a_thread_that_waits_long_for_its_first_cpu_is_watched", "starved");
}

/// The first thread ends, and the one that executes a program takes its id.
#[test]
fn a_process_is_watched_after_a_thread_of_it_has_executed_a_program() {
    are_told("a_process_is_watched_after_a_thread_of_it_has_executed_a_program", "executes");
}

#[test]
fn a_process_is_watched_after_its_first_thread_has_ended() {
    are_told("a_process_is_watched_after_its_first_thread_has_ended", "outlives");
}
