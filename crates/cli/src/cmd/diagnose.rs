// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr diagnose`, the default: observes, then reports.

use super::{record, show};
use crate::args::{ObserveArgs, ShowArgs};
use crate::failure::Exit;
use crate::session;
use crate::signals::Signals;
use crate::sinks::Sinks;
use deburr_core::rules;
use deburr_core::view::Fold;
use std::path::PathBuf;

/// Arguments of `deburr diagnose`.
#[derive(Debug, clap::Args)]
pub(crate) struct Diagnose {
    #[command(flatten)]
    pub(crate) observe: ObserveArgs,
    /// Also keep what was seen in this file, for `deburr report`
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

pub(crate) fn run(args: &Diagnose) -> anyhow::Result<Exit> {
    let mut plan = record::plan(&args.observe, args.show.messages.quiet)?;
    plan.stdout_is_taken = args.show.json;
    let claim = record::claim(args.output.as_deref(), args.observe.force)?;
    let signals = Signals::install()?;
    let mut sinks = Sinks::new(Some(Fold::default()), claim);
    session::run(&plan, &mut sinks, &signals)?;
    let stored = sinks.close();
    let fold = sinks.fold.take().unwrap_or_default();
    let report = rules::report(fold.view(), env!("CARGO_PKG_VERSION"), true);
    let exit = show::report(&report, &args.show)?;
    Ok(if stored { exit } else { Exit::Output })
}
