// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr compare`: what differs between two recordings.

use super::page::Page;
use super::{report, show};
use crate::args::{PageArgs, ShowArgs};
use crate::deadline;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::store::Reader;
use deburr_core::compare::document::{Comparison, Outcome};
use deburr_core::compare::{Plan, SeriesFold, Summary, compare};
use deburr_core::render;
use deburr_core::rules;
use deburr_core::view::Fold;
use std::path::{Path, PathBuf};

/// Arguments of `deburr compare`.
#[derive(Debug, clap::Args)]
#[command(
    mut_arg("json", |arg| arg.help("Print one JSON document (schema deburr.compare/1)")),
    mut_arg("verbose", |arg| arg.help("Show every process and every finding")),
    mut_arg("fail_on", |arg| arg.help("Exit with status 1 if B loses what A does not, and has a finding of this level or worse")),
    after_help = "Examples:\n  \
        deburr compare healthy.deburr slow.deburr\n  \
        deburr compare before.deburr after.deburr --json\n\n\
        Exit status: 0 done, 1 done and --fail-on was met, 2 usage or bad input, 4 output could not be written."
)]
pub(crate) struct CompareArgs {
    /// The first recording: of a healthy host, or before a change
    #[arg(value_name = "A")]
    a: PathBuf,
    /// The second recording: of a slow host, or after it
    #[arg(value_name = "B")]
    b: PathBuf,
    #[command(flatten)]
    page: PageArgs,
    /// Replace the page if it exists
    #[arg(long, requires = "html")]
    force: bool,
    #[command(flatten)]
    show: ShowArgs,
}

pub(crate) fn run(args: &CompareArgs) -> anyhow::Result<Exit> {
    let page = Page::claim(&args.page, args.force, &[&args.a, &args.b], args.show.json)?;
    let files = [args.a.clone(), args.b.clone()];
    // Each file is read twice.
    let most = files.each_ref().map(|file| deadline::of_file(file));
    let what = format!("`{}` and `{}`", args.a.display(), args.b.display());
    let comparison = deadline::within(most[0] + most[1], what, move || compared(&files))??;
    let text = match args.show.json {
        true => render::json_document(&comparison)?,
        false => render::comparison(&comparison, show::style(&args.show)),
    };
    if !page.is_stdout() {
        output::print(text.as_bytes())?;
    }
    page.write(|| render::comparison_html(&comparison))?;
    Ok(exit(&comparison, &args.show))
}

/// Exit status: whether B loses what A does not, and a finding of B reaches the level of `--fail-on`.
pub(super) fn exit(comparison: &Comparison, show: &ShowArgs) -> Exit {
    let worse = matches!(comparison.verdict.outcome, Outcome::Worse | Outcome::Mixed);
    let worst =
        comparison.findings.iter().filter_map(|it| it.b.as_ref()).map(|it| it.severity).max();
    let limit = show.fail_on.map(deburr_core::finding::Severity::from);
    if worse && limit.is_some() && worst >= limit { Exit::Found } else { Exit::Done }
}

fn compared(files: &[PathBuf; 2]) -> anyhow::Result<Comparison> {
    let plan = Plan::new(summary(&files[0])?, summary(&files[1])?);
    let [a, b] = [seconds(&plan, 0, &files[0])?, seconds(&plan, 1, &files[1])?];
    let names = files.each_ref().map(|file| file.display().to_string());
    Ok(compare(&plan, [&a, &b], [&names[0], &names[1]], env!("CARGO_PKG_VERSION")))
}

/// What is kept of a recording. Its view does not outlive this.
fn summary(file: &Path) -> anyhow::Result<Summary> {
    let fold = report::folded(file, Fold::default())?;
    let report = rules::report(fold.view(), env!("CARGO_PKG_VERSION"), false);
    Ok(Summary::of(fold.view(), report))
}

/// The seconds of the processes that are compared.
fn seconds(plan: &Plan, side: usize, file: &Path) -> anyhow::Result<SeriesFold> {
    let mut series = plan.series(side);
    let reader = Reader::open(file).map_err(Failure::bad_input)?;
    reader.for_each(|record| series.push(record)).map_err(Failure::bad_input)?;
    Ok(series)
}
