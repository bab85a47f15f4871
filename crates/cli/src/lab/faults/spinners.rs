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
    /// Instead: CPUs that they may not use, likewise. They may use all others.
    cpus_but: Option<Vec<usize>>,
    /// Their nice value.
    nice: Option<i32>,
}

impl Fault for Spinners {
    fn validate(&self) -> Result<()> {
        check_comm("fault.comm", &self.comm)?;
        check_cgroup("fault.cgroup", &self.cgroup)?;
        check_cpus("fault.cpus", self.cpus.as_deref())?;
        check_cpus("fault.cpus_but", self.cpus_but.as_deref())?;
        ensure!(
            self.cpus.is_none() || self.cpus_but.is_none(),
            "`fault.cpus_but` is there instead of `fault.cpus`"
        );
        ensure!((1..=64).contains(&self.per_cpu), "`fault.per_cpu` must be 1 to 64");
        ensure!(
            self.nice.is_none_or(|nice| (-20..=19).contains(&nice)),
            "`fault.nice` must be -20 to 19"
        );
        Ok(())
    }

    fn describe(&self, cpus: usize) -> String {
        let count = self.per_cpu * self.chosen(cpus).map_or(cpus, |chosen| chosen.len());
        let nice = self.nice.map_or(String::new(), |nice| format!(" at nice {nice}"));
        let where_to = match &self.cpus_but {
            Some(but) => on_cpus(Some(but)).replacen(" on ", " on all but ", 1),
            None => on_cpus(self.cpus.as_deref()),
        };
        let processes = if count == 1 { "process" } else { "processes" };
        format!(
            "{count} CPU-bound {processes} `{}`{nice}{where_to} in cgroup `{}`",
            self.comm, self.cgroup
        )
    }

    fn comm(&self) -> Option<&str> {
        Some(&self.comm)
    }

    fn inject(&self, stage: &mut Stage) -> Result<()> {
        let chosen = self.chosen(stage.count_cpus(None));
        let job = Job {
            comm: &self.comm,
            cgroup: &self.cgroup,
            cpus: chosen.as_deref(),
            nice: self.nice,
            realtime: false,
            what: &["spin".into()],
        };
        let count = self.per_cpu * stage.count_cpus(chosen.as_deref());
        stage.start(&vec![job; count])
    }
}

impl Spinners {
    /// The CPUs of this many that they may use. `None` = all.
    fn chosen(&self, cpus: usize) -> Option<Vec<usize>> {
        match &self.cpus_but {
            Some(but) => Some((0..cpus).filter(|cpu| !but.contains(cpu)).collect()),
            None => self.cpus.clone(),
        }
    }
}
