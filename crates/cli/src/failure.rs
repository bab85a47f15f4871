// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a run of the program ends.

use std::fmt;
use std::process::ExitCode;

/// Exit status of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// Done, and what the user asked to be told about is so: `--fail-on` was met, `check` found a fault.
    Found = 1,
    /// Usage or bad input.
    BadInput = 2,
    /// A privilege or a kernel feature is missing.
    Missing = 3,
    /// Output could not be written, or not all of it.
    Output = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error that says how the program ends. Its text names the thing, the cause and the way out.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The status.
    pub(crate) exit: Exit,
    message: String,
}

impl Failure {
    /// An error that ends the program that way.
    pub(crate) fn error(exit: Exit, message: impl fmt::Display) -> anyhow::Error {
        Self { exit, message: message.to_string() }.into()
    }

    /// The user asked for something that is not there or makes no sense.
    pub(crate) fn bad_input(message: impl fmt::Display) -> anyhow::Error {
        Self::error(Exit::BadInput, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
