// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process that changes settings and puts them back, again and again: for tests that kill it at any moment.

use super::Changes;
use anyhow::{Context as _, Result};
use deburr_core::prove::knob::Knob;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Arguments of that process.
#[derive(Debug, clap::Args)]
pub(crate) struct ChangesArgs {
    /// How long the host is changed, and then not, in milliseconds
    #[arg(long, default_value_t = 5)]
    hold_ms: u64,
    /// Longest time in which the host may be changed, in milliseconds
    #[arg(long, default_value_t = 60_000)]
    most_ms: u64,
    /// Settings and their values, as for `--set`
    #[arg(required = true)]
    set: Vec<Knob>,
}

/// Prints what each setting is, then `changed` and `restored` in turns, until the end of standard input; then how many
/// entries the journal has, and what was left as it is.
pub(crate) fn change_again_and_again(args: &ChangesArgs) -> Result<()> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut changes = Changes::begin(&program, &args.set)?;
    for knob in &args.set {
        println!("{}: {}", knob.setting(), Changes::present(knob)?);
    }
    let hold = Duration::from_millis(args.hold_ms);
    let mut left = Vec::new();
    let mut over = false;
    while !over {
        changes.apply(&args.set, Duration::from_millis(args.most_ms))?;
        println!("changed");
        over = is_over(hold)?;
        changes.check()?;
        left.extend(changes.restore()?);
        println!("restored");
        over = over || is_over(hold)?;
    }
    println!("{} entries", changes.journal_entries()?);
    left.extend(changes.finish()?);
    left.iter().for_each(|left| println!("left: {left}"));
    Ok(())
}

/// Waits for the end of standard input, but not longer than this.
fn is_over(wait: Duration) -> Result<bool> {
    let end = Instant::now() + wait;
    loop {
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now()))?;
        match poll(&mut [PollFd::new(&std::io::stdin(), PollFlags::IN)], Some(&left)) {
            Ok(0) => return Ok(false),
            Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error).context("cannot wait"),
        }
    }
}
