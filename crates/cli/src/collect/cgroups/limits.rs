// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPU limits of one cgroup directory. A file that does not exist is no limit: the root has none, and a
//! v2 directory has none where the controller is not enabled.

use deburr_core::procfs::cgroup_cpu;
use deburr_core::recording::{Cgroup, CgroupVersion};
use std::fs;
use std::path::Path;

/// Limits, as in [`Cgroup`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) quota_us: Option<u64>,
    pub(crate) period_us: Option<u64>,
    pub(crate) burst_us: Option<u64>,
    pub(crate) weight: Option<u64>,
}

impl Limits {
    /// Reads all limits of a directory.
    pub(crate) fn read(version: CgroupVersion, dir: &Path) -> Self {
        let single = |file| cgroup_cpu::single(file, &fs::read(dir.join(file)).ok()?).ok();
        match version {
            CgroupVersion::V1 => Self {
                quota_us: quota_us(version, dir),
                period_us: single("cpu.cfs_period_us"),
                burst_us: single("cpu.cfs_burst_us"),
                weight: single("cpu.shares"),
            },
            CgroupVersion::V2 => {
                let max = fs::read(dir.join("cpu.max")).ok();
                let max = max.and_then(|text| cgroup_cpu::cpu_max(&text).ok());
                Self {
                    quota_us: max.and_then(|max| max.quota_us),
                    period_us: max.map(|max| max.period_us),
                    burst_us: single("cpu.max.burst"),
                    weight: single("cpu.weight"),
                }
            }
        }
    }

    /// Writes the limits to the record.
    pub(crate) fn write_to(self, cgroup: &mut Cgroup) {
        let Self { quota_us, period_us, burst_us, weight } = self;
        (cgroup.quota_us, cgroup.period_us) = (quota_us, period_us);
        (cgroup.burst_us, cgroup.weight) = (burst_us, weight);
    }

    /// The limits in the record.
    pub(crate) fn of(cgroup: &Cgroup) -> Self {
        Self {
            quota_us: cgroup.quota_us,
            period_us: cgroup.period_us,
            burst_us: cgroup.burst_us,
            weight: cgroup.weight,
        }
    }
}

/// The quota alone, which takes one file.
pub(crate) fn quota_us(version: CgroupVersion, dir: &Path) -> Option<u64> {
    match version {
        CgroupVersion::V1 => {
            cgroup_cpu::cfs_quota_us(&fs::read(dir.join("cpu.cfs_quota_us")).ok()?).ok()?
        }
        CgroupVersion::V2 => {
            cgroup_cpu::cpu_max(&fs::read(dir.join("cpu.max")).ok()?).ok()?.quota_us
        }
    }
}
