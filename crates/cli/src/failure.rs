// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exit statuses of the program, and the error that carries one.

use std::fmt;
use std::process::ExitCode;

/// Exit status of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// Done, and the condition that the user asked about holds: `--fail-on` was met, or `check` found a fault.
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

/// An error with the exit status of the program. Its text names the subject, the cause and a remedy.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    message: String,
}

impl Failure {
    /// An error that ends the program with the exit status `exit`.
    pub(crate) fn error(exit: Exit, message: impl fmt::Display) -> anyhow::Error {
        Self { exit, message: message.to_string() }.into()
    }

    /// An end of the program of which the user has been told everything.
    pub(crate) fn told(exit: Exit) -> anyhow::Error {
        Self { exit, message: String::new() }.into()
    }

    /// Whether there is anything left to say.
    pub(crate) fn is_told(&self) -> bool {
        self.message.is_empty()
    }

    /// An error for a request that names something that does not exist, or that makes no sense.
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
