// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A victim whose memory grows piece by piece, as the heap of a runtime or a cache does. It measures how long each takes.

use super::scenario::check_period_us;
use super::stage::Stage;
use super::victim::{Summary, Window, now_ns, sleep_until};
use super::victims::{Running, Victim, VictimSpec, WhichRun};
use anyhow::{Context as _, Result};
use deburr_sys::heap::{Heap, PIECE};
use rustix::thread::ClockId;
use serde::Deserialize;
use std::io::BufRead as _;
use std::sync::atomic::{AtomicBool, Ordering};

/// Pieces for which there are addresses.
const PIECES: usize = 2048;

/// As scenario files write it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeapSpec {
    /// Time from one piece to the next, in microseconds.
    period_us: u64,
    /// Whether each is to be a large page.
    large: bool,
}

impl Victim for HeapSpec {
    fn validate(&self, _cgroup: &str) -> Result<()> {
        check_period_us("victim.heap.period_us", self.period_us)
    }

    fn describe(&self) -> Vec<String> {
        vec![format!(
            "1 thread that uses {} MiB more memory every {} ms, in {}",
            PIECE >> 20,
            self.period_us as f64 / 1000.0,
            if self.large { "a large page" } else { "small pages" }
        )]
    }

    fn threads(&self, _with_faults: bool) -> u32 {
        1
    }

    fn start(&self, spec: &VictimSpec, stage: &Stage, _run: WhichRun<'_>) -> Result<Running> {
        let mut what = vec!["heap".into(), format!("--period-us={}", self.period_us)];
        what.extend(self.large.then(|| "--large".to_owned()));
        spec.start_worker(stage, &what)
    }
}

/// Arguments of the hidden subcommand.
#[derive(Debug, clap::Args)]
pub(crate) struct HeapArgs {
    #[arg(long)]
    period_us: u64,
    #[arg(long)]
    large: bool,
}

/// Grows from the first line on standard input to the second, which gives a [`Window`]. Prints the [`Summary`] of that
/// window as JSON.
pub(crate) fn grow_until_told(args: &HeapArgs) -> Result<()> {
    let mut stdin = std::io::stdin().lock();
    let mut line = String::new();
    stdin.read_line(&mut line)?;
    line.clear();
    let stop = AtomicBool::new(false);
    let pieces = std::thread::scope(|scope| {
        let grows = scope.spawn(|| grow(args, &stop));
        let told = stdin.read_line(&mut line);
        stop.store(true, Ordering::Relaxed);
        let pieces = grows.join().expect("growing does not panic");
        told?;
        pieces
    })?;
    let window: Window = line.parse()?;
    println!("{}", serde_json::to_string(&Summary::of_answers(&pieces, window))?);
    Ok(())
}

/// Grows until `stop` is set. Returns when each piece was due and when it was there, in nanoseconds.
fn grow(args: &HeapArgs, stop: &AtomicBool) -> Result<Vec<(u64, u64)>> {
    let mut heap = Heap::reserve(PIECES, args.large).context("cannot reserve addresses")?;
    let mut pieces = Vec::new();
    let mut due_ns = now_ns(ClockId::Monotonic);
    while !stop.load(Ordering::Relaxed) {
        sleep_until(due_ns);
        heap.fill(pieces.len());
        let done_ns = now_ns(ClockId::Monotonic);
        pieces.push((due_ns, done_ns));
        due_ns = (due_ns + args.period_us * 1000).max(done_ns);
    }
    Ok(pieces)
}
