// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which quotas stand above a process, or why that is not in sight from here.

use super::limits::Limits;
use super::{Cgroups, Tree};
use deburr_core::limits::effective::{Level, Sight};
use deburr_core::procfs::pid_cgroup::{self, Membership};
use deburr_core::recording::{CgroupId, name};
use std::fs;

/// Levels that are gone up at most.
const MAX_DEPTH: usize = 256;

/// Where a process is in the tree of the cpu controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Located {
    /// Its cgroup, if that is in sight.
    pub(crate) cgroup: Option<CgroupId>,
    /// Its path as the observer's cgroup namespace has it; `None` if it is in no such tree.
    pub(crate) path: Option<Vec<u8>>,
    /// How much of the levels above it is in sight.
    pub(crate) sight: Sight,
}

impl Cgroups {
    /// Where a process is: one read of `/proc/PID/cgroup`. `None` if that cannot be read.
    pub(crate) fn locate(&mut self, pid: u32) -> Option<Located> {
        let text = fs::read(self.proc.join(pid.to_string()).join("cgroup")).ok()?;
        let memberships = pid_cgroup::parse(&text).unwrap_or_default();
        Some(self.locate_among(&memberships))
    }

    fn locate_among(&mut self, memberships: &[Membership]) -> Located {
        let nowhere =
            |path, reason: &str| Located { cgroup: None, path, sight: Sight::None(reason.into()) };
        let Some(tree) = self.tree().cloned() else {
            return nowhere(None, "no cgroup tree is mounted where deburr runs");
        };
        let Some(own) = memberships.iter().find(|membership| tree.holds(membership)) else {
            return nowhere(None, "it is in no cgroup of the tree that deburr sees");
        };
        let path = own.path.clone();
        if own.deleted {
            return nowhere(Some(path), "its cgroup was removed");
        }
        match self.by_path(&path) {
            Some(id) => {
                Located { cgroup: Some(id), path: Some(path), sight: self.sight_from(&tree) }
            }
            None => nowhere(
                Some(path),
                "its cgroup lies outside of the part of the tree that deburr sees: run it on the host",
            ),
        }
    }

    fn sight_from(&self, tree: &Tree) -> Sight {
        if self.cpu_controller().is_none() {
            return Sight::Part(
                "no mounted cgroup tree has the cpu controller, and so no quotas".into(),
            );
        }
        match tree.is_whole() {
            true => Sight::Whole,
            false => Sight::Part(
                "deburr sees only a part of the cgroup tree: a level above may be tighter".into(),
            ),
        }
    }

    /// Whether that cgroup or one above it has a quota, as far as limits were read.
    pub(crate) fn has_quota_above(&self, id: CgroupId) -> bool {
        let above =
            std::iter::successors(self.nodes.get(&id), |node| self.nodes.get(&node.record.parent?));
        above.take(MAX_DEPTH).any(|node| node.record.quota_us.is_some())
    }

    /// Levels that have a quota, from that cgroup upwards, with the limits that they have now.
    pub(crate) fn levels(&self, id: CgroupId) -> Vec<(CgroupId, Level)> {
        let mut levels = Vec::new();
        let mut next = Some(id);
        while let Some(node) = next.and_then(|id| self.nodes.get(&id)) {
            let limits = Limits::read(node.record.version, &node.dir);
            if let (Some(quota_us), Some(period_us)) = (limits.quota_us, limits.period_us) {
                let (path, burst_us) = (node.record.path.clone(), limits.burst_us);
                levels.push((node.record.id, Level { path, quota_us, period_us, burst_us }));
            }
            next = node.record.parent;
        }
        levels
    }
}

/// A path of a cgroup, decoded for people.
pub(crate) fn shown(path: &[u8]) -> String {
    name::decode(path)
}
