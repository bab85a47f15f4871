// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drives a service with requests and measures its latency from outside, as its users see it.

use super::service::CONNECTIONS;
use super::victim::Summary;
use crate::clock::{SECOND_NS, monotonic_ns};
use crate::sweep::address;
use crate::sweep::load::{self, Load};
use anyhow::{Context as _, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Longer than any scenario.
const FOREVER_NS: u64 = 24 * 3600 * SECOND_NS;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DriveArgs {
    /// As for `deburr sweep`
    url: String,
    /// Requests per second
    rate_per_s: f64,
}

/// Sends requests from now until the second line on standard input, which gives a [`Window`]. Prints the [`Summary`]
/// of that window as JSON.
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
    println!("{}", serde_json::to_string(&Summary::of_answers(&outcome.answers, window))?);
    Ok(())
}
