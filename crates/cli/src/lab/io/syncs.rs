// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process that calls sync(2) at intervals.

use super::Pace;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SyncsArgs {
    #[arg(long)]
    every_ms: u64,
}

impl SyncsArgs {
    /// The arguments of a worker that does this.
    pub(crate) fn words(every_ms: u64) -> Vec<String> {
        vec!["syncs".into(), format!("--every-ms={every_ms}")]
    }
}

/// Calls `sync(2)` at this interval, for ever.
pub(crate) fn sync_for_ever(args: &SyncsArgs) -> ! {
    let mut pace = Pace::new(args.every_ms * 1_000_000);
    loop {
        pace.wait();
        rustix::fs::sync();
    }
}
