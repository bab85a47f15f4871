// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A very small CPU weight, as a platform's default or a request of `1m` can result in.

use super::Fault;
use crate::host::cgroup::DEFAULT_SHARES;
use crate::lab::scenario::check_cgroup;
use crate::lab::stage::Stage;
use anyhow::{Result, ensure};
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Weight {
    /// The cgroup that gets the weight, below the lab's own.
    cgroup: String,
    /// Its `cpu.shares`.
    shares: u32,
}

impl Fault for Weight {
    fn validate(&self) -> Result<()> {
        check_cgroup("fault.cgroup", &self.cgroup)?;
        // The kernel's own bounds.
        ensure!((2..=262_144).contains(&self.shares), "`fault.shares` must be 2 to 262144");
        Ok(())
    }

    fn describe(&self, _cpus: usize) -> String {
        format!(
            "cgroup `{}` has a CPU weight of {} where others have {DEFAULT_SHARES}",
            self.cgroup, self.shares
        )
    }

    fn inject(&self, stage: &mut Stage) -> Result<()> {
        let dir = stage.cgroup(&self.cgroup)?;
        stage.tree().set_shares(&dir, self.shares)
    }
}
