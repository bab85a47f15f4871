// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small load sweeps for tests.

use crate::finding::{Host, Tool};
use crate::sweep::{
    Latency, Requests, Run, SCHEMA, Setup, Sweep, Switches, Throttling, Variant, Workload,
};

/// The setup of a sweep of these variants and rates.
#[must_use]
pub fn setup(variants: &[&str], rates_per_s: &[f64]) -> Setup {
    debug_assert!(SCHEMA.ends_with("/1"));
    Setup {
        tool: Tool { version: "0.1.0".into() },
        host: Host { name: "web-17".into(), kernel: "6.1.0".into(), cpus: 2, cgroup: "v1".into() },
        start: "2026-01-02T03:04:05Z".into(),
        command: vec!["./service".into(), "--port".into(), "8080".into()],
        driven: Workload::Http { url: "http://127.0.0.1:8080/work".into() },
        limit_cpus: Some(0.25),
        seconds: 4.0,
        warmup_s: 1.0,
        repetitions: 3,
        rates_per_s: rates_per_s.to_vec(),
        variants: variants.iter().map(|name| variant(name)).collect(),
        accepted_p99_ns: None,
        max_connections: Some(1000),
    }
}

fn variant(name: &str) -> Variant {
    let env = name.split_once('=').map(|(name, value)| (name.into(), Some(value.into())));
    Variant { name: name.into(), env: env.into_iter().collect() }
}

/// A successful run of variant 0 with this 99th percentile of latency, in milliseconds.
#[must_use]
pub fn answer(rate_per_s: f64, p99_ms: f64) -> Run {
    let due = (rate_per_s * 4.0) as u64;
    Run {
        variant: 0,
        rate_per_s: Some(rate_per_s),
        repetition: 0,
        start_s: 1.0,
        window_ns: 4_000_000_000,
        requests: Some(Requests {
            due,
            answered_in_window: due,
            answered: due,
            generator_late_p99_ns: 60_000,
            connections: 8,
            ..Requests::default()
        }),
        latency: Some(Latency {
            mean_ns: p99_ms * 1e6 / 4.0,
            p50_ns: (p99_ms * 1e6 / 5.0) as u64,
            p99_ns: Some((p99_ms * 1e6) as u64),
            max_ns: (p99_ms * 2e6) as u64,
            at_least: false,
        }),
        cpu_ns: due * 300_000,
        memory_bytes: Some(12 << 20),
        threads: Some(5),
        throttling: Some(Throttling { periods: 40, throttled: 1, throttled_ns: 5_000_000 }),
        switches: Some(Switches { voluntary: due * 3, involuntary: 80 }),
    }
}

/// A sweep with three interleaved repetitions of every combination of rate and variant.
#[must_use]
pub fn sweep(
    variants: &[&str],
    rates_per_s: &[f64],
    mut run: impl FnMut(usize, f64, u32) -> Run,
) -> Sweep {
    let mut runs = Vec::new();
    for repetition in 0..3 {
        for &rate in rates_per_s {
            for variant in 0..variants.len() {
                runs.push(Run { variant, repetition, ..run(variant, rate, repetition) });
            }
        }
    }
    Sweep::new(setup(variants, rates_per_s), runs, false)
}
