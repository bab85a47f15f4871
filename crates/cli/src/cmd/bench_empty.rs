// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr bench-empty`: attaches BPF programs that do nothing for a while. Their cost is the floor that a benchmark
//! subtracts.

use crate::args::window;
use crate::clock;
use crate::failure::{Exit, Failure};
use crate::signals::Signals;
use deburr_bpf::empty::Empty;
use std::time::Duration;

/// Whose floor is measured.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Baseline {
    /// The scheduler probe's.
    Sched,
    /// That of the probe of block IO.
    Block,
}

/// Arguments of `deburr bench-empty`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchEmptyArgs {
    /// To which hooks
    #[arg(long, default_value = "sched")]
    on: Baseline,
    /// For how long
    #[arg(short, long, value_name = "TIME", value_parser = window, default_value = "10s")]
    duration: Duration,
}

pub(crate) fn run(args: &BenchEmptyArgs) -> anyhow::Result<Exit> {
    deburr_bpf::silence_libbpf();
    let signals = Signals::install()?;
    let attached = match args.on {
        Baseline::Sched => Empty::on_switch(),
        Baseline::Block => Empty::on_block(),
    };
    let _attached = attached.map_err(|error| {
        Failure::error(Exit::Missing, format!("cannot attach an empty BPF program: {error}"))
    })?;
    let length_ns = u64::try_from(args.duration.as_nanos()).unwrap_or(u64::MAX);
    let end_ns = clock::monotonic_ns().saturating_add(length_ns);
    while clock::monotonic_ns() < end_ns && signals.pending().is_none() {
        clock::sleep_until(end_ns);
    }
    Ok(Exit::Done)
}
