// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What samples mean: statements, each with its numbers, their places, and what they cannot say.
//!
//! One module per question. A claim that the samples do not carry is not made: then the statement says what would settle
//! it.

mod device;
mod events;
mod flusher;
mod host;
mod quota;
mod requests;
mod run_time;
mod runnable;
mod sysstat;
mod turns;
mod waits;
mod workers;

pub(super) use device::{between_captures_s, interval_s as interval_of_reports};

use super::Given;
use super::document::{Fact, Statement};
use super::engine::Section;
use super::layouts::Parsed;
use super::layouts::host::Kind;

/// Largest number of statements: a file may hold thousands of runs.
const MAX_STATEMENTS: usize = 200;

/// All that was read, as if it were of one host at one time.
pub(super) struct Case<'s> {
    pub(super) sections: &'s [Section],
    pub(super) given: Given,
    cpus: Option<(u32, String)>,
}

impl<'s> Case<'s> {
    /// The sections, what the user says, and the number of CPUs in the text with its place.
    pub(super) fn new(
        sections: &'s [Section],
        given: Given,
        in_text: Option<(u32, String)>,
    ) -> Self {
        let option = given.cpus.map(|cpus| (cpus, "--cpus".to_owned()));
        let named = option.or(in_text).or_else(|| cpus_in(sections));
        Self { sections, given, cpus: named.filter(|(cpus, _)| *cpus > 0) }
    }

    /// Facts that hold for all sections.
    pub(super) fn known(&self) -> Vec<Fact> {
        let fact = |name: &str, value: String, source: &str| Fact {
            name: name.into(),
            value,
            source: source.into(),
        };
        let cpus = self.cpus.iter().map(|(cpus, from)| fact("CPUs", cpus.to_string(), from));
        let interval = self.given.interval_s.iter();
        cpus.chain(interval.map(|s| fact("interval", format!("{s} s"), "--interval"))).collect()
    }

    /// Number of CPUs, and where that is from.
    pub(super) fn cpus(&self) -> Option<(u32, &str)> {
        self.cpus.as_ref().map(|(cpus, from)| (*cpus, from.as_str()))
    }

    /// Time between two reports in seconds, and where that is from: the user, or the first number of the command.
    /// `with_value` lists the options of the command that have a value.
    pub(super) fn interval_s(
        &self,
        section: &Section,
        with_value: &[&str],
    ) -> Option<(f64, &'static str)> {
        let of_command = section.command.numbers(with_value).first().copied();
        let given = self.given.interval_s.map(|s| (s, "--interval"));
        given.or(of_command.map(|s| (s, "the command"))).filter(|(s, _)| *s > 0.0 && *s < 1e6)
    }
}

/// Number of CPUs in the output of `lscpu` or in JSON of sysstat, and its place.
fn cpus_in(sections: &[Section]) -> Option<(u32, String)> {
    sections.iter().find_map(|section| match &section.parsed {
        Parsed::Facts(it) if it.kind == Kind::Lscpu => {
            let (cpus, line) = it.get("CPU(s)")?;
            Some((cpus.parse().ok()?, section.source_of((line, line))))
        }
        Parsed::Json(it) => it.cpus.map(|(cpus, _)| (cpus, section.source())),
        _ => None,
    })
}

/// All statements, ordered by how much they claim, then by the order of the text.
pub(super) fn statements(case: &Case<'_>) -> Vec<Statement> {
    let mut all = Vec::new();
    let slices = turns::slices(case);
    for section in case.sections {
        match &section.parsed {
            Parsed::Vmstat(it) => all.extend(runnable::statement(case, section, it)),
            Parsed::Histograms(it) => {
                // Who takes turns waits for each turn: that is not a tail.
                match turns::statement(case, section, it, &slices) {
                    Some(turns) => all.push(turns),
                    None => all.extend(waits::statements(case, section, it)),
                }
            }
            Parsed::Iostat(it) => all.extend(device::statements(case, section, it)),
            Parsed::Diskstats(it) => all.extend(device::of_captures(case, section, it)),
            Parsed::Writeback(it) => all.extend(flusher::statements(section, it)),
            Parsed::Counts(it) => all.extend(workers::counts(case, section, it)),
            Parsed::Processes(it) => all.extend(workers::on_cpus(section, it)),
            Parsed::Cgroup(it) => all.extend(quota::statement(case, section, it)),
            Parsed::Biosnoop(it) => all.extend(requests::statements(case, section, it)),
            Parsed::Sysstat(it) => all.extend(sysstat::statements(case, section, it)),
            Parsed::Json(it) => {
                all.extend(sysstat::statements(case, section, &it.sysstat));
                let disks = it.disks.iter();
                all.extend(disks.flat_map(|disks| device::statements(case, section, disks)));
            }
            Parsed::Strace(it) => all.extend(events::calls(case, section, it)),
            Parsed::Runqslower(it) => all.extend(events::long_waits(section, it)),
            Parsed::Facts(it) => all.extend(host::facts(section, it)),
            Parsed::Counters(it) => all.extend(host::counters(section, it)),
            Parsed::Mounts(_) | Parsed::Time(_) | Parsed::Fdisk(_) | Parsed::Debugfs(_) => {}
        }
        if all.len() >= MAX_STATEMENTS {
            break;
        }
    }
    all.extend(run_time::statement(case));
    all.sort_by_key(|statement| statement.weight);
    all.truncate(MAX_STATEMENTS);
    all
}
