// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr cpu-check`: does the same work take the same time on all CPUs of this machine?

use super::page::Page;
use super::{record, show};
use crate::args::{PageArgs, ShowArgs};
use crate::cpu_check;
use crate::failure::Exit;
use crate::signals::Signals;
use crate::sinks::Sinks;
use deburr_core::cpu_check::{Document, judge, schedule};
use deburr_core::render;
use deburr_core::rules;
use deburr_core::view::Fold;
use std::path::PathBuf;

/// Arguments of `deburr cpu-check`.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("files").args(["output", "html"]).multiple(true))]
pub(crate) struct CpuCheckArgs {
    /// Take 15 s, 30 where others take the CPUs [default: one to two minutes, at half of the CPUs' time]
    #[arg(long)]
    pub(crate) quick: bool,
    /// Also keep what was measured in this file, for `deburr report`
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

pub(crate) fn run(args: &CpuCheckArgs) -> anyhow::Result<Exit> {
    let budget = if args.quick { schedule::QUICK } else { schedule::FULL };
    let page =
        Page::claim(&args.page, args.force, args.output.as_deref().as_slice(), args.show.json)?;
    let claim = record::claim(args.output.as_deref(), args.force)?;
    let signals = Signals::install()?;
    let mut sinks = Sinks::new(Some(Fold::default()), claim);
    cpu_check::run(budget, args.show.messages.quiet, &mut sinks, &signals)?;
    let stored = sinks.close();
    let fold = sinks.fold.take().unwrap_or_default();
    let report = rules::report(fold.view(), env!("CARGO_PKG_VERSION"), true);
    // There always is a result here: the check records its set-up before it measures.
    if let Some(check) = judge(fold.view()) {
        let document = Document::new(check, &report);
        if !page.is_stdout() {
            show::cpu_check(&document, &args.show)?;
        }
        page.write(|| render::cpu_check_html(&document))?;
    }
    let exit = show::exit(&report, &args.show);
    Ok(if stored { exit } else { Exit::Output })
}
