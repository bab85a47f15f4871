// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Somebody else who writes to the same disk.

use super::Fault;
use crate::lab::io::{IoArgs, WriterSpec};
use crate::lab::scenario::{check_cgroup, check_comm};
use crate::lab::stage::{Job, Stage};
use anyhow::Result;
use serde::Deserialize;

/// Parameters.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiskWriter {
    /// Its comm.
    comm: String,
    /// Its cgroup, below the lab's own; its file is in a directory of that name.
    cgroup: String,
    /// What it writes.
    write: WriterSpec,
}

impl Fault for DiskWriter {
    fn validate(&self) -> Result<()> {
        check_comm("fault.comm", &self.comm)?;
        check_cgroup("fault.cgroup", &self.cgroup)?;
        self.write.validate()
    }

    fn describe(&self, _cpus: usize) -> String {
        format!("`{}` in cgroup `{}`: {}", self.comm, self.cgroup, self.write.describe())
    }

    fn inject(&self, stage: &mut Stage) -> Result<()> {
        let dir = stage.disk()?.mount().join(&self.cgroup);
        std::fs::create_dir_all(&dir)?;
        let what = IoArgs::to_arguments("writer", &dir, &self.write)?;
        let job =
            Job { comm: &self.comm, cgroup: &self.cgroup, cpus: None, nice: None, what: &what };
        stage.start(&[job])
    }
}
