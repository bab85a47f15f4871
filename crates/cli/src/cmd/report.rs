// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr report`: applies the rules to a recording.

use super::page::{self, Page};
use super::show;
use crate::args::{PageArgs, ShowArgs};
use crate::deadline;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::store::Reader;
use deburr_core::cpu_check::{CpuCheck, Document, judge};
use deburr_core::finding::Report;
use deburr_core::recording::Record;
use deburr_core::rules;
use deburr_core::view::{Fold, Plots};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Arguments of `deburr report`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// The recording, or a page that --html wrote
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    /// Replace the page if it exists
    #[arg(long, requires = "html")]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<Exit> {
    let page = Page::claim(&args.page, args.force, Some(&args.file), args.show.json)?;
    let Judged { report, check, plots } = match page::report_in(&args.file)? {
        Some(report) => Judged { report, check: None, plots: None },
        None => judged(&args.file, deadline::of_file(&args.file), page.fold())?,
    };
    if let (Some(check), false) = (check, args.show.json || page.is_stdout()) {
        show::cpu_check(&Document::new(check, &report), &args.show)?;
        output::print(b"\n")?;
    }
    page.show_report(&report, plots.as_ref(), &args.show)
}

/// What follows from a recording.
pub(super) struct Judged {
    /// What the rules say.
    pub(super) report: Report,
    /// The check of CPUs, if the recording holds one.
    check: Option<CpuCheck>,
    /// What a page shows, if the fold kept it.
    plots: Option<Plots>,
}

/// Folds a recording, and applies the rules.
pub(super) fn judged(file: &Path, most: Duration, fold: Fold) -> anyhow::Result<Judged> {
    let path = file.to_owned();
    deadline::within(most, format_args!("`{}`", file.display()), move || {
        let fold = folded(&path, fold)?;
        let report = rules::report(fold.view(), env!("CARGO_PKG_VERSION"), false);
        Ok(Judged { check: judge(fold.view()), plots: fold.plots(&report), report })
    })?
}

/// Reads a recording and folds its records into a view. Prints a message if the recording was cut short.
pub(super) fn folded(file: &Path, mut fold: Fold) -> anyhow::Result<Fold> {
    let reader = Reader::open(file).map_err(Failure::bad_input)?;
    let mut begun = false;
    let mut ended = false;
    reader
        .for_each(|record| {
            begun |= matches!(record, Record::Meta(_));
            ended |= matches!(record, Record::End { .. });
            fold.push(record);
        })
        .map_err(Failure::bad_input)?;
    let shown = file.display();
    if !begun {
        return Err(Failure::bad_input(format!(
            "`{shown}` holds nothing: its session was killed in its first second, or its last part, \
             `{shown}-wal`, was not kept with it"
        )));
    }
    if !ended {
        output::say(format!(
            "`{shown}` was cut short: its session was killed, or its disk was full"
        ));
    }
    Ok(fold)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;

    #[test]
    fn a_recording_that_takes_too_long_is_refused_by_name() {
        let fixture =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/lab/writeback/recording.deburr");
        let file = Path::new(fixture);
        assert!(judged(file, deadline::of_file(file), Fold::with_plots()).is_ok());
        // Thousands of rows take longer.
        let error = judged(file, Duration::from_nanos(1), Fold::default()).err().unwrap();
        let text = error.to_string();
        assert!(text.starts_with(&format!("`{fixture}` cannot be analysed within")), "{text}");
        assert_eq!(error.downcast_ref::<Failure>().unwrap().exit, Exit::BadInput);
    }
}
