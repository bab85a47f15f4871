// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures of counters of the kernel: pressure-stall files, `cpu.stat` of a cgroup, `schedstat` of a thread.

use super::{Described, Parsed, Parser, Taken};
use crate::procfs::schedstat::Schedstat;
use crate::procfs::{cgroup_cpu, pressure, schedstat};
use crate::transcript::engine::Context;
use crate::transcript::line::{Line, number, whole};

/// Captures of one file that are kept.
const MAX: usize = 10_000;

/// A pressure-stall file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::transcript) struct Stall {
    /// First and last line.
    pub(in crate::transcript) lines: (u64, u64),
    /// Percent of the last 10 s, 60 s and 300 s in which some task was stalled; and all tasks.
    pub(in crate::transcript) some: Option<[f64; 3]>,
    pub(in crate::transcript) full: Option<[f64; 3]>,
}

/// `cpu.stat` of a cgroup.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::transcript) struct CpuStat {
    /// First and last line.
    pub(in crate::transcript) lines: (u64, u64),
    /// What it holds.
    pub(in crate::transcript) stat: cgroup_cpu::CpuStat,
    text: String,
}

/// Captures of one kind of file.
#[derive(Debug)]
pub(in crate::transcript) enum Counters {
    /// Pressure, and the name of its resource if the text says it.
    Pressure(Option<String>, Vec<Stall>),
    /// `cpu.stat`.
    CpuStat(Vec<CpuStat>),
    /// `schedstat`: line and counters.
    Schedstat(Vec<(u64, Schedstat)>),
}

/// The words of a line without the name of the file that `grep` puts before it.
fn plain<'t>(line: &Line<'t>) -> Vec<&'t str> {
    let mut words = line.words.clone();
    if let Some(first) = words.first_mut()
        && first.starts_with('/')
        && let Some((_, rest)) = first.rsplit_once(':')
    {
        *first = rest;
    }
    words
}

fn is_pressure(words: &[&str]) -> bool {
    matches!(words.first(), Some(&("some" | "full")))
        && words.get(1).is_some_and(|word| word.starts_with("avg10="))
}

fn is_cpu_stat(words: &[&str]) -> bool {
    const NAMES: &[&str] = &[
        "nr_periods",
        "nr_throttled",
        "throttled_time",
        "throttled_usec",
        "usage_usec",
        "user_usec",
        "system_usec",
        "nr_bursts",
        "burst_time",
        "burst_usec",
        "core_sched.force_idle_usec",
        "nice_usec",
        "wait_sum",
    ];
    matches!(words, [name, value] if NAMES.contains(name) && whole::<u64>(value).is_some())
}

fn is_schedstat(words: &[&str], context: &Context) -> bool {
    let path = context.path.as_deref().unwrap_or("");
    let named = path.ends_with("/schedstat") && path != "/proc/schedstat";
    named && words.len() == 3 && words.iter().all(|word| whole::<u64>(word).is_some())
}

pub(super) fn begins(line: &Line<'_>, context: &Context) -> Option<Box<dyn Parser>> {
    let words = plain(line);
    let first = line.words.first().copied().unwrap_or("");
    let counters = if is_pressure(&words) {
        let of_grep =
            first.starts_with('/').then(|| first.rsplit_once(':')).flatten().map(|(path, _)| path);
        let path = of_grep.or(context.path.as_deref());
        let resource = path.and_then(|path| {
            let name = path.rsplit('/').next()?;
            let name = name.strip_suffix(".pressure").unwrap_or(name);
            ["cpu", "io", "memory", "irq"].contains(&name).then(|| name.to_owned())
        });
        Counters::Pressure(resource, vec![])
    } else if is_cpu_stat(&words) {
        Counters::CpuStat(vec![])
    } else if is_schedstat(&words, context) {
        Counters::Schedstat(vec![])
    } else {
        return None;
    };
    Some(Box::new(Reading { counters, open: false }))
}

struct Reading {
    counters: Counters,
    /// Whether lines belong to the last capture.
    open: bool,
}

impl Parser for Reading {
    fn line(&mut self, line: &Line<'_>) -> Taken {
        let words = plain(line);
        let lines = (line.number, line.number);
        match &mut self.counters {
            Counters::Pressure(_, all) => {
                if !is_pressure(&words) {
                    return Taken::No;
                }
                let value =
                    |name: &str| words.iter().find_map(|word| number(word.strip_prefix(name)?));
                let (Some(a), Some(b), Some(c)) =
                    (value("avg10="), value("avg60="), value("avg300="))
                else {
                    return Taken::Unread("a line of pressure that is cut off");
                };
                let is_some = words[0] == "some";
                // One of each in a capture; the total is checked by the parser of the live file.
                if is_some && pressure::parse(words.join(" ").as_bytes()).is_err() {
                    return Taken::Unread("a line of pressure that is cut off");
                }
                if is_some || all.is_empty() {
                    if all.len() >= MAX {
                        return Taken::Unread("more than 10000 captures");
                    }
                    all.push(Stall { lines, ..Stall::default() });
                }
                let Some(last) = all.last_mut() else { return Taken::No };
                last.lines.1 = line.number;
                if is_some {
                    last.some = Some([a, b, c]);
                } else {
                    last.full = Some([a, b, c]);
                }
                Taken::Yes
            }
            Counters::CpuStat(all) => {
                if !is_cpu_stat(&words) {
                    return Taken::No;
                }
                // A name that was there already begins the next capture.
                let again = |last: &CpuStat| {
                    last.text.lines().any(|own| own.split(' ').next() == Some(words[0]))
                };
                if !self.open || all.last().is_none_or(again) {
                    if all.len() >= MAX {
                        return Taken::Unread("more than 10000 captures");
                    }
                    all.push(CpuStat { lines, ..CpuStat::default() });
                    self.open = true;
                }
                let Some(last) = all.last_mut() else { return Taken::No };
                last.lines.1 = line.number;
                last.text += &format!("{} {}\n", words[0], words[1]);
                Taken::Yes
            }
            Counters::Schedstat(all) => {
                let numbers =
                    words.len() == 3 && words.iter().all(|word| whole::<u64>(word).is_some());
                let parsed =
                    numbers.then(|| schedstat::parse(words.join(" ").as_bytes()).ok()).flatten();
                match parsed {
                    Some(_) if all.len() >= MAX => Taken::Unread("more than 10000 captures"),
                    Some(of) => {
                        all.push((line.number, of));
                        Taken::Yes
                    }
                    None => Taken::No,
                }
            }
        }
    }

    fn blank(&mut self) {
        self.open = false;
    }

    fn end(mut self: Box<Self>) -> Parsed {
        if let Counters::CpuStat(all) = &mut self.counters {
            for one in all {
                one.stat = cgroup_cpu::cpu_stat(one.text.as_bytes());
                one.text.clear();
            }
        }
        Parsed::Counters(self.counters)
    }
}

impl Counters {
    pub(super) fn describe(&self) -> Described {
        let (tool, n) = match self {
            Self::Pressure(_, all) => ("/proc/pressure", all.len()),
            Self::CpuStat(all) => ("cpu.stat", all.len()),
            Self::Schedstat(all) => ("/proc/PID/schedstat", all.len()),
        };
        let layout = match self {
            Self::Pressure(Some(resource), _) => format!("resource {resource}"),
            Self::Pressure(None, _) => "of an unknown resource".into(),
            _ => "cumulative counters".into(),
        };
        Described::new(tool, layout, n, ["capture", "captures"])
    }
}
