// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes that work a while and sleep a while, as services do.

use super::Fault;
use crate::lab::scenario::{check_cgroup, check_comm};
use crate::lab::stage::{Job, Stage};
use anyhow::{Result, ensure};
use serde::Deserialize;

/// Parameters.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Load {
    /// Their comm.
    comm: String,
    /// Their cgroup, below the lab's own.
    cgroup: String,
    /// How many.
    processes: usize,
    /// CPU time of a request, in microseconds.
    work_us: u64,
    /// Time from one request to the next, in microseconds.
    period_us: u64,
}

impl Fault for Load {
    fn validate(&self) -> Result<()> {
        check_comm("fault.comm", &self.comm)?;
        check_cgroup("fault.cgroup", &self.cgroup)?;
        ensure!((1..=64).contains(&self.processes), "`fault.processes` must be 1 to 64");
        ensure!(
            0 < self.work_us && self.work_us < self.period_us,
            "`fault.work_us` must be positive and less than `fault.period_us`"
        );
        Ok(())
    }

    fn describe(&self, _cpus: usize) -> String {
        format!(
            "{} processes `{}` in cgroup `{}`, each needing {} ms of CPU time every {} ms",
            self.processes,
            self.comm,
            self.cgroup,
            self.work_us as f64 / 1000.0,
            self.period_us as f64 / 1000.0
        )
    }

    fn inject(&self, stage: &mut Stage) -> Result<()> {
        let what = [
            "load".into(),
            format!("--work-us={}", self.work_us),
            format!("--period-us={}", self.period_us),
        ];
        let job =
            Job { comm: &self.comm, cgroup: &self.cgroup, cpus: None, nice: None, what: &what };
        stage.start(&vec![job; self.processes])
    }
}
