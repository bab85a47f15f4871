// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which cgroups have limits of block IO. All of them are looked at, not the target's alone: whose IO is held
//! back matters to those that share a disk or a journal with them.

use crate::collect::Roots;
use deburr_core::procfs::mountinfo::{self, Mount};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Files of v1, which are empty where there is no limit.
const V1: [&str; 4] = [
    "blkio.throttle.read_bps_device",
    "blkio.throttle.read_iops_device",
    "blkio.throttle.write_bps_device",
    "blkio.throttle.write_iops_device",
];
/// Files of v2: empty, or this, where there is no limit.
const V2: [&str; 3] = ["io.max", "io.weight", "io.latency"];
const NO_WEIGHT: &[u8] = b"default 100";
/// Directories that a walk sees.
const MAX_DIRS: usize = 1000;
/// A walk may take this part of the time.
const REST: u64 = 5000;

/// The trees of the io controller.
#[derive(Debug)]
pub(super) struct Limits {
    trees: Vec<(PathBuf, &'static [&'static str])>,
    /// When to walk again.
    next_ns: u64,
    /// Whether there were more directories than a walk sees.
    cut: bool,
}

impl Limits {
    /// Finds the trees.
    pub(super) fn open(roots: &Roots) -> Self {
        let (v1, v2) = io_trees(roots);
        let trees = v1.map(|tree| (tree, &V1[..])).into_iter();
        Self {
            trees: trees.chain(v2.map(|tree| (tree, &V2[..]))).collect(),
            next_ns: 0,
            cut: false,
        }
    }
    /// The files that hold a limit; none, if the last look was too short ago for what it costs.
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

    /// What a look leaves out, if it ever left out anything.
    pub(super) fn lack(&self) -> Option<String> {
        let lack = || {
            format!("limits of block IO are looked for in {MAX_DIRS} cgroups, and there are more")
        };
        self.cut.then(lack)
    }
}

/// The trees of cgroups whose limits of IO count: of v1's `blkio` controller, and of v2.
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

/// Whether all directories were seen.
fn walk(tree: &Path, files: &[&str], found: &mut Vec<PathBuf>) -> bool {
    let mut dirs = VecDeque::from([tree.to_owned()]);
    let mut seen = 0;
    while let Some(dir) = dirs.pop_front() {
        if seen == MAX_DIRS {
            return false;
        }
        seen += 1;
        found.extend(files.iter().map(|file| dir.join(file)).filter(|file| is_limit(file)));
        // A directory with two links has no directories in it.
        if dir.metadata().is_ok_and(|meta| meta.nlink() == 2) {
            continue;
        }
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        // Those that would not be seen anyway are not kept.
        dirs.extend(below.take(MAX_DIRS + 1).map(|entry| entry.path()));
    }
    true
}

fn is_limit(file: &Path) -> bool {
    let text = fs::read(file).unwrap_or_default();
    let text = text.trim_ascii();
    !text.is_empty() && text != NO_WEIGHT
}
