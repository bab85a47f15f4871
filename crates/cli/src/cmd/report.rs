// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr report`: applies the rules to a recording.

use super::page::{self, Page};
use super::{compare, diff, read, show};
use crate::args::{PageArgs, ShowArgs};
use crate::deadline;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::store::Reader;
use deburr_core::cpu_check::{Document, judge};
use deburr_core::finding::{Answer, Question, Report};
use deburr_core::recording::Record;
use deburr_core::render::{self, InPage};
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
    let page = Page::claim(&args.page, args.force, &[&args.file], args.show.json)?;
    let (report, check, plots) = match page::in_page(&args.file)? {
        Some(InPage::Report(report, check)) => (*report, check.map(|it| *it), None),
        Some(other) => return of_another_page(&other, &page, &args.show),
        None => {
            let of = judged(&args.file, deadline::of_file(&args.file), page.fold())?;
            (of.report, of.check, of.plots)
        }
    };
    let (check, is_shown) = (check.as_ref(), !page.is_stdout());
    if let Some(check) = check.filter(|_| is_shown && !args.show.json) {
        show::cpu_check(check, &args.show)?;
        output::print(b"\n")?;
        // Then the report would only say the same again.
        if looked_at_cpus_only(&report) && !args.show.verbose {
            output::print(b"nothing but the CPUs was looked at (-v shows the report on that)\n")?;
            page.write(|| render::html(&report, plots.as_ref(), Some(check)))?;
            return Ok(show::exit(&report, &args.show));
        }
    }
    page.show_report(&report, plots.as_ref(), check, &args.show)
}

/// Shows what a page holds that is not of a report, as the command does that made the page.
fn of_another_page(of: &InPage, page: &Page, show: &ShowArgs) -> anyhow::Result<Exit> {
    let style = show::style(show);
    let (text, json, html) = match of {
        InPage::Report(report, check) => {
            return page.show_report(report, None, check.as_deref(), show);
        }
        InPage::Check(it) => {
            (render::cpu_check(it, style), render::json_document(it)?, render::cpu_check_html(it)?)
        }
        InPage::Sweep(it) => {
            (render::sweep_text(it, style), render::json_document(it)?, render::sweep_html(it)?)
        }
        InPage::Comparison(it) => (
            render::comparison(it, style),
            render::json_document(it)?,
            render::comparison_html(it)?,
        ),
        InPage::Read(it) => {
            (render::read_text(it, style), render::json_document(it)?, render::read_html(it)?)
        }
        InPage::HostDiff(it) => {
            (render::host_diff(it, style), render::json_document(it)?, render::host_diff_html(it)?)
        }
        InPage::Experiment(it) => (
            render::experiment(it, style),
            render::json_document(it)?,
            render::experiment_html(it)?,
        ),
    };
    if !page.is_stdout() {
        output::print(if show.json { json.as_bytes() } else { text.as_bytes() })?;
    }
    page.write(|| Ok(html))?;
    Ok(match of {
        InPage::Comparison(it) => compare::exit(it, show),
        InPage::Read(it) => read::exit(it, show),
        InPage::HostDiff(it) => diff::exit(it, show.fail_on),
        _ => Exit::Done,
    })
}

/// What follows from a recording.
pub(super) struct Judged {
    /// What the rules say.
    pub(super) report: Report,
    /// The check of CPUs, if there was one.
    check: Option<Document>,
    /// What a page shows, if the fold kept it.
    plots: Option<Plots>,
}

/// Whether a check of CPUs is all that the recording holds.
fn looked_at_cpus_only(report: &Report) -> bool {
    let of_check = [Question::CpuSpeed, Question::Observer];
    report
        .questions
        .iter()
        .all(|it| of_check.contains(&it.question) || it.answer == Answer::Unknown)
}

/// Folds a recording, and applies the rules.
pub(super) fn judged(file: &Path, most: Duration, fold: Fold) -> anyhow::Result<Judged> {
    let path = file.to_owned();
    deadline::within(most, format_args!("`{}`", file.display()), move || {
        let fold = folded(&path, fold)?;
        let report = rules::report(fold.view(), env!("CARGO_PKG_VERSION"), false);
        let check = judge(fold.view()).map(|check| Document::new(check, &report));
        Ok(Judged { check, plots: fold.plots(&report), report })
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
    told_of_its_end(file, begun, ended)?;
    Ok(fold)
}

/// Refuses a recording without a beginning, and prints a message if it has no end.
pub(super) fn told_of_its_end(file: &Path, begun: bool, ended: bool) -> anyhow::Result<()> {
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
    Ok(())
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
