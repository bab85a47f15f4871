// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr report`: applies the rules to a recording.

use super::show;
use crate::args::ShowArgs;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::store::Reader;
use deburr_core::cpu_check::{Document, judge};
use deburr_core::recording::Record;
use deburr_core::rules;
use deburr_core::view::Fold;
use std::path::{Path, PathBuf};

/// Arguments of `deburr report`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// The recording
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<Exit> {
    let fold = folded(&args.file)?;
    let report = rules::report(fold.view(), env!("CARGO_PKG_VERSION"), false);
    if let (Some(check), false) = (judge(fold.view()), args.show.json) {
        show::cpu_check(&Document::new(check, &report), &args.show)?;
        output::print(b"\n")?;
    }
    show::report(&report, &args.show)
}

/// Reads a recording and folds its records into a view. Prints a message if the recording was cut short.
pub(super) fn folded(file: &Path) -> anyhow::Result<Fold> {
    let reader = Reader::open(file).map_err(Failure::bad_input)?;
    let mut fold = Fold::default();
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
