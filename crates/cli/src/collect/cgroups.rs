// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cgroup tree of the cpu controller: which directory a process is in, limits, containers.

use super::Emit;
use deburr_core::recording::CgroupId;

/// The tree.
#[derive(Debug, Default)]
pub(crate) struct Cgroups {}

impl Cgroups {
    /// Makes sure that `Record::Cgroup` was emitted for that id and all its ancestors. The id is the inode
    /// number of a directory of the tree (as BPF reads it from `kernfs_node`); unknown ids are looked up by a
    /// walk of the tree, at most once for an id that is not there.
    pub(crate) fn sight(&mut self, id: CgroupId, emit: Emit<'_>) {
        let _ = (id, emit);
    }
}
