// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Results go to stdout, messages to stderr; a reader that goes away ends neither in a panic.

use crate::failure::{Exit, Failure};
use deburr_core::render;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};

/// Puts a result on stdout. A reader who has seen enough is no error.
pub(crate) fn print(result: &[u8]) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(result).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::error(Exit::Output, format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Tells the user something, on a line of its own. Names in it may come from anywhere: nothing of them
/// reaches the terminal as a control character.
pub(crate) fn say(message: impl Display) {
    let line = format!("deburr: {}\n", render::message(&message.to_string()));
    // There is nobody left to tell that stderr is gone.
    let _ = io::stderr().lock().write_all(line.as_bytes());
}
