// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A victim that reads a file whose reads take time.

use super::scenario::check_period_us;
use super::stage::Stage;
use super::victim::{Summary, Window, now_ns, sleep_until};
use super::victims::{Running, Victim, VictimSpec, WhichRun};
use anyhow::{Context as _, Result};
use rustix::thread::ClockId;
use serde::Deserialize;
use std::fs::File;
use std::io::{BufRead as _, Read as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// A victim that reads the start of the run's file again and again.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReaderSpec {
    /// Time from one read to the next, in microseconds.
    period_us: u64,
}

impl Victim for ReaderSpec {
    fn validate(&self, _cgroup: &str) -> Result<()> {
        check_period_us("victim.reader.period_us", self.period_us)
    }

    fn describe(&self) -> Vec<String> {
        let period_ms = self.period_us as f64 / 1000.0;
        vec![format!("reads 4 KiB of a file of the lab's every {period_ms} ms")]
    }

    fn prepare(&self, stage: &mut Stage) -> Result<()> {
        stage.make_slow_file()
    }

    fn start(&self, spec: &VictimSpec, stage: &Stage, _run: WhichRun<'_>) -> Result<Running> {
        let file = stage.slow_file()?.path().display();
        let period = format!("--period-us={}", self.period_us);
        spec.start_worker(stage, &["reader".into(), format!("--file={file}"), period])
    }
}

/// Arguments of the hidden subcommand.
#[derive(Debug, clap::Args)]
pub(crate) struct ReadArgs {
    /// The file
    #[arg(long)]
    file: PathBuf,
    #[arg(long)]
    period_us: u64,
}

/// Reads from the first line on standard input to the second, which gives a [`Window`]. Prints the [`Summary`] of
/// that window as JSON.
pub(crate) fn read_until_told(args: &ReadArgs) -> Result<()> {
    let mut stdin = std::io::stdin().lock();
    let mut line = String::new();
    stdin.read_line(&mut line)?;
    line.clear();
    let stop = AtomicBool::new(false);
    let reads = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(args, &stop));
        let told = stdin.read_line(&mut line);
        stop.store(true, Ordering::Relaxed);
        let reads = reader.join().expect("a reader does not panic");
        told?;
        reads
    })?;
    let window: Window = line.parse()?;
    println!("{}", serde_json::to_string(&Summary::of_answers(&reads, window))?);
    Ok(())
}

/// Reads until `stop` is set. Returns when each read was due and when it was done, in nanoseconds.
fn read(args: &ReadArgs, stop: &AtomicBool) -> Result<Vec<(u64, u64)>> {
    let mut reads = Vec::new();
    let mut due_ns = now_ns(ClockId::Monotonic);
    let mut buffer = [0; 4096];
    while !stop.load(Ordering::Relaxed) {
        sleep_until(due_ns);
        let shown = args.file.display();
        let mut file = File::open(&args.file).with_context(|| format!("cannot open `{shown}`"))?;
        file.read_exact(&mut buffer).with_context(|| format!("cannot read `{shown}`"))?;
        reads.push((due_ns, now_ns(ClockId::Monotonic)));
        due_ns += args.period_us * 1000;
    }
    Ok(reads)
}
