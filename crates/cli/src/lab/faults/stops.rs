// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process that stops those of another cgroup again and again, by signals.

use super::Fault;
use crate::lab::scenario::{check_cgroup, check_comm, check_period_us};
use crate::lab::stage::{Job, Stage};
use crate::lab::stops::StopsArgs;
use anyhow::{Result, ensure};
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stops {
    /// Comm of the process that sends the signals.
    comm: String,
    /// Its cgroup, below the lab's own.
    cgroup: String,
    /// The cgroup whose processes are stopped, likewise.
    of: String,
    /// Time from one stop to the next, in microseconds.
    period_us: u64,
    /// Length of a stop, in microseconds.
    stopped_us: u64,
}

impl Fault for Stops {
    fn validate(&self) -> Result<()> {
        check_comm("fault.comm", &self.comm)?;
        check_cgroup("fault.cgroup", &self.cgroup)?;
        check_cgroup("fault.of", &self.of)?;
        ensure!(self.of != self.cgroup, "`fault.of` must not be the process's own cgroup");
        check_period_us("fault.period_us", self.period_us)?;
        ensure!(
            (1..self.period_us).contains(&self.stopped_us),
            "`fault.stopped_us` must be at least 1 and less than `fault.period_us`"
        );
        Ok(())
    }

    fn describe(&self, _cpus: usize) -> String {
        format!(
            "`{}` in cgroup `{}` stops all of cgroup `{}` for {} of every {} ms",
            self.comm,
            self.cgroup,
            self.of,
            self.stopped_us as f64 / 1000.0,
            self.period_us as f64 / 1000.0
        )
    }

    fn comm(&self) -> Option<&str> {
        Some(&self.comm)
    }

    fn inject(&self, stage: &mut Stage) -> Result<()> {
        let of = stage.cgroup(&self.of)?;
        stage.start(&[Job {
            comm: &self.comm,
            cgroup: &self.cgroup,
            cpus: None,
            nice: None,
            realtime: false,
            what: &StopsArgs::words(&of, self.period_us, self.stopped_us),
        }])
    }
}
