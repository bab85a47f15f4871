// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A neighbour's traffic that is received on a CPU which is chosen for it, by whoever runs there.

use super::Fault;
use crate::lab::packets::PacketsArgs;
use crate::lab::scenario::{check_cgroup, check_comm, check_cpus, check_period_us, on_cpus};
use crate::lab::stage::{Job, Stage};
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Packets {
    /// Comm of the process that sends.
    comm: String,
    /// Its cgroup, below the lab's own.
    cgroup: String,
    /// CPUs that it may use, as indices from 0 into the CPUs that the lab may use. Absent = all.
    cpus: Option<Vec<usize>>,
    /// CPU that receives the packets, as such an index.
    to_cpu: usize,
    /// How many are sent at once.
    count: u32,
    /// Time from one burst to the next, in microseconds.
    period_us: u64,
}

impl Fault for Packets {
    fn validate(&self) -> Result<()> {
        check_comm("fault.comm", &self.comm)?;
        check_cgroup("fault.cgroup", &self.cgroup)?;
        check_cpus("fault.cpus", self.cpus.as_deref())?;
        check_period_us("fault.period_us", self.period_us)?;
        ensure!((1..=100_000).contains(&self.count), "`fault.count` must be 1 to 100000");
        Ok(())
    }

    fn describe(&self, _cpus: usize) -> String {
        format!(
            "`{}` in cgroup `{}`{}: {} packets every {} ms to usable CPU {}",
            self.comm,
            self.cgroup,
            on_cpus(self.cpus.as_deref()),
            self.count,
            self.period_us as f64 / 1000.0,
            self.to_cpu
        )
    }

    fn comm(&self) -> Option<&str> {
        Some(&self.comm)
    }

    fn inject(&self, stage: &mut Stage) -> Result<()> {
        let to_cpu = stage.cpus(Some(&[self.to_cpu]));
        let to_cpu = *to_cpu.first().context("`fault.to_cpu` is a CPU that the lab may use")?;
        let what = PacketsArgs::words(to_cpu, self.count, self.period_us);
        stage.start(&[Job {
            comm: &self.comm,
            cgroup: &self.cgroup,
            cpus: self.cpus.as_deref(),
            nice: None,
            realtime: false,
            what: &what,
        }])
    }
}
