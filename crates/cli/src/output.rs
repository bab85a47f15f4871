// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Results go to stdout, messages to stderr. Neither panics if the reader has closed its end.

use crate::failure::{Exit, Failure};
use deburr_core::render;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};

/// Writes a result to stdout. A closed pipe is not an error.
pub(crate) fn print(result: &[u8]) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(result).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::error(Exit::Output, format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a message to stderr, on a line of its own. Names in it may come from untrusted sources: control
/// characters are escaped before they reach the terminal.
pub(crate) fn say(message: impl Display) {
    let line = format!("deburr: {}\n", render::message(&message.to_string()));
    // If stderr is gone, there is nowhere left to report that.
    let _ = io::stderr().lock().write_all(line.as_bytes());
}
