// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measurements of `deburr cpu-check`: workers that only compute, first one, then more and more of them (the
//! sweep), then two on chosen CPUs, each alone and both together (the pair test).
//!
//! A worker repeats the same small piece of work, a *chunk* of some microseconds, and reads the clock after each. A
//! [`Run`] separates three quantities: how long the worker had a CPU according to this kernel (CPU time), how fast a
//! chunk usually is (median duration), and how long the worker stood still in the middle of a chunk although this
//! kernel counted it as running (gaps).

use super::Source;
use super::observed::{Observed, observed};
use serde::{Deserialize, Serialize};

/// A record of a CPU check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CpuCheckRecord {
    /// Parameters of the check, and facts about the machine. Once, first.
    Setup(CheckSetup),
    /// One worker of one step of the sweep.
    Worker(SweepWorker),
    /// One round of the pair test.
    Round(PairRound),
    /// Cache-line latency between two CPUs.
    Distance(CpuDistance),
}

impl CpuCheckRecord {
    /// What the record tells of itself.
    pub(super) fn observed(&self) -> &dyn Observed {
        match self {
            Self::Setup(it) => it,
            Self::Worker(it) => it,
            Self::Round(it) => it,
            Self::Distance(it) => it,
        }
    }
}

/// Parameters of a check, and facts about the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckSetup {
    /// CPUs that the check may use, in ascending order: online, and in its affinity mask and cpuset.
    pub cpus: Vec<u32>,
    /// Groups of two or more of those CPUs that share a core according to the kernel
    /// (`topology/thread_siblings_list`); `None` = the kernel does not report it.
    pub cores_told: Option<Vec<Vec<u32>>>,
    /// Whether the CPU reports that it is virtual (flag `hypervisor`); `None` = not known.
    pub hypervisor: Option<bool>,
    /// Whether the workers of the pair test ran before ordinary tasks (`SCHED_FIFO`).
    pub realtime: bool,
    /// Duration of a chunk as calibrated.
    pub chunk_ns: u64,
    /// Shortest stop in the middle of a chunk that counts as a gap.
    pub min_gap_ns: u64,
}

observed! { it: CheckSetup, from Source::CpuCheck }

/// Measurements of a worker in a time range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Wall time from the start of its first chunk to the end of its last one.
    pub wall_ns: u64,
    /// CPU time in that range, as counted by this kernel.
    pub cpu_ns: u64,
    /// Number of completed chunks.
    pub chunks: u64,
    /// Median duration of a chunk; 0 if there is none.
    pub chunk_ns: u64,
    /// Number of gaps: stops in the middle of a chunk.
    pub gaps: u64,
    /// Sum of the gaps.
    pub gap_ns: u64,
}

/// One worker of one step of the sweep. The scheduler is free to place it on any CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepWorker {
    /// Start of the step.
    pub t0_ns: u64,
    /// End of the step.
    pub t1_ns: u64,
    /// Number of workers of the step.
    pub workers: u32,
    /// Index of this worker, from 0.
    pub worker: u32,
    /// Its measurements.
    pub run: Run,
    /// How often it was found on a different CPU than before.
    pub migrations: u32,
    /// CPU on which it was found last.
    pub cpu: u32,
}

observed! { it: SweepWorker over t0_ns..t1_ns, from Source::CpuCheck }

/// Instruction mix of the workers of a pair test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mix {
    /// Independent additions: as many per cycle as the core can execute.
    Adds,
    /// Independent 32-bit divisions: a core has one divider.
    Divs,
}

/// One round of the pair test with workers `a` and `b`, each bound to its CPU: first `a` alone, then both, then `b`
/// alone, then both, with pauses of the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairRound {
    /// Start of the round.
    pub t0_ns: u64,
    /// End of the round.
    pub t1_ns: u64,
    /// Instruction mix.
    pub mix: Mix,
    /// Length of a slot. A worker that woke up late runs for less.
    pub slot_ns: u64,
    /// CPU of the first worker.
    pub a: u32,
    /// CPU of the second worker.
    pub b: u32,
    /// Measurements of the first worker while the second one slept.
    pub a_alone: Run,
    /// Measurements of the second worker while the first one slept.
    pub b_alone: Run,
    /// Measurements of the first worker in the two slots in which both ran.
    pub a_together: Run,
    /// Measurements of the second worker in the two slots in which both ran.
    pub b_together: Run,
}

observed! { it: PairRound over t0_ns..t1_ns, from Source::CpuCheck }

/// Cache-line latency between two CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuDistance {
    /// Timestamp.
    pub t_ns: u64,
    /// First CPU.
    pub a: u32,
    /// Second CPU.
    pub b: u32,
    /// Time until a written cache line is visible to the other CPU, in nanoseconds: half of the median round trip.
    pub one_way_ns: u64,
}

observed! { it: CpuDistance at t_ns, from Source::CpuCheck }
