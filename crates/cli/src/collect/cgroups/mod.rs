// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cgroup tree of the cpu controller: the cgroup of each process, limits, containers.
//!
//! A cgroup's id is the inode number of its directory, which is the id that BPF reads from `kernfs_node`. The record
//! of a cgroup is emitted when a collector first refers to it, after those of its ancestors.

mod levels;
mod limits;
mod mounts;
mod names;
mod owners;
mod readings;
mod removed;
mod walk;

pub(crate) use levels::shown;
pub(crate) use names::RuntimeFiles;
pub(crate) use readings::CgroupCollector;
pub(crate) use walk::{WalkExtent, walk};

use super::kept::Recent;
use super::{Emit, Roots};
use crate::reader::Reader;
use deburr_core::procfs::{container, cpu_list, pid_cgroup};
use deburr_core::recording::{Cgroup, CgroupId, CgroupVersion, Container, Record};
use deburr_core::text::name;
use limits::Limits;
use mounts::{Mounts, Tree};
use owners::Owners;
use removed::Removed;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Directories that are kept (some 300 bytes each), and bytes of their paths.
const MAX_NODES: usize = 2 * walk::MAX_DIRS;
const MAX_NODE_PATH_BYTES: usize = 2 * walk::MAX_PATH_BYTES;
/// Ids that wait for a walk, and the latest ids that are remembered as not found.
const MAX_WANTED: usize = 1 << 16;
const ABSENT_KEPT: usize = 1 << 13;
/// Cgroups whose limits are read again per second: at 5 us a file, 1 ms.
const REFRESH_PER_SECOND: usize = 64;
/// Searching the tree for unknown ids takes at most one part in this many of the time.
const SEARCH_REST: u32 = 200;

#[derive(Debug)]
struct Node {
    dir: PathBuf,
    record: Cgroup,
    /// Whether its record was emitted.
    announced: bool,
    /// Whether it was removed.
    gone: bool,
}

/// The cgroup tree of the cpu controller, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Cgroups {
    proc: PathBuf,
    mounts: Mounts,
    /// Where the files of container runtimes are, and the one that reads them.
    roots: Roots,
    reader: Reader,
    nodes: BTreeMap<CgroupId, Node>,
    /// Bytes of their paths.
    path_bytes: usize,
    /// The root, once it was asked for.
    root: Option<CgroupId>,
    /// Whether any walk left out directories.
    cut: bool,
    /// Ids that a walk did not find, or that were removed.
    absent: Recent<CgroupId, (), ABSENT_KEPT>,
    /// Ids that wait for the next walk.
    wanted: HashSet<CgroupId>,
    next_search: Option<Instant>,
    /// Path in the cpuset hierarchy -> effective CPUs; valid for a second.
    cpusets: BTreeMap<Vec<u8>, Option<String>>,
    last_refreshed: Option<CgroupId>,
    removed: Removed,
    owners: Owners,
}

/// The place of a process in the cgroup hierarchies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessCgroups {
    /// Its cgroup in the tree of the cpu controller.
    pub(crate) cgroup: Option<CgroupId>,
    /// Effective CPUs of its cpuset, as a list.
    pub(crate) cpuset_cpus: Option<String>,
    /// Path of its cgroup in the memory controller's tree, decoded, where that is another tree.
    pub(crate) memory: Option<String>,
}

impl Cgroups {
    /// Finds the mounted trees; reads no directory of them yet.
    pub(crate) fn open(roots: &Roots) -> Self {
        Self {
            proc: roots.proc.clone(),
            mounts: Mounts::read(roots),
            roots: roots.clone(),
            ..Self::default()
        }
    }

    /// Lets that reader read the files of container runtimes.
    pub(crate) fn with_reader(self, reader: Reader) -> Self {
        Self { reader, ..self }
    }

    /// `v1`, `v2`, `mixed` or `none`: how the trees are mounted.
    pub(crate) fn layout(&self) -> &'static str {
        self.mounts.layout()
    }

    /// Which interface the cpu controller has, if it is on any tree.
    pub(crate) fn cpu_controller(&self) -> Option<CgroupVersion> {
        self.mounts.cpu_controller
    }

    /// Where the tree is mounted.
    pub(crate) fn mount_point(&self) -> Option<&Path> {
        self.tree().map(|tree| tree.mount_point.as_path())
    }

    /// Whether the root of the whole hierarchy is visible. Inside a container it is not, nor are the limits above it.
    pub(crate) fn is_whole(&self) -> bool {
        self.tree().is_some_and(Tree::is_whole)
    }

    fn tree(&self) -> Option<&Tree> {
        self.mounts.tree.as_ref()
    }

    /// Makes sure that `Record::Cgroup` was emitted for that id and all its ancestors. The id is the inode
    /// number of a directory of the tree (as BPF reads it from `kernfs_node`); unknown ids are looked up by a
    /// walk of the tree, at most once for an id that is not there.
    pub(crate) fn sight(&mut self, id: CgroupId, emit: Emit<'_>) {
        if self.nodes.contains_key(&id) {
            self.announce(id, emit);
        } else if !self.absent.contains(&id) && self.wanted.len() < MAX_WANTED {
            self.wanted.insert(id);
            self.search(emit);
        }
    }

    /// The cgroup that BPF means by the id of a thread's task group. On v1, 0 is the group of a session (autogroup), which
    /// has no cgroup of its own: only threads in the root have such a group. `None` = not known.
    pub(crate) fn of_task_group(&mut self, id: CgroupId) -> Option<CgroupId> {
        if id != CgroupId(0) {
            return Some(id);
        }
        let is_v1 = self.cpu_controller() == Some(CgroupVersion::V1);
        if self.root.is_none() && is_v1 && self.is_whole() {
            self.root = self.by_path(b"/");
        }
        self.root
    }

    /// As [`Self::sight`], for a cgroup that holds the process `pid`: the process's entry in `/proc` has the path,
    /// which saves the walk.
    pub(crate) fn sight_of(&mut self, id: CgroupId, pid: u32, emit: Emit<'_>) {
        if !self.nodes.contains_key(&id) && !self.absent.contains(&id) {
            self.of_pid(pid);
        }
        self.sight(id, emit);
    }

    /// Searches the tree for the wanted ids, unless the last search is too recent for what it cost.
    fn search(&mut self, emit: Emit<'_>) {
        let begin = Instant::now();
        if self.wanted.is_empty() || self.next_search.is_some_and(|next| begin < next) {
            return;
        }
        self.walk();
        let cost = begin.elapsed().max(Duration::from_micros(100));
        self.next_search = Some(begin + cost * SEARCH_REST);
        let mut wanted: Vec<CgroupId> = std::mem::take(&mut self.wanted).into_iter().collect();
        wanted.sort_unstable();
        for id in wanted {
            if self.nodes.contains_key(&id) {
                self.announce(id, &mut *emit);
            } else {
                self.absent.insert(id, ());
            }
        }
    }

    /// Registers every directory of the tree, in breadth-first order.
    pub(crate) fn walk(&mut self) -> WalkExtent {
        let Some(tree) = self.tree().cloned() else { return WalkExtent::default() };
        let mut is_full = false;
        let mut extent = walk(&tree.mount_point, |visited| {
            let parent = visited.parent.map(CgroupId);
            is_full = !self.insert(&tree, &visited.dir, CgroupId(visited.id), parent);
            if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        extent.cut |= is_full;
        self.cut |= extent.cut;
        extent
    }

    /// Registers one directory by its path; `None` if it is gone.
    fn register(&mut self, tree: &Tree, dir: &Path, parent: Option<CgroupId>) -> Option<CgroupId> {
        let meta = dir.metadata().ok().filter(fs::Metadata::is_dir)?;
        let id = CgroupId(meta.ino());
        self.insert(tree, dir, id, parent).then_some(id)
    }

    fn insert(&mut self, tree: &Tree, dir: &Path, id: CgroupId, parent: Option<CgroupId>) -> bool {
        if self.nodes.contains_key(&id) {
            return true;
        }
        let path_bytes = self.path_bytes + 2 * dir.as_os_str().len();
        let has_room = self.nodes.len() < MAX_NODES && path_bytes <= MAX_NODE_PATH_BYTES;
        let Some(path) = tree.path(dir).filter(|_| has_room) else { return false };
        let record = Cgroup {
            id,
            parent,
            path: name::decode(&path),
            version: tree.version,
            quota_us: limits::quota_us(tree.version, dir),
            period_us: None,
            burst_us: None,
            weight: None,
            container: None,
        };
        self.path_bytes = path_bytes;
        self.nodes.insert(id, Node { dir: dir.to_owned(), record, announced: false, gone: false });
        self.absent.remove(&id);
        true
    }

    /// Emits the record of a registered cgroup, after those of its ancestors.
    fn announce(&mut self, id: CgroupId, emit: Emit<'_>) {
        let mut silent = Vec::new();
        let mut next = Some(id);
        while let Some(node) =
            next.and_then(|id| self.nodes.get(&id)).filter(|node| !node.announced)
        {
            silent.push(node.record.id);
            next = node.record.parent;
        }
        for id in silent.into_iter().rev() {
            let Some(node) = self.nodes.get_mut(&id) else { continue };
            Limits::read(node.record.version, &node.dir).write_to(&mut node.record);
            node.record.container = container::of_path(&node.record.path);
            if let Some(container) = &mut node.record.container {
                self.reader.complete(&self.roots, container);
            }
            node.announced = true;
            emit(Record::Cgroup(Box::new(node.record.clone())));
        }
    }

    /// Reads the limits of emitted cgroups again and emits those that changed: [`REFRESH_PER_SECOND`] cgroups in turn.
    /// Also searches for wanted ids. Called once a second.
    pub(crate) fn refresh(&mut self, emit: Emit<'_>) {
        self.cpusets.clear();
        self.search(&mut *emit);
        let ids: Vec<CgroupId> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.announced && !node.gone)
            .map(|(id, _)| *id)
            .collect();
        let from = self.last_refreshed.map_or(0, |last| ids.partition_point(|id| *id <= last));
        for id in ids.iter().cycle().skip(from).take(REFRESH_PER_SECOND.min(ids.len())) {
            self.last_refreshed = Some(*id);
            let Some(node) = self.nodes.get_mut(id) else { continue };
            let limits = Limits::read(node.record.version, &node.dir);
            // If the cgroup was removed, its files are gone: that is no change of its limits.
            if limits != Limits::of(&node.record) && node.dir.exists() {
                limits.write_to(&mut node.record);
                emit(Record::Cgroup(Box::new(node.record.clone())));
            }
        }
    }

    /// The cgroup of a living process, registered with its ancestors.
    pub(crate) fn of_pid(&mut self, pid: u32) -> Option<CgroupId> {
        self.place_of(pid).cgroup
    }

    /// The place of a living process: one read of `/proc/PID/cgroup`.
    pub(crate) fn place_of(&mut self, pid: u32) -> ProcessCgroups {
        let text = fs::read(self.proc.join(pid.to_string()).join("cgroup")).unwrap_or_default();
        let memberships = pid_cgroup::parse(&text).unwrap_or_default();
        let path_in = |tree: Option<&Tree>| {
            let tree = tree?;
            memberships.iter().find(|m| tree.holds(m)).and_then(|m| tree.living(m))
        };
        let path = path_in(self.tree());
        let cpuset_path = path_in(self.mounts.cpuset.as_ref());
        let point = self.tree().map(|tree| &tree.mount_point);
        let other = self.mounts.memory.as_ref().filter(|memory| Some(&memory.mount_point) != point);
        let memory = path_in(other).map(|path| name::decode(&path));
        ProcessCgroups {
            cgroup: path.and_then(|path| self.by_path(&path)),
            cpuset_cpus: cpuset_path.and_then(|path| self.cpuset_cpus(path)),
            memory,
        }
    }

    /// The cgroup at a path of the hierarchy, registered with its ancestors; `None` if no such directory is visible, or
    /// it is deeper than a walk goes.
    pub(crate) fn by_path(&mut self, path: &[u8]) -> Option<CgroupId> {
        let tree = self.tree()?.clone();
        let dir = tree.dir(path)?;
        let below = dir.strip_prefix(&tree.mount_point).ok()?.to_owned();
        if below.components().count() > walk::MAX_DEPTH {
            return None;
        }
        let mut at = tree.mount_point.clone();
        let mut id = self.register(&tree, &at, None)?;
        for name in below.components() {
            at.push(name);
            id = self.register(&tree, &at, Some(id))?;
        }
        Some(id)
    }

    /// Path in the hierarchy, decoded.
    pub(crate) fn path_of(&self, id: CgroupId) -> Option<&str> {
        self.nodes.get(&id).map(|node| node.record.path.as_str())
    }

    /// Whether that cgroup is the one at `path` or below it.
    pub(crate) fn is_within(&self, id: CgroupId, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let rest = self.path_of(id).and_then(|own| own.strip_prefix(path));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// The record of a cgroup.
    pub(crate) fn get(&self, id: CgroupId) -> Option<&Cgroup> {
        self.nodes.get(&id).map(|node| &node.record)
    }

    pub(crate) fn dir_of(&self, id: CgroupId) -> Option<&Path> {
        self.nodes.get(&id).map(|node| node.dir.as_path())
    }

    /// The cgroups that have a quota, as far as they are known.
    pub(crate) fn with_quota(&self) -> impl Iterator<Item = CgroupId> {
        let living = self.nodes.values().filter(|node| !node.gone);
        living.filter(|node| node.record.quota_us.is_some()).map(|node| node.record.id)
    }

    /// Whether any known cgroup has a quota. Also true if a walk could not visit the whole tree.
    pub(crate) fn quota_in_use(&self) -> bool {
        self.cut || self.with_quota().next().is_some()
    }

    /// The paths of all known cgroups.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.nodes.values().map(|node| node.record.path.as_str())
    }

    /// The containers below the walked tree, each with the path of its topmost cgroup.
    pub(crate) fn containers(&self) -> Vec<(Container, String)> {
        let mut by_id: BTreeMap<String, (Container, String)> = BTreeMap::new();
        let mut paths: Vec<&str> = self.paths().collect();
        paths.sort_unstable();
        for path in paths {
            let Some(found) = container::of_path(path) else { continue };
            // Units of systemd are no containers. A pod's own directory holds containers, but is none.
            if found.is_unit() || found.pod.as_ref() == Some(&found.id) {
                continue;
            }
            by_id.entry(found.id.clone()).or_insert_with(|| {
                let mut container = found;
                self.reader.complete(&self.roots, &mut container);
                (container, path.to_owned())
            });
        }
        by_id.into_values().collect()
    }

    /// The path of the hierarchy that a user means: `/docker/x`, or a directory such as
    /// `/sys/fs/cgroup/cpu/docker/x`.
    pub(crate) fn path_from_user(&self, given: &Path) -> Option<Vec<u8>> {
        let tree = self.tree()?;
        let bytes = given.as_os_str().as_bytes();
        // Where two controllers share a tree, symbolic links lead to it.
        let linked = || tree.path(&given.canonicalize().ok()?);
        let given = tree.path(given).or_else(linked).unwrap_or_else(|| bytes.to_vec());
        let names = given.split(|&b| b == b'/').filter(|name| !name.is_empty() && *name != b".");
        let path: Vec<u8> = names.flat_map(|name| [b"/", name].concat()).collect();
        Some(if path.is_empty() { b"/".to_vec() } else { path })
    }

    fn cpuset_cpus(&mut self, path: Vec<u8>) -> Option<String> {
        if let Some(known) = self.cpusets.get(&path) {
            return known.clone();
        }
        let cpus = self.mounts.cpuset.as_ref().and_then(|tree| {
            let file = match tree.version {
                CgroupVersion::V1 => "cpuset.effective_cpus",
                CgroupVersion::V2 => "cpuset.cpus.effective",
            };
            // On v2 the directory may lack the controller: then the nearest ancestor that has it decides.
            let dir = tree.dir(&path)?;
            let dirs = dir.ancestors().take_while(|dir| dir.starts_with(&tree.mount_point));
            let text = dirs.filter_map(|dir| fs::read(dir.join(file)).ok()).next()?;
            let cpus = cpu_list::parse(&text).ok()?;
            (!cpus.is_empty()).then(|| cpu_list::format(&cpus))
        });
        self.cpusets.insert(path, cpus.clone());
        cpus
    }
}

#[cfg(test)]
mod tests;
