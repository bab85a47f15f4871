// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which quotas apply to a process at all levels of the cgroup tree, or why they cannot be seen from here.

use super::limits::Limits;
use super::walk::MAX_DEPTH;
use super::{Cgroups, Tree};
use deburr_core::limits::effective::{AncestorVisibility, QuotaLevel};
use deburr_core::procfs::pid_cgroup::{self, Membership};
use deburr_core::recording::CgroupId;
use deburr_core::text::name;
use std::fs;

/// The place of a process in the tree of the cpu controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CgroupPosition {
    /// Its cgroup, if that is visible.
    pub(crate) cgroup: Option<CgroupId>,
    /// Its path as the observer's cgroup namespace has it; `None` if it is in no such tree.
    pub(crate) path: Option<Vec<u8>>,
    /// How much of the levels above it is visible.
    pub(crate) sight: AncestorVisibility,
}

impl Cgroups {
    /// Locates a process: one read of `/proc/PID/cgroup`. `None` if that cannot be read.
    pub(crate) fn locate(&mut self, pid: u32) -> Option<CgroupPosition> {
        let text = fs::read(self.proc.join(pid.to_string()).join("cgroup")).ok()?;
        let memberships = pid_cgroup::parse(&text).unwrap_or_default();
        Some(self.locate_among(&memberships))
    }

    fn locate_among(&mut self, memberships: &[Membership]) -> CgroupPosition {
        let nowhere = |path, reason: &str| CgroupPosition {
            cgroup: None,
            path,
            sight: AncestorVisibility::None(reason.into()),
        };
        let Some(tree) = self.tree().cloned() else {
            return nowhere(None, "no cgroup tree is mounted where deburr runs");
        };
        let Some(own) = memberships.iter().find(|membership| tree.holds(membership)) else {
            return nowhere(None, "it is in no cgroup of the tree that deburr sees");
        };
        let Some(path) = tree.living(own) else {
            return nowhere(Some(own.path.clone()), "its cgroup was removed");
        };
        match self.by_path(&path) {
            Some(id) => {
                CgroupPosition { cgroup: Some(id), path: Some(path), sight: self.sight_from(&tree) }
            }
            None => nowhere(
                Some(path),
                "its cgroup lies outside of the part of the tree that deburr sees: run it on the host",
            ),
        }
    }

    fn sight_from(&self, tree: &Tree) -> AncestorVisibility {
        if self.cpu_controller().is_none() {
            return AncestorVisibility::Part(
                "no mounted cgroup tree has the cpu controller, and so no quotas".into(),
            );
        }
        match tree.is_whole() {
            true => AncestorVisibility::Whole,
            false => AncestorVisibility::Part(
                "deburr sees only a part of the cgroup tree: a level above may be tighter".into(),
            ),
        }
    }

    /// Whether that cgroup or one above it has a quota, as far as limits were read.
    pub(crate) fn has_quota_above(&self, id: CgroupId) -> bool {
        let above =
            std::iter::successors(self.nodes.get(&id), |node| self.nodes.get(&node.record.parent?));
        above.take(MAX_DEPTH + 1).any(|node| node.record.quota_us.is_some())
    }

    /// Levels that have a quota, from that cgroup upwards, with their present limits.
    pub(crate) fn levels(&self, id: CgroupId) -> Vec<(CgroupId, QuotaLevel)> {
        let mut levels = Vec::new();
        let mut next = Some(id);
        while let Some(node) = next.and_then(|id| self.nodes.get(&id)) {
            let limits = Limits::read(node.record.version, &node.dir);
            if let (Some(quota_us), Some(period_us)) = (limits.quota_us, limits.period_us) {
                let (path, burst_us) = (node.record.path.clone(), limits.burst_us);
                levels.push((node.record.id, QuotaLevel { path, quota_us, period_us, burst_us }));
            }
            next = node.record.parent;
        }
        levels
    }
}

/// The path of a cgroup, decoded for display.
pub(crate) fn shown(path: &[u8]) -> String {
    name::decode(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::fixture::Host;

    fn quotas(host: &Host, pid: u32) -> (Vec<(String, f64)>, AncestorVisibility) {
        let mut cgroups = Cgroups::open(&host.roots);
        let located = cgroups.locate(pid).unwrap();
        let levels = located.cgroup.map(|id| cgroups.levels(id)).unwrap_or_default();
        let quotas = levels.into_iter().map(|(_, level)| (level.path.clone(), level.cpus()));
        (quotas.collect(), located.sight)
    }

    fn in_tree(host: &Host, file: &str, text: &str) {
        host.write(&format!("sys/fs/cgroup/{file}"), text);
    }

    #[test]
    fn quotas_of_all_levels_are_found_in_each_layout() {
        let mixed = Host::like("cgroup/mixed");
        let (levels, sight) = quotas(&mixed, 42);
        assert_eq!(
            (levels, sight),
            (vec![("/jobs".into(), 0.5)], AncestorVisibility::Whole),
            "v1 wins"
        );
        in_tree(&mixed, "cpu/jobs/batch/cpu.cfs_quota_us", "20000\n");
        assert_eq!(quotas(&mixed, 42).0, [("/jobs/batch".into(), 0.2), ("/jobs".into(), 0.5)]);

        // On v2 a lower level may have a larger quota than a higher one, and one in between may lack the
        // controller.
        let v2 = Host::like("cgroup/v2");
        v2.write("proc/50/cgroup", "0::/kubepods.slice/pod/app\n");
        in_tree(&v2, "kubepods.slice/pod/cgroup.type", "domain\n");
        in_tree(&v2, "kubepods.slice/pod/app/cpu.max", "400000 100000\n");
        let (levels, sight) = quotas(&v2, 50);
        let expected =
            vec![("/kubepods.slice/pod/app".into(), 4.0), ("/kubepods.slice".into(), 1.5)];
        assert_eq!((levels, sight), (expected, AncestorVisibility::Whole));
    }

    #[test]
    fn what_is_not_in_sight_is_said_to_be_so() {
        let pod = Host::like("cgroup/pod");
        let (levels, sight) = quotas(&pod, 7);
        assert_eq!(levels.iter().map(|(_, cpus)| *cpus).collect::<Vec<_>>(), [4.0]);
        assert!(
            matches!(&sight, AncestorVisibility::Part(why) if why.contains("may be tighter")),
            "{sight:?}"
        );
        let reason = |host: &Host, pid| match quotas(host, pid) {
            (levels, AncestorVisibility::None(reason)) if levels.is_empty() => reason,
            other => panic!("{other:?}"),
        };
        let mixed = Host::like("cgroup/mixed");
        assert!(reason(&mixed, 43).contains("outside of the part"));
        mixed.write("proc/44/cgroup", "4:cpu:/jobs/gone (deleted)\n0::/\n");
        assert!(reason(&mixed, 44).contains("removed"));
        // The name of a living cgroup may end in that.
        for (file, value) in [("quota", "70000\n"), ("period", "100000\n")] {
            in_tree(&mixed, &format!("cpu/jobs/gone (deleted)/cpu.cfs_{file}_us"), value);
        }
        assert_eq!(quotas(&mixed, 44).0[0], ("/jobs/gone (deleted)".into(), 0.7));
        mixed.write("proc/45/cgroup", "9:freezer:/\n");
        assert!(reason(&mixed, 45).contains("no cgroup of the tree"));
        let nothing = Host::empty();
        nothing.write("proc/46/cgroup", "0::/\n");
        assert!(reason(&nothing, 46).contains("no cgroup tree is mounted"));
        assert_eq!(Cgroups::open(&nothing.roots).locate(47), None);
    }
}
