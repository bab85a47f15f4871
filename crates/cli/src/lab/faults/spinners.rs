// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU-bound processes: a batch job, a runaway loop, a build.

use super::Fault;
use crate::lab::scenario::{check_cgroup, check_comm, check_cpus, on_cpus};
use crate::lab::stage::{Job, Stage};
use anyhow::{Result, ensure};
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spinners {
    comm: String,
    /// Their cgroup, below the lab's own.
    cgroup: String,
    /// Number of processes for each CPU that they may use.
    per_cpu: usize,
    /// CPUs that they may use, as indices from 0 into the CPUs that the lab may use. Absent = all.
    cpus: Option<Vec<usize>>,
    /// Their nice value.
    nice: Option<i32>,
}

impl Fault for Spinners {
    fn validate(&self) -> Result<()> {
        check_comm("fault.comm", &self.comm)?;
        check_cgroup("fault.cgroup", &self.cgroup)?;
        check_cpus("fault.cpus", self.cpus.as_deref())?;
        ensure!((1..=64).contains(&self.per_cpu), "`fault.per_cpu` must be 1 to 64");
        ensure!(
            self.nice.is_none_or(|nice| (-20..=19).contains(&nice)),
            "`fault.nice` must be -20 to 19"
        );
        Ok(())
    }

    fn describe(&self, cpus: usize) -> String {
        let count = self.per_cpu * self.cpus.as_ref().map_or(cpus, Vec::len);
        let nice = self.nice.map_or(String::new(), |nice| format!(" at nice {nice}"));
        let where_to = on_cpus(self.cpus.as_deref());
        let processes = if count == 1 { "process" } else { "processes" };
        format!(
            "{count} CPU-bound {processes} `{}`{nice}{where_to} in cgroup `{}`",
            self.comm, self.cgroup
        )
    }

    fn inject(&self, stage: &mut Stage) -> Result<()> {
        let job = Job {
            comm: &self.comm,
            cgroup: &self.cgroup,
            cpus: self.cpus.as_deref(),
            nice: self.nice,
            realtime: false,
            what: &["spin".into()],
        };
        let count = self.per_cpu * stage.count_cpus(self.cpus.as_deref());
        stage.start(&vec![job; count])
    }
}
