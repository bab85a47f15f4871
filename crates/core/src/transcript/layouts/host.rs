// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Facts of a host: `lscpu`, `cpupower frequency-info`, `lsmod`, the kernel's command line.

use super::{Described, Parsed, Parser, Taken};
use crate::transcript::engine::{Context, cut};
use crate::transcript::line::{Line, whole};
use std::collections::BTreeMap;

const MAX: usize = 10_000;

/// Names and values.
#[derive(Debug)]
pub(in crate::transcript) struct Facts {
    /// What printed them.
    pub(in crate::transcript) kind: Kind,
    /// Value and line of each name.
    pub(in crate::transcript) all: BTreeMap<String, (String, u64)>,
}

/// What prints facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transcript) enum Kind {
    /// `lscpu`: `CPU(s): 16`.
    Lscpu,
    /// `cpupower frequency-info`: `hardware limits: 1.20 GHz - 2.00 GHz`.
    Cpupower,
    /// `lsmod`: a module in each line.
    Lsmod,
    /// `/proc/cmdline`: `quiet mitigations=off`.
    Cmdline,
}

fn pair<'t>(line: &Line<'t>) -> Option<(&'t str, &'t str)> {
    let (name, value) = line.text.split_once(':')?;
    Some((name.trim(), value.trim())).filter(|(name, _)| !name.is_empty())
}

pub(super) fn begins(line: &Line<'_>, context: &Context) -> Option<Box<dyn Parser>> {
    let kind = kind(line, context)?;
    Some(Box::new(Facts { kind, all: BTreeMap::new() }))
}

fn kind(line: &Line<'_>, context: &Context) -> Option<Kind> {
    let tool = context.command.as_ref().map_or("", |command| command.tool());
    let name = pair(line).map(|(name, _)| name);
    if name == Some("Architecture") || (tool == "lscpu" && name == Some("CPU(s)")) {
        return Some(Kind::Lscpu);
    }
    if line.text.starts_with("analyzing CPU ") {
        return Some(Kind::Cpupower);
    }
    if line.words == ["Module", "Size", "Used", "by"] {
        return Some(Kind::Lsmod);
    }
    (line.text.starts_with("BOOT_IMAGE=") && line.words.len() > 1).then_some(Kind::Cmdline)
}

impl Facts {
    fn add(&mut self, name: &str, value: &str, line: u64) -> Taken {
        if self.all.len() >= MAX {
            return Taken::Unread("more than 10000 facts");
        }
        self.all.entry(cut(name)).or_insert_with(|| (cut(value), line));
        Taken::Yes
    }

    /// A value and its line.
    pub(in crate::transcript) fn get(&self, name: &str) -> Option<(&str, u64)> {
        self.all.get(name).map(|(value, line)| (value.as_str(), *line))
    }
}

impl Parser for Facts {
    fn line(&mut self, line: &Line<'_>) -> Taken {
        match self.kind {
            Kind::Lscpu => match pair(line) {
                Some((name, value)) => self.add(name, value, line.number),
                None => Taken::No,
            },
            Kind::Cpupower => match pair(line) {
                Some((name, value)) => self.add(name, value, line.number),
                // The rest of a value: a list of governors, what the kernel asserts.
                None if line.text.starts_with("  ") => Taken::Yes,
                None => Taken::No,
            },
            Kind::Lsmod => match line.words.as_slice() {
                ["Module", "Size", ..] if self.all.is_empty() => Taken::Yes,
                [module, size, users, ..]
                    if whole::<u64>(size).is_some() && whole::<u64>(users).is_some() =>
                {
                    self.add(module, size, line.number)
                }
                _ => Taken::No,
            },
            Kind::Cmdline => {
                if !self.all.is_empty() {
                    return Taken::No;
                }
                for word in &line.words {
                    let (name, value) = word.split_once('=').unwrap_or((word, ""));
                    let _ = self.add(name, value, line.number);
                }
                Taken::Yes
            }
        }
    }

    fn end(self: Box<Self>) -> Parsed {
        Parsed::Facts(*self)
    }
}

impl Facts {
    pub(super) fn describe(&self) -> Described {
        let (tool, of) = match self.kind {
            Kind::Lscpu => ("lscpu", ["fact", "facts"]),
            Kind::Cpupower => ("cpupower frequency-info", ["fact", "facts"]),
            Kind::Lsmod => ("lsmod", ["module", "modules"]),
            Kind::Cmdline => ("/proc/cmdline", ["parameter", "parameters"]),
        };
        Described::new(tool, "names and values", self.all.len(), of)
    }
}
