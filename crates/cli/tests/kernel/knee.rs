// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Repeats the incident that `deburr sweep` is for: under a limit of a fraction of a CPU, a Go service with 96 threads
//! stalls at a request rate that it serves without trouble with one thread.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::common;
use crate::golang;
use crate::sweep::{document, port, sweep};
use serde_json::Value;
use std::path::Path;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/services/fanout.go");
/// Requests per second.
const RATE: f64 = 100.0;
/// CPU limit, as a multiple of the CPU time that the service needs with one thread. With 96 threads it needs twice as
/// much, and 1.4 to 1.6 times as much where requests queue.
const HEADROOM: f64 = 1.4;
/// Least ratio of the 99th percentile with 96 threads to that with one. Measured: 57 and more on a busy machine with
/// two CPUs.
const FACTOR: f64 = 20.0;
/// Maximum number of attempts. The CPU time of a request is measured first; if other load changes it before the limit
/// is used, the limit is wrong, and the next attempt measures it anew.
const ATTEMPTS: usize = 4;

fn run(program: &Path, arguments: &[&str]) -> Value {
    let port = port().to_string();
    let url = format!("http://127.0.0.1:{port}/work");
    let rate = RATE.to_string();
    let arguments = [&["--url", &url, "--rate", &rate, "--reps", "3"], arguments].concat();
    document(&sweep(&arguments, &[program.to_str().unwrap(), &port]).output().unwrap())
}

/// CPU time of a request with one thread, in nanoseconds: the median of three runs.
fn need_ns(program: &Path) -> f64 {
    let arguments = ["--cpus", "1", "--seconds", "1.5", "--warmup", "0.5"];
    let sweep = run(program, &[&arguments[..], &["--vary", "env:GOMAXPROCS=1"]].concat());
    let cost = |run: &Value| {
        run["cpu_ns"].as_f64().unwrap() / run["requests"]["answered_in_window"].as_f64().unwrap()
    };
    let mut costs: Vec<f64> = sweep["runs"].as_array().unwrap().iter().map(cost).collect();
    costs.sort_by(f64::total_cmp);
    costs[1]
}

/// Lists what differs from the incident; empty = it was reproduced.
fn differences(sweep: &Value) -> Vec<String> {
    let value = |variant: usize, field: &str| {
        sweep["points"][variant][field]["value"].as_f64().unwrap_or(f64::NAN)
    };
    let factor = value(1, "p99_ns") / value(0, "p99_ns");
    let [one, many] = [0, 1].map(|variant| &sweep["knees"][variant]);
    // Without headroom to catch up, the queue may grow throughout the window.
    let bends = many["bad_per_s"] == RATE
        && ["latency", "behind"].map(Value::from).contains(&many["reason"]);
    let said = sweep["verdict"].as_array().unwrap().last().unwrap().as_str().unwrap();
    let told = "at 100/s `GOMAXPROCS=96` against `GOMAXPROCS=1`: p99 x ";
    [
        (factor >= FACTOR, format!("p99 is {factor:.1} times as long")),
        (one["good_per_s"] == RATE && one["bad_per_s"].is_null(), format!("one thread: {one}")),
        (bends, format!("96 threads: {many}")),
        (value(1, "throttled_share") > 0.8, "96 threads are not throttled".into()),
        (value(0, "throttled_share") < 0.3, "one thread is throttled".into()),
        (
            value(1, "cpu_per_request_ns") > value(0, "cpu_per_request_ns"),
            "a request takes no more CPU time".into(),
        ),
        (said.starts_with(told), said.to_owned()),
    ]
    .into_iter()
    .filter_map(|(holds, otherwise)| (!holds).then_some(otherwise))
    .collect()
}

#[test]
fn many_threads_under_a_limit_are_worth_a_factor_of_twenty() {
    // It makes `ATTEMPTS` attempts itself.
    let test = "many_threads_under_a_limit_are_worth_a_factor_of_twenty";
    common::tried_times(1, "kernel", test, try_many_threads);
}

fn try_many_threads() {
    const TEST: &str = "many_threads_under_a_limit_are_worth_a_factor_of_twenty";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    let toolchains = match golang::toolchains() {
        Ok(toolchains) => toolchains,
        Err(reason) => return common::skip("kernel", TEST, &reason),
    };
    let service = toolchains[0].build_file(Path::new(SOURCE));
    let mut seen = Vec::new();
    for _ in 0..ATTEMPTS {
        let cpus = format!("{:.3}", need_ns(&service.file) * RATE * HEADROOM / 1e9);
        let arguments = ["--cpus", &cpus, "--seconds", "3", "--vary", "env:GOMAXPROCS=1,96"];
        let differences = differences(&run(&service.file, &arguments));
        if differences.is_empty() {
            return;
        }
        seen.push(format!("with {cpus} CPUs: {}", differences.join("; ")));
    }
    panic!("{seen:#?}");
}
