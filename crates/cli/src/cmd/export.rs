// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr export`: a recording in formats that other programs read.

use super::report::told_of_its_end;
use crate::claim::{self, Claim, Folder, Temporary};
use crate::deadline;
use crate::export::{Broken, Csv, Jsonl, Rows, Sink};
use crate::failure::{Exit, Failure};
use crate::output;
use crate::signals::Signals;
use crate::store::Reader;
use deburr_core::recording::Record;
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Arguments of `deburr export`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// The recording
    file: PathBuf,
    #[command(flatten)]
    to: Formats,
    /// Replace an output file that exists; directories must be new or empty
    #[arg(long)]
    force: bool,
    /// Print no summary
    #[arg(short, long)]
    quiet: bool,
}

/// One or several formats.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
struct Formats {
    /// Write all rows as JSON, one object per line; `-` is standard output
    #[arg(long, value_name = "FILE")]
    jsonl: Option<PathBuf>,
    /// Write a CSV file for each table into this directory, which must be new or empty
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,
}

/// An output that is claimed.
#[derive(Debug)]
enum Output {
    Stdout,
    File(claim::Destination, Temporary),
    Folder(Folder),
}

/// Makes what writes a format. It is made where it writes.
type MakeSink = Box<dyn FnOnce() -> io::Result<Box<dyn Sink>> + Send>;

/// What was exported.
struct Exported {
    counts: Vec<u64>,
    end: End,
}

/// How it ended.
enum End {
    Whole,
    /// The reader of standard output has closed its end.
    NobodyReads,
    Interrupted(&'static str),
    NotWritten(usize, io::Error),
}

pub(crate) fn run(args: &ExportArgs) -> anyhow::Result<Exit> {
    let signals = Signals::install()?;
    let (outputs, makes): (Vec<_>, Vec<_>) = claimed(args)?.into_iter().unzip();
    let (file, path) = (&args.file, args.file.clone());
    let shown = format!("`{}`", file.display());
    let exported =
        deadline::within(deadline::of_file(file), &shown, move || export(&path, makes, &signals))??;
    match exported.end {
        End::Whole => {}
        End::NobodyReads => return Ok(Exit::Done),
        End::Interrupted(signal) => {
            return Err(Failure::error(Exit::Output, format!("{signal}: nothing was exported")));
        }
        End::NotWritten(at, error) => {
            return Err(match &outputs[at] {
                Output::Stdout => Failure::error(
                    Exit::Output,
                    format!("cannot write to standard output: {error}"),
                ),
                Output::File(destination, _) => destination.not_written(&error),
                Output::Folder(folder) => folder.not_written(&error),
            });
        }
    }
    for output in outputs {
        match output {
            Output::Stdout => {}
            Output::File(destination, temporary) => drop(destination.put(temporary)?),
            Output::Folder(folder) => folder.put()?,
        }
    }
    if !args.quiet {
        let rows: u64 = exported.counts.iter().sum();
        let tables = exported.counts.iter().filter(|count| **count > 0).count();
        output::say(format!("{shown}: {rows} rows of {tables} tables"));
    }
    Ok(Exit::Done)
}

/// Claims all outputs, before anything is read.
fn claimed(args: &ExportArgs) -> anyhow::Result<Vec<(Output, MakeSink)>> {
    let mut claimed: Vec<(Output, MakeSink)> = Vec::new();
    if let Some(path) = &args.to.jsonl {
        refuse_itself(&args.file, path)?;
        claimed.push(match Claim::new(path, args.force)? {
            Claim::Stdout => {
                (Output::Stdout, Box::new(|| Ok(Box::new(Jsonl::new(io::stdout())?) as _)))
            }
            Claim::File(destination) => {
                let temporary = destination.temporary()?;
                let file = temporary.handle().map_err(|error| destination.not_written(&error))?;
                let output = Output::File(destination, temporary);
                (output, Box::new(|| Ok(Box::new(Jsonl::new(file)?) as _)))
            }
        });
    }
    if let Some(path) = &args.to.csv {
        let folder = Folder::new(path)?;
        let inside = folder.temporary();
        let make = move || {
            let make = |name: &str| claim::create(&inside.join(name));
            Ok(Box::new(Csv::new(&make)?) as _)
        };
        claimed.push((Output::Folder(folder), Box::new(make)));
    }
    Ok(claimed)
}

/// Refuses to replace a recording by its export.
fn refuse_itself(recording: &Path, output: &Path) -> anyhow::Result<()> {
    let resolved = |path: &Path| path.canonicalize().ok();
    if resolved(recording).is_some() && resolved(recording) == resolved(output) {
        let shown = output.display();
        return Err(Failure::bad_input(format!(
            "`{shown}` is the recording itself; name another file"
        )));
    }
    Ok(())
}

/// Reads the recording once, and writes all formats meanwhile.
fn export(file: &Path, makes: Vec<MakeSink>, signals: &Signals) -> anyhow::Result<Exported> {
    let reader = Reader::open(file).map_err(Failure::bad_input)?;
    let mut sinks = Vec::new();
    for (at, make) in makes.into_iter().enumerate() {
        match make() {
            Ok(sink) => sinks.push(sink),
            Err(error) => {
                return Ok(Exported { counts: vec![], end: end_of(Broken::Output(at, error))? });
            }
        }
    }
    let mut rows = Rows::new(sinks);
    let (mut begun, mut ended, mut end) = (false, false, None);
    reader
        .for_each_row(|row, record| {
            begun |= matches!(record, Record::Meta(_));
            ended |= matches!(record, Record::End { .. });
            end = match signals.pending() {
                Some(signal) => Some(Ok(End::Interrupted(signal))),
                None => rows.take(row, record).err().map(end_of),
            };
            if end.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .map_err(Failure::bad_input)?;
    let end = match end {
        Some(end) => {
            end.map_err(|error| error.context(format!("`{}` is damaged", file.display())))?
        }
        None => {
            told_of_its_end(file, begun, ended)?;
            rows.finish().err().map_or(Ok(End::Whole), end_of)?
        }
    };
    Ok(Exported { counts: rows.counts, end })
}

fn end_of(broken: Broken) -> anyhow::Result<End> {
    match broken {
        Broken::Damaged(what) => Err(Failure::bad_input(what)),
        Broken::Output(_, error) if error.kind() == ErrorKind::BrokenPipe => Ok(End::NobodyReads),
        Broken::Output(at, error) => Ok(End::NotWritten(at, error)),
    }
}
