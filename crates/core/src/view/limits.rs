// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU limit of each process, from the recorded cgroups, cpusets and affinities.

use super::View;
use crate::limits::belief::{Belief, Circumstances, belief};
use crate::limits::effective::{Effective, LimitInputs, QuotaLevel, effective};
use crate::procfs::cpu_list;
use crate::recording::{CgroupId, Process, RuntimeReading};

/// Latest CPU limit of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessLimit {
    /// The limit.
    pub effective: Effective,
    /// The cgroup with the tightest quota; `None` without any quota.
    pub level: Option<(CgroupId, QuotaLevel)>,
    /// Whether `level` is the process's own cgroup.
    pub own_level: bool,
}

impl ProcessLimit {
    /// The limit in the form in which it is compared with the settings of a runtime.
    #[must_use]
    pub fn circumstances(&self) -> Circumstances<'_> {
        Circumstances {
            effective: self.effective,
            level: self.level.as_ref().map(|(_, level)| level),
            own_level: self.own_level,
        }
    }

    /// Judges a runtime's number of threads under this limit.
    #[must_use]
    pub fn belief(&self, reading: &RuntimeReading) -> Option<Belief> {
        belief(reading, self.circumstances())
    }
}

impl View {
    /// CPU limit of a process; `None` if not even its CPUs are known.
    #[must_use]
    pub fn limit_of(&self, process: &Process) -> Option<ProcessLimit> {
        let levels: Vec<(CgroupId, QuotaLevel)> = process
            .cgroup
            .map(|id| self.cgroup_path(id))
            .unwrap_or_default()
            .into_iter()
            .filter_map(|(id, cgroup)| {
                let facts = cgroup.facts.as_ref()?;
                let level = QuotaLevel {
                    path: facts.path.clone(),
                    quota_us: facts.quota_us?,
                    period_us: facts.period_us.filter(|&period_us| period_us > 0)?,
                    burst_us: facts.burst_us,
                };
                Some((id, level))
            })
            .collect();
        let list = |text: &Option<String>| cpu_list::parse(text.as_ref()?.as_bytes()).ok();
        let (affinity, cpuset) = (list(&process.cpus_allowed), list(&process.cpuset_cpus));
        let quotas: Vec<QuotaLevel> = levels.iter().map(|(_, level)| level.clone()).collect();
        let online = self.meta().map(|meta| meta.cpus_online.as_slice());
        let effective = effective(LimitInputs {
            levels: &quotas,
            online: online.filter(|cpus| !cpus.is_empty()),
            affinity: affinity.as_deref(),
            cpuset: cpuset.as_deref(),
        })?;
        let level = effective.level.and_then(|at| levels.into_iter().nth(at));
        let own_level = level.as_ref().is_some_and(|(id, _)| Some(*id) == process.cgroup);
        Some(ProcessLimit { effective, level, own_level })
    }
}
