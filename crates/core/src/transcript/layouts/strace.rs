// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `strace -c`: which system calls a command made, and how long they took.

use super::{Described, Parsed, Parser, Taken, column, owned};
use crate::transcript::engine::{Context, cut};
use crate::transcript::line::{Line, number, whole};

/// There are fewer system calls than this.
const MAX: usize = 2000;

/// A system call.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::transcript) struct Call {
    /// Its line.
    pub(in crate::transcript) line: u64,
    /// Its name.
    pub(in crate::transcript) name: String,
    /// Number of calls.
    pub(in crate::transcript) calls: u64,
    /// System CPU time in them in seconds; with `strace -w`, wall time.
    pub(in crate::transcript) seconds: f64,
    /// Number of calls that failed.
    pub(in crate::transcript) errors: u64,
}

/// The calls of one run.
#[derive(Debug, Default)]
pub(in crate::transcript) struct Calls {
    /// The calls, in the order of the text.
    pub(in crate::transcript) all: Vec<Call>,
    header: Vec<String>,
    done: bool,
}

fn is_header(line: &Line<'_>) -> bool {
    line.begins(&["%", "time", "seconds"])
        && line.words.contains(&"calls")
        && line.words.contains(&"syscall")
}

pub(super) fn begins(line: &Line<'_>, _: &Context) -> Option<Box<dyn Parser>> {
    is_header(line).then(|| Box::new(Calls::default()) as Box<dyn Parser>)
}

impl Parser for Calls {
    fn line(&mut self, line: &Line<'_>) -> Taken {
        if is_header(line) {
            if !self.header.is_empty() {
                return Taken::No;
            }
            // `% time` is one column.
            self.header = owned(&line.words[1..]);
            return Taken::Yes;
        }
        if line.words.iter().all(|word| word.bytes().all(|byte| byte == b'-')) {
            return Taken::Yes;
        }
        if self.done || line.words.first().and_then(|word| number(word)).is_none() {
            return Taken::No;
        }
        // The column of errors is empty where there were none.
        let short = self.header.len().checked_sub(line.words.len());
        let errors = column(&self.header, &["errors"]);
        let skip = |at: usize| {
            if short == Some(1) && errors.is_some_and(|errors| at > errors) { at - 1 } else { at }
        };
        let at = |name: &str| line.words.get(skip(column(&self.header, &[name])?)).copied();
        if short.is_none_or(|short| short > 1) {
            return Taken::Unread("a row of strace -c with other columns than its header: cut off");
        }
        let (Some(name), Some(seconds), Some(calls)) =
            (at("syscall"), at("seconds").and_then(number), at("calls").and_then(whole))
        else {
            return Taken::Unread("not a row of strace -c");
        };
        if name == "total" {
            self.done = true;
            return Taken::Yes;
        }
        if self.all.len() >= MAX {
            return Taken::Unread("more rows than there are system calls");
        }
        let errors = if short == Some(0) { at("errors").and_then(whole).unwrap_or(0) } else { 0 };
        self.all.push(Call { line: line.number, name: cut(name), calls, seconds, errors });
        Taken::Yes
    }

    fn end(self: Box<Self>) -> Parsed {
        Parsed::Strace(*self)
    }
}

impl Calls {
    pub(super) fn describe(&self) -> Described {
        Described::new("strace -c", "calls and their time", self.all.len(), ["call", "calls"])
    }
}
