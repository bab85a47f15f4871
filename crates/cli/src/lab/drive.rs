// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drives a service, and measures its latency from outside, as its users feel it.

use super::service::CONNECTIONS;
use super::victim::{Summary, Window, percentile};
use crate::clock::{SECOND_NS, monotonic_ns};
use crate::sweep::address;
use crate::sweep::load::{self, Load};
use anyhow::{Context as _, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Longer than any scenario.
const FOREVER_NS: u64 = 24 * 3600 * SECOND_NS;

/// Whom to drive.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DriveArgs {
    /// As for `deburr sweep`
    url: String,
    /// Requests per second
    rate_per_s: f64,
}

/// Drives from now until the second line on standard input, which gives a [`Window`]; prints the [`Summary`] of
/// that as JSON.
pub(crate) fn drive(args: &DriveArgs) -> Result<()> {
    let told = Arc::new(AtomicBool::new(false));
    let flag = told.clone();
    let window = thread::spawn(move || {
        let mut lines = std::io::stdin().lines();
        let window = lines.nth(1);
        flag.store(true, Ordering::Relaxed);
        window
    });
    let address = address::parse(&args.url, false).map_err(anyhow::Error::msg)?;
    let start_ns = monotonic_ns();
    let load = Load {
        target: address.target,
        rate_per_s: args.rate_per_s,
        start_ns,
        from_ns: start_ns,
        to_ns: start_ns + FOREVER_NS,
        drain_ns: 0,
        max_connections: CONNECTIONS,
    };
    let outcome = load::drive(&load, &|| told.load(Ordering::Relaxed))?;
    let Ok(window) = window.join() else { anyhow::bail!("standard input cannot be read") };
    let window = window.context("no window is told")??.parse()?;
    println!("{}", serde_json::to_string(&summary(&outcome.answers, window))?);
    Ok(())
}

/// Of answers that came in the window, each as when it was due and when it came.
fn summary(answers: &[(u64, u64)], window: Window) -> Summary {
    let mut latencies: Vec<u64> = answers
        .iter()
        .filter(|(_, done_ns)| (window.from_ns..window.to_ns).contains(done_ns))
        .map(|(due_ns, done_ns)| done_ns - due_ns)
        .collect();
    latencies.sort_unstable();
    Summary {
        wall_ns: window.to_ns.saturating_sub(window.from_ns),
        requests: latencies.len() as u64,
        p50_ns: percentile(&latencies, 50),
        p99_ns: percentile(&latencies, 99),
        max_ns: percentile(&latencies, 100),
        ..Summary::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_count_where_they_come() {
        let answers = [(0, 50), (10, 100), (90, 150), (150, 300)];
        let summary = summary(&answers, Window { from_ns: 100, to_ns: 300 });
        assert_eq!((summary.requests, summary.p50_ns, summary.max_ns), (2, 60, 90));
        assert_eq!(summary.waited_ns_per_s(), None, "it does not see that");
    }
}
