// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr completions` and `deburr man`: print files that packages install beside the program.

use crate::failure::Exit;
use crate::output;
use clap::Command;
use clap_complete::Shell;

/// Arguments of `deburr completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell it is for
    shell: Shell,
}

/// Prints a completion script for that command line.
pub(crate) fn completions(args: &CompletionsArgs, mut program: Command) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "deburr", &mut script);
    output::print(&script)?;
    Ok(Exit::Done)
}

/// Prints the manual page of the program with that command line, followed by those of its subcommands.
pub(crate) fn man(mut program: Command) -> anyhow::Result<Exit> {
    let mut pages = Vec::new();
    program.build();
    clap_mangen::Man::new(program.clone()).render(&mut pages)?;
    for command in program.get_subcommands().filter(|command| !command.is_hide_set()) {
        clap_mangen::Man::new(command.clone()).render(&mut pages)?;
    }
    output::print(&pages)?;
    Ok(Exit::Done)
}
