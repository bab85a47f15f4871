// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Combines the repetitions of each combination of rate and variant.

use super::{Latency, Requests, Run, Setup};
use crate::stats::{Interval, Scatter, interval};
use serde::{Deserialize, Serialize};

/// One combination of rate and variant. Intervals are over the repetitions, with 95 % confidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Index of the variant.
    pub variant: usize,
    /// Requested rate; absent for a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// Number of runs.
    pub repetitions: u64,
    /// Requests answered per second of the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_per_s: Option<Interval>,
    /// Wall time of a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_ns: Option<Interval>,
    /// Mean latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_ns: Option<Interval>,
    /// Median latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<Interval>,
    /// 99th percentile of the latency, if all repetitions have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<Interval>,
    /// Longest latency in any repetition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ns: Option<u64>,
    /// Whether unanswered requests are included in the latencies, so that the real values are higher.
    pub at_least: bool,
    /// CPU time per wall time, in CPUs.
    pub cpus: Interval,
    /// CPU time per answered request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_per_request_ns: Option<Interval>,
    /// Largest sum of the resident set sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<Interval>,
    /// Largest number of threads in any repetition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u64>,
    /// Share of the active periods of the CPU limit that were throttled; absent without a limit or a period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_share: Option<Interval>,
    /// Context switches per second, voluntary and involuntary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switches_per_s: Option<Interval>,
    /// Share of the requests due that were refused, aborted or answered with an error.
    pub failed_share: f64,
    /// Whether the generator did not keep up with this rate in at least half of the repetitions. Then the latency is
    /// partly its own.
    pub generator_late: bool,
}

/// The generator is late if the 99th percentile of its delay is longer than this, ...
const LATE_NS: u64 = 1_000_000;
/// ... and longer than this part of the 99th percentile of latency (of the longest latency if there are too few
/// requests for a percentile, and of the window if nothing was answered).
const LATE_SHARE: f64 = 0.1;
/// The generator is also late if it is busy for more than this part of the window: then requests wait for it while they
/// are in progress, not only at their start.
const BUSY_SHARE: f64 = 0.95;

/// All combinations with at least one run, by rate and variant.
pub(super) fn points(setup: &Setup, runs: &[Run]) -> Vec<Point> {
    let rates: Vec<Option<f64>> = if setup.is_of_command() {
        vec![None]
    } else {
        setup.rates_per_s.iter().copied().map(Some).collect()
    };
    let mut points = Vec::new();
    for rate in rates {
        for variant in 0..setup.variants.len() {
            let of = |run: &&Run| run.variant == variant && run.rate_per_s == rate;
            let together: Vec<&Run> = runs.iter().filter(of).collect();
            points.extend(point(variant, rate, &together));
        }
    }
    points
}

fn point(variant: usize, rate_per_s: Option<f64>, runs: &[&Run]) -> Option<Point> {
    // Needs a value from every repetition: a mean over those that happen to have one would be biased.
    let each = |scatter: Scatter, of: &dyn Fn(&Run) -> Option<f64>| {
        let values: Option<Vec<f64>> = runs.iter().map(|run| of(run)).collect();
        interval(&values?, scatter)
    };
    let latency = |of: &dyn Fn(&Latency) -> Option<f64>| {
        each(Scatter::Factor, &|run| run.latency.as_ref().and_then(of))
    };
    let requests = || runs.iter().filter_map(|run| run.requests.as_ref());
    let late = runs.iter().filter(|run| generator_is_late(run)).count();
    let due: u64 = requests().map(|it| it.due).sum();
    let failed: u64 = requests().map(|it| it.failed).sum();
    Some(Point {
        variant,
        rate_per_s,
        repetitions: runs.len() as u64,
        answered_per_s: each(Scatter::Amount, &|run| {
            let answered = run.requests.as_ref()?.answered_in_window;
            Some(answered as f64 / run.window_s())
        }),
        wall_ns: each(Scatter::Factor, &|run| {
            run.rate_per_s.is_none().then_some(run.window_ns as f64)
        }),
        mean_ns: latency(&|it| Some(it.mean_ns)),
        p50_ns: latency(&|it| Some(it.p50_ns as f64)),
        p99_ns: latency(&|it| it.p99_ns.map(|ns| ns as f64)),
        max_ns: runs.iter().filter_map(|run| run.latency.map(|it| it.max_ns)).max(),
        at_least: runs.iter().any(|run| run.latency.is_some_and(|it| it.at_least)),
        cpus: each(Scatter::Factor, &|run| Some(run.cpu_ns as f64 / run.window_ns.max(1) as f64))?,
        cpu_per_request_ns: each(Scatter::Factor, &cpu_per_request_ns),
        memory_bytes: each(Scatter::Factor, &|run| run.memory_bytes.map(|bytes| bytes as f64)),
        threads: runs.iter().filter_map(|run| run.threads).max(),
        throttled_share: each(Scatter::Amount, &throttled_share)
            .map(|it| Interval { high: it.high.map(|high| high.min(1.0)), ..it }),
        switches_per_s: each(Scatter::Factor, &|run| {
            let switches = run.switches?;
            Some((switches.voluntary + switches.involuntary) as f64 / run.window_s())
        }),
        failed_share: if due > 0 { failed as f64 / due as f64 } else { 0.0 },
        generator_late: late > 0 && late * 2 >= runs.len(),
    })
}

/// CPU time of the window per request that was answered in it.
pub(super) fn cpu_per_request_ns(run: &Run) -> Option<f64> {
    let answered = run.requests.as_ref()?.answered_in_window;
    (answered > 0).then(|| run.cpu_ns as f64 / answered as f64)
}

fn throttled_share(run: &Run) -> Option<f64> {
    let throttling = run.throttling?;
    (throttling.periods > 0).then(|| throttling.throttled as f64 / throttling.periods as f64)
}

fn generator_is_late(run: &Run) -> bool {
    let late = |requests: &Requests| {
        let late_ns = requests.generator_late_p99_ns;
        let latency_ns =
            run.latency.map_or(run.window_ns, |latency| latency.p99_ns.unwrap_or(latency.max_ns));
        let busy_ns = requests.generator_busy_ns.unwrap_or(0);
        late_ns > LATE_NS && late_ns as f64 > latency_ns as f64 * LATE_SHARE
            || busy_ns as f64 > run.window_ns as f64 * BUSY_SHARE
    };
    run.requests.as_ref().is_some_and(late)
}
