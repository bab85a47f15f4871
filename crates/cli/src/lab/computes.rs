// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A victim that computes without a pause and notices when it stands still: it looks at the clock again and again. Interrupts
//! are on the account of the thread that they interrupt, so only this clock shows them.

use super::stage::Stage;
use super::victim::{Summary, Window, now_ns};
use super::victims::{Running, Victim, VictimSpec, WhichRun};
use anyhow::{Result, ensure};
use rustix::thread::ClockId;
use serde::Deserialize;
use std::io::BufRead as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// As scenario files write it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ComputesSpec {
    /// Time between two looks at the clock from which it stood still, in nanoseconds.
    gap_ns: u64,
}

/// Arguments of the hidden subcommand.
#[derive(Debug, clap::Args)]
pub(crate) struct ComputesArgs {
    #[arg(long)]
    gap_ns: u64,
}

impl Victim for ComputesSpec {
    fn validate(&self, _cgroup: &str) -> Result<()> {
        ensure!(
            (100..=1_000_000).contains(&self.gap_ns),
            "`victim.computes.gap_ns` must be 100 to 1000000"
        );
        Ok(())
    }

    fn describe(&self) -> Vec<String> {
        vec![format!(
            "1 thread that computes all the time, and stands still where that takes {} ns",
            self.gap_ns
        )]
    }

    fn threads(&self, _with_faults: bool) -> u32 {
        1
    }

    fn start(&self, spec: &VictimSpec, stage: &Stage, _run: WhichRun<'_>) -> Result<Running> {
        spec.start_worker(stage, &["computes".into(), format!("--gap-ns={}", self.gap_ns)])
    }
}

/// Computes from the first line on standard input to the second, a window, and prints the summary of it.
pub(crate) fn compute_until_told(args: &ComputesArgs) -> Result<()> {
    let mut stdin = std::io::stdin().lock();
    let mut line = String::new();
    stdin.read_line(&mut line)?;
    line.clear();
    let stop = AtomicBool::new(false);
    let gaps = thread::scope(|scope| {
        let computes = scope.spawn(|| gaps(args.gap_ns, &stop));
        let told = stdin.read_line(&mut line);
        stop.store(true, Ordering::Relaxed);
        let gaps = computes.join().expect("computing does not panic");
        told.map(|_| gaps)
    })?;
    let window: Window = line.parse()?;
    let stood_still_ns = gaps.iter().map(|&(from, to)| window.overlap_ns(from, to)).sum();
    let summary =
        Summary { stood_still_ns: Some(stood_still_ns), ..Summary::of_answers(&gaps, window) };
    println!("{}", serde_json::to_string(&summary)?);
    Ok(())
}

/// The times between which it stood still.
fn gaps(least_ns: u64, stop: &AtomicBool) -> Vec<(u64, u64)> {
    let mut gaps = Vec::with_capacity(1 << 20);
    let mut before = now_ns(ClockId::Monotonic);
    while !stop.load(Ordering::Relaxed) {
        let now = now_ns(ClockId::Monotonic);
        if now - before >= least_ns {
            gaps.push((before, now));
        }
        before = now;
    }
    gaps
}
