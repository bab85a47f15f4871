// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A load sweep: runs each combination of rate and variant several times, interleaved, so that changes on the host
//! during the sweep affect all of them alike. Each run is a fresh process in a fresh cgroup.

pub(crate) mod address;
mod cgroups;
pub(crate) mod load;
mod meter;
pub(crate) mod rates;
mod service;
pub(crate) mod variants;

pub(crate) use cgroups::{RunGroup, SweepCgroups};
pub(crate) use service::Service;

use crate::clock::monotonic_ns;
use crate::failure::Failure;
use address::Address;
use anyhow::{Context as _, Result, bail};
use deburr_core::sweep::{Run, Setup, Switches, Throttling};
use load::{Load, Outcome};
use meter::{Cost, Meter};
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Longest interval between checks of a running command. The first interval is [`FIRST_LOOK`], and it doubles.
const LOOK: Duration = Duration::from_millis(100);
const FIRST_LOOK: Duration = Duration::from_millis(5);
/// Delay from the call until the load begins, before any warm-up: time to set up the generator and find counters.
const LEAD_NS: u64 = 20_000_000;

/// A sweep to be made on this host.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The setup that the document records.
    pub(crate) setup: Setup,
    /// The command and its arguments.
    pub(crate) words: Vec<OsString>,
    /// Address of the service to drive; `None` = the command's own run time is measured.
    pub(crate) address: Option<Address>,
    /// Longest time that the service may take until it listens.
    pub(crate) start_timeout: Duration,
}

/// One run to be made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Step {
    variant: usize,
    rate_per_s: Option<f64>,
    repetition: u32,
}

impl Plan {
    /// The runs, in order: per repetition all rates, and per rate all variants. Every second repetition reverses the
    /// variants, so that no variant always follows the same other one.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let rates: Vec<Option<f64>> = match &self.address {
            Some(_) => self.setup.rates_per_s.iter().copied().map(Some).collect(),
            None => vec![None],
        };
        let mut steps = Vec::new();
        for repetition in 0..self.setup.repetitions {
            for &rate_per_s in &rates {
                let mut variants: Vec<usize> = (0..self.setup.variants.len()).collect();
                if repetition % 2 == 1 {
                    variants.reverse();
                }
                let step = |variant| Step { variant, rate_per_s, repetition };
                steps.extend(variants.into_iter().map(step));
            }
        }
        steps
    }

    /// The step in words, for instance: `GOMAXPROCS=96` at 400/s.
    pub(crate) fn name(&self, step: Step) -> String {
        let variant = &self.setup.variants[step.variant].name;
        let rate = step.rate_per_s.map_or(String::new(), |rate| format!(" at {rate}/s"));
        format!("`{variant}`{rate}")
    }

    /// Least duration of a run under load, in seconds: warm-up and window.
    pub(crate) fn run_seconds(&self) -> f64 {
        self.setup.warmup_s + self.setup.seconds
    }
}

/// Runs one step. `begun_ns` is when the sweep began, by `CLOCK_MONOTONIC`. `None` if `stop` asked for the end.
pub(crate) fn run(
    plan: &Plan,
    ground: &mut SweepCgroups,
    step: Step,
    begun_ns: u64,
    stop: &dyn Fn() -> bool,
) -> Result<Option<Run>> {
    let group = ground.cgroup(plan.setup.limit_cpus)?;
    let done = match &plan.address {
        Some(address) => serve(plan, ground, &group, address, step, begun_ns, stop),
        None => work(plan, ground, &group, step, begun_ns, stop),
    };
    let ended = group.end();
    let done = done.with_context(|| plan.name(step))?;
    ended.map(|()| done)
}

fn start(plan: &Plan, ground: &SweepCgroups, group: &RunGroup, step: Step) -> Result<Service> {
    Service::start(ground, group, &plan.words, &plan.setup.variants[step.variant].env)
}

fn serve(
    plan: &Plan,
    ground: &SweepCgroups,
    group: &RunGroup,
    address: &Address,
    step: Step,
    begun_ns: u64,
    stop: &dyn Fn() -> bool,
) -> Result<Option<Run>> {
    let rate_per_s = step.rate_per_s.context("a service has a rate")?;
    let local = address.all.iter().all(|address| address.ip().to_canonical().is_loopback());
    for &taken in address.all.iter().filter(|_| local) {
        if service::taken(&address.target.at(taken)) {
            return Err(Failure::bad_input(format!(
                "somebody listens at {taken} already, and would be measured instead: end that, or take another \
                 port"
            )));
        }
    }
    let mut service = start(plan, ground, group, step)?;
    let Some(found) = service.wait_for(&address.all, plan.start_timeout, stop)? else {
        return Ok(None);
    };
    let start_ns = monotonic_ns() + LEAD_NS;
    let from_ns = start_ns + (plan.setup.warmup_s * 1e9) as u64;
    let to_ns = from_ns + (plan.setup.seconds * 1e9) as u64;
    let load = Load {
        target: address.target.at(found),
        rate_per_s,
        start_ns,
        from_ns,
        to_ns,
        drain_ns: load::drain_ns(to_ns - from_ns),
        max_connections: plan.setup.max_connections.unwrap_or(1),
    };
    let (outcome, cost) = measured(&load, group, stop)?;
    if outcome.stopped {
        return Ok(None);
    }
    service.must_run("while it was under load")?;
    nobody_answered(&outcome, &service)?;
    let run = Run {
        window_ns: to_ns - from_ns,
        requests: Some(outcome.requests),
        latency: outcome.latency,
        ..blank(step, from_ns.saturating_sub(begun_ns), cost)
    };
    Ok(Some(run))
}

/// Drives the load, and measures the cost of its window meanwhile.
pub(crate) fn measured(
    load: &Load,
    group: &RunGroup,
    stop: &dyn Fn() -> bool,
) -> Result<(Outcome, Cost)> {
    let stopped = AtomicBool::new(false);
    thread::scope(|scope| {
        let meter = scope.spawn(|| Meter::over(group, (load.from_ns, load.to_ns), &stopped));
        let outcome = load::drive(load, stop);
        let whole = outcome.as_ref().is_ok_and(|outcome| !outcome.stopped);
        stopped.store(!whole, Ordering::Relaxed);
        let Ok(cost) = meter.join() else { bail!("the meter failed") };
        Ok((outcome?, cost?))
    })
}

/// Fails if requests failed and not one was answered, during the warm-up or the window: such a service is broken,
/// not slow.
fn nobody_answered(outcome: &Outcome, service: &Service) -> Result<()> {
    let requests = &outcome.requests;
    if requests.answered > 0 || outcome.warmup.answered > 0 || requests.failed == 0 {
        return Ok(());
    }
    let kinds: Vec<_> =
        requests.failures.iter().map(|(why, count)| format!("{why} ({count} times)")).collect();
    Err(Failure::bad_input(format!(
        "no request was answered well: {}{}",
        kinds.join(", "),
        service.last_output()
    )))
}

/// Runs a command to its end and measures its run time.
fn work(
    plan: &Plan,
    ground: &SweepCgroups,
    group: &RunGroup,
    step: Step,
    begun_ns: u64,
    stop: &dyn Fn() -> bool,
) -> Result<Option<Run>> {
    let mut meter = Meter::start(group)?;
    let from_ns = monotonic_ns();
    let mut command = start(plan, ground, group, step)?;
    let mut look = FIRST_LOOK;
    let status = loop {
        if let Some(status) = command.wait(look)? {
            break status;
        }
        if stop() {
            return Ok(None);
        }
        meter.look(false);
        // Back off: short commands get samples too, and long ones are not polled all the time.
        look = (look * 2).min(LOOK);
    };
    let window_ns = monotonic_ns() - from_ns;
    if !status.success() {
        return Err(command.ended(status, "although its time was to be measured"));
    }
    let run = blank(step, from_ns.saturating_sub(begun_ns), meter.end()?);
    Ok(Some(Run { window_ns, ..run }))
}

fn blank(step: Step, start_ns: u64, cost: Cost) -> Run {
    let Cost { cpu_ns, memory_bytes, threads, throttling, switches } = cost;
    let (throttling, switches): (Option<Throttling>, Option<Switches>) = (throttling, switches);
    Run {
        variant: step.variant,
        rate_per_s: step.rate_per_s,
        repetition: step.repetition,
        start_s: start_ns as f64 / 1e9,
        window_ns: 0,
        requests: None,
        latency: None,
        cpu_ns,
        memory_bytes,
        threads,
        throttling,
        switches,
    }
}
