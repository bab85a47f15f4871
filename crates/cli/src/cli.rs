// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line: the list of commands. The arguments of each are beside it, in `cmd`.

use crate::cmd::bench_empty::BenchEmptyArgs;
use crate::cmd::check::CheckArgs;
use crate::cmd::compare::CompareArgs;
use crate::cmd::cpu_check::CpuCheckArgs;
use crate::cmd::diagnose::Diagnose;
use crate::cmd::diff::DiffArgs;
use crate::cmd::doctor::DoctorArgs;
use crate::cmd::explain::ExplainArgs;
use crate::cmd::export::ExportArgs;
use crate::cmd::generate::CompletionsArgs;
use crate::cmd::lab::LabArgs;
use crate::cmd::limits::LimitsArgs;
use crate::cmd::prove::ProveArgs;
use crate::cmd::read::ReadArgs;
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
use clap::{Parser, Subcommand};

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
    /// Read what vmstat, iostat, runqlat, biosnoop and other tools printed, and say what it means
    Read(ReadArgs),
    /// Say what differs between two recordings: a slow host and a healthy one, before and after
    Compare(CompareArgs),
    /// Write a recording in formats that other programs read
    Export(ExportArgs),
    /// Change one thing for a while, measure, put it back, and say whether that was the cause
    Prove(ProveArgs),
    /// Explain what a finding means, how it is computed, and when it is wrong
    Explain(ExplainArgs),
    /// Say what this kernel and these privileges allow to be found
    Doctor(DoctorArgs),
    /// Reproduce an incident on this machine, safely
    Lab(LabArgs),
    /// Check a recording's inner consistency
    Check(CheckArgs),
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
    Completions(CompletionsArgs),
    /// Print the manual page
    #[command(hide = true)]
    Man,
    /// Attach BPF programs that do nothing
    #[command(hide = true)]
    BenchEmpty(BenchEmptyArgs),
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
