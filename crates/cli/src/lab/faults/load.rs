// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes that alternate between work and sleep, as services do.

use super::Fault;
use crate::lab::scenario::{check_cgroup, check_comm, check_cpus, on_cpus};
use crate::lab::stage::{Job, Stage};
use anyhow::{Result, ensure};
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Load {
    comm: String,
    /// Their cgroup, below the lab's own.
    cgroup: String,
    /// Number of processes.
    processes: usize,
    /// CPU time of a request, in microseconds.
    work_us: u64,
    /// Time from one request to the next, in microseconds.
    period_us: u64,
    /// CPUs that they may use, as indices from 0 into the CPUs that the lab may use. Absent = all.
    cpus: Option<Vec<usize>>,
    /// Whether they run with real-time priority (`SCHED_FIFO`).
    #[serde(default)]
    realtime: bool,
}

impl Fault for Load {
    fn validate(&self) -> Result<()> {
        check_comm("fault.comm", &self.comm)?;
        check_cgroup("fault.cgroup", &self.cgroup)?;
        check_cpus("fault.cpus", self.cpus.as_deref())?;
        ensure!((1..=64).contains(&self.processes), "`fault.processes` must be 1 to 64");
        ensure!(
            0 < self.work_us && self.work_us < self.period_us,
            "`fault.work_us` must be positive and less than `fault.period_us`"
        );
        Ok(())
    }

    fn describe(&self, _cpus: usize) -> String {
        let (one, each) =
            if self.processes == 1 { ("process", "") } else { ("processes", "each ") };
        format!(
            "{} {}{one} `{}` in cgroup `{}`{}, {each}needing {} of every {} ms",
            self.processes,
            if self.realtime { "FIFO " } else { "" },
            self.comm,
            self.cgroup,
            on_cpus(self.cpus.as_deref()),
            self.work_us as f64 / 1000.0,
            self.period_us as f64 / 1000.0
        )
    }

    fn comm(&self) -> Option<&str> {
        Some(&self.comm)
    }

    fn inject(&self, stage: &mut Stage) -> Result<()> {
        let what = [
            "load".into(),
            format!("--work-us={}", self.work_us),
            format!("--period-us={}", self.period_us),
        ];
        let job = Job {
            comm: &self.comm,
            cgroup: &self.cgroup,
            cpus: self.cpus.as_deref(),
            nice: None,
            realtime: self.realtime,
            what: &what,
        };
        stage.start(&vec![job; self.processes])
    }
}
