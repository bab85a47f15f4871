// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A neighbour's precise timers, which expire on the CPU on which it sets them, whoever runs there by then.

use super::Fault;
use crate::lab::scenario::{check_cgroup, check_comm, check_period_us};
use crate::lab::stage::{Job, Stage};
use crate::lab::timers::TimersArgs;
use anyhow::Result;
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Timers {
    /// Comm of the process that sets them.
    comm: String,
    /// Its cgroup, below the lab's own.
    cgroup: String,
    /// Its CPU, as an index from 0 into the CPUs that the lab may use.
    cpu: usize,
    /// Time from the end of one timer to that of the next, in microseconds.
    gap_us: u64,
}

impl Fault for Timers {
    fn validate(&self) -> Result<()> {
        check_comm("fault.comm", &self.comm)?;
        check_cgroup("fault.cgroup", &self.cgroup)?;
        check_period_us("fault.gap_us", self.gap_us)
    }

    fn describe(&self, _cpus: usize) -> String {
        format!(
            "timers of `{}` in cgroup `{}` expire on usable CPU {} every {} us",
            self.comm, self.cgroup, self.cpu, self.gap_us
        )
    }

    fn comm(&self) -> Option<&str> {
        Some(&self.comm)
    }

    fn inject(&self, stage: &mut Stage) -> Result<()> {
        stage.start(&[Job {
            comm: &self.comm,
            cgroup: &self.cgroup,
            cpus: Some(&[self.cpu]),
            nice: None,
            realtime: false,
            what: &TimersArgs::words(self.gap_us),
        }])
    }
}
