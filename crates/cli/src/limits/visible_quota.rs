// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which CPU quota a process can see in its own view of the cgroup files: what its runtime can know.

use crate::collect::{Cgroups, Roots};
use deburr_core::procfs::mountinfo::{self, Mount};
use deburr_core::recording::CgroupVersion;
use deburr_core::recording::SeenQuota;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::rc::Rc;

/// Mount namespaces whose mounts are kept; beyond that all are dropped.
const MAX_NAMESPACES: usize = 1024;

/// The cgroup mounts of the mount namespaces that were seen.
#[derive(Debug, Default)]
pub(super) struct MountsByNamespace {
    mounts: HashMap<(OsString, OsString), Rc<Vec<Mount>>>,
}

impl MountsByNamespace {
    /// The quota that the files show that process. Its files in `/proc` are read in the observer's own namespaces: then
    /// the paths of cgroups and the roots of mounts are of one tree, whatever namespaces the process has.
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
        // In a cgroup namespace of its own, the root of the mount usually is that of the namespace: then paths fit the
        // mount.
        let part = mount.root != b"/" && same_namespace;
        let own = cgroups.levels(id).into_iter().find(|(level, _)| *level == id);
        let (quota_us, period_us) = own.map(|(_, level)| (level.quota_us, level.period_us)).unzip();
        Some(SeenQuota::Leaf { quota_us, period_us, part })
    }

    /// The cgroup mounts that a process sees: in its mount namespace, below its root directory.
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
    use super::*;
    use crate::collect::fixture::Host;
    use std::os::unix::fs::symlink;

    const CPU: &str = "/sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu";

    /// What a process in `/jobs/batch` sees, with those mounts, in the observer's cgroup namespace or in another one.
    fn seen(mounts: &str, own_namespace: bool) -> SeenQuota {
        let host = Host::like("cgroup/mixed");
        host.write("sys/fs/cgroup/cpu/jobs/batch/cpu.cfs_quota_us", "20000\n");
        host.write("proc/42/mountinfo", mounts);
        for (pid, cgroup) in [("42", if own_namespace { "2" } else { "1" }), ("self", "1")] {
            let dir = host.path(&format!("proc/{pid}/ns"));
            fs::create_dir_all(&dir).unwrap();
            symlink(format!("cgroup:[{cgroup}]"), dir.join("cgroup")).unwrap();
            symlink("mnt:[1]", dir.join("mnt")).unwrap();
            symlink("/", host.path(&format!("proc/{pid}/root"))).unwrap();
        }
        MountsByNamespace::default().by(&host.roots, &mut Cgroups::open(&host.roots), 42)
    }

    #[test]
    fn what_a_process_sees_depends_on_what_is_mounted_where_it_lives() {
        let leaf =
            |part| SeenQuota::Leaf { quota_us: Some(20_000), period_us: Some(100_000), part };
        let mount = |root: &str| format!("30 1 0:26 {root} {CPU}\n");
        assert_eq!(seen(&mount("/"), false), leaf(false));
        assert_eq!(
            seen(&mount("/jobs/batch"), false),
            leaf(true),
            "bind-mounted, host's namespace"
        );
        assert_eq!(seen(&mount("/jobs/batch"), true), leaf(false), "as containers have it");
        assert_eq!(seen(&mount("/other"), false), SeenQuota::NoMount);
        assert_eq!(seen("", false), SeenQuota::NoMount);
        let v2_only = "31 1 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(seen(v2_only, false), SeenQuota::NoMount, "the quota is on v1");
        assert_eq!(seen("damaged\n", false), SeenQuota::Unknown);
    }

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
