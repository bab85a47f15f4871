// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr snapshot`: records what this host is and how it is configured.

use super::show;
use crate::args::{Color, Level, Messages};
use crate::claim::Claim;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::reader;
use crate::snapshot::{self, Limits, Tree};
use anyhow::Context as _;
use deburr_core::render::TextStyle;
use deburr_core::snapshot::Snapshot;
use std::fmt::Display;
use std::path::{PathBuf, absolute};
use std::time::Duration;

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

pub(crate) fn run(args: &SnapshotArgs) -> anyhow::Result<Exit> {
    // Reports a bad tree before anything is claimed.
    Tree::open(&args.reading.root)
        .map_err(|error| unreadable(&args.reading, &std::io::Error::from(error)))?;
    let claim = args.output.as_ref().map(|path| Claim::new(path, args.force)).transpose()?;
    let to_stdout = claim.as_ref().is_some_and(Claim::is_stdout);
    if to_stdout && args.baseline.is_some() {
        return Err(Failure::bad_input(
            "with --baseline, standard output gets the comparison; name a file for the snapshot",
        ));
    }
    let taken = take(&args.reading)?;
    let document = taken.document()?;
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
    take(&reading)
}

fn unreadable(reading: &Reading, reason: &dyn Display) -> anyhow::Error {
    let root = reading.root.display();
    Failure::bad_input(format!("cannot read the tree at `{root}`: {reason}"))
}

/// Has another process take the snapshot: a read that hangs inside the kernel cannot be ended, and neither can its
/// process, so it must not be the one that the user waits for.
fn take(reading: &Reading) -> anyhow::Result<Snapshot> {
    let root = absolute(&reading.root).context("the directory that this runs in is gone")?;
    let file = Duration::from_millis(reading.file_timeout_ms);
    let limits = Limits { file, ..Limits::default() };
    let taken = reader::snapshot(root, limits, reading.redact).map_err(|_| {
        Failure::error(Exit::Output, "nothing was read: the process that reads failed")
    })?;
    taken.map_err(|reason| unreadable(reading, &reason))
}
