// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Another process that causes many journal writes, for which every process that syncs has to wait.

use super::Fault;
use crate::lab::io::{CommitterSpec, IoArgs};
use crate::lab::scenario::{check_cgroup, check_comm};
use crate::lab::stage::{Job, Stage};
use anyhow::Result;
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Committer {
    comm: String,
    /// Its cgroup, below the lab's own. Its files are in a directory of that name.
    cgroup: String,
    commit: CommitterSpec,
}

impl Fault for Committer {
    fn validate(&self) -> Result<()> {
        check_comm("fault.comm", &self.comm)?;
        check_cgroup("fault.cgroup", &self.cgroup)?;
        self.commit.validate()
    }

    fn describe(&self, _cpus: usize) -> String {
        format!("`{}` in cgroup `{}` {}", self.comm, self.cgroup, self.commit.describe())
    }

    fn comm(&self) -> Option<&str> {
        Some(&self.comm)
    }

    fn inject(&self, stage: &mut Stage) -> Result<()> {
        let dir = stage.files()?.join(&self.cgroup);
        let what = IoArgs::to_arguments("committer", &dir, &self.commit)?;
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
