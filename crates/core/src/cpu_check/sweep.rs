// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Evaluates the steps of the sweep: up to how many workers all run at the same speed.
//!
//! The amount of work alone says little, because on a busy host the scheduler gives some workers more CPU time than
//! others. So each worker has a *speed*, its work per second of CPU time, and a *share*, its CPU time per second of
//! wall time.

use super::{HELD_UP, is_sliced, quantile, share, sorted, speed};
use crate::recording::{Run, SweepWorker};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// If workers had less than this share of the CPU time that they would have had on an idle machine, they competed with
/// other tasks.
const ALONE_SHARE: f64 = 0.85;

/// What limits the workers of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Regime {
    /// All workers run at full speed.
    Even,
    /// Some workers are slower than others in every chunk: they share cores, or their cores are slower.
    Slower,
    /// Some workers stop at times, unnoticed by this kernel.
    Stopped,
    /// All workers are equally slower in every chunk.
    AllSlower,
    /// All workers stop at times, equally.
    AllStopped,
    /// Other tasks of this machine, or a limit, took CPU time from the workers; in the remaining time they ran at full
    /// speed.
    Competition,
}

/// One step of the sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Number of workers.
    pub workers: u32,
    /// What limits the workers.
    pub regime: Regime,
    /// Ratio of the speed of the slowest worker to that of the fastest one of the step.
    pub evenness: f64,
    /// Work of all workers, in units of what one worker does alone in the same time.
    pub work: f64,
    /// Median of the workers' shares of CPU time.
    pub share: f64,
    /// Share of the slowest worker's wall time in which it was stopped unnoticed by the kernel.
    pub slowest_gaps: f64,
    /// Ratio of the undisturbed duration of a chunk to that of the slowest worker.
    pub slowest_chunk: f64,
    /// Number of migrations of all workers between CPUs.
    pub migrations: u64,
    /// Ratio of each worker's speed to the highest one of the sweep, ascending.
    pub speeds: Vec<f64>,
}

/// Evaluates the steps, by number of workers.
#[must_use]
pub fn steps(cpus: usize, workers: &[SweepWorker]) -> Vec<Step> {
    let fastest = workers
        .iter()
        .filter_map(|worker| Some((speed(&worker.run)?, worker.run.chunk_ns)))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let Some((best, chunk_ns)) = fastest else { return vec![] };
    let mut by_step: BTreeMap<u32, Vec<&SweepWorker>> = BTreeMap::new();
    for worker in workers {
        by_step.entry(worker.workers).or_default().push(worker);
    }
    let step = |(n, workers): (u32, Vec<&SweepWorker>)| step(cpus, n, &workers, best, chunk_ns);
    by_step.into_iter().filter_map(step).collect()
}

fn step(cpus: usize, n: u32, workers: &[&SweepWorker], best: f64, chunk_ns: u64) -> Option<Step> {
    let runs = workers.iter().filter_map(|worker| Some((speed(&worker.run)? / best, &worker.run)));
    let (slowest, run) = runs.clone().min_by(|a, b| a.0.total_cmp(&b.0))?;
    let speeds = sorted(runs.clone().map(|(speed, _)| speed));
    let fastest = speeds.last().copied()?;
    let median_share = quantile(&sorted(runs.clone().map(|(_, run)| share(run))), 0.5)?;
    let evenness = slowest / fastest;
    let slowest_chunk = chunk_ns as f64 / run.chunk_ns.max(1) as f64;
    let sliced = is_sliced(slowest, slowest_chunk);
    // Counts all workers, including those that never ran and have no speed.
    let deserved = (cpus as f64 / f64::from(n)).min(1.0);
    let level = quantile(&speeds, 0.5)?;
    let regime = match () {
        () if evenness < HELD_UP && sliced => Regime::Stopped,
        () if evenness < HELD_UP => Regime::Slower,
        () if level < HELD_UP && sliced => Regime::AllStopped,
        () if level < HELD_UP => Regime::AllSlower,
        () if median_share < ALONE_SHARE * deserved => Regime::Competition,
        () => Regime::Even,
    };
    let work = runs.map(|(speed, run)| speed * share(run)).sum();
    Some(Step {
        workers: n,
        regime,
        evenness,
        work,
        share: median_share,
        slowest_gaps: unnoticed_ns(run) as f64 / run.wall_ns.max(1) as f64,
        slowest_chunk,
        migrations: workers.iter().map(|worker| u64::from(worker.migrations)).sum(),
        speeds,
    })
}

/// Time in gaps beyond the time in which the worker had no CPU according to the kernel.
fn unnoticed_ns(run: &Run) -> u64 {
    run.gap_ns.saturating_sub(run.wall_ns.saturating_sub(run.cpu_ns))
}

/// Largest number of workers, up to the number of CPUs, up to which every step is even. Steps with competition from
/// other tasks count as even.
#[must_use]
pub fn even_up_to(cpus: usize, steps: &[Step]) -> u32 {
    let within = steps.iter().filter(|step| step.workers as usize <= cpus);
    let even = within.take_while(|step| matches!(step.regime, Regime::Even | Regime::Competition));
    even.last().map_or(0, |step| step.workers)
}

/// The most work of any step with at most one worker per CPU. Speeds are ratios to the highest one, and what disturbs a
/// step lowers its work: the machine has at least about that many cores.
#[must_use]
pub fn most_work(cpus: usize, steps: &[Step]) -> f64 {
    let within = steps.iter().filter(|step| step.workers as usize <= cpus);
    within.map(|step| step.work).fold(0.0, f64::max)
}

/// Work that the machine does with one worker per CPU, in units of what one worker does alone: the number of cores.
/// `None` without that step, or if other tasks took CPU time during it.
#[must_use]
pub fn capacity(cpus: usize, steps: &[Step]) -> Option<f64> {
    let full = steps.iter().find(|step| step.workers as usize == cpus)?;
    (full.share >= ALONE_SHARE).then_some(full.work)
}
