// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which CPU quota a process's own view of the cgroup files tells: what a runtime in it can know.

use crate::collect::{Cgroups, Roots};
use deburr_core::procfs::mountinfo::{self, Mount};
use deburr_core::recording::CgroupVersion;
use deburr_core::recording::SeenQuota;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::rc::Rc;

/// Mount namespaces whose mounts are remembered; then all are forgotten.
const MAX_NAMESPACES: usize = 1024;

/// The cgroup mounts of the mount namespaces that were met.
#[derive(Debug, Default)]
pub(super) struct Seen {
    mounts: HashMap<(OsString, OsString), Rc<Vec<Mount>>>,
}

impl Seen {
    /// What the files tell that process. Read in the observer's own namespaces: paths and roots of both files are
    /// then of one tree, whatever namespaces the process has.
    pub(super) fn by(&mut self, roots: &Roots, cgroups: &mut Cgroups, pid: u32) -> SeenQuota {
        self.look(roots, cgroups, pid).unwrap_or(SeenQuota::Unknown)
    }

    fn look(&mut self, roots: &Roots, cgroups: &mut Cgroups, pid: u32) -> Option<SeenQuota> {
        let dir = roots.proc.join(pid.to_string());
        let located = cgroups.locate(pid)?;
        let (id, path) = (located.cgroup?, located.path?);
        let version = cgroups.get(id)?.version;
        let mounts = self.mounts_of(&dir)?;
        let mount = mounts.iter().find(|mount| is_of(mount, version) && covers(&mount.root, &path));
        let Some(mount) = mount else { return Some(SeenQuota::NoMount) };
        let same_namespace = fs::read_link(dir.join("ns/cgroup")).ok()
            == fs::read_link(roots.proc.join("self/ns/cgroup")).ok();
        // In a cgroup namespace of its own the mount's root is as a rule the namespace's: paths fit the mount.
        let part = mount.root != b"/" && same_namespace;
        let own = cgroups.levels(id).into_iter().find(|(level, _)| *level == id);
        let (quota_us, period_us) = own.map(|(_, level)| (level.quota_us, level.period_us)).unzip();
        Some(SeenQuota::Leaf { quota_us, period_us, part })
    }

    /// The cgroup mounts that a process sees: of its mount namespace, below its root.
    fn mounts_of(&mut self, dir: &Path) -> Option<Rc<Vec<Mount>>> {
        let namespace = fs::read_link(dir.join("ns/mnt")).ok()?.into_os_string();
        let key = (namespace, fs::read_link(dir.join("root")).ok()?.into_os_string());
        if let Some(mounts) = self.mounts.get(&key) {
            return Some(Rc::clone(mounts));
        }
        let mut mounts = mountinfo::parse(&fs::read(dir.join("mountinfo")).ok()?).ok()?;
        mounts.retain(|mount| mount.fs_type == "cgroup" || mount.fs_type == "cgroup2");
        if self.mounts.len() >= MAX_NAMESPACES {
            self.mounts.clear();
        }
        let mounts = Rc::new(mounts);
        self.mounts.insert(key, Rc::clone(&mounts));
        Some(mounts)
    }
}

fn is_of(mount: &Mount, version: CgroupVersion) -> bool {
    match version {
        CgroupVersion::V1 => mount.fs_type == "cgroup" && mount.has_option("cpu"),
        CgroupVersion::V2 => mount.fs_type == "cgroup2",
    }
}

/// Whether `path` is at `root` or below it.
fn covers(root: &[u8], path: &[u8]) -> bool {
    let root = root.strip_suffix(b"/").unwrap_or(root);
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::covers;

    #[test]
    fn a_mount_covers_what_is_below_its_root() {
        for (root, path, expected) in [
            ("/", "/a/b", true),
            ("/a", "/a", true),
            ("/a", "/a/b", true),
            ("/a", "/ab", false),
            ("/a/b", "/a", false),
        ] {
            assert_eq!(covers(root.as_bytes(), path.as_bytes()), expected, "{root} {path}");
        }
    }
}
