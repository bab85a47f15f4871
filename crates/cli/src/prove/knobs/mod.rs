// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a knob means on this host: the places that it changes, or what is held while it is in effect. One file for each
//! kind of thing. Nothing here changes anything; all that can be known to be wrong is refused here, before the start.

mod cgroup;
mod file;
pub(super) mod latency;
mod module;
pub(super) mod pause;
mod threads;

use crate::collect::Roots;
use crate::failure::Failure;
use crate::host::place::Place;
use crate::host::task::{Process, Property};
use anyhow::{Context as _, Result};
use deburr_core::prove::knob::{Kind, Knob};

/// What is to be done for a knob.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A setting gets a value.
    Write { place: Place, value: String },
    /// All threads of a process get a value.
    Threads { process: Process, property: Property, value: String },
    /// A process is stopped for a part of every second, in percent.
    Pause { process: Process, percent: u32 },
    /// CPUs may take this long to wake up, in microseconds.
    Latency { us: i32 },
}

impl Step {
    /// The settings that it changes, as far as there are any now.
    pub(super) fn places(&self) -> Result<Vec<Place>> {
        Ok(match self {
            Self::Write { place, .. } => vec![place.clone()],
            Self::Threads { process, property, .. } => {
                let threads = process.threads().context("a process has ended")?.into_iter();
                threads.map(|thread| Place::Thread { thread, property: *property }).collect()
            }
            Self::Pause { .. } | Self::Latency { .. } => vec![],
        })
    }
}

/// What a knob means here.
///
/// # Errors
/// If this host has no such setting or process, it cannot be changed, or it does not offer the value.
pub(super) fn resolve(roots: &Roots, knob: &Knob) -> Result<Vec<Step>> {
    match knob.lever().kind {
        Kind::Cgroup => cgroup::resolve(knob),
        Kind::Nice => threads::resolve(knob, Property::Nice),
        Kind::Policy => threads::resolve(knob, Property::Policy),
        Kind::Affinity => threads::resolve(knob, Property::Affinity),
        Kind::Pause => pause::resolve(knob),
        Kind::Module => module::resolve(roots, knob),
        Kind::Env | Kind::Arg => Err(Failure::bad_input(format!(
            "`{knob}` is about a command that the experiment starts: give it at the end, after `--`"
        ))),
        Kind::Cpu if knob.lever().name == latency::NAME => latency::resolve(knob),
        _ => file::resolve(roots, knob),
    }
}

/// What holds now, in words, for the plan of an experiment.
///
/// # Errors
/// As [`resolve`].
pub(super) fn present(roots: &Roots, knob: &Knob) -> Result<String> {
    let mut values = Vec::new();
    for step in resolve(roots, knob)? {
        for place in step.places()? {
            values.extend(place.read()?);
        }
        match step {
            Step::Pause { .. } => values.push("running".into()),
            Step::Latency { .. } => values.push("as others wish".into()),
            _ => {}
        }
    }
    if knob.lever().kind == Kind::Module {
        values.extend(module::not_put_back(roots, knob)?);
    }
    values.sort();
    values.dedup();
    Ok(values.join(", "))
}
