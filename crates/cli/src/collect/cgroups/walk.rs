// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Walks a tree of cgroups. Whoever may make cgroups can make any number of them, with long names and thousands deep, so
//! a walk has limits.

use std::collections::VecDeque;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum number of directories that a walk visits.
pub(super) const MAX_DIRS: usize = 20_000;
/// Bytes of all their paths: those of an ordinary cgroup take 100.
pub(super) const MAX_PATH_BYTES: usize = 8 << 20;
/// Levels below the top: containers in containers have some 20.
pub(super) const MAX_DEPTH: usize = 256;
/// Time that a walk takes: 20 000 directories take less than a second.
const MAX_TIME: Duration = Duration::from_secs(4);

/// The extent of a walk of the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalkExtent {
    /// Directories visited.
    pub(crate) dirs: usize,
    /// Whether there were more than a walk may visit.
    pub(crate) cut: bool,
}

/// A directory of the tree.
#[derive(Clone, Debug)]
pub(crate) struct Visited {
    pub(crate) dir: PathBuf,
    /// Inode number.
    pub(crate) id: u64,
    pub(crate) parent: Option<u64>,
    depth: usize,
}

/// Calls `visit` with the top and the directories below it, level by level, until it breaks.
pub(crate) fn walk(top: &Path, visit: impl FnMut(&Visited) -> ControlFlow<()>) -> WalkExtent {
    walk_within(MAX_PATH_BYTES, top, visit)
}

fn walk_within(
    most_path_bytes: usize,
    top: &Path,
    mut visit: impl FnMut(&Visited) -> ControlFlow<()>,
) -> WalkExtent {
    let begin = Instant::now();
    let mut extent = WalkExtent::default();
    let Ok(id) = top.metadata().map(|meta| meta.ino()) else { return extent };
    let mut waiting = VecDeque::from([Visited { dir: top.to_owned(), id, parent: None, depth: 0 }]);
    let (mut seen, mut path_bytes) = (1, 0);
    while let Some(here) = waiting.pop_front() {
        extent.dirs += 1;
        if visit(&here).is_break() {
            break;
        }
        // A directory with a link count of 2 has no subdirectories.
        if here.dir.metadata().is_ok_and(|meta| meta.nlink() == 2) {
            continue;
        }
        if begin.elapsed() > MAX_TIME {
            extent.cut = true;
            break;
        }
        for entry in fs::read_dir(&here.dir).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let dir = entry.path();
            path_bytes += dir.as_os_str().len();
            if seen >= MAX_DIRS || path_bytes > most_path_bytes || here.depth >= MAX_DEPTH {
                extent.cut = true;
                break;
            }
            seen += 1;
            let (id, parent, depth) = (entry.ino(), Some(here.id), here.depth + 1);
            waiting.push_back(Visited { dir, id, parent, depth });
        }
    }
    extent
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirs(top: &Path) -> (Vec<String>, WalkExtent) {
        let mut names = Vec::new();
        let extent = walk(top, |visited| {
            names.push(visited.dir.strip_prefix(top).unwrap().display().to_string());
            ControlFlow::Continue(())
        });
        (names, extent)
    }

    #[test]
    fn parents_come_before_what_is_below_them() {
        let top = tempfile::tempdir().unwrap();
        for dir in ["a/b/c", "d"] {
            fs::create_dir_all(top.path().join(dir)).unwrap();
        }
        fs::write(top.path().join("a/file"), "").unwrap();
        let (mut names, extent) = dirs(top.path());
        assert_eq!(extent, WalkExtent { dirs: 5, cut: false });
        names[1..3].sort_unstable();
        assert_eq!(names, ["", "a", "d", "a/b", "a/b/c"]);
        let mut stopped = 0;
        walk(top.path(), |_| {
            stopped += 1;
            ControlFlow::Break(())
        });
        assert_eq!(stopped, 1);
        assert_eq!(dirs(&top.path().join("gone")).1.dirs, 0);
    }

    #[test]
    fn what_is_too_deep_or_too_wide_is_cut() {
        let top = tempfile::tempdir().unwrap();
        let deep = ["d"; MAX_DEPTH + 9].join("/");
        fs::create_dir_all(top.path().join(deep)).unwrap();
        let (names, extent) = dirs(top.path());
        assert_eq!((names.len(), extent.cut), (MAX_DEPTH + 1, true));
        // Names of 255 bytes.
        let top = tempfile::tempdir().unwrap();
        for index in 0..100 {
            fs::create_dir(top.path().join(format!("{index:0255}"))).unwrap();
        }
        let mut path_bytes = 0;
        let extent = walk_within(10_000, top.path(), |visited| {
            path_bytes += visited.dir.as_os_str().len();
            ControlFlow::Continue(())
        });
        assert!(extent.cut && (20..50).contains(&extent.dirs), "{extent:?}");
        assert!(path_bytes <= 10_000 + top.path().as_os_str().len(), "{path_bytes}");
    }
}
