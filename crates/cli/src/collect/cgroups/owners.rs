// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cgroups that own pages. The probe reports them by their ids in the memory controller's tree, which may be another
//! tree than that of the recording (v1). In that case the cgroup with the same path is meant.

use super::mounts::Tree;
use super::{ABSENT_KEPT, Cgroups, SEARCH_REST, walk};
use crate::collect::Emit;
use crate::collect::kept::Recent;
use deburr_core::procfs::container;
use deburr_core::recording::{Cgroup, CgroupId, Record};
use deburr_core::text::name;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Added to ids of cgroups that the recording's tree does not have: ids of kernfs stay far below.
const OF_OTHER_TREE: u64 = 1 << 62;

/// Owners that are remembered. Pages outlive the cgroup that owns them, so that its removal says nothing.
const OWNERS_KEPT: usize = 1 << 13;

/// The memory controller's tree, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// Inode number -> directory, as of the last walk.
    dirs: HashMap<u64, PathBuf>,
    /// Inode number -> cgroup in the recording.
    known: Recent<u64, CgroupId, OWNERS_KEPT>,
    absent: Recent<u64, (), ABSENT_KEPT>,
    next_walk: Option<Instant>,
}

impl Owners {
    /// The directory of an id. Walks the tree if the id is not known and a walk is due.
    fn dir(&mut self, tree: &Tree, id: u64) -> Option<PathBuf> {
        if let Some(dir) = self.dirs.get(&id) {
            return Some(dir.clone());
        }
        let begin = Instant::now();
        if self.absent.contains(&id) || self.next_walk.is_some_and(|next| begin < next) {
            return None;
        }
        self.dirs = directories(tree);
        let cost = begin.elapsed().max(Duration::from_micros(100));
        self.next_walk = Some(begin + cost * SEARCH_REST);
        let found = self.dirs.get(&id).cloned();
        if found.is_none() {
            self.absent.insert(id, ());
        }
        found
    }
}

/// All directories of a tree, as many as a walk may visit.
fn directories(tree: &Tree) -> HashMap<u64, PathBuf> {
    let mut dirs = HashMap::new();
    walk(&tree.mount_point, |visited| {
        dirs.insert(visited.id, visited.dir.clone());
        ControlFlow::Continue(())
    });
    dirs
}

impl Cgroups {
    /// The directory of a cgroup that [`Self::owner`] found, by its id in the memory controller's tree.
    pub(crate) fn memory_dir(&self, id: u64) -> Option<PathBuf> {
        let memory = self.mounts.memory.as_ref()?;
        if self.tree().is_some_and(|tree| tree.mount_point == memory.mount_point) {
            return self.dir_of(CgroupId(id)).map(Path::to_owned);
        }
        self.owners.dirs.get(&id).cloned()
    }

    /// The cgroup that owns a page, by its id in the memory controller's tree (0 = none). Emits its record if that was
    /// not emitted yet. `None` also for a cgroup that was not found, because it was created or removed just now.
    pub(crate) fn owner(&mut self, id: u64, emit: Emit<'_>) -> Option<CgroupId> {
        if id == 0 {
            return None;
        }
        let memory = self.mounts.memory.as_ref()?;
        if self.tree().is_some_and(|tree| tree.mount_point == memory.mount_point) {
            self.sight(CgroupId(id), emit);
            return Some(CgroupId(id));
        }
        if let Some(&known) = self.owners.known.get(&id) {
            return Some(known);
        }
        let memory = memory.clone();
        let path = memory.path(&self.owners.dir(&memory, id)?)?;
        let owner = match self.by_path(&path) {
            Some(own) => {
                self.sight(own, emit);
                own
            }
            None => {
                let own = CgroupId(OF_OTHER_TREE | id);
                let path = name::decode(&path);
                let mut container = container::of_path(&path);
                if let Some(container) = &mut container {
                    self.reader.complete(&self.roots, container);
                }
                emit(Record::Cgroup(Box::new(Cgroup {
                    id: own,
                    parent: None,
                    path,
                    version: memory.version,
                    quota_us: None,
                    period_us: None,
                    burst_us: None,
                    weight: None,
                    container,
                })));
                own
            }
        };
        self.owners.known.insert(id, owner);
        Some(owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::Roots;
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    fn inode(dir: &Path) -> u64 {
        dir.metadata().unwrap().ino()
    }

    #[test]
    fn owners_of_another_tree_are_those_of_the_same_path_or_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let sys = dir.path().join("sys");
        for path in ["cpu/jobs/batch", "memory/jobs/batch", "memory/alone"] {
            fs::create_dir_all(sys.join("fs/cgroup").join(path)).unwrap();
        }
        fs::create_dir_all(dir.path().join("self")).unwrap();
        let mount = |name: &str, id: u32| {
            format!("{id} 1 0:{id} / /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}\n")
        };
        let text = mount("cpu", 20) + &mount("memory", 21);
        fs::write(dir.path().join("self/mountinfo"), text).unwrap();
        let roots = Roots { proc: dir.path().into(), sys: sys.clone(), root: dir.path().into() };
        let mut cgroups = Cgroups::open(&roots);
        let at = |path: &str| inode(&sys.join("fs/cgroup").join(path));
        let mut seen = Vec::new();
        let mut emit = |record| {
            if let Record::Cgroup(cgroup) = record {
                seen.push(cgroup);
            }
        };
        let batch = cgroups.owner(at("memory/jobs/batch"), &mut emit).unwrap();
        assert_eq!(batch.0, at("cpu/jobs/batch"));
        assert_eq!(
            cgroups.memory_dir(at("memory/jobs/batch")),
            Some(sys.join("fs/cgroup/memory/jobs/batch"))
        );
        let alone = cgroups.owner(at("memory/alone"), &mut emit).unwrap();
        assert_eq!(alone.0, OF_OTHER_TREE | at("memory/alone"));
        assert_eq!(cgroups.owner(at("memory/alone"), &mut emit), Some(alone));
        assert_eq!(cgroups.owner(0, &mut emit), None);
        assert_eq!(cgroups.owner(1 << 40, &mut emit), None);
        let paths: Vec<&str> = seen.iter().map(|cgroup| &*cgroup.path).collect();
        assert_eq!(paths, ["/", "/jobs", "/jobs/batch", "/alone"]);
    }
}
