// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr snapshot`: records what this host is and how it is configured.
//!
//! A separate process, the reader, reads the files. A read that hangs inside the kernel cannot be ended, and neither
//! can its process, so it must not be the one that the user waits for.

use super::show;
use crate::claim::Claim;
use crate::cli::{Color, Level, Messages};
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

/// Time limit for the reader to end after its output; it usually needs far less.
const ENDS_WITHIN_MS: u32 = 200;

/// Time limit for reading one file.
const FILE_TIMEOUT_MS: u64 = 1000;

/// Arguments of `deburr snapshot`.
#[derive(Debug, clap::Args)]
pub(crate) struct SnapshotArgs {
    /// Where to; `-` is standard output [default: -]
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

impl SnapshotArgs {
    /// Whether this is the process that reads for another one.
    pub(crate) fn is_reader(&self) -> bool {
        self.reader
    }
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

pub(crate) fn run(args: &SnapshotArgs) -> anyhow::Result<Exit> {
    if args.reader {
        return read(args);
    }
    // Reports a bad tree before anything is read.
    open(args)?;
    let claim = args.output.as_ref().map(|path| Claim::new(path, args.force)).transpose()?;
    let to_stdout = claim.as_ref().is_some_and(Claim::is_stdout);
    if to_stdout && args.baseline.is_some() {
        return Err(Failure::bad_input(
            "with --baseline, standard output gets the comparison; name a file for the snapshot",
        ));
    }
    let document = have_it_read(&args.reading)?;
    let taken = parsed(&document)?;
    match (claim, &args.baseline) {
        (Some(claim), _) => claim.keep(document.as_bytes())?,
        (None, Some(_)) => {}
        (None, None) => output::print(document.as_bytes())?,
    }
    if !args.messages.quiet {
        for remark in snapshot::remarks(&taken) {
            output::say(remark);
        }
        if let Some(path) = args.output.as_ref().filter(|_| !to_stdout) {
            let (facts, files, ms) =
                (taken.facts.len(), taken.reading.files, taken.reading.took_ns / 1_000_000);
            output::say(format!("{facts} facts of {files} files in {ms} ms: {}", path.display()));
        }
    }
    let Some(baseline) = &args.baseline else { return Ok(Exit::Done) };
    let style = TextStyle { verbosity: u8::from(!args.messages.quiet), ..show::page(Color::Auto) };
    super::diff::against(baseline, taken, args.fail_on, style)
}

/// A snapshot of this host as it is now.
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

/// The reader: prints the document, then gives up stdout and stderr, whether or not its threads can end.
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

/// Starts the reader, and returns the document that it prints.
fn have_it_read(reading: &Reading) -> anyhow::Result<String> {
    // The file that this process runs, even if its path leads to another file by now.
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
        // The reader has reported the reason on stderr.
        let status = reader.wait().context("the process that reads is gone")?;
        let exit = if status.code() == Some(2) { Exit::BadInput } else { Exit::Output };
        return Err(Failure::error(exit, format!("nothing was read: {status}")));
    }
    // The reader ends by itself, unless a read hangs inside the kernel; then it is left behind.
    for _ in 0..ENDS_WITHIN_MS {
        if !matches!(reader.try_wait(), Ok(None)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(document)
}
