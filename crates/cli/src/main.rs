// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The `deburr` binary: the command line, and all code that reads or changes the host.

#![forbid(unsafe_code)]

mod args;
mod claim;
mod cli;
mod clock;
mod cmd;
mod collect;
mod command;
mod cpu_check;
mod deadline;
mod document;
mod export;
mod facts;
mod failure;
mod files;
mod host;
mod lab;
mod limits;
mod observer;
mod output;
mod progress;
mod prove;
mod reader;
mod sector;
mod session;
mod signals;
mod sinks;
mod snapshot;
mod sources;
mod store;
mod sweep;
mod symbols;
mod syscalls;
mod tail;
mod target;
mod watch;

use clap::CommandFactory as _;
use cli::{Cli, Command};
use failure::{Exit, Failure};
use std::process::ExitCode;

/// A failed allocation is told like any other failure.
#[global_allocator]
static MEMORY: deburr_sys::memory::OrExit = deburr_sys::memory::OrExit {
    message: "deburr: there is not enough memory (see `ulimit -v` and the memory limit of its cgroup)\n",
    status: Exit::Missing as i32,
};

fn main() -> ExitCode {
    deburr_sys::memory::keep_large_blocks_apart();
    match cli::parse().and_then(|cli| run(&cli)) {
        Ok(status) => status,
        Err(error) => {
            let failure = error.downcast_ref::<Failure>();
            if !failure.is_some_and(Failure::is_told) {
                output::say(format!("{error:#}"));
            }
            failure.map_or(Exit::BadInput, |failure| failure.exit).into()
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    signals::let_long_files_fail()?;
    if looks_at_the_host(cli) {
        facts::require_proc(&collect::Roots::default())?;
    }
    tell_of_what_is_left(cli);
    let exit = match &cli.command {
        None => cmd::diagnose::run(&cli.diagnose)?,
        Some(Command::Diagnose(args)) => cmd::diagnose::run(args)?,
        Some(Command::Record(args)) => cmd::record::run(args)?,
        Some(Command::Report(args)) => cmd::report::run(args)?,
        Some(Command::Read(args)) => cmd::read::run(args)?,
        Some(Command::Compare(args)) => cmd::compare::run(args)?,
        Some(Command::Export(args)) => cmd::export::run(args)?,
        Some(Command::Explain(args)) => cmd::explain::run(args)?,
        Some(Command::Prove(args)) => cmd::prove::run(args)?,
        Some(Command::Doctor(args)) => cmd::doctor::run(args)?,
        Some(Command::Lab(args)) => return cmd::lab::run(args),
        Some(Command::Check(args)) => cmd::check::run(args)?,
        Some(Command::CpuCheck(args)) => cmd::cpu_check::run(args)?,
        Some(Command::Sector(args)) => cmd::sector::run(args)?,
        Some(Command::Limits(args)) => cmd::limits::run(args)?,
        Some(Command::Diff(args)) => cmd::diff::run(args)?,
        Some(Command::Snapshot(args)) => cmd::snapshot::run(args)?,
        Some(Command::Syscalls(args)) => return cmd::syscalls::run(args),
        Some(Command::Sweep(args)) => cmd::sweep::run(args)?,
        Some(Command::Completions(args)) => cmd::generate::completions(args, Cli::command())?,
        Some(Command::Man) => cmd::generate::man(Cli::command())?,
        Some(Command::BenchEmpty(args)) => cmd::bench_empty::run(args)?,
        Some(Command::LabWorker(args)) => {
            lab::work(args)?;
            Exit::Done
        }
        Some(Command::Reader(args)) => {
            reader::run(args)?;
            Exit::Done
        }
    };
    Ok(exit.into())
}

/// Whether the command is about this host, not about files.
fn looks_at_the_host(cli: &Cli) -> bool {
    !matches!(
        &cli.command,
        Some(
            Command::Report(_)
                | Command::Read(_)
                | Command::Compare(_)
                | Command::Export(_)
                | Command::Explain { .. }
                | Command::Check { .. }
                | Command::Diff(_)
                | Command::CpuCheck(_)
                | Command::Completions { .. }
                | Command::Man
                | Command::BenchEmpty { .. }
                | Command::LabWorker(_)
                | Command::Reader(_)
        )
    )
}

/// Says what an experiment left behind that was killed together with its guard. Only root can know.
fn tell_of_what_is_left(cli: &Cli) {
    match &cli.command {
        Some(Command::LabWorker(_) | Command::Reader(_)) => return,
        Some(Command::Lab(args)) if args.cleans() => return,
        Some(Command::Prove(args)) if args.recovers() => return,
        Some(Command::Sector(args)) if args.here => return,
        _ => {}
    }
    for journal in host::journal::left_behind() {
        output::say(format!(
            "`{}` was killed with its guard, and what it changed on this host is still there: `deburr lab clean` \
             undoes it",
            journal.name()
        ));
    }
}
