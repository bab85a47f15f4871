// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes that have ended leave the session's memory: not at once, because their last amounts arrive after their
//! end, but within half a minute.

use super::Processes;
use crate::collect::kept::{is_roomy, shrink};
use crate::collect::{Cgroups, Roots};
use deburr_core::recording::ProcId;
use std::collections::HashSet;
use std::fs;

/// Seconds between two searches. A process that two of them miss is removed: between 15 and 30 seconds after its end.
const EVERY_S: u32 = 15;
/// Dead processes that may be kept between two searches, where they come and go by the thousand.
const MOST: usize = 8192;

/// When ended processes are searched for.
#[derive(Debug)]
pub(super) struct Ended {
    /// Seconds since the last search.
    seconds: u32,
    /// Number of known processes at which a search is due at once.
    above: usize,
    /// Identities of the target that no known process had at the last search.
    unused: HashSet<ProcId>,
}

impl Default for Ended {
    fn default() -> Self {
        Self { seconds: 0, above: MOST, unused: HashSet::new() }
    }
}

impl Ended {
    /// Whether so many processes are known that most of them must have ended.
    pub(super) fn is_due(&self, known: usize) -> bool {
        known >= self.above
    }
}

impl Processes {
    /// Called once a second.
    pub(crate) fn second(&mut self, roots: &Roots) {
        self.ended.seconds += 1;
        if self.ended.seconds < EVERY_S {
            return;
        }
        self.ended.seconds = 0;
        if let Some(alive) = pids(roots) {
            self.by_pid.retain(|pid, known| {
                let was_missing = std::mem::replace(&mut known.is_missing, !alive.contains(pid));
                !(was_missing && known.is_missing)
            });
            self.after_search();
        }
    }

    /// Removes processes that are gone, except the most recent ones.
    pub(super) fn forget_dead(&mut self, roots: &Roots) {
        let young = self.last_id.saturating_sub(MOST as u32 / 4);
        if let Some(alive) = pids(roots) {
            self.by_pid.retain(|pid, known| alive.contains(pid) || known.process.id.0 > young);
        }
        self.after_search();
    }

    fn after_search(&mut self) {
        shrink(&mut self.by_pid);
        self.ended.above = self.by_pid.len() + MOST;
        // A process whose pid was reused is known no longer, but may still have amounts to come.
        let held: HashSet<ProcId> = self
            .by_pid
            .values()
            .map(|known| known.process.id)
            .chain(self.kinds.values().copied())
            .chain(self.target_root)
            .collect();
        let unused = self.target.iter().filter(|id| !held.contains(id)).copied().collect();
        let before = std::mem::replace(&mut self.ended.unused, unused);
        self.target.retain(|id| held.contains(id) || !before.contains(id));
        self.ended.unused.retain(|id| self.target.contains(id));
        if is_roomy(self.target.len(), self.target.capacity()) {
            self.target.shrink_to(2 * self.target.len());
        }
    }

    /// Forgets that processes of the target were seen in cgroups that were removed.
    pub(crate) fn forget_cgroups(&mut self, cgroups: &Cgroups) {
        self.target_cgroups.retain(|id| cgroups.may_exist(*id));
    }
}

/// The pids in `/proc`; `None` if it cannot be read.
fn pids(roots: &Roots) -> Option<HashSet<u32>> {
    let entries = fs::read_dir(&roots.proc).ok()?.flatten();
    Some(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}
