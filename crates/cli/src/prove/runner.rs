// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the blocks of an experiment: sets what the block needs, lets it settle, observes, and takes the number. After each
//! block it is asked whether the experiment goes on.

use super::probe::Probe;
use crate::args::Asked;
use crate::output;
use crate::session::{self, Plan};
use crate::signals::Signals;
use crate::sinks::Sinks;
use anyhow::Result;
use deburr_core::prove::measure::{Measure, burst_distances};
use deburr_core::recording::{EventKind, TargetSpec};
use deburr_core::view::{Fold, View};
use std::thread;
use std::time::Duration;

/// How often it is looked whether a signal came, while nothing else is done.
const BEAT: Duration = Duration::from_millis(50);

/// What is observed in each block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation<'a> {
    /// The victim.
    pub(crate) target: &'a TargetSpec,
    /// What decides.
    pub(crate) measure: &'a Measure,
    /// The shell command that is timed meanwhile, if any.
    pub(crate) probe: Option<&'a str>,
}

/// What a block gave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken {
    /// The number; or why there is none.
    pub(crate) value: Option<f64>,
    /// Why there is no number.
    pub(crate) why_not: Option<String>,
    /// The distances of the bursts, if their period is what is measured.
    pub(crate) distances_ns: Vec<f64>,
    /// Runs of the probe, and how many of them failed.
    pub(crate) probes: u64,
    pub(crate) probes_failed: u64,
    /// Whether the target has ended: there will be no further number.
    pub(crate) target_gone: bool,
}

/// Waits; returns `false` if a signal came.
pub(crate) fn settle(length: Duration, signals: &Signals) -> bool {
    let beats = length.as_millis() / BEAT.as_millis();
    for _ in 0..beats {
        if signals.pending().is_some() {
            return false;
        }
        thread::sleep(BEAT);
    }
    signals.pending().is_none()
}

impl Observation<'_> {
    /// Observes for so long, and takes the number. `None` if a signal ended it.
    pub(crate) fn take(&self, length: Duration, signals: &Signals) -> Result<Option<Taken>> {
        let probe = self.probe.map(Probe::start);
        let seen = observe(self.target, length, signals);
        let runs = probe.map(Probe::finish).unwrap_or_default();
        let Some(fold) = seen? else { return Ok(None) };
        let view = fold.view();
        let target_gone = view.events().iter().any(|it| matches!(it.kind, EventKind::TargetGone));
        let value = match (disturbed(view), self.measure) {
            (Some(why), _) => Err(why),
            (None, Measure::Probe(it)) => it
                .of(&runs.took_ns)
                .ok_or_else(|| format!("{} runs of the command are too few", runs.took_ns.len())),
            (None, measure) => measure.of(view),
        };
        let distances_ns = match self.measure {
            Measure::StallPeriod if disturbed(view).is_none() => burst_distances(view),
            _ => vec![],
        };
        Ok(Some(Taken {
            distances_ns,
            value: value.as_ref().ok().copied(),
            why_not: value.err(),
            probes: runs.took_ns.len() as u64 + runs.failed,
            probes_failed: runs.failed,
            target_gone,
        }))
    }
}

/// One observation; `None` if a signal ended it.
pub(crate) fn observe(
    target: &TargetSpec,
    length: Duration,
    signals: &Signals,
) -> Result<Option<Fold>> {
    let plan = Plan {
        target: Some(target.clone()),
        entries: vec![],
        window: Some(length),
        asked: Asked::default(),
        command: vec![],
        stdout_is_taken: false,
        quiet: true,
    };
    let mut sinks = Sinks::new(Some(Fold::default()), None);
    session::run(&plan, &mut sinks, signals)?;
    sinks.close();
    Ok(sinks.fold.take().filter(|_| signals.pending().is_none()))
}

/// Why a block counts for nothing: the machine slept, or its clock jumped.
fn disturbed(view: &View) -> Option<String> {
    view.events().iter().find_map(|it| match it.kind {
        EventKind::Suspend { .. } => Some("the machine slept".into()),
        EventKind::ClockJump { .. } => Some("the wall clock was set".into()),
        _ => None,
    })
}

/// Says how far the experiment is.
pub(crate) fn tell(number: usize, of: usize, what: &str, quiet: bool) {
    if !quiet {
        output::say(format!("block {number} of {of} at most: {what}"));
    }
}
