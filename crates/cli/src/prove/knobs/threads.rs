// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Nice value, policy and CPUs of all threads of a process.

use super::Step;
use crate::failure::{Exit, Failure};
use crate::host::task::{Process, Property};
use anyhow::{Context as _, Result};
use deburr_core::procfs::cpu_list;
use deburr_core::prove::knob::Knob;

pub(super) fn resolve(knob: &Knob, property: Property) -> Result<Vec<Step>> {
    let process = process(knob)?;
    let value = match property {
        // As it reads back.
        Property::Affinity => cpu_list::format(&cpu_list::parse(knob.value().as_bytes())?),
        Property::Nice => knob.value().parse::<i32>()?.to_string(),
        Property::Policy => knob.value().to_owned(),
    };
    for thread in process.threads().with_context(|| format!("`{knob}`"))? {
        let now = thread.read(property)?.unwrap_or_default();
        if now.starts_with("policy-") {
            return Err(Failure::bad_input(format!(
                "`{knob}`: {thread} has a policy with deadlines, which could not be put back"
            )));
        }
    }
    Ok(vec![Step::Threads { process, property, value }])
}

/// The process that a knob is about.
pub(super) fn process(knob: &Knob) -> Result<Process> {
    if !rustix::process::geteuid().is_root() {
        let why = "only root can do that: run it with `sudo`";
        return Err(Failure::error(Exit::Missing, format!("`{knob}`: {why}")));
    }
    let pid = knob.subject().parse()?;
    let found = Process::of(pid).and_then(|process| process.stat().map(|_| process));
    found.map_err(|_| Failure::bad_input(format!("`{knob}`: there is no process {pid}")))
}
