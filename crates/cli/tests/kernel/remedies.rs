// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr lab run --remedy` applies the first remedy that has a command, and the victim then loses less time, as the
//! remedy's text promises.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::common;
use crate::lab::{DEBURR, alone};
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};

/// Longest time to wait for an idle CPU.
const IDLE_WITHIN: Duration = Duration::from_secs(60);

/// Runs a scenario with its remedy, whose command must contain `program`. Before and after are measured in one run, so
/// other load on the host is in both.
fn promise_is_kept(scenario: &str, program: &str) {
    promise_is_kept_in(3, scenario, program);
}

/// The same, with so many seconds for each observation: some faults take a while until they show.
fn promise_is_kept_in(seconds: u32, scenario: &str, program: &str) {
    let _one = alone();
    if !common::root_or_skip("kernel", scenario) {
        return;
    }
    let deadline = Instant::now() + IDLE_WITHIN;
    let (output, said) = loop {
        let arguments = ["lab", "run", scenario, "--remedy", "--json", "--weight=3"];
        let seconds = format!("--seconds={seconds}");
        let output = Command::new(DEBURR).args(arguments).arg(seconds).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() != Some(3) {
            break (output, said);
        }
        if said.contains("the free memory") {
            // How much memory is free is a matter of what the host did before.
            return common::skip("kernel", scenario, said.trim());
        }
        if !said.contains("the host is busy") {
            return common::skip_or_fail("kernel", scenario, said.trim());
        }
        if Instant::now() > deadline {
            return common::inconclusive("kernel", scenario, said.trim());
        }
    };
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error} in the answer; {}: {said}", output.status));
    let remedy = &document["remedies"][0];
    if output.status.code() == Some(4) {
        return common::inconclusive("kernel", scenario, &remedy.to_string());
    }
    assert!(output.status.success(), "{}: {said}{remedy:#}", output.status);
    assert!(remedy["command"].as_str().unwrap().contains(program), "{remedy:#}");
    let ns = |name: &str| remedy[name].as_f64().unwrap();
    assert!(ns("after_ns") < ns("before_ns"), "{remedy:#}");
}

#[test]
fn weight_beside_two_spinners_a_cpu() {
    promise_is_kept("neighbour-2", "cpu.");
}

#[test]
fn weight_beside_eight_spinners_a_cpu() {
    promise_is_kept("neighbour-8", "cpu.");
}

#[test]
fn weight_beside_spinners_whose_nice_value_does_not_count() {
    promise_is_kept("neighbour-nice", "cpu.");
}

#[test]
fn other_cpus_for_who_was_bound_to_one() {
    promise_is_kept("pinned", "taskset");
}

#[test]
fn more_quota_for_who_has_too_little() {
    promise_is_kept("quota", "cpu.");
}

#[test]
fn more_quota_for_threads_that_use_it_up_together() {
    promise_is_kept("quota-threads", "cpu.");
}

#[test]
fn more_quota_on_the_level_that_binds() {
    promise_is_kept("quota-nested", "cpu.");
}

#[test]
fn an_ordinary_policy_for_a_thread_that_runs_before_all_others() {
    promise_is_kept("rt-hog", "chrt");
}

#[test]
fn weight_for_who_has_next_to_none() {
    promise_is_kept("starved", "cpu.");
}

#[test]
fn a_higher_limit_for_who_is_held_back() {
    promise_is_kept("io-limit", "blkio.");
}

#[test]
fn the_last_place_at_the_disk_for_who_keeps_it_busy() {
    promise_is_kept("io-neighbour", "ionice");
}

#[test]
fn the_last_place_at_the_disk_for_all_of_them() {
    promise_is_kept("overlay", "ionice");
}

#[test]
fn no_limit_of_its_own_for_a_device_that_is_made_to_pause() {
    promise_is_kept("dirty-throttle", "max_ratio");
}

#[test]
fn dirty_pages_are_written_before_they_fill_a_limit() {
    promise_is_kept_in(4, "memcg-reclaim", "dirty_background_bytes");
}

#[test]
fn a_higher_limit_for_who_reads_its_files_again() {
    promise_is_kept_in(6, "refault", "memory.limit_in_bytes");
}

#[test]
fn large_pages_in_the_background_for_who_moves_memory_to_get_them() {
    promise_is_kept_in(8, "compaction", "transparent_hugepage/defrag");
}

#[test]
fn another_cpu_for_who_is_interrupted_by_timers() {
    promise_is_kept("timer-storm", "taskset");
}

#[test]
fn another_cpu_for_who_is_interrupted_by_packets() {
    promise_is_kept("softirq", "taskset");
}
