// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr completions` and `deburr man`: print files that packages install beside the program.

use crate::cli::Cli;
use crate::failure::Exit;
use crate::output;
use clap::CommandFactory;
use clap_complete::Shell;

/// Prints a completion script.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "deburr", &mut script);
    output::print(&script)?;
    Ok(Exit::Done)
}

/// Prints the program's manual page, followed by those of its subcommands.
pub(crate) fn man() -> anyhow::Result<Exit> {
    let mut pages = Vec::new();
    let mut program = Cli::command();
    program.build();
    clap_mangen::Man::new(program.clone()).render(&mut pages)?;
    for command in program.get_subcommands().filter(|command| !command.is_hide_set()) {
        clap_mangen::Man::new(command.clone()).render(&mut pages)?;
    }
    output::print(&pages)?;
    Ok(Exit::Done)
}
