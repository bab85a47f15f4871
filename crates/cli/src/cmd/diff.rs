// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr diff`: reports what differs between hosts, and which differences matter.

use super::page::Page;
use super::{report, show};
use crate::args::{Level, PageArgs, ShowArgs};
use crate::deadline;
use crate::document;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::store::Reader;
use deburr_core::finding::Severity;
use deburr_core::host_diff::document::HostDiff;
use deburr_core::host_diff::{self, HostInput, MAX_HOSTS, Measured};
use deburr_core::recording::Record;
use deburr_core::render::{self, TextStyle};
use deburr_core::rules;
use deburr_core::snapshot::{MAX_BYTES, Snapshot, SnapshotError};
use deburr_core::syscalls::Profile;
use deburr_core::view::Fold;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Arguments of `deburr diff`.
#[derive(Debug, clap::Args)]
#[command(
    mut_arg("json", |arg| arg.help("Print one JSON document (schema deburr.diff/1)")),
    mut_arg("verbose", |arg| arg.help("Show every difference, and what was put aside")),
    mut_arg("fail_on", |arg| arg.help("Exit with status 1 if there is a difference or a finding of this level or worse")),
    after_help = "Examples:\n  \
        deburr diff good.json bad.json\n  \
        deburr diff *.json --slow web-17 --slow web-23\n  \
        deburr diff --baseline golden.json --fail-on medium\n  \
        deburr diff good.json bad.json --time A=0.11/0.01/0.10 B=5.87/0.05/5.80\n\n\
        Exit status: 0 done, 1 done and --fail-on was met, 2 usage or bad input, 4 output could not be written."
)]
pub(crate) struct DiffArgs {
    /// Snapshots of the hosts: what `deburr snapshot -o FILE` wrote, or recordings, each of which holds one
    #[arg(value_name = "SNAPSHOT", required_unless_present = "baseline")]
    snapshots: Vec<PathBuf>,
    /// Compare with this snapshot of a good host, kept under version control: SNAPSHOT, or this host as it is now
    #[arg(long, value_name = "FILE", conflicts_with_all = ["slow", "time", "recording", "profile"])]
    baseline: Option<PathBuf>,
    /// A host that is slow: its name, its file or its letter; the others are not
    #[arg(long, value_name = "HOST")]
    slow: Vec<String>,
    /// How long the same command took on a host, in seconds; better with its user and system time:
    /// A=5.87/0.05/5.80. Of several of one host the median counts
    #[arg(long, value_name = "HOST=SECS", num_args = 1..)]
    time: Vec<String>,
    /// What `deburr record` saw on a host while it was slow, or was not: A=FILE
    #[arg(long, value_name = "HOST=FILE", num_args = 1.., conflicts_with = "time")]
    recording: Vec<String>,
    /// What `deburr syscalls -o FILE -- CMD` wrote on a host: A=FILE
    #[arg(long, value_name = "HOST=FILE", num_args = 1.., conflicts_with_all = ["time", "recording"])]
    profile: Vec<String>,
    #[command(flatten)]
    page: PageArgs,
    /// Replace the page if it exists
    #[arg(long, requires = "html")]
    force: bool,
    #[command(flatten)]
    show: ShowArgs,
}

/// Label of the host that this runs on, for a snapshot without its name.
const THIS_HOST: &str = "this host";

/// A snapshot and its label.
struct LabelledSnapshot {
    snapshot: Snapshot,
    label: String,
    /// Whether it is the baseline.
    golden: bool,
}

pub(crate) fn run(args: &DiffArgs) -> anyhow::Result<Exit> {
    let paths = args.baseline.iter().chain(&args.snapshots);
    let inputs: Vec<&Path> = paths.clone().map(PathBuf::as_path).collect();
    let page = Page::claim(&args.page, args.force, &inputs, args.show.json)?;
    let mut hosts: Vec<LabelledSnapshot> =
        paths.map(|path| read(path)).collect::<anyhow::Result<_>>()?;
    if args.baseline.is_some() {
        hosts[0].golden = true;
        match args.snapshots.len() {
            0 => hosts.push(this_host()?),
            1 => {}
            n => {
                return Err(Failure::bad_input(format!(
                    "{n} snapshots: one at a time is compared with a baseline"
                )));
            }
        }
    }
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
    let measured = measured(args, &hosts)?;
    let slow = match args.slow.is_empty() {
        true => host_diff::slow(&measured, hosts.len()),
        false => slow(&args.slow, &hosts)?,
    };
    let diff = compared(hosts, slow, measured)?;
    let text = match args.show.json {
        true => render::json_document(&diff)?,
        false => render::host_diff(&diff, show::style(&args.show)),
    };
    if !page.is_stdout() {
        output::print(text.as_bytes())?;
    }
    page.write(|| render::host_diff_html(&diff))?;
    Ok(exit(&diff, args.show.fail_on))
}

/// Compares a snapshot that was just taken with a baseline, and prints the differences.
pub(super) fn against(
    baseline: &Path,
    taken: Snapshot,
    fail_on: Option<Level>,
    style: TextStyle,
) -> anyhow::Result<Exit> {
    let golden = LabelledSnapshot { golden: true, ..read(baseline)? };
    let hosts =
        [golden, LabelledSnapshot { snapshot: taken, label: THIS_HOST.into(), golden: false }];
    let diff = compared(hosts.into(), vec![None, None], vec![])?;
    output::print(render::host_diff(&diff, style).as_bytes())?;
    Ok(exit(&diff, fail_on))
}

fn this_host() -> anyhow::Result<LabelledSnapshot> {
    Ok(LabelledSnapshot {
        snapshot: super::snapshot::live()?,
        label: THIS_HOST.into(),
        golden: false,
    })
}

fn compared(
    hosts: Vec<LabelledSnapshot>,
    slow: Vec<Option<bool>>,
    measured: Vec<Measured>,
) -> anyhow::Result<HostDiff> {
    deadline::within(deadline::MOST, "what the snapshots hold", move || {
        let given: Vec<HostInput<'_>> = hosts
            .iter()
            .zip(slow)
            .map(|(host, slow)| HostInput {
                snapshot: &host.snapshot,
                label: &host.label,
                slow,
                golden: host.golden,
            })
            .collect();
        rules::diff(&given, &measured, env!("CARGO_PKG_VERSION"))
    })
}

/// Exit status: whether a difference or a finding reaches the level of `--fail-on`.
pub(super) fn exit(diff: &HostDiff, fail_on: Option<Level>) -> Exit {
    let drift = diff.differences.iter().map(|it| it.severity);
    let worst = drift.chain(diff.findings.iter().map(|it| it.severity)).max();
    let limit = fail_on.map(Severity::from);
    if limit.is_some() && worst >= limit { Exit::Found } else { Exit::Done }
}

fn read(path: &Path) -> anyhow::Result<LabelledSnapshot> {
    let shown = path.display();
    let document = document::read(path, MAX_BYTES as u64)?;
    let snapshot = match Snapshot::parse(&document) {
        Err(SnapshotError::Recording) => of_recording(path)?,
        parsed => parsed.map_err(|error| Failure::bad_input(format!("`{shown}` {error}")))?,
    };
    let label = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok(LabelledSnapshot { snapshot, label, golden: false })
}

/// The snapshot that a recording holds.
fn of_recording(path: &Path) -> anyhow::Result<Snapshot> {
    let (shown, file) = (path.display().to_string(), path.to_owned());
    let facts = deadline::within(deadline::of_file(path), format!("`{shown}`"), move || {
        let mut facts = None;
        let reader = Reader::open(&file).map_err(Failure::bad_input)?;
        let keep = |record: &Record| {
            if let Record::HostFacts(of_host) = record {
                facts = Some(of_host.clone());
            }
        };
        reader.for_each(keep).map_err(Failure::bad_input)?;
        anyhow::Ok(facts)
    })??;
    let facts = facts.ok_or_else(|| {
        Failure::bad_input(format!(
            "`{shown}` is a recording without facts about its host: take a snapshot with `deburr snapshot -o FILE`"
        ))
    })?;
    Snapshot::parse(facts.document.as_bytes()).map_err(|error| {
        Failure::bad_input(format!(
            "`{shown}` has facts about its host that cannot be read: the document {error}"
        ))
    })
}

/// The measurements of the hosts. Of several times of one host, the median counts.
fn measured(args: &DiffArgs, hosts: &[LabelledSnapshot]) -> anyhow::Result<Vec<Measured>> {
    let mut times: BTreeMap<usize, Vec<Times>> = BTreeMap::new();
    for word in &args.time {
        let (host, seconds) = of_host("--time", word, hosts)?;
        let times_of = times.entry(host).or_default();
        times_of.push(times_in(seconds).ok_or_else(|| {
            Failure::bad_input(format!(
                "--time {word}: give seconds, as in {0}=5.87, or wall, user and system time, {0}=5.87/0.05/5.80",
                host_diff::id(host)
            ))
        })?);
    }
    let mut measured: Vec<Measured> = Vec::new();
    for (host, mut of) in times {
        of.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (wall, cpu) = of[of.len() / 2];
        measured.push(Measured::time(host, wall, cpu));
    }
    for word in &args.recording {
        let (host, file) = of_host("--recording", word, hosts)?;
        let file = Path::new(file);
        let report = report::judged(file, deadline::of_file(file), Fold::default())?.report;
        measured.push(Measured::recording(host, &report).ok_or_else(|| {
            Failure::bad_input(format!("--recording {word}: in that recording nothing ran"))
        })?);
    }
    for word in &args.profile {
        let (host, file) = of_host("--profile", word, hosts)?;
        let profile: Profile = super::syscalls::kept(Path::new(file))?;
        measured.push(Measured::profile(host, &profile).ok_or_else(|| {
            Failure::bad_input(format!(
                "--profile {word}: no command was started there, so nobody knows how much work was done"
            ))
        })?);
    }
    if let [first, rest @ ..] = &*measured
        && rest.iter().all(|other| other.host() == first.host())
    {
        let id = host_diff::id(first.host());
        return Err(Failure::bad_input(format!(
            "only {id} was measured: give a measurement of another host to compare it with"
        )));
    }
    Ok(measured)
}

/// Wall time, and user and system time if they are given, in seconds.
type Times = (f64, Option<[f64; 2]>);

fn times_in(text: &str) -> Option<Times> {
    let seconds = |word: &str| {
        let plain = word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        word.parse::<f64>().ok().filter(|it| plain && it.is_finite())
    };
    let numbers: Vec<f64> = text.split('/').map(seconds).collect::<Option<_>>()?;
    match numbers.as_slice() {
        [wall] => Some((*wall, None)),
        [wall, user, system] => Some((*wall, Some([*user, *system]))),
        _ => None,
    }
}

/// Splits `HOST=WHAT` into the number of the host and the rest.
fn of_host<'a>(
    option: &str,
    word: &'a str,
    hosts: &[LabelledSnapshot],
) -> anyhow::Result<(usize, &'a str)> {
    let (host, what) = word.split_once('=').ok_or_else(|| {
        Failure::bad_input(format!("{option} {word}: say of which host it is, as in A={word}"))
    })?;
    Ok((named(option, host, hosts)?, what))
}

/// Number of the host with this letter, name or file.
fn named(option: &str, name: &str, hosts: &[LabelledSnapshot]) -> anyhow::Result<usize> {
    let stem = Path::new(name).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let is = |at: usize, host: &LabelledSnapshot| {
        host.snapshot.host.name.as_deref() == Some(name)
            || host_diff::id(at) == name
            || stem.as_ref() == Some(&host.label)
    };
    let found: Vec<usize> =
        hosts.iter().enumerate().filter(|(at, host)| is(*at, host)).map(|(at, _)| at).collect();
    match found.as_slice() {
        [one] => Ok(*one),
        [] => Err(Failure::bad_input(format!(
            "{option} {name}: none of the snapshots is of that host; give its name, its file or its letter (A, B, ...)"
        ))),
        many => Err(Failure::bad_input(format!(
            "{option} {name}: {} of the snapshots are of a host of that name; give the letter (A, B, ...)",
            many.len()
        ))),
    }
}

/// Whether each host is slow, by the names given to `--slow`.
fn slow(names: &[String], hosts: &[LabelledSnapshot]) -> anyhow::Result<Vec<Option<bool>>> {
    let mut slow = vec![Some(false); hosts.len()];
    for name in names {
        slow[named("--slow", name, hosts)?] = Some(true);
    }
    match slow.contains(&Some(false)) {
        true => Ok(slow),
        false => Err(Failure::bad_input(
            "--slow: all of the hosts are slow; one must be fast to compare them with",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::times_in;

    #[test]
    fn times_are_seconds() {
        assert_eq!(times_in("5.87"), Some((5.87, None)));
        assert_eq!(times_in("5.87/0.05/5.8"), Some((5.87, Some([0.05, 5.8]))));
        for text in ["", "5/1", "1/2/3/4", "-1", "inf", "1e3", "5s", "1//2", "٣"] {
            assert_eq!(times_in(text), None, "{text}");
        }
    }
}
