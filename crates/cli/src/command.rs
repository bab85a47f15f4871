// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A command that is started to be observed. It keeps its own input and output (but see
//! [`Command::start`]), runs as the same user, and is never ended by the observer: it may outlive the window.

use crate::failure::Failure;
use deburr_core::recording::TargetSpec;
use deburr_core::text::name;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::Child;

/// The command under observation.
#[derive(Debug)]
pub(crate) struct Command {
    line: String,
    child: Child,
    ended: bool,
}

impl Command {
    /// Starts it. No words, no command. With `stdout_is_taken`, what it writes there goes to stderr: a
    /// document for programs must not be mixed with anything.
    pub(crate) fn start(words: &[OsString], stdout_is_taken: bool) -> anyhow::Result<Option<Self>> {
        let Some((program, arguments)) = words.split_first() else { return Ok(None) };
        let mut command = std::process::Command::new(program);
        command.args(arguments);
        if stdout_is_taken {
            command.stdout(std::io::stderr());
        }
        let child = command.spawn().map_err(|error| {
            Failure::bad_input(format!("cannot start `{}`: {error}", program.display()))
        })?;
        let line = name::decode(words.join(OsString::from(" ").as_os_str()).as_bytes());
        Ok(Some(Self { line, child, ended: false }))
    }

    /// As a target: it and its descendants.
    pub(crate) fn target(&self) -> TargetSpec {
        TargetSpec::Command { command: self.line.clone(), pid: self.child.id() }
    }

    /// Whether it has exited.
    pub(crate) fn has_ended(&mut self) -> bool {
        // Who cannot be waited for is not there any more.
        self.ended = self.ended || !matches!(self.child.try_wait(), Ok(None));
        self.ended
    }

    /// What to say if it goes on after the window.
    pub(crate) fn still_running(&mut self) -> Option<String> {
        (!self.has_ended()).then(|| {
            format!("the command still runs as pid {}; it was only observed", self.child.id())
        })
    }
}
