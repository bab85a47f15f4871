// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file whose reads take time: the filesystem that serves the lab's disk, without a disk on it. And the process
//! that reads the file.

use super::disk::FILE;
use super::scenario::check_period_us;
use super::stage::{Job, Stage, Worker};
use super::victim::{Summary, Window, now_ns, sleep_until};
use crate::host::guard::SERVERS;
use crate::host::undo::Undo;
use anyhow::{Context as _, Result, bail};
use rustix::thread::ClockId;
use serde::Deserialize;
use std::fs::{self, File};
use std::io::{BufRead as _, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// A file in a mounted FUSE filesystem. The stage's janitor removes it.
#[derive(Debug)]
pub(crate) struct SlowFile {
    server: Worker,
    file: PathBuf,
}

impl SlowFile {
    /// Creates the file, as fast as memory.
    pub(crate) fn make(stage: &mut Stage) -> Result<Self> {
        let at = stage.scratch("fuse");
        fs::create_dir(&at).with_context(|| format!("cannot make `{}`", at.display()))?;
        stage.will_undo(&Undo::Mount { at: at.clone() })?;
        let what = [
            "disk".into(),
            format!("--at={}", at.display()),
            "--size-mib=1".into(),
            "--bytes-per-us=10000".into(),
        ];
        let job = Job {
            comm: "lab-file",
            cgroup: SERVERS,
            cpus: None,
            nice: None,
            realtime: false,
            what: &what,
        };
        let server = stage.start_one(&job)?;
        Ok(Self { server, file: at.join(FILE) })
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.file
    }

    /// Sets the time of each read, in microseconds.
    pub(crate) fn set_us(&mut self, stage: &Stage, read_us: u64) -> Result<()> {
        self.server.tell(&format!("base_us {read_us}"))?;
        match stage.answer(&mut self.server)?.as_str() {
            "ok\n" => Ok(()),
            _ => bail!("the lab's slow file has ended early"),
        }
    }

    /// Makes it as fast as memory, for good.
    pub(crate) fn close(&mut self) {
        self.server.close();
    }
}

/// A victim that reads the start of the run's file again and again.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReaderSpec {
    /// Time from one read to the next, in microseconds.
    pub(crate) period_us: u64,
}

impl ReaderSpec {
    /// Refuses parameters that cannot work.
    pub(crate) fn validate(&self) -> Result<()> {
        check_period_us("victim.reader.period_us", self.period_us)
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

impl ReadArgs {
    /// The arguments of a worker that does this.
    pub(crate) fn words(file: &Path, spec: &ReaderSpec) -> Vec<String> {
        vec![
            "reader".into(),
            format!("--file={}", file.display()),
            format!("--period-us={}", spec.period_us),
        ]
    }
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
