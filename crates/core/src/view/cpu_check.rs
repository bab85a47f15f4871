// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A check of CPUs, as it was measured. What it means is said in [`crate::cpu_check`].

use super::block::Kept;
use crate::recording::{CheckSetup, CpuCheckRecord, CpuDistance, PairRound, SweepWorker};

/// The measurements of a check.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuCheckView {
    /// How it was done; `None` if there was none.
    pub setup: Option<CheckSetup>,
    /// The sweep, step by step, worker by worker.
    pub workers: Kept<SweepWorker>,
    /// Rounds of the pair test.
    pub rounds: Kept<PairRound>,
    /// Distances between CPUs.
    pub distances: Kept<CpuDistance>,
}

impl CpuCheckView {
    pub(super) fn push(&mut self, record: &CpuCheckRecord) {
        match record {
            CpuCheckRecord::Setup(setup) => self.setup = Some(setup.clone()),
            CpuCheckRecord::Worker(worker) => drop(self.workers.push(*worker)),
            CpuCheckRecord::Round(round) => drop(self.rounds.push(*round)),
            CpuCheckRecord::Distance(distance) => drop(self.distances.push(*distance)),
        }
    }
}
