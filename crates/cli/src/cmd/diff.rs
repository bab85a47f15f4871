// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr diff`: what differs between hosts, and what of it matters.

use super::show;
use crate::cli::Show;
use crate::failure::{Exit, Failure};
use crate::output;
use deburr_core::finding::Severity;
use deburr_core::host_diff::{self, Given, MAX_HOSTS};
use deburr_core::render;
use deburr_core::snapshot::{MAX_BYTES, Snapshot};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Arguments of `deburr diff`.
#[derive(Debug, clap::Args)]
#[command(
    mut_arg("json", |arg| arg.help("Print one JSON document (schema deburr.diff/1)")),
    mut_arg("verbose", |arg| arg.help("Show every difference, and what was put aside")),
    mut_arg("fail_on", |arg| arg.help("Exit with status 1 if there is a difference of this level or worse")),
    after_help = "Examples:\n  \
        deburr diff good.json bad.json\n  \
        deburr diff *.json --slow web-17 --slow web-23\n\n\
        Exit status: 0 done, 1 done and --fail-on was met, 2 usage or bad input, 4 output could not be written."
)]
pub(crate) struct DiffArgs {
    /// Snapshots of the hosts: what `deburr snapshot -o FILE` wrote
    #[arg(value_name = "SNAPSHOT", required = true)]
    snapshots: Vec<PathBuf>,
    /// A host that is slow: its name, its file or its letter; the others are not
    #[arg(long, value_name = "HOST")]
    slow: Vec<String>,
    #[command(flatten)]
    show: Show,
}

/// A snapshot and where it is from.
struct Read {
    snapshot: Snapshot,
    label: String,
}

/// Runs it.
pub(crate) fn run(args: &DiffArgs) -> anyhow::Result<Exit> {
    let hosts: Vec<Read> =
        args.snapshots.iter().map(|path| read(path)).collect::<anyhow::Result<_>>()?;
    match hosts.len() {
        0 | 1 => {
            return Err(Failure::bad_input(
                "one snapshot cannot be compared: give two or more, `deburr diff GOOD BAD`",
            ));
        }
        n if n > MAX_HOSTS => {
            return Err(Failure::bad_input(format!("{n} snapshots: give {MAX_HOSTS} at most")));
        }
        _ => {}
    }
    let slow = slow(&args.slow, &hosts)?;
    let given: Vec<Given<'_>> = hosts
        .iter()
        .zip(slow)
        .map(|(host, slow)| Given { snapshot: &host.snapshot, label: &host.label, slow })
        .collect();
    let diff = host_diff::diff(&given, env!("CARGO_PKG_VERSION"));
    let text = match args.show.json {
        true => render::json_document(&diff)?,
        false => render::host_diff(&diff, show::style(&args.show)),
    };
    output::print(text.as_bytes())?;
    let worst = diff.differences.iter().map(|it| it.severity).max();
    let limit = args.show.fail_on.map(Severity::from);
    Ok(if limit.is_some() && worst >= limit { Exit::Found } else { Exit::Done })
}

fn read(path: &Path) -> anyhow::Result<Read> {
    let shown = path.display();
    let failed = |error| Failure::bad_input(format!("cannot read `{shown}`: {error}"));
    let mut document = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut document).map_err(failed)?;
    let snapshot = Snapshot::parse(&document)
        .map_err(|error| Failure::bad_input(format!("`{shown}` {error}")))?;
    let label = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok(Read { snapshot, label })
}

/// Whether each host is slow; `None` for all if none is said to be.
fn slow(names: &[String], hosts: &[Read]) -> anyhow::Result<Vec<Option<bool>>> {
    if names.is_empty() {
        return Ok(vec![None; hosts.len()]);
    }
    let mut slow = vec![Some(false); hosts.len()];
    for name in names {
        let stem = Path::new(name).file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let is = |at: usize, host: &Read| {
            host.snapshot.host.name.as_ref() == Some(name)
                || host_diff::id(at) == *name
                || stem.as_ref() == Some(&host.label)
        };
        let found: Vec<usize> =
            hosts.iter().enumerate().filter(|(at, host)| is(*at, host)).map(|(at, _)| at).collect();
        match found.as_slice() {
            [one] => slow[*one] = Some(true),
            [] => {
                return Err(Failure::bad_input(format!(
                    "--slow {name}: none of the snapshots is of that host; give its name, its file or its letter (A, B, ...)"
                )));
            }
            _ => {
                return Err(Failure::bad_input(format!(
                    "--slow {name}: {} of the snapshots are of a host of that name; give the letter (A, B, ...)",
                    found.len()
                )));
            }
        }
    }
    match slow.contains(&Some(false)) {
        true => Ok(slow),
        false => Err(Failure::bad_input(
            "--slow: all of the hosts are slow; one must be fast to compare them with",
        )),
    }
}
