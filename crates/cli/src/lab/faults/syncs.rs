// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A script that writes back all dirty data at intervals: `sync` in a cron job, a backup, a deployment.

use super::Fault;
use crate::lab::io::SyncsArgs;
use crate::lab::scenario::{check_cgroup, check_comm};
use crate::lab::stage::{Job, Stage};
use anyhow::{Result, ensure};
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Syncs {
    comm: String,
    /// Its cgroup, below the lab's own.
    cgroup: String,
    /// Interval between calls, in milliseconds.
    every_ms: u64,
}

impl Fault for Syncs {
    fn validate(&self) -> Result<()> {
        check_comm("fault.comm", &self.comm)?;
        check_cgroup("fault.cgroup", &self.cgroup)?;
        ensure!((100..=600_000).contains(&self.every_ms), "`fault.every_ms` must be 100 to 600000");
        Ok(())
    }

    fn describe(&self, _cpus: usize) -> String {
        format!(
            "`{}` in cgroup `{}` calls sync(2) every {} s",
            self.comm,
            self.cgroup,
            self.every_ms as f64 / 1000.0
        )
    }

    fn comm(&self) -> Option<&str> {
        Some(&self.comm)
    }

    fn inject(&self, stage: &mut Stage) -> Result<()> {
        let what = SyncsArgs::words(self.every_ms);
        let job = Job {
            comm: &self.comm,
            cgroup: &self.cgroup,
            cpus: None,
            nice: None,
            realtime: false,
            what: &what,
        };
        stage.start(&[job])
    }
}
