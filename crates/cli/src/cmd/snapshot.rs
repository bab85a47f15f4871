// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr snapshot`: what this host is and how it is set up.
//!
//! The reading is done by a process of its own. A read that hangs inside of the kernel cannot be ended, and neither can
//! its process; so the one that the user waits for must not be it.

use super::show;
use crate::cli::{Color, Level, Messages};
use crate::document::Place;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::snapshot::{self, Limits, Tree};
use anyhow::Context as _;
use deburr_core::render::TextStyle;
use deburr_core::snapshot::Snapshot;
use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Time that a process needs to end after its last word, with plenty to spare.
const ENDS_WITHIN_MS: u32 = 200;

/// When reading a file is given up.
const FILE_TIMEOUT_MS: u64 = 1000;

/// Arguments of `deburr snapshot`.
#[derive(Debug, clap::Args)]
pub(crate) struct SnapshotArgs {
    /// Where to [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the output file if it exists
    #[arg(long, requires = "output")]
    force: bool,
    #[command(flatten)]
    reading: Reading,
    /// Be the process that reads
    #[arg(long, hide = true)]
    reader: bool,
    /// Compare with this snapshot of a good host, and print what differs instead; see `deburr diff`
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Exit with status 1 if there is a difference or a finding of this level or worse
    #[arg(long, value_name = "LEVEL", requires = "baseline")]
    fail_on: Option<Level>,
    #[command(flatten)]
    messages: Messages,
}

/// What is read, and how.
#[derive(Debug, clap::Args)]
struct Reading {
    /// Leave the host's name out
    #[arg(long)]
    redact: bool,
    /// Read a captured tree instead of this host: a directory with proc, sys, etc in it
    #[arg(long, value_name = "DIR", default_value = "/", hide_default_value = true)]
    root: PathBuf,
    /// Give a file up after so many milliseconds
    #[arg(long, value_name = "MS", hide = true, default_value_t = FILE_TIMEOUT_MS, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    file_timeout_ms: u64,
}

/// Runs it.
pub(crate) fn run(args: &SnapshotArgs) -> anyhow::Result<Exit> {
    if args.reader {
        return read(args);
    }
    // Before anything is read.
    open(args)?;
    let place = args.output.as_ref().map(|path| Place::new(path, args.force)).transpose()?;
    let document = have_it_read(&args.reading)?;
    let taken = parsed(&document)?;
    match (place, &args.baseline) {
        (Some(place), _) => place.keep(document.as_bytes())?,
        (None, Some(_)) => {}
        (None, None) => output::print(document.as_bytes())?,
    }
    if !args.messages.quiet {
        for remark in snapshot::remarks(&taken) {
            output::say(remark);
        }
        if let Some(path) = &args.output {
            let (facts, files, ms) =
                (taken.facts.len(), taken.reading.files, taken.reading.took_ns / 1_000_000);
            output::say(format!("{facts} facts of {files} files in {ms} ms: {}", path.display()));
        }
    }
    let Some(baseline) = &args.baseline else { return Ok(Exit::Done) };
    let style = TextStyle { verbosity: u8::from(!args.messages.quiet), ..show::page(Color::Auto) };
    super::diff::against(baseline, taken, args.fail_on, style)
}

/// This host, as it is now.
pub(super) fn live() -> anyhow::Result<Snapshot> {
    let reading =
        Reading { redact: false, root: PathBuf::from("/"), file_timeout_ms: FILE_TIMEOUT_MS };
    parsed(&have_it_read(&reading)?)
}

fn parsed(document: &str) -> anyhow::Result<Snapshot> {
    Snapshot::parse(document.as_bytes())
        .map_err(|error| Failure::error(Exit::Output, format!("what was read {error}")))
}

fn open(args: &SnapshotArgs) -> anyhow::Result<Tree> {
    Tree::open(&args.reading.root).map_err(|error| {
        let error = std::io::Error::from(error);
        Failure::bad_input(format!(
            "cannot read the tree at `{}`: {error}",
            args.reading.root.display()
        ))
    })
}

/// The process that reads: puts the document on stdout and lets go of it, whether its threads can end or not.
fn read(args: &SnapshotArgs) -> anyhow::Result<Exit> {
    let limits =
        Limits { file: Duration::from_millis(args.reading.file_timeout_ms), ..Limits::default() };
    let document = snapshot::take(open(args)?, limits, args.reading.redact).document()?;
    output::print(document.as_bytes())?;
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(Exit::Done)
}

/// Starts it, and takes what it says.
fn have_it_read(reading: &Reading) -> anyhow::Result<String> {
    // The file that this runs, also where its name leads elsewhere by now.
    let program = "/proc/self/exe";
    let mut command = Command::new(program);
    command
        .arg0("deburr")
        .args(["snapshot", "--reader", "--file-timeout-ms"])
        .arg(reading.file_timeout_ms.to_string());
    command.arg("--root").arg(&reading.root);
    if reading.redact {
        command.arg("--redact");
    }
    let mut reader = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the process that reads")?;
    let mut document = String::new();
    if let Some(mut stdout) = reader.stdout.take() {
        stdout.read_to_string(&mut document).context("cannot read what was read")?;
    }
    if document.is_empty() {
        // It said why.
        let status = reader.wait().context("the process that reads is gone")?;
        let exit = if status.code() == Some(2) { Exit::BadInput } else { Exit::Output };
        return Err(Failure::error(exit, format!("nothing was read: {status}")));
    }
    // It ends by itself, unless a read hangs inside of the kernel; then it is left to that.
    for _ in 0..ENDS_WITHIN_MS {
        if !matches!(reader.try_wait(), Ok(None)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(document)
}
