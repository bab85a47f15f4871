// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measurements of a CPU check. [`crate::cpu_check`] interprets them.

use super::block::BoundedList;
use crate::recording::{CheckSetup, CpuCheckRecord, CpuDistance, PairRound, SweepWorker};

/// Measurements of a CPU check.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuCheckView {
    /// Parameters of the check; `None` if the recording has no check.
    pub setup: Option<CheckSetup>,
    /// Workers of the sweep, in the order of steps and workers.
    pub workers: BoundedList<SweepWorker>,
    /// Rounds of the pair test.
    pub rounds: BoundedList<PairRound>,
    /// Cache-line latencies between CPUs.
    pub distances: BoundedList<CpuDistance>,
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
