// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line: subcommands, options and their values.

use crate::cmd::bench_empty::Baseline;
use crate::cmd::cpu_check::CpuCheckArgs;
use crate::cmd::diagnose::Diagnose;
use crate::cmd::diff::DiffArgs;
use crate::cmd::doctor::DoctorArgs;
use crate::cmd::lab::LabArgs;
use crate::cmd::limits::LimitsArgs;
use crate::cmd::record::RecordArgs;
use crate::cmd::report::ReportArgs;
use crate::cmd::sector::SectorArgs;
use crate::cmd::snapshot::SnapshotArgs;
use crate::cmd::sweep::SweepArgs;
use crate::cmd::syscalls::SyscallsArgs;
use crate::failure::{Exit, Failure};
use crate::lab::WorkerArgs;
use crate::output;
use crate::reader::ReaderArgs;
use anstream::{AutoStream, ColorChoice};
use clap::{Args, Parser, Subcommand, ValueEnum};
use deburr_core::finding::Severity;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Longest window: a day. Longer observations are not diagnoses any more.
const MAX_WINDOW: Duration = Duration::from_secs(24 * 60 * 60);

/// Says who or what makes this host's processes wait.
///
/// Without a command it observes this host for 30 s and reports what latency is lost to, who is to blame,
/// on what evidence, and what to do.
#[derive(Debug, Parser)]
#[command(
    name = "deburr",
    version,
    args_conflicts_with_subcommands = true,
    max_term_width = 100,
    after_help = "Exit status: 0 done, 1 done and --fail-on was met, 2 usage or bad input, \
                  3 a privilege or kernel feature is missing, 4 output could not be written."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) diagnose: Diagnose,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Observe, then report (the default)
    Diagnose(Diagnose),
    /// Observe only, into a file
    Record(RecordArgs),
    /// Report on a recording
    Report(ReportArgs),
    /// Explain what a finding means, how it is computed, and when it is wrong
    Explain {
        /// Code of a finding, like SCH001
        code: String,
    },
    /// Say what this kernel and these privileges allow to be found
    Doctor(DoctorArgs),
    /// Reproduce an incident on this machine, safely
    Lab(LabArgs),
    /// Check a recording's inner consistency
    Check {
        /// The recording
        file: PathBuf,
    },
    /// Check whether the same work takes the same time on all CPUs: hidden shared cores, time-sliced vCPUs
    #[command(
        mut_arg("json", |arg| arg.help("Print one JSON document (schema deburr.cpu-check/1)")),
        mut_arg("verbose", |arg| arg.help("Show every pair that was tested"))
    )]
    CpuCheck(CpuCheckArgs),
    /// Say which files a disk's sectors belong to
    Sector(SectorArgs),
    /// Say what processes may use of the CPUs, and what their runtimes believe
    Limits(LimitsArgs),
    /// Say what differs between hosts, and what of it matters for latency
    Diff(DiffArgs),
    /// Keep what this host is and how it is set up in one small file, to compare it with others
    Snapshot(SnapshotArgs),
    /// Measure a service under rising load, with and without a setting
    Sweep(SweepArgs),
    /// Count what the system calls of a command or of processes cost, by call and by file
    #[command(after_help = "Examples:\n  \
        deburr syscalls -r 10 -o good.json -- lscpu\n  \
        deburr syscalls -p 1234 -d 5\n  \
        deburr syscalls --diff good.json bad.json\n\n\
        While it counts, every system call of this host takes a little longer (docs/overhead.md).\n\n\
        Exit status: that of the command, 127 if there is no such command, 128 and the signal if it was killed; \
        without one 0 done, 2 usage or bad input, 3 a privilege or kernel feature is missing, 4 output could not be \
        written.")]
    Syscalls(SyscallsArgs),
    /// Print a completion script
    Completions {
        /// The shell it is for
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    #[command(hide = true)]
    Man,
    /// Attach BPF programs that do nothing
    #[command(hide = true)]
    BenchEmpty {
        /// To which hooks
        #[arg(long, default_value = "sched")]
        on: Baseline,
        /// For how long
        #[arg(short, long, value_name = "TIME", value_parser = window, default_value = "10s")]
        duration: Duration,
    },
    /// Be one of the processes of a lab scenario
    #[command(hide = true)]
    LabWorker(WorkerArgs),
    /// Be the process that reads what may never end
    #[command(hide = true)]
    Reader(ReaderArgs),
}

/// Parses this program's arguments. Errors and what `--help` and `--version` ask for are printed here; the result is then
/// the exit status.
pub(crate) fn parse() -> Result<Cli, anyhow::Error> {
    let error = match Cli::try_parse() {
        Ok(cli) => return Ok(cli),
        Err(error) => error,
    };
    if error.use_stderr() {
        // If stderr is gone, there is nowhere left to report that.
        let _ = error.print();
        return Err(Failure::told(Exit::BadInput));
    }
    let text = error.render();
    let plain = AutoStream::choice(&std::io::stdout()) == ColorChoice::Never;
    let text = if plain { text.to_string() } else { text.ansi().to_string() };
    output::print(text.as_bytes())?;
    Err(Failure::told(Exit::Done))
}

/// What to look at, and for how long.
#[derive(Debug, Args)]
pub(crate) struct ObserveArgs {
    /// How long: 30, 30s, 5m, 1h [default: 30s; with a command: until it ends]
    #[arg(short, long, value_name = "TIME", value_parser = window, allow_negative_numbers = true)]
    pub(crate) duration: Option<Duration>,
    #[command(flatten)]
    pub(crate) target: Target,
    /// Follow one in so many requests of block devices, whatever that costs [default: as many as 1 % of a CPU
    /// is enough for]
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub(crate) io_one_in: Option<u32>,
    /// Count system calls, too: of the target, or of the processes that use most system time. Makes every system
    /// call of this host a little slower meanwhile
    #[arg(long)]
    pub(crate) syscalls: bool,
    /// Replace the output file if it exists
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
    /// Command to start and to look at until it ends; it runs as the same user, its exit status is not
    /// passed on, and with --json its stdout goes to stderr
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// At most one of these; without any, the whole host.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct Target {
    /// Look at this process
    #[arg(short, long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Look at all processes of this name
    #[arg(long, value_name = "NAME")]
    pub(crate) comm: Option<String>,
    /// Look at this cgroup and those below it
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup: Option<String>,
    /// Look at this container
    #[arg(long, value_name = "ID|NAME")]
    pub(crate) container: Option<String>,
}

/// How a report is shown.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Print the report as one JSON document (schema deburr.report/1)
    #[arg(long)]
    pub(crate) json: bool,
    /// Exit with status 1 if there is a finding of this level or worse
    #[arg(long, value_name = "LEVEL")]
    pub(crate) fail_on: Option<Level>,
    /// Show all evidence, and every table of block IO
    #[arg(short, long, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// Use colour [default: auto]
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_default_value = true)]
    pub(crate) color: Color,
    #[command(flatten)]
    pub(crate) messages: Messages,
}

#[derive(Debug, Args)]
pub(crate) struct Messages {
    /// Show the essential only, and no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Level {
    Info,
    Low,
    Medium,
    High,
}

impl From<Level> for Severity {
    fn from(level: Level) -> Self {
        match level {
            Level::Info => Self::Info,
            Level::Low => Self::Low,
            Level::Medium => Self::Medium,
            Level::High => Self::High,
        }
    }
}

/// Parses the length of a window.
pub(crate) fn window(text: &str) -> Result<Duration, String> {
    let accepted = "give more than 0 and at most 24h, like 30, 30s, 5m, 1h or 0.5s";
    let (number, unit_s) = match text.as_bytes().last() {
        Some(b's') => (&text[..text.len() - 1], 1.0),
        Some(b'm') => (&text[..text.len() - 1], 60.0),
        Some(b'h') => (&text[..text.len() - 1], 3600.0),
        _ => (text, 1.0),
    };
    // `f64::from_str` also takes `inf`, `nan` and `1e9`.
    if !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(format!("not a length of time; {accepted}"));
    }
    let seconds = number.parse::<f64>().map_err(|_| format!("not a length of time; {accepted}"))?;
    match Duration::try_from_secs_f64(seconds * unit_s) {
        Ok(window) if !window.is_zero() && window <= MAX_WINDOW => Ok(window),
        _ => Err(format!("out of range; {accepted}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use proptest::prelude::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn lengths_of_time() {
        for (text, ms) in [
            ("30", 30_000),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("24h", 86_400_000),
            ("0.5s", 500),
            (".1", 100),
        ] {
            assert_eq!(window(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in
            ["", "0", "0s", "-1", "1e9", "25h", "inf", "nan", "s", "5 m", "5d", "1.2.3", "٣"]
        {
            let error = window(text).expect_err(text);
            assert!(error.contains("5m"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_length_of_time_is_never_zero_or_longer_than_a_day(text in "\\PC*|[0-9.]{1,30}[smh]?") {
            if let Ok(window) = window(&text) {
                prop_assert!(!window.is_zero() && window <= MAX_WINDOW);
            }
        }
    }
}
