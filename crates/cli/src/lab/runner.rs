// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a scenario: once without its faults, once with them. In both runs `deburr` observes from outside and the
//! victim measures itself.

use super::check::{self, Check, Topic};
use super::expect;
use super::fitness::Verdict;
use super::keep::Keep;
use super::meter::Meter;
use super::observed::Observed;
use super::scenario::Scenario;
use super::stage::{Stage, Stop};
use super::victim::{Stall, Window};
use super::victims::{Running, WhichRun};
use crate::store::Reader;
use anyhow::{Context as _, Result, bail, ensure};
use deburr_core::finding::Report;
use deburr_core::recording::{BlockRecord, Record, StallKind};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// From the start of the load to the start of the observation: longer than several scheduler and quota periods, so
/// that a steady state is observed.
const SETTLE: Duration = Duration::from_millis(500);
/// Longest time that attaching, reading and reporting may take, in addition to the observation.
const OBSERVER_EXTRA: Duration = Duration::from_secs(60);

/// Settings of a run.
#[derive(Clone, Debug)]
pub(crate) struct Settings<'a> {
    /// Length of the observation with the fault, in seconds.
    pub(crate) seconds: u32,
    /// Weight of the lab's cgroup against the rest of the host, in multiples of the default.
    pub(crate) weight: u32,
    /// Where to keep the recording of the fault run.
    pub(crate) keep: Option<&'a Keep>,
    /// Where to keep the recording of the control run. It is then as long as the other, so that both can be compared.
    pub(crate) keep_control: Option<&'a Keep>,
}

/// Minimum length of the observation without the fault, in seconds, unless that with the fault is shorter.
const CONTROL_SECONDS: u32 = 3;
/// Maximum of the same length. Only rhythms need longer observations, and the control run has none.
const MOST_CONTROL_SECONDS: u32 = 8;

impl Settings<'_> {
    /// Length of the observation without the fault, in seconds. Half of the other is enough, since there is nothing
    /// to find, unless its recording is kept.
    pub(crate) fn control_seconds(&self) -> u32 {
        if self.keep_control.is_some() {
            return self.seconds;
        }
        self.seconds.div_ceil(2).clamp(CONTROL_SECONDS, MOST_CONTROL_SECONDS).min(self.seconds)
    }
}

/// The result of a scenario.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    /// Name of the scenario.
    pub(crate) scenario: String,
    /// Whether all checks passed.
    pub(crate) passed: bool,
    /// Whether it passed or failed, or whether the machine may be the reason for a failure.
    pub(crate) verdict: Verdict,
    /// Why the machine was not fit for the experiment, by run, and what of the fault did not happen. Empty = it was
    /// fit.
    pub(crate) unfit: Vec<String>,
    /// Number of tries, including the last. A try is repeated if something fails and the machine may be the reason.
    pub(crate) tries: u32,
    /// The run without faults.
    pub(crate) control: Observed,
    /// The run with faults.
    pub(crate) fault: Observed,
    /// The expectations, and whether they were met.
    pub(crate) checks: Vec<Check>,
}

/// Maximum number of tries of a scenario, while something fails and the machine may be the reason.
const TRIES: u32 = 3;

/// Tries once, and again while the result is inconclusive: [`TRIES`] times at most. `once` gets the number of the try, and
/// returns the result with its verdict.
pub(super) fn tried<T>(mut once: impl FnMut(u32) -> Result<(T, Verdict)>) -> Result<T> {
    let mut tries = 1;
    loop {
        let (result, verdict) = once(tries)?;
        if verdict != Verdict::Inconclusive || tries == TRIES {
            return Ok(result);
        }
        tries += 1;
    }
}

/// Runs a scenario, control and fault run, up to [`TRIES`] times. `progress` receives messages about the state.
pub(crate) fn run(
    scenario: &Scenario,
    settings: &Settings<'_>,
    stop: &Stop,
    progress: &mut dyn FnMut(&str),
) -> Result<Outcome> {
    tried(|tries| {
        let mut outcome = run_once(scenario, settings, stop, progress)?;
        outcome.tries = tries;
        if outcome.verdict == Verdict::Inconclusive && tries < TRIES {
            progress(&void(&scenario.name, tries, &outcome.unfit, &outcome.checks));
        }
        let verdict = outcome.verdict;
        Ok((outcome, verdict))
    })
}

/// Why a try counts for nothing, in words.
pub(super) fn void(scenario: &str, tries: u32, unfit: &[String], checks: &[Check]) -> String {
    let failed = checks.iter().filter(|check| !check.pass);
    let failed: Vec<_> = failed.map(|check| check.what.as_str()).collect();
    format!(
        "`{scenario}`: try {tries} of {TRIES} is void: {}; not so: {}",
        unfit.join(", "),
        failed.join("; ")
    )
}

/// Runs a scenario, control and fault run, once.
pub(crate) fn run_once(
    scenario: &Scenario,
    settings: &Settings<'_>,
    stop: &Stop,
    progress: &mut dyn FnMut(&str),
) -> Result<Outcome> {
    let (seconds, control_seconds) = (settings.seconds, settings.control_seconds());
    let (without, with) = scenario.run_names();
    progress(&format!("`{}`: {control_seconds} s {without}", scenario.name));
    let mut quota_us = None;
    let control = Settings { seconds: control_seconds, ..*settings };
    let which = WhichRun { with_faults: false, quota_us: &mut quota_us };
    let control = observe(scenario, &control, stop, which).context("in the control run")?;
    progress(&format!("`{}`: {seconds} s {with}", scenario.name));
    let which = WhichRun { with_faults: true, quota_us: &mut quota_us };
    let fault = observe(scenario, settings, stop, which).context("in the fault run")?;
    let checks = expect::check(scenario, &control, &fault);
    let passed = checks.iter().all(|check| check.pass);
    let mut unfit: Vec<String> = Vec::new();
    for (name, run) in [(without, &control), (with, &fault)] {
        unfit.extend(run.machine.unfit().into_iter().map(|reason| format!("{name}, {reason}")));
    }
    let verdict = check::verdict(&checks, &unfit);
    let is_missing = |topic| [Topic::Fault, Topic::Control].contains(&topic);
    let missing = checks.iter().filter(|check| !check.pass && is_missing(check.topic));
    unfit.extend(missing.map(|check| format!("not as the experiment needs it: {}", check.what)));
    Ok(Outcome {
        scenario: scenario.name.clone(),
        passed,
        verdict,
        unfit,
        tries: 1,
        control,
        fault,
        checks,
    })
}

fn observe(
    scenario: &Scenario,
    settings: &Settings<'_>,
    stop: &Stop,
    which: WhichRun<'_>,
) -> Result<Observed> {
    observe_after(scenario, settings, stop, which, &mut |_, _| Ok(()))
}

/// An action on the running experiment before it is observed. It gets the stage and the pid of the victim.
pub(super) type Preparation<'a> = &'a mut dyn FnMut(&mut Stage, u32) -> Result<()>;

/// A scenario's processes at work. Dropping it ends them and undoes everything.
pub(super) struct Load {
    // Dropped in this order.
    pub(super) meter: Meter,
    pub(super) victim: Running,
    pub(super) stage: Stage,
}

/// Starts victim and faults.
pub(super) fn start(
    scenario: &Scenario,
    weight: u32,
    stop: &Stop,
    which: WhichRun<'_>,
) -> Result<Load> {
    let mut stage = Stage::new(stop.clone(), weight)?;
    if let Some(disk) = &scenario.disk {
        stage.make_disk(disk)?;
    }
    if scenario.host_disk {
        stage.use_host_disk()?;
    }
    let with_faults = which.with_faults;
    let kind = scenario.victim.as_victim();
    kind.prepare(&mut stage)?;
    let mut victim = kind.start(&scenario.victim, &stage, which)?;
    stage.place.victim = Some(victim.pid);
    if let Some(disk) = &scenario.disk {
        // By now the victim has created all its files.
        stage.disk()?.served().set_base_us(disk.base_us)?;
    }
    for fault in &scenario.faults {
        match with_faults {
            true => fault.as_fault().inject(&mut stage)?,
            false => fault.as_fault().leave_out(&mut stage)?,
        }
    }
    let meter = Meter::start(stage.cgroup_dir());
    stage.settle(SETTLE)?;
    victim.begin()?;
    Ok(Load { meter, victim, stage })
}

/// One run: starts victim and faults, calls `before`, observes, and collects what was measured.
pub(super) fn observe_after(
    scenario: &Scenario,
    settings: &Settings<'_>,
    stop: &Stop,
    which: WhichRun<'_>,
    before: Preparation<'_>,
) -> Result<Observed> {
    let with_faults = which.with_faults;
    let Load { mut stage, mut victim, meter } = start(scenario, settings.weight, stop, which)?;
    let pid = victim.pid;
    before(&mut stage, pid)?;
    let recording = stage.scratch("run.deburr");
    let mut also = vec![format!("-o{}", recording.display())];
    also.extend(scenario.syscalls.then(|| "--syscalls".into()));
    also.extend(scenario.entries.iter().map(|entry| format!("--entry={entry}")));
    let periods_before = victim.periods()?;
    let report = report_on(&stage, pid, settings.seconds, also)?;
    let periods = victim.periods()?.zip(periods_before).map(|(now, then)| now.since(then));
    // Both measurements cover the same window, to the nanosecond.
    let window = window_of(&recording)?;
    let machine = meter.finish(window)?;
    let written = match &scenario.disk {
        Some(_) => {
            // The disk becomes fast, so that the victim ends soon.
            let served = stage.disk()?.served();
            served.set_base_us(0)?;
            Some(served.written(window)?)
        }
        None => None,
    };
    let summary = victim.summary(window)?;
    let keep = if with_faults { settings.keep } else { settings.keep_control };
    if let Some(keep) = keep {
        keep.copy(&recording, &stage.cgroup_path())?;
    }
    let observed = Observed {
        victim_pid: pid,
        lab_cgroup: stage.cgroup_path(),
        victim_cpus: stage.cpus(scenario.victim.cpus.as_deref()),
        machine,
        victim: summary,
        written,
        periods,
        recorded: syncs_of(&recording, pid)?,
        report,
    };
    drop(victim);
    stage.clear()?;
    Ok(observed)
}

/// Has this program observe a process for that long, with further arguments, and returns its report.
pub(super) fn report_on(
    stage: &Stage,
    pid: u32,
    seconds: u32,
    also: Vec<String>,
) -> Result<Report> {
    let mut arguments =
        vec!["-q".into(), "--json".into(), format!("-d{seconds}"), format!("-p{pid}")];
    arguments.extend(also);
    let timeout = Duration::from_secs(seconds.into()) + OBSERVER_EXTRA;
    let (status, json, complaint) = stage.run_self(&arguments, timeout)?;
    ensure!(status.success(), "the observing `deburr` failed ({status}): {}", complaint.trim());
    serde_json::from_str(&json).context("the observing `deburr` wrote no report")
}

/// The long syncs of a process, in the order of the recording.
fn syncs_of(recording: &Path, pid: u32) -> Result<Vec<Stall>> {
    let (mut processes, mut stalls, mut start_ns) = (BTreeSet::new(), Vec::new(), 0);
    Reader::open(recording)?.for_each(|record| match record {
        Record::Meta(meta) => start_ns = meta.start_mono_ns,
        Record::Process(process) if process.pid == pid => {
            processes.insert(process.id);
        }
        Record::Block(block) => {
            if let BlockRecord::Stall(stall) = &**block
                && stall.kind == StallKind::Sync
            {
                stalls.push((stall.proc, stall.t0_ns, stall.t1_ns));
            }
        }
        _ => {}
    })?;
    // Timestamps in a recording are relative to its start.
    let own = stalls.into_iter().filter(|(process, ..)| processes.contains(process));
    let stall = |(_, t0_ns, t1_ns): (_, u64, u64)| Stall {
        at_ns: start_ns + t0_ns,
        length_ns: t1_ns.saturating_sub(t0_ns),
    };
    Ok(own.map(stall).collect())
}

/// The window that a recording covers.
fn window_of(recording: &Path) -> Result<Window> {
    let (mut from_ns, mut length_ns) = (None, None);
    Reader::open(recording)?.for_each(|record| match record {
        Record::Meta(meta) => from_ns = Some(meta.start_mono_ns),
        Record::End { window_ns } => length_ns = Some(*window_ns),
        _ => {}
    })?;
    let (Some(from_ns), Some(length_ns)) = (from_ns, length_ns) else {
        bail!("the observing `deburr` did not finish its recording");
    };
    Ok(Window { from_ns, to_ns: from_ns + length_ns })
}
