// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long commands took: the shell's `time`, and `time -p`.

use super::{Described, Parsed, Parser, Taken};
use crate::transcript::engine::Context;
use crate::transcript::line::{Line, number};

const MAX_RUNS: usize = 10_000;

/// A run of a command, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::transcript) struct Run {
    /// First and last line.
    pub(in crate::transcript) lines: (u64, u64),
    /// From its start to its end.
    pub(in crate::transcript) real_s: f64,
    /// CPU time in its own code.
    pub(in crate::transcript) user_s: Option<f64>,
    /// CPU time in the kernel.
    pub(in crate::transcript) system_s: Option<f64>,
}

/// The runs.
#[derive(Debug, Default)]
pub(in crate::transcript) struct Times {
    /// The runs, in the order of the text.
    pub(in crate::transcript) runs: Vec<Run>,
}

/// `real 0m5.873s`, `real 5.87`.
fn of(line: &Line<'_>) -> Option<(&'static str, f64)> {
    let [name, value] = *line.words.as_slice() else { return None };
    let name = ["real", "user", "sys"].into_iter().find(|known| *known == name)?;
    let seconds = match value.strip_suffix('s') {
        Some(rest) => {
            let (minutes, seconds) = rest.split_once('m')?;
            number(minutes)? * 60.0 + number(seconds)?
        }
        None => number(value)?,
    };
    (seconds >= 0.0).then_some((name, seconds))
}

pub(super) fn begins(line: &Line<'_>, _: &Context) -> Option<Box<dyn Parser>> {
    of(line).map(|_| Box::new(Times::default()) as Box<dyn Parser>)
}

impl Parser for Times {
    fn line(&mut self, line: &Line<'_>) -> Taken {
        let Some((name, seconds)) = of(line) else { return Taken::No };
        if name == "real" {
            if self.runs.len() >= MAX_RUNS {
                return Taken::Unread("more than 10000 runs");
            }
            let lines = (line.number, line.number);
            self.runs.push(Run { lines, real_s: seconds, ..Run::default() });
            return Taken::Yes;
        }
        let Some(run) = self.runs.last_mut() else {
            return Taken::Unread("`user` or `sys` without the `real` before it: cut off");
        };
        let slot = if name == "user" { &mut run.user_s } else { &mut run.system_s };
        if slot.is_some() {
            return Taken::Unread("`user` or `sys` again, without a `real` before it");
        }
        (*slot, run.lines.1) = (Some(seconds), line.number);
        Taken::Yes
    }

    fn end(self: Box<Self>) -> Parsed {
        Parsed::Time(*self)
    }
}

impl Times {
    pub(super) fn describe(&self) -> Described {
        Described::new("time", "real, user and sys", self.runs.len(), ["run", "runs"])
    }
}
