// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A CPU limit on a cgroup, as `docker run --cpus`, `CPUQuota=` and Kubernetes' `limits.cpu` set it.

use super::Fault;
use crate::lab::scenario::check_cgroup;
use crate::lab::stage::Stage;
use anyhow::{Result, ensure};
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Quota {
    /// The limited cgroup, below the lab's own.
    cgroup: String,
    /// CPU time per period, in microseconds.
    quota_us: u64,
    /// Length of a period, in microseconds.
    period_us: u64,
}

impl Fault for Quota {
    fn validate(&self) -> Result<()> {
        check_cgroup("fault.cgroup", &self.cgroup)?;
        // The kernel's own bounds.
        ensure!(
            (1000..=1_000_000).contains(&self.period_us),
            "`fault.period_us` must be 1000 to 1000000"
        );
        ensure!(self.quota_us >= 1000, "`fault.quota_us` must be at least 1000");
        Ok(())
    }

    fn describe(&self, _cpus: usize) -> String {
        format!(
            "a CPU limit of {} ms in every {} ms on cgroup `{}`",
            self.quota_us as f64 / 1000.0,
            self.period_us as f64 / 1000.0,
            self.cgroup
        )
    }

    fn inject(&self, stage: &mut Stage) -> Result<()> {
        let dir = stage.cgroup(&self.cgroup)?;
        stage.tree().set_quota(&dir, self.quota_us, self.period_us)
    }
}
