// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr record`: observes only, into a file.

use crate::args::{Messages, ObserveArgs};
use crate::collect::Roots;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::session::{self, Plan};
use crate::signals::Signals;
use crate::sinks::Sinks;
use crate::store::Claim;
use crate::target::{self, entries};
use deburr_core::recording::TargetSpec;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Length of a window if neither a length nor a command is given.
const DEFAULT_WINDOW: Duration = Duration::from_secs(30);

/// Arguments of `deburr record`.
#[derive(Debug, clap::Args)]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    pub(crate) observe: ObserveArgs,
    /// Where to
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Replace the output file if it exists
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) messages: Messages,
}

pub(crate) fn run(args: &RecordArgs) -> anyhow::Result<Exit> {
    let plan = plan(&args.observe, args.messages.quiet)?;
    let claim = Claim::new(&args.output, args.force)?;
    let signals = Signals::install()?;
    let mut sinks = Sinks::new(None, Some(claim));
    session::run(&plan, &mut sinks, &signals)?;
    Ok(if sinks.close() { Exit::Done } else { Exit::Output })
}

/// The plan of the session that the arguments ask for.
pub(super) fn plan(observe: &ObserveArgs, quiet: bool) -> anyhow::Result<Plan> {
    let target = target::resolve(&observe.target, &Roots::default()).map_err(Failure::bad_input)?;
    let command = observe.command.clone();
    let window = match observe.duration {
        None if command.is_empty() => Some(DEFAULT_WINDOW),
        given => given,
    };
    let target = target.or_else(|| command.is_empty().then_some(TargetSpec::Host));
    let found = entries::resolve(&observe.entry, target.as_ref(), &Roots::default())
        .map_err(Failure::bad_input)?;
    if !quiet {
        found.remarks.iter().for_each(output::say);
    }
    let entries = found.entries;
    let asked = observe.asked.clone();
    Ok(Plan { target, entries, window, asked, command, stdout_is_taken: false, quiet })
}

/// Claims the file of a recording, before anything is observed.
pub(super) fn claim(path: Option<&Path>, force: bool) -> anyhow::Result<Option<Claim>> {
    path.map(|path| Claim::new(path, force)).transpose()
}
