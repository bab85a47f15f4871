// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starts a command and observes it. The command inherits stdin, stdout (but see [`Command::start`]), stderr and
//! the user id. deburr never ends it: it may outlive the window.

use crate::failure::Failure;
use deburr_core::recording::TargetSpec;
use deburr_core::text::name;
use deburr_sys::hold::{self, Held};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::Child;

/// The command under observation.
#[derive(Debug)]
pub(crate) struct Command {
    line: String,
    child: Child,
    /// `None` once it runs.
    held: Option<Held>,
    ended: bool,
}

impl Command {
    /// Starts the command, and holds it before its first instruction until [`Self::release`], where that is possible;
    /// `None` if `words` is empty. With `stdout_is_taken`, its stdout goes to stderr, so that its output does not mix
    /// with a machine-readable document on stdout.
    pub(crate) fn start(words: &[OsString], stdout_is_taken: bool) -> anyhow::Result<Option<Self>> {
        let Some((program, arguments)) = words.split_first() else { return Ok(None) };
        let make = || {
            let mut command = std::process::Command::new(program);
            command.args(arguments);
            if stdout_is_taken {
                command.stdout(std::io::stderr());
            }
            command
        };
        let (child, held) = hold::spawn(make).map_err(|error| {
            Failure::bad_input(format!("cannot start `{}`: {error}", program.display()))
        })?;
        let line = name::decode(words.join(OsString::from(" ").as_os_str()).as_bytes());
        Ok(Some(Self { line, child, held, ended: false }))
    }

    /// Lets the command run.
    pub(crate) fn release(&mut self) {
        if let Some(held) = self.held.take() {
            held.release();
        }
    }

    /// The target to record: the command and its descendants.
    pub(crate) fn target(&self) -> TargetSpec {
        TargetSpec::Command { command: self.line.clone(), pid: self.child.id() }
    }

    /// Whether the command has exited.
    pub(crate) fn has_ended(&mut self) -> bool {
        // If waiting for the child fails, the child no longer exists.
        self.ended = self.ended || !matches!(self.child.try_wait(), Ok(None));
        self.ended
    }

    /// The message for a command that still runs after the window; `None` if it has exited.
    pub(crate) fn still_running(&mut self) -> Option<String> {
        (!self.has_ended()).then(|| {
            format!("the command still runs as pid {}; it was only observed", self.child.id())
        })
    }
}
