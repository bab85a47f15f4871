// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr export`: a recording in formats that other programs read.

use super::report::told_of_its_end;
use crate::claim::{self, Claim, Folder, Temporary};
use crate::document;
use crate::export::{Broken, Csv, Jsonl, Make, Parquet, Perfetto, Rows, Sink};
use crate::failure::{Exit, Failure};
use crate::output;
use crate::signals::Signals;
use crate::store::Reader;
use deburr_core::recording::Record;
use deburr_core::snapshot::{MAX_BYTES, Snapshot};
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Arguments of `deburr export`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// The recording, or a snapshot of a host
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
    /// Write a Parquet file for each table into this directory, which must be new or empty
    #[arg(long, value_name = "DIR")]
    parquet: Option<PathBuf>,
    /// Write a trace for ui.perfetto.dev and its trace processor
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
}

/// An output that is claimed.
#[derive(Debug)]
enum Output {
    Stdout,
    File(claim::Destination, Temporary),
    Folder(Folder),
}

/// Where a format of one file is written to.
type To = Box<dyn io::Write + Send>;

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
    let file = &args.file;
    let shown = format!("`{}`", file.display());
    let exported = export(file, makes, &signals)?;
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
        claimed.push(file(path, args, |to| Ok(Box::new(Jsonl::new(to)?)))?);
    }
    if let Some(path) = &args.to.perfetto {
        if is_document(&args.file) {
            let shown = args.file.display();
            return Err(Failure::bad_input(format!(
                "`{shown}` is no recording: it has nothing for a trace"
            )));
        }
        claimed.push(file(path, args, |to| Ok(Box::new(Perfetto::new(to))))?);
    }
    if let Some(path) = &args.to.csv {
        claimed.push(folder(path, |make| Ok(Box::new(Csv::new(make)?)))?);
    }
    if let Some(path) = &args.to.parquet {
        claimed.push(folder(path, |make| Ok(Box::new(Parquet::new(make)?)))?);
    }
    Ok(claimed)
}

/// Claims a file, or standard output, for a format of one file.
fn file(
    path: &Path,
    args: &ExportArgs,
    sink: fn(To) -> io::Result<Box<dyn Sink>>,
) -> anyhow::Result<(Output, MakeSink)> {
    refuse_itself(&args.file, path)?;
    Ok(match Claim::new(path, args.force)? {
        Claim::Stdout => (Output::Stdout, Box::new(move || sink(Box::new(io::stdout())))),
        Claim::File(destination) => {
            let temporary = destination.temporary()?;
            let to = temporary.handle().map_err(|error| destination.not_written(&error))?;
            (Output::File(destination, temporary), Box::new(move || sink(Box::new(to))))
        }
    })
}

/// Claims a directory for a format of several files.
fn folder(
    path: &Path,
    sink: fn(Make<'_>) -> io::Result<Box<dyn Sink>>,
) -> anyhow::Result<(Output, MakeSink)> {
    let folder = Folder::new(path)?;
    let inside = folder.temporary();
    let make = move || sink(&|name| claim::create(&inside.join(name)));
    Ok((Output::Folder(folder), Box::new(make)))
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

/// What is exported.
enum Input {
    Recording(Reader),
    Snapshot(Box<Snapshot>),
}

impl Input {
    fn open(file: &Path) -> anyhow::Result<Self> {
        if !is_document(file) {
            return Ok(Self::Recording(Reader::open(file).map_err(Failure::bad_input)?));
        }
        let document = document::read(file, MAX_BYTES as u64)?;
        let snapshot = Snapshot::parse(&document)
            .map_err(|error| Failure::bad_input(format!("`{}` {error}", file.display())))?;
        Ok(Self::Snapshot(Box::new(snapshot)))
    }
}

/// Whether a regular file begins like a JSON document.
fn is_document(file: &Path) -> bool {
    let mut byte = [0];
    let is_file = file.metadata().is_ok_and(|meta| meta.is_file());
    is_file
        && File::open(file).and_then(|mut file| file.read_exact(&mut byte)).is_ok()
        && byte == *b"{"
}

/// Reads the recording once, and writes all formats meanwhile.
fn export(file: &Path, makes: Vec<MakeSink>, signals: &Signals) -> anyhow::Result<Exported> {
    let input = Input::open(file)?;
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
    let reader = match input {
        Input::Recording(reader) => reader,
        Input::Snapshot(snapshot) => {
            let end = rows.snapshot(&snapshot).err().map_or(Ok(End::Whole), end_of)?;
            return Ok(Exported { counts: rows.counts, end });
        }
    };
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
            rows.finish(file)?.err().map_or(Ok(End::Whole), end_of)?
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
