// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr syscalls`: measures what the system calls of a command or of processes cost, and compares two such
//! measurements.

use super::show;
use crate::args::{Asked, Color, Messages, Target, window};
use crate::claim::Claim;
use crate::clock::{self, Clocks, monotonic_ns};
use crate::collect::{Cgroups, Context, Roots, cpus_online};
use crate::deadline;
use crate::document;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::syscalls::{FinishedRun, GroupCounts, Meter, RunError, run_command, since};
use crate::{session, target};
use deburr_bpf::syscalls::Reading;
use deburr_core::finding::{Host, Tool};
use deburr_core::recording::{
    Coverage, Record, Source, State, SyscallFile, SyscallRecord, SyscallSpan, SyscallTotal,
    TargetSpec,
};
use deburr_core::render;
use deburr_core::rules;
use deburr_core::syscalls::{Difference, Profile, Run, Setup, Subject, profile};
use deburr_core::text::name;
use deburr_core::text::units;
use deburr_core::view::Fold;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Length of an observation of processes for which no length was given.
const DEFAULT_WINDOW: Duration = Duration::from_secs(10);
/// Interval between two checks whether any observed process is left.
const LOOK_NS: u64 = 100_000_000;
/// Maximum size of a document that is read.
const MAX_DOCUMENT_BYTES: u64 = 64 << 20;
/// Exit statuses of shells for a command that does not exist, or cannot be executed (POSIX, "Exit Status for
/// Commands").
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// Whose system calls are counted: one of `-p`, `--comm`, a command; or two results to compare.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("whose").required(true).args(["pid", "comm", "diff", "command"]))]
pub(crate) struct SyscallsArgs {
    /// Look at this process and all that it starts
    #[arg(short, long, value_name = "PID")]
    pid: Option<u32>,
    /// Look at the processes of this name and all that they start
    #[arg(long, value_name = "NAME")]
    comm: Option<String>,
    /// Compare two results: what is called more often, what takes longer, by the seconds that it explains
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    diff: Vec<PathBuf>,
    /// How long to look at processes: 10, 10s, 5m [default: 10s]
    #[arg(short, long, value_name = "TIME", value_parser = window, conflicts_with_all = ["diff", "command"])]
    duration: Option<Duration>,
    /// Run the command so many times
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000),
          conflicts_with_all = ["diff", "pid", "comm"])]
    runs: u32,
    /// Print one JSON document (schema deburr.syscalls/1 or deburr.syscalls-diff/1)
    #[arg(long)]
    json: bool,
    /// Also keep that document in this file, for --diff; `-` is standard output, as with --json
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the output file if it exists
    #[arg(long, requires = "output")]
    force: bool,
    /// Show more rows
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    /// Use colour [default: auto]
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_default_value = true)]
    color: Color,
    #[command(flatten)]
    show: Messages,
    /// Command to run and count; it has this terminal, runs as the same user, its exit status is passed on, and with
    /// --json its stdout goes to stderr
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// The exit status is that of the command, if there is one.
pub(crate) fn run(args: &SyscallsArgs) -> anyhow::Result<ExitCode> {
    let claim = args.output.as_ref().map(|path| Claim::new(path, args.force)).transpose()?;
    let to = Destinations {
        json: args.json || claim.as_ref().is_some_and(Claim::is_stdout),
        file: claim.filter(|claim| !claim.is_stdout()),
    };
    if let [a, b] = args.diff.as_slice() {
        return difference(a, b, args, &to).map(Into::into);
    }
    if args.command.is_empty() {
        of_processes(args, &to).map(Into::into)
    } else {
        of_command(args, &to)
    }
}

/// Where the document goes.
#[derive(Debug)]
struct Destinations {
    /// Whether standard output gets the document, rather than a text.
    json: bool,
    /// A file that gets it, too.
    file: Option<Claim>,
}

impl Destinations {
    /// Writes a document to its file, and that or its text to standard output.
    fn give<T: serde::Serialize>(
        &self,
        document: &T,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        let json = render::json_document(document)?;
        if let Some(file) = &self.file {
            file.keep(json.as_bytes())?;
        }
        let shown = if self.json { json } else { text() };
        output::print(shown.as_bytes())
    }
}

fn open(groups: u32) -> anyhow::Result<Meter> {
    Meter::open(&Roots::default(), groups).map_err(|reason| {
        Failure::error(Exit::Missing, format!("cannot count system calls: {reason}"))
    })
}

fn read(meter: &Meter) -> anyhow::Result<Reading> {
    meter.read().map_err(|reason| Failure::error(Exit::Missing, reason))
}

// --- a command ---

fn of_command(args: &SyscallsArgs, to: &Destinations) -> anyhow::Result<ExitCode> {
    let mut meter = open(1)?;
    let signals = Signals::install()?;
    let mut setup = setup(Subject::Command {
        command: args.command.iter().map(|word| name::decode(word.as_bytes())).collect(),
    });
    let begun_ns = monotonic_ns();
    let mut before = Reading::default();
    let (mut failed, mut pid) = (None, 0);
    while setup.runs.len() < args.runs as usize {
        let ran = match run_command(&mut meter, &args.command, to.json, &signals) {
            Ok(ran) => ran,
            Err(error) => {
                failed = Some(refused(args, &error));
                setup.interrupted = true;
                break;
            }
        };
        pid = ran.pid;
        let now = read(&meter)?;
        setup.run_calls.push(since(&before, &now));
        setup.runs.push(run_of(&ran, setup.run_calls.last()));
        before = now;
        if signals.pending().is_some() {
            setup.interrupted = setup.runs.len() < args.runs as usize;
            break;
        }
    }
    if setup.runs.is_empty() {
        return Ok(failed.unwrap_or(ExitCode::from(NOT_FOUND)));
    }
    let left = meter.watches_any();
    meter.forget_all();
    setup.window_ns = setup.runs.iter().map(|run| run.wall_ns).sum();
    let span = (begun_ns, monotonic_ns());
    let counted = GroupCounts::of(&before, 0, None, span, meter.waits_known);
    drop(meter);
    let mut document = judged(setup, &counted, pid);
    if left {
        document.notes.push(
            "processes that it started still run: what they do after its end is not counted".into(),
        );
    }
    let status = document.setup.runs.iter().rev().map(status).find(|status| *status != 0);
    to.give(&document, || render::syscalls_text(&document, style(args)))?;
    Ok(failed.unwrap_or_else(|| ExitCode::from(status.unwrap_or(0))))
}

/// Reports why a run failed. Returns the exit status that a shell would give for a command that cannot be started.
fn refused(args: &SyscallsArgs, error: &RunError) -> ExitCode {
    let program = args.command.first().map(|word| word.display().to_string()).unwrap_or_default();
    match error {
        RunError::Start(error) if error.kind() == ErrorKind::NotFound => {
            output::say(format!("there is no command `{program}`: {error}"));
            NOT_FOUND.into()
        }
        RunError::Start(error) => {
            output::say(format!("cannot start `{program}`: {error}"));
            NOT_EXECUTABLE.into()
        }
        RunError::Wait(error) => {
            output::say(format!("cannot wait for `{program}`: {error}"));
            Exit::Missing.into()
        }
    }
}

fn run_of(
    ran: &FinishedRun,
    calls: Option<&std::collections::BTreeMap<String, (u64, u64)>>,
) -> Run {
    let sum = |of: fn(&(u64, u64)) -> u64| calls.map_or(0, |calls| calls.values().map(of).sum());
    Run {
        wall_ns: ran.wall_ns,
        user_ns: ran.ended.user_ns,
        system_ns: ran.ended.system_ns,
        exit_status: ran.ended.code,
        signal: ran.ended.signal,
        calls: sum(|it| it.0),
        calls_ns: sum(|it| it.1),
    }
}

/// Exit status as in shells: 128 plus the signal for a command that was killed.
fn status(run: &Run) -> u8 {
    match (run.exit_status, run.signal) {
        (Some(status), _) => u8::try_from(status & 0xff).unwrap_or(u8::MAX),
        (None, Some(signal)) => 128 + u8::try_from(signal & 0x7f).unwrap_or(0),
        (None, None) => 0,
    }
}

// --- processes ---

fn of_processes(args: &SyscallsArgs, to: &Destinations) -> anyhow::Result<Exit> {
    let roots = Roots::default();
    let named = Target { pid: args.pid, comm: args.comm.clone(), cgroup: None, container: None };
    let target = target::resolve(&named, &roots).map_err(Failure::bad_input)?;
    let (subject, pids) = match target {
        Some(TargetSpec::Process { pid, comm }) => (Subject::Process { pid, comm }, vec![pid]),
        Some(TargetSpec::Comm { comm }) => {
            let pids = target::pids_named(&roots, &comm);
            (Subject::Comm { comm }, pids)
        }
        _ => return Err(Failure::bad_input("name a process (-p, --comm) or give a command")),
    };
    let meter = open(1)?;
    let signals = Signals::install()?;
    let mut setup = setup(subject);
    let asked = args.duration.unwrap_or(DEFAULT_WINDOW);
    let asked_ns = u64::try_from(asked.as_nanos()).unwrap_or(u64::MAX);
    let begun_ns = monotonic_ns();
    if meter.watch(&pids, 0) == 0 {
        return Err(Failure::bad_input("it ended before it could be looked at"));
    }
    let bar = Progress::start(Some(asked_ns), args.show.quiet);
    let end_ns = begun_ns.saturating_add(asked_ns);
    loop {
        let now_ns = monotonic_ns();
        bar.at(now_ns - begun_ns);
        if now_ns >= end_ns {
            break;
        }
        let gone = !meter.watches_any();
        if gone || signals.pending().is_some() {
            setup.interrupted = true;
            if gone {
                let after = units::duration((now_ns - begun_ns) as f64);
                output::say(format!("the last process that was looked at ended after {after}"));
            }
            break;
        }
        clock::sleep_until((now_ns + LOOK_NS).min(end_ns));
    }
    let reading = read(&meter)?;
    let span = (begun_ns, monotonic_ns());
    bar.finish();
    setup.window_ns = span.1 - span.0;
    let counted = GroupCounts::of(&reading, 0, None, span, meter.waits_known);
    drop(meter);
    let document = judged(setup, &counted, 0);
    to.give(&document, || render::syscalls_text(&document, style(args)))?;
    Ok(Exit::Done)
}

// --- commands and processes ---

fn setup(subject: Subject) -> Setup {
    let roots = Roots::default();
    let host = rustix::system::uname();
    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second());
    Setup {
        tool: Tool { version: env!("CARGO_PKG_VERSION").into() },
        host: Host {
            name: name::decode(host.nodename().to_bytes()),
            kernel: name::decode(host.release().to_bytes()),
            cpus: u32::try_from(cpus_online(&roots).len()).unwrap_or(u32::MAX),
            cgroup: Cgroups::open(&roots).layout().into(),
        },
        start: now.unwrap_or_default().to_string(),
        subject,
        window_ns: 0,
        runs: vec![],
        run_calls: vec![],
        interrupted: false,
    }
}

/// Makes the document, including what the rules say about the system calls.
fn judged(mut setup: Setup, counted: &GroupCounts, pid: u32) -> Profile {
    let target = match &setup.subject {
        Subject::Command { command } => TargetSpec::Command { command: command.join(" "), pid },
        Subject::Process { pid, comm } => TargetSpec::Process { pid: *pid, comm: comm.clone() },
        Subject::Comm { comm } => TargetSpec::Comm { comm: comm.clone() },
    };
    let mut fold = Fold::default();
    let cx = Context::new(Roots::default(), target, Asked::default());
    fold.push(&Record::Meta(Box::new(session::meta(&cx, Clocks::now(), None))));
    let (source, state) = (Source::Syscalls, State::Active);
    fold.push(&Record::Coverage(Coverage { t_ns: 0, source, state }));
    // Times count from the start of the window. The window of several runs is the sum of their wall times.
    let (t0_ns, t1_ns) = (0, setup.window_ns);
    let mut push = |record| fold.push(&Record::Syscalls(Box::new(record)));
    push(SyscallRecord::Span(SyscallSpan { t0_ns, t1_ns, ..counted.span.clone() }));
    for call in &counted.calls {
        push(SyscallRecord::Call(SyscallTotal { t0_ns, t1_ns, ..call.clone() }));
    }
    for file in &counted.files {
        push(SyscallRecord::File(SyscallFile { t0_ns, t1_ns, ..file.clone() }));
    }
    fold.push(&Record::End { window_ns: t1_ns });
    let report = rules::report(fold.view(), env!("CARGO_PKG_VERSION"), true);
    setup.host = report.host.clone();
    profile(setup, &counted.span, &counted.calls, &counted.files, Some(&report))
}

fn style(args: &SyscallsArgs) -> render::TextStyle {
    let verbosity = if args.show.quiet { 0 } else { 1 + u8::from(args.verbose) };
    render::TextStyle { verbosity, ..show::page(args.color) }
}

// --- the difference of two measurements ---

fn difference(a: &Path, b: &Path, args: &SyscallsArgs, to: &Destinations) -> anyhow::Result<Exit> {
    let (a, b) = (kept(a)?, kept(b)?);
    let difference = deadline::within(deadline::MOST, "what the profiles hold", move || {
        Difference::new(&a, &b, env!("CARGO_PKG_VERSION"))
    })?;
    to.give(&difference, || render::syscalls_diff_text(&difference, style(args)))?;
    Ok(Exit::Done)
}

/// Reads a measurement that `deburr syscalls -o` has written.
pub(super) fn kept(path: &Path) -> anyhow::Result<Profile> {
    let bad = |reason: &dyn std::fmt::Display| {
        Failure::bad_input(format!("cannot compare `{}`: {reason}", path.display()))
    };
    let bytes = document::read(path, MAX_DOCUMENT_BYTES)?;
    if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
        return Err(bad(&"it is larger than 64 MiB, and so not what `deburr syscalls -o` writes"));
    }
    let text = String::from_utf8(bytes).map_err(|_| bad(&"it is not UTF-8 text"))?;
    Profile::parse(&text).map_err(|reason| {
        bad(&format_args!("{reason}; `deburr syscalls -o FILE -- CMD` writes what is expected"))
    })
}
