// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which cgroup trees are mounted where, and which of them have the cpu, the memory and the cpuset controller.

use crate::collect::Roots;
use deburr_core::procfs::mountinfo::{self, Mount};
use deburr_core::procfs::pid_cgroup::{DELETED, Membership};
use deburr_core::recording::CgroupVersion;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// One mounted cgroup tree.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    /// Version of its interface.
    pub(crate) version: CgroupVersion,
    /// The v1 controllers, empty for v2.
    controllers: Vec<String>,
    /// Where it is mounted, as the observer sees it.
    pub(crate) mount_point: PathBuf,
    /// Path in the hierarchy of the mount's root: `/`, unless a part of the tree was bind-mounted.
    pub(crate) root: Vec<u8>,
}

impl Tree {
    /// The directory of a path of the hierarchy; `None` if it lies outside of the mount or of the observer's
    /// cgroup namespace.
    pub(crate) fn dir(&self, path: &[u8]) -> Option<PathBuf> {
        let rest = below(&self.root, path)?;
        if rest.split(|&b| b == b'/').any(|name| name == b"..") {
            return None;
        }
        let rest = rest.strip_prefix(b"/").unwrap_or(rest);
        Some(self.mount_point.join(OsStr::from_bytes(rest)))
    }

    /// The path in the hierarchy of a directory at or below the mount point.
    pub(crate) fn path(&self, dir: &Path) -> Option<Vec<u8>> {
        let rest = dir.strip_prefix(&self.mount_point).ok()?.as_os_str().as_bytes();
        let mut path = self.root.clone();
        if path.last() != Some(&b'/') && !rest.is_empty() {
            path.push(b'/');
        }
        path.extend(rest);
        Some(path)
    }

    /// Whether that line of `/proc/PID/cgroup` is about this tree.
    pub(crate) fn holds(&self, membership: &Membership) -> bool {
        // A tree whose controllers are not known holds no process, not every process.
        membership.version() == self.version
            && (self.version == CgroupVersion::V2 || !self.controllers.is_empty())
            && self.controllers.iter().all(|name| membership.controllers.contains(name))
    }

    /// The path of a membership; `None` if its directory was removed. The kernel marks that by a suffix, which may also
    /// be part of the name.
    pub(crate) fn living(&self, membership: &Membership) -> Option<Vec<u8>> {
        if !membership.deleted {
            return Some(membership.path.clone());
        }
        let path = [&membership.path, DELETED].concat();
        self.dir(&path).is_some_and(|dir| dir.is_dir()).then_some(path)
    }

    /// Whether the mount's root is the root of the whole hierarchy. Inside a container it is not, and the limits above
    /// it cannot be seen.
    pub(crate) fn is_whole(&self) -> bool {
        // `release_agent` exists only at a v1 root, `cgroup.type` everywhere but at the v2 root.
        match self.version {
            CgroupVersion::V1 => self.mount_point.join("release_agent").exists(),
            CgroupVersion::V2 => !self.mount_point.join("cgroup.type").exists(),
        }
    }
}

/// What is left of `path` below `root`, with its leading slash; `None` if it is not at or below it.
fn below<'a>(root: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let root = root.strip_suffix(b"/").unwrap_or(root);
    path.strip_prefix(root).filter(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// The cgroup mounts of the host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mounts {
    /// The tree whose directories have ids in the recording: the cpu controller's, else the v2 tree.
    pub(crate) tree: Option<Tree>,
    /// Version of the cpu controller's interface, if it is on any tree.
    pub(crate) cpu_controller: Option<CgroupVersion>,
    /// The tree of the memory controller.
    pub(crate) memory: Option<Tree>,
    /// The tree of the cpuset controller.
    pub(crate) cpuset: Option<Tree>,
    v1: bool,
    v2: bool,
}

impl Mounts {
    /// Reads the observer's own mount table. Mount points below `/sys` are mapped to `roots.sys`.
    pub(crate) fn read(roots: &Roots) -> Self {
        let text = fs::read(roots.proc.join("self/mountinfo")).unwrap_or_default();
        let mounts = mountinfo::parse(&text).unwrap_or_default();
        let v1 = |controller: &str| {
            let is_v1 = |mount: &&Mount| mount.fs_type == "cgroup" && mount.has_option(controller);
            tree(roots, mounts.iter().filter(is_v1), CgroupVersion::V1)
        };
        let is_v2 = |mount: &&Mount| mount.fs_type == "cgroup2";
        let v2 = tree(roots, mounts.iter().filter(is_v2), CgroupVersion::V2);
        let v2_with = |controller: &str| {
            let tree = v2.clone()?;
            let list = fs::read_to_string(tree.mount_point.join("cgroup.controllers")).ok()?;
            list.split_whitespace().any(|name| name == controller).then_some(tree)
        };
        let cpu = v1("cpu").or_else(|| v2_with("cpu"));
        Self {
            cpu_controller: cpu.as_ref().map(|tree| tree.version),
            memory: v1("memory").or_else(|| v2_with("memory")),
            cpuset: v1("cpuset").or_else(|| v2_with("cpuset")),
            v1: mounts.iter().any(|mount| mount.fs_type == "cgroup"),
            v2: v2.is_some(),
            tree: cpu.or_else(|| v2.clone()),
        }
    }

    /// `v1`, `v2`, `mixed` or `none`.
    pub(crate) fn layout(&self) -> &'static str {
        match (self.v1, self.v2) {
            (true, true) => "mixed",
            (true, false) => "v1",
            (false, true) => "v2",
            (false, false) => "none",
        }
    }
}

/// Of several mounts of one hierarchy, the one that shows most of it.
fn tree<'a>(
    roots: &Roots,
    mounts: impl Iterator<Item = &'a Mount>,
    version: CgroupVersion,
) -> Option<Tree> {
    let widest = mounts.min_by_key(|mount| mount.root.len())?;
    let mount_point = Path::new(OsStr::from_bytes(&widest.mount_point));
    Some(Tree {
        version,
        controllers: match version {
            CgroupVersion::V1 => controllers(&widest.super_options),
            CgroupVersion::V2 => Vec::new(),
        },
        mount_point: match mount_point.strip_prefix("/sys") {
            Ok(rest) => roots.sys.join(rest),
            Err(_) => mount_point.to_owned(),
        },
        root: widest.root.clone(),
    })
}

/// The options of a v1 mount that name controllers, as `/proc/PID/cgroup` does.
fn controllers(options: &[String]) -> Vec<String> {
    const KNOWN: [&str; 4] = ["cpu", "cpuacct", "cpuset", "memory"];
    options.iter().filter(|option| KNOWN.contains(&option.as_str())).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::Tree;
    use deburr_core::recording::CgroupVersion;
    use std::path::{Path, PathBuf};

    fn tree(root: &str) -> Tree {
        Tree {
            version: CgroupVersion::V1,
            controllers: vec!["cpu".into()],
            mount_point: "/sys/fs/cgroup/cpu".into(),
            root: root.into(),
        }
    }

    #[test]
    fn paths_and_directories_map_both_ways() {
        let whole = tree("/");
        assert_eq!(whole.dir(b"/"), Some(PathBuf::from("/sys/fs/cgroup/cpu/")));
        assert_eq!(whole.dir(b"/a/b"), Some(PathBuf::from("/sys/fs/cgroup/cpu/a/b")));
        assert_eq!(whole.path(Path::new("/sys/fs/cgroup/cpu/a/b")).unwrap(), b"/a/b");
        assert_eq!(whole.path(Path::new("/sys/fs/cgroup/cpu")).unwrap(), b"/");
        assert_eq!(whole.path(Path::new("/sys/fs/cgroup/cpuset/a")), None);
    }

    #[test]
    fn a_part_of_the_tree_shows_only_what_is_in_it() {
        let part = tree("/docker/x");
        assert_eq!(part.dir(b"/docker/x/y"), Some(PathBuf::from("/sys/fs/cgroup/cpu/y")));
        assert_eq!(part.path(Path::new("/sys/fs/cgroup/cpu/y")).unwrap(), b"/docker/x/y");
        assert_eq!(part.dir(b"/docker/xy"), None);
        assert_eq!(part.dir(b"/"), None);
        assert_eq!(tree("/").dir(b"/../other"), None);
    }
}
