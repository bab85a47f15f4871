// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lab's processes that read and write files, and what they share.

mod broker;
mod committer;
mod syncs;
mod writer;

pub(crate) use broker::{BrokerSpec, GROUPS, serve as serve_broker};
pub(crate) use committer::{CommitterSpec, commit};
pub(crate) use syncs::{SyncsArgs, sync_for_ever};
pub(crate) use writer::{WriterSpec, write};

use super::victim::{now_ns, sleep_until};
use anyhow::{Context as _, Result};
use rustix::thread::ClockId;
use serde::de::DeserializeOwned;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Arguments of the hidden subcommands.
#[derive(Debug, clap::Args)]
pub(crate) struct IoArgs {
    /// Directory to work in
    #[arg(long)]
    dir: PathBuf,
    /// What to do there, as JSON
    #[arg(long)]
    spec: String,
}

impl IoArgs {
    /// The arguments of a worker that runs the hidden subcommand `name`.
    pub(crate) fn to_arguments(
        name: &str,
        dir: &Path,
        spec: &impl serde::Serialize,
    ) -> Result<Vec<String>> {
        let spec = serde_json::to_string(spec)?;
        Ok(vec![name.into(), format!("--dir={}", dir.display()), format!("--spec={spec}")])
    }

    fn spec<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(&self.spec).context("in `--spec`")
    }
}

/// Creates a file of `bytes` bytes that are all `mark`, and the directories above it.
fn filled_file(path: &Path, mark: u8, bytes: u64) -> Result<File> {
    let make = || -> std::io::Result<File> {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        let mut file = File::options().read(true).write(true).create_new(true).open(path)?;
        let chunk = vec![mark; bytes.min(1 << 20) as usize];
        let mut left = bytes;
        while left > 0 {
            let length = left.min(chunk.len() as u64);
            file.write_all(&chunk[..length as usize])?;
            left -= length;
        }
        Ok(file)
    };
    make().with_context(|| format!("cannot write `{}`", path.display()))
}

/// Writes all data and metadata of a filesystem to its disk.
fn flush_filesystem(dir: &Path) -> Result<()> {
    let handle = File::open(dir).with_context(|| format!("cannot open `{}`", dir.display()))?;
    rustix::fs::syncfs(handle).context("cannot write the filesystem's data out")
}

/// Paces an operation that is repeated at a fixed rate. A late operation does not shorten the intervals after it.
#[derive(Debug)]
pub(super) struct Pace {
    period_ns: u64,
    next_ns: u64,
}

impl Pace {
    pub(super) fn new(period_ns: u64) -> Self {
        Self { period_ns, next_ns: now_ns(ClockId::Monotonic) + period_ns }
    }

    /// Waits until the next operation is due. Returns when it is due, or now if it is late, in nanoseconds.
    pub(super) fn wait(&mut self) -> u64 {
        let now_ns = now_ns(ClockId::Monotonic);
        let due_ns = self.next_ns.max(now_ns);
        if now_ns < due_ns {
            sleep_until(due_ns);
        }
        self.next_ns = due_ns + self.period_ns;
        due_ns
    }
}

/// Pseudo-random numbers, the same in each run (xorshift).
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end.max(1)
    }
}
