// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `deburr cpu-check` measured: workers that only compute, first one, then more and more of them (the
//! sweep), then two on chosen CPUs, each alone and both together (the pair test).
//!
//! A worker does the same small piece of work, a *chunk* of some microseconds, again and again and looks at the
//! clock after each. What it did in a [`Run`] tells three things apart: how much of the time it had a CPU as this
//! kernel sees it (CPU time), how fast a chunk usually is (its median length), and for how long it stood still in
//! the middle of a chunk although this kernel counted it as running (gaps).

use serde::{Deserialize, Serialize};

/// A record of a check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CpuCheckRecord {
    /// How it is done and on what. Once, first.
    Setup(CheckSetup),
    /// One worker of one step of the sweep.
    Worker(SweepWorker),
    /// One round of the pair test.
    Round(PairRound),
    /// How far apart two CPUs are.
    Distance(CpuDistance),
}

impl CpuCheckRecord {
    /// The time that it belongs to; `None` for circumstances.
    #[must_use]
    pub fn span(&self) -> Option<(u64, u64)> {
        match self {
            Self::Setup(_) => None,
            Self::Worker(worker) => Some((worker.t0_ns, worker.t1_ns)),
            Self::Round(round) => Some((round.t0_ns, round.t1_ns)),
            Self::Distance(distance) => Some((distance.t_ns, distance.t_ns)),
        }
    }
}

/// How a check is done and on what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckSetup {
    /// CPUs that it may use, in ascending order: online, and in its affinity and cpuset.
    pub cpus: Vec<u32>,
    /// Groups of those CPUs that share a core according to the kernel (`topology/thread_siblings_list`), those of
    /// two and more; `None` = the kernel does not tell.
    pub cores_told: Option<Vec<Vec<u32>>>,
    /// Whether the processor says that it is a virtual one (flag `hypervisor`); `None` = not known.
    pub hypervisor: Option<bool>,
    /// Whether the workers of the pair test had precedence over ordinary tasks (`SCHED_FIFO`).
    pub realtime: bool,
    /// Length of a chunk when it was calibrated.
    pub chunk_ns: u64,
    /// Stops of a worker in the middle of a chunk count as gaps from this length on.
    pub min_gap_ns: u64,
}

/// What a worker did in a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// From its first chunk to the end of its last one.
    pub wall_ns: u64,
    /// Its CPU time in between, as this kernel counts.
    pub cpu_ns: u64,
    /// Chunks it did.
    pub chunks: u64,
    /// Median length of a chunk; 0 if it did none.
    pub chunk_ns: u64,
    /// Stops in the middle of a chunk.
    pub gaps: u64,
    /// Time in them.
    pub gap_ns: u64,
}

/// One worker of one step of the sweep; the scheduler places it as it likes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepWorker {
    /// Start of the step.
    pub t0_ns: u64,
    /// End of the step.
    pub t1_ns: u64,
    /// Workers of the step.
    pub workers: u32,
    /// Which of them, from 0.
    pub worker: u32,
    /// What it did.
    pub run: Run,
    /// How often it was found on another CPU than before.
    pub migrations: u32,
    /// The CPU on which it was last.
    pub cpu: u32,
}

/// What the workers of a pair test compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mix {
    /// Additions that do not depend on each other: as many in a cycle as the core can do.
    Adds,
    /// Divisions of 32 bits that do not depend on each other: a core has one divider.
    Divs,
}

/// One round of the pair test: worker `a` and worker `b`, each bound to its CPU, first `a` alone, then both, then `b`
/// alone, then both, with pauses of the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairRound {
    /// Start of the round.
    pub t0_ns: u64,
    /// End of the round.
    pub t1_ns: u64,
    /// What they computed.
    pub mix: Mix,
    /// Length of a slot. A worker that woke up late has less.
    pub slot_ns: u64,
    /// CPU of the first worker.
    pub a: u32,
    /// CPU of the second worker.
    pub b: u32,
    /// The first one while the second one slept.
    pub a_alone: Run,
    /// The second one while the first one slept.
    pub b_alone: Run,
    /// The first one in the two slots of both.
    pub a_together: Run,
    /// The second one in the two slots of both.
    pub b_together: Run,
}

/// How far apart two CPUs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuDistance {
    /// When.
    pub t_ns: u64,
    /// One CPU.
    pub a: u32,
    /// The other one.
    pub b: u32,
    /// Time that a written cache line takes to be seen by the other CPU: half of the median round trip.
    pub one_way_ns: u64,
}
