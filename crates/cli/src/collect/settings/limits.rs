// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which cgroups have limits of block IO. All cgroups are looked at, not only the target's: a throttled cgroup also
//! delays those that share a disk or a journal with it.

use crate::collect::Roots;
use deburr_core::procfs::mountinfo::{self, Mount};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Files of cgroup v1, which are empty where there is no limit.
const V1: [&str; 4] = [
    "blkio.throttle.read_bps_device",
    "blkio.throttle.read_iops_device",
    "blkio.throttle.write_bps_device",
    "blkio.throttle.write_iops_device",
];
/// Files of cgroup v2. Without a limit they are empty, or hold [`NO_WEIGHT`].
const V2: [&str; 3] = ["io.max", "io.weight", "io.latency"];
const NO_WEIGHT: &[u8] = b"default 100";
/// Maximum number of directories that a walk visits in a tree.
const MAX_DIRS: usize = 1000;
/// A walk may take one part in this many of the time.
const REST: u64 = 5000;

/// Looks for limits in the trees of the io controller.
#[derive(Debug)]
pub(super) struct Limits {
    trees: Vec<(PathBuf, &'static [&'static str])>,
    /// When to walk again, in nanoseconds since the start of the window.
    next_ns: u64,
    /// Whether there were more directories than a walk visits.
    cut: bool,
}

impl Limits {
    pub(super) fn open(roots: &Roots) -> Self {
        let (v1, v2) = io_trees(roots);
        let trees = v1.map(|tree| (tree, &V1[..])).into_iter();
        Self {
            trees: trees.chain(v2.map(|tree| (tree, &V2[..]))).collect(),
            next_ns: 0,
            cut: false,
        }
    }
    /// Whether that file belongs to a cgroup. If it is gone, its cgroup was removed.
    pub(super) fn are_in(&self, file: &Path) -> bool {
        self.trees.iter().any(|(tree, _)| file.starts_with(tree))
    }

    /// The files that hold a limit; none if the last walk is too recent for what it cost.
    pub(super) fn look(&mut self, t_ns: u64) -> Vec<PathBuf> {
        if t_ns < self.next_ns {
            return Vec::new();
        }
        let begin = Instant::now();
        let mut found = Vec::new();
        for (tree, files) in &self.trees {
            self.cut |= !walk(tree, files, &mut found);
        }
        let cost_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.next_ns = t_ns.saturating_add(cost_ns.saturating_mul(REST));
        found
    }

    /// What the walks left out, if anything.
    pub(super) fn lack(&self) -> Option<String> {
        let lack = || {
            format!("limits of block IO are looked for in {MAX_DIRS} cgroups, and there are more")
        };
        self.cut.then(lack)
    }
}

/// The mount points of the cgroup trees that have limits of IO: v1's `blkio` controller, and v2.
pub(in crate::collect) fn io_trees(roots: &Roots) -> (Option<PathBuf>, Option<PathBuf>) {
    let text = fs::read(roots.proc.join("self/mountinfo")).unwrap_or_default();
    let mounts = mountinfo::parse(&text).unwrap_or_default();
    let place = |mount: &Mount| {
        let point = Path::new(OsStr::from_bytes(&mount.mount_point));
        match point.strip_prefix("/sys") {
            Ok(rest) => roots.sys.join(rest),
            Err(_) => point.to_owned(),
        }
    };
    // Of several mounts of one tree the one that shows most of it.
    let widest = |of: &dyn Fn(&Mount) -> bool| {
        mounts.iter().filter(|mount| of(mount)).min_by_key(|mount| mount.root.len()).map(place)
    };
    let v1 = widest(&|mount| mount.fs_type == "cgroup" && mount.has_option("blkio"));
    let v2 = widest(&|mount| mount.fs_type == "cgroup2");
    (v1, v2)
}

/// Collects the files that hold a limit. Returns whether all directories were visited.
fn walk(tree: &Path, files: &[&str], found: &mut Vec<PathBuf>) -> bool {
    let mut dirs = VecDeque::from([tree.to_owned()]);
    let mut seen = 0;
    while let Some(dir) = dirs.pop_front() {
        if seen == MAX_DIRS {
            return false;
        }
        seen += 1;
        found.extend(files.iter().map(|file| dir.join(file)).filter(|file| is_limit(file)));
        // A directory with a link count of 2 has no subdirectories.
        if dir.metadata().is_ok_and(|meta| meta.nlink() == 2) {
            continue;
        }
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        // Directories that would not be visited anyway are not kept, but for one that tells of them.
        let room = (MAX_DIRS + 1).saturating_sub(seen + dirs.len());
        dirs.extend(below.take(room).map(|entry| entry.path()));
    }
    true
}

fn is_limit(file: &Path) -> bool {
    let text = fs::read(file).unwrap_or_default();
    let text = text.trim_ascii();
    !text.is_empty() && text != NO_WEIGHT
}
