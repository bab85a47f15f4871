// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A limit on the block IO of a cgroup, as `docker run --device-write-iops` and cloud agents set it.

use super::Fault;
use super::v1::move_members;
use crate::lab::needs::throttle_tree;
use crate::lab::scenario::check_cgroup;
use crate::lab::stage::Stage;
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct IoLimit {
    /// The cgroup, below the lab's own, whose processes are limited: those that it contains at the time.
    cgroup: String,
    /// Maximum number of writes to the run's disk per second.
    write_iops: u64,
}

impl Fault for IoLimit {
    fn validate(&self) -> Result<()> {
        check_cgroup("fault.cgroup", &self.cgroup)?;
        ensure!((1..=100_000).contains(&self.write_iops), "`fault.write_iops` must be 1 to 100000");
        Ok(())
    }

    fn describe(&self, _cpus: usize) -> String {
        format!(
            "at most {} writes a second to the disk for cgroup `{}`",
            self.write_iops, self.cgroup
        )
    }

    fn inject(&self, stage: &mut Stage) -> Result<()> {
        let tree = throttle_tree().context("no cgroup v1 tree can limit block IO here")?;
        let bdi = stage.disk()?.bdi()?;
        let number = bdi.file_name().unwrap_or_default().to_string_lossy();
        let limit = format!("{number} {}", self.write_iops);
        let settings = [("blkio.throttle.write_iops_device", limit)];
        move_members(stage, &tree, &self.cgroup, &settings)
    }
}
