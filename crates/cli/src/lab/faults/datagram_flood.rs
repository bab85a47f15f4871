// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process that sends more datagrams at once than a small buffer takes.

use super::Fault;
use crate::lab::network::NetworkArgs;
use crate::lab::scenario::{check_cgroup, check_comm, check_period_us};
use crate::lab::stage::{Job, Stage};
use anyhow::{Result, ensure};
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DatagramFlood {
    /// Comm of the process.
    comm: String,
    /// Its cgroup, below the lab's own.
    cgroup: String,
    /// Datagrams that are sent at once.
    datagrams: u32,
    /// Time from one burst to the next, in microseconds.
    period_us: u64,
}

impl Fault for DatagramFlood {
    fn validate(&self) -> Result<()> {
        check_comm("fault.comm", &self.comm)?;
        check_cgroup("fault.cgroup", &self.cgroup)?;
        check_period_us("fault.period_us", self.period_us)?;
        ensure!((1..=1000).contains(&self.datagrams), "`fault.datagrams` must be 1 to 1000");
        Ok(())
    }

    fn describe(&self, _cpus: usize) -> String {
        format!(
            "`{}` in cgroup `{}` sends {} datagrams at once to the victim every {} ms",
            self.comm,
            self.cgroup,
            self.datagrams,
            self.period_us as f64 / 1000.0
        )
    }

    fn comm(&self) -> Option<&str> {
        Some(&self.comm)
    }

    fn inject(&self, stage: &mut Stage) -> Result<()> {
        let what =
            NetworkArgs::words("floods", self.datagrams, self.period_us, stage.place.port()?);
        stage.start(&[Job {
            comm: &self.comm,
            cgroup: &self.cgroup,
            cpus: None,
            nice: None,
            realtime: false,
            what: &what,
        }])
    }
}
