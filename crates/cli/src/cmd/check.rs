// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr check`: checks that a recording is consistent.

use crate::deadline;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::store::Reader;
use deburr_core::recording::check::{Checked, Checker};
use deburr_core::render;
use deburr_core::text::units;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Arguments of `deburr check`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// The recording
    file: PathBuf,
}

pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<Exit> {
    let file = &args.file;
    let path = file.clone();
    let checked = deadline::within(
        deadline::of_file(file),
        format_args!("`{}`", file.display()),
        move || -> anyhow::Result<Checked> {
            let reader = Reader::open(&path).map_err(Failure::bad_input)?;
            let mut checker = Checker::default();
            reader.for_each(|record| checker.push(record)).map_err(Failure::bad_input)?;
            Ok(checker.finish())
        },
    )??;
    let shown = render::message(&file.display().to_string());
    let length = checked.window_ns.map_or("cut short".into(), |ns| units::duration(ns as f64));
    let verdict = if checked.violations.is_empty() { "consistent" } else { "not consistent" };
    let mut text = format!("`{shown}`: {} records, {length}: {verdict}\n", checked.records);
    for violation in &checked.violations {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {}", render::message(&violation.to_string()));
    }
    output::print(text.as_bytes())?;
    Ok(if checked.violations.is_empty() { Exit::Done } else { Exit::Found })
}
