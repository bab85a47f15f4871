// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many workers are served evenly: the steps of the sweep.
//!
//! Counts of work say little by themselves: on a busy host the scheduler gives one worker more time than another.
//! So each is looked at per second of its CPU time (*speed*), and its CPU time per second of wall time (*share*).

use super::{HELD_UP, is_sliced, quantile, share, sorted, speed};
use crate::recording::{Run, SweepWorker};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Workers that had less than this of the CPU time that they would have had alone on the machine share it with
/// other tasks.
const ALONE_SHARE: f64 = 0.85;

/// What a step is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Regime {
    /// All run at full speed.
    Even,
    /// Some are slower than others, in every chunk: they share cores, or their cores are slower.
    Slower,
    /// Some stand still at times without this kernel noticing.
    Stopped,
    /// All are slower alike, in every chunk.
    AllSlower,
    /// All stand still at times alike.
    AllStopped,
    /// Other tasks of this machine, or a limit, took CPU time from the workers; what they got was at full speed.
    Competition,
}

/// One step of the sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Workers.
    pub workers: u32,
    /// What it is like.
    pub regime: Regime,
    /// Speed of the slowest worker beside that of the fastest of the step.
    pub evenness: f64,
    /// Work of all of them, in units of what one does alone in the same time.
    pub work: f64,
    /// Median of the workers' shares of CPU time.
    pub share: f64,
    /// Part of the slowest worker's time in which it stood still unnoticed.
    pub slowest_gaps: f64,
    /// The undisturbed length of a chunk beside the slowest worker's.
    pub slowest_chunk: f64,
    /// Moves of all workers from one CPU to another.
    pub migrations: u64,
    /// Speed of each, beside the highest of the sweep, in ascending order.
    pub speeds: Vec<f64>,
}

/// The steps, by number of workers.
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
    // Workers that were not run at all have no speed, but are workers.
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

/// Time in gaps that was not time without a CPU by the kernel's account.
fn unnoticed_ns(run: &Run) -> u64 {
    run.gap_ns.saturating_sub(run.wall_ns.saturating_sub(run.cpu_ns))
}

/// Largest number of workers up to which every step is even. Other tasks that take CPU time do not end it.
#[must_use]
pub fn even_up_to(cpus: usize, steps: &[Step]) -> u32 {
    let within = steps.iter().filter(|step| step.workers as usize <= cpus);
    let even = within.take_while(|step| matches!(step.regime, Regime::Even | Regime::Competition));
    even.last().map_or(0, |step| step.workers)
}

/// Work that the machine does with a worker on each CPU, in units of one alone: the cores that are there. `None` if
/// other tasks took CPU time meanwhile.
#[must_use]
pub fn capacity(cpus: usize, steps: &[Step]) -> Option<f64> {
    let full = steps.iter().find(|step| step.workers as usize == cpus)?;
    (full.share >= ALONE_SHARE).then_some(full.work)
}
