// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The `deburr` binary: everything that touches the host.

mod cmd;
mod collect;
mod lab;

use clap::Parser;

#[derive(Parser)]
enum Cli {
    Lab(cmd::lab::LabArgs),
    #[command(hide = true)]
    LabWorker(lab::WorkerArgs),
}

fn main() -> anyhow::Result<std::process::ExitCode> {
    match Cli::parse() {
        Cli::Lab(args) => cmd::lab::run(&args),
        Cli::LabWorker(args) => lab::work(&args).map(|()| std::process::ExitCode::SUCCESS),
    }
}
