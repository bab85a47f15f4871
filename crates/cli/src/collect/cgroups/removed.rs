// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cgroups that were removed leave the session's memory: not at once, because the last amounts of their processes arrive
//! after their end. Their records stay in the recording.

use super::Cgroups;
use deburr_core::recording::CgroupId;
use std::collections::VecDeque;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Seconds in which all known directories are looked at once, and after which those that are gone are forgotten.
const ROUND_S: usize = 10;
/// Directories that are looked at per second, at some 2 us each.
const MOST_LOOKS: usize = 1024;
const LEAST_LOOKS: usize = 16;

/// The search for removed directories.
#[derive(Debug, Default)]
pub(super) struct Removed {
    /// Seconds so far.
    now_s: u64,
    last_looked: Option<CgroupId>,
    /// Directories that are gone, and in which second that was seen.
    gone: VecDeque<(u64, CgroupId)>,
}

impl Cgroups {
    /// Whether an id is that of a known directory, or may become one with the next walk.
    pub(crate) fn may_exist(&self, id: CgroupId) -> bool {
        self.nodes.contains_key(&id) || self.wanted.contains(&id)
    }

    /// Looks at some of the known directories, in turn, and forgets those that were found to be gone a while ago. Called
    /// once a second. Returns whether any was forgotten.
    pub(crate) fn forget_removed(&mut self) -> bool {
        self.removed.now_s += 1;
        self.look_at_directories();
        let long_ago = self.removed.now_s.saturating_sub(ROUND_S as u64);
        let mut any = false;
        while let Some(&(_, id)) = self.removed.gone.front().filter(|(at_s, _)| *at_s <= long_ago) {
            self.removed.gone.pop_front();
            if let Some(node) = self.nodes.remove(&id) {
                self.path_bytes = self.path_bytes.saturating_sub(2 * node.dir.as_os_str().len());
                self.absent.insert(id, ());
                any = true;
            }
        }
        any
    }

    fn look_at_directories(&mut self) {
        let looks = self.nodes.len().div_ceil(ROUND_S).clamp(LEAST_LOOKS, MOST_LOOKS);
        let tree_dev = self.tree().and_then(|tree| tree.mount_point.metadata().ok());
        let tree_dev = tree_dev.as_ref().map(Metadata::dev);
        let from = self.removed.last_looked.map_or(0, |last| last.0.saturating_add(1));
        let turn = self.nodes.range_mut(CgroupId(from)..).take(looks);
        let mut last = None;
        for (id, node) in turn {
            last = Some(*id);
            if !node.gone && is_gone(&node.dir, *id, tree_dev) {
                node.gone = true;
                self.removed.gone.push_back((self.removed.now_s, *id));
            }
        }
        // After the last one the turn begins anew.
        self.removed.last_looked = last;
    }
}

/// Whether that directory was removed; then another one may have its name. A filesystem that is mounted on it does not
/// mean that.
fn is_gone(dir: &Path, id: CgroupId, tree_dev: Option<u64>) -> bool {
    match dir.metadata() {
        Ok(meta) => meta.ino() != id.0 && Some(meta.dev()) == tree_dev,
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}
