// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A cpuset that binds a cgroup to CPUs, as `docker run --cpuset-cpus` and a static CPU manager configure it.

use super::Fault;
use super::v1::move_members;
use crate::host::cgroup::v1_mount;
use crate::lab::scenario::{check_cgroup, check_cpus, on_cpus};
use crate::lab::stage::Stage;
use anyhow::{Context as _, Result};
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cpuset {
    /// The cgroup, below the lab's own, whose processes are bound: those that it contains at the time.
    cgroup: String,
    /// CPUs that they may use, as indices from 0 into the CPUs that the lab may use.
    cpus: Vec<usize>,
}

impl Fault for Cpuset {
    fn validate(&self) -> Result<()> {
        check_cgroup("fault.cgroup", &self.cgroup)?;
        check_cpus("fault.cpus", Some(&self.cpus))
    }

    fn describe(&self, _cpus: usize) -> String {
        format!("a cpuset confines cgroup `{}` to be{}", self.cgroup, on_cpus(Some(&self.cpus)))
    }

    fn inject(&self, stage: &mut Stage) -> Result<()> {
        let tree = v1_mount("cpuset")?;
        let mems = std::fs::read_to_string(tree.join("cpuset.mems"))
            .context("cannot read `cpuset.mems`")?;
        let cpus: Result<Vec<_>> =
            self.cpus.iter().map(|&index| Ok(stage.cpu(index)?.to_string())).collect();
        let settings = [("cpuset.cpus", cpus?.join(",")), ("cpuset.mems", mems.trim().to_owned())];
        move_members(stage, &tree, &self.cgroup, &settings)
    }
}
