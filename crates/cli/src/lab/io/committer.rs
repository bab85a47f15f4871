// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process that causes many journal writes: it creates many small files, syncs the last of them, and removes them
//! all.

use super::{IoArgs, Pace};
use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write as _;
use std::path::Path;

/// Parameters of a committer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommitterSpec {
    /// Files in a batch, each in a directory of its own.
    pub(crate) files: u64,
    /// Time from one batch to the next, in milliseconds.
    pub(crate) period_ms: u64,
}

impl CommitterSpec {
    /// Refuses parameters that cannot work.
    pub(crate) fn validate(&self) -> Result<()> {
        ensure!((1..=2000).contains(&self.files), "`fault.commit.files` must be 1 to 2000");
        ensure!(self.period_ms > 0, "`fault.commit.period_ms` must be positive");
        Ok(())
    }

    /// A description in words.
    pub(crate) fn describe(&self) -> String {
        format!("makes, syncs and removes {} files every {} ms", self.files, self.period_ms)
    }
}

/// Prints `ready`, then creates and removes batches for ever.
pub(crate) fn commit(args: &IoArgs) -> Result<()> {
    let spec: CommitterSpec = args.spec()?;
    fs::create_dir_all(&args.dir)
        .with_context(|| format!("cannot make `{}`", args.dir.display()))?;
    println!("ready");
    let mut pace = Pace::new(spec.period_ms * 1_000_000);
    loop {
        pace.wait();
        batch(&args.dir, spec.files).context("in a batch of small files")?;
    }
}

fn batch(dir: &Path, files: u64) -> std::io::Result<()> {
    let dirs = || (0..files).map(|number| dir.join(format!("batch-{number}")));
    let mut last = None;
    for dir in dirs() {
        fs::create_dir(&dir)?;
        let mut file = fs::File::create_new(dir.join("item"))?;
        file.write_all(b"item")?;
        last = Some(file);
    }
    if let Some(last) = last {
        last.sync_all()?;
    }
    for dir in dirs() {
        fs::remove_dir_all(dir)?;
    }
    Ok(())
}
