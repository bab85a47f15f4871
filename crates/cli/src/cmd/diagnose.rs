// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr diagnose`, the default: observes, then reports.

use super::page::Page;
use super::record;
use crate::args::{ObserveArgs, PageArgs, ShowArgs};
use crate::failure::Exit;
use crate::session;
use crate::signals::Signals;
use crate::sinks::Sinks;
use deburr_core::rules;
use std::path::PathBuf;

/// Arguments of `deburr diagnose`.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("files").args(["output", "html"]).multiple(true))]
pub(crate) struct Diagnose {
    #[command(flatten)]
    pub(crate) observe: ObserveArgs,
    /// Also keep what was seen in this file, for `deburr report`
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    /// Replace output files that exist
    #[arg(long, requires = "files")]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

pub(crate) fn run(args: &Diagnose) -> anyhow::Result<Exit> {
    let mut plan = record::plan(&args.observe, args.show.messages.quiet)?;
    let page =
        Page::claim(&args.page, args.force, args.output.as_deref().as_slice(), args.show.json)?;
    plan.stdout_is_taken = args.show.json || page.is_stdout();
    let claim = record::claim(args.output.as_deref(), args.force)?;
    let signals = Signals::install()?;
    let mut sinks = Sinks::new(Some(page.fold()), claim);
    session::run(&plan, &mut sinks, &signals)?;
    let stored = sinks.close();
    let fold = sinks.fold.take().unwrap_or_default();
    let report = rules::report(fold.view(), env!("CARGO_PKG_VERSION"), true);
    let exit = page.show_report(&report, fold.plots(&report).as_ref(), None, &args.show)?;
    Ok(if stored { exit } else { Exit::Output })
}
