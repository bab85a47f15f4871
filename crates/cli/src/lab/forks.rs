// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process that starts short-lived programs.

use super::io::Pace;
use anyhow::{Context as _, Result};
use std::process::{Command, Stdio};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ForksArgs {
    #[arg(long)]
    per_s: u64,
}

impl ForksArgs {
    /// The arguments of a worker that does this.
    pub(crate) fn words(per_s: u64) -> Vec<String> {
        vec!["forks".into(), format!("--per-s={per_s}")]
    }
}

/// Starts `true` again and again at this rate, and waits for each to end.
pub(crate) fn fork_for_ever(args: &ForksArgs) -> Result<()> {
    let mut pace = Pace::new(1_000_000_000 / args.per_s.max(1));
    loop {
        pace.wait();
        let mut child =
            Command::new("true").stdin(Stdio::null()).spawn().context("cannot start `true`")?;
        child.wait()?;
    }
}
