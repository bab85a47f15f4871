// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many short-lived processes: a script in a loop, a build, health checks that each start a shell.

use super::Fault;
use crate::lab::forks::ForksArgs;
use crate::lab::scenario::{check_cgroup, check_comm};
use crate::lab::stage::{Job, Stage};
use anyhow::{Result, ensure};
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForkStorm {
    /// Comm of the parent processes.
    comm: String,
    /// Cgroup of the parent processes, below the lab's own.
    cgroup: String,
    /// Number of parent processes.
    parents: usize,
    /// Processes started per second, by all parents together.
    per_s: u64,
}

impl Fault for ForkStorm {
    fn validate(&self) -> Result<()> {
        check_comm("fault.comm", &self.comm)?;
        check_cgroup("fault.cgroup", &self.cgroup)?;
        ensure!((1..=64).contains(&self.parents), "`fault.parents` must be 1 to 64");
        ensure!(
            (self.parents as u64..=10_000).contains(&self.per_s),
            "`fault.per_s` must be 1 of each parent to 10000"
        );
        Ok(())
    }

    fn describe(&self, _cpus: usize) -> String {
        format!(
            "{} processes `{}` in cgroup `{}` start {} programs a second that end at once",
            self.parents, self.comm, self.cgroup, self.per_s
        )
    }

    fn comm(&self) -> Option<&str> {
        Some(&self.comm)
    }

    fn inject(&self, stage: &mut Stage) -> Result<()> {
        let what = ForksArgs::words(self.per_s / self.parents as u64);
        let job = Job {
            comm: &self.comm,
            cgroup: &self.cgroup,
            cpus: None,
            nice: None,
            realtime: false,
            what: &what,
        };
        stage.start(&vec![job; self.parents])
    }
}
