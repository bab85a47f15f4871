// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The latest journal commits, and which of them a sync waited for.

use deburr_core::recording::DevId;
use std::collections::{BTreeMap, VecDeque};

/// Commits that are kept per device.
const REMEMBERED: usize = 64;
/// A thread that waited for a commit continues within this time after it, or within one `GRACE_PART`th of its whole
/// wait.
const GRACE_NS: u64 = 2_000_000;
const GRACE_PART: u64 = 10;

/// Commits that have ended, as `(start_ns, end_ns)` by disk.
#[derive(Debug, Default)]
pub(super) struct Committed(BTreeMap<DevId, VecDeque<(u64, u64)>>);

impl Committed {
    pub(super) fn push(&mut self, device: DevId, span_ns: (u64, u64)) {
        let commits = self.0.entry(device).or_default();
        if commits.len() >= REMEMBERED {
            commits.pop_front();
        }
        commits.push_back(span_ns);
    }

    /// The parts of a sync in which it waited for a commit. If the sync ended right after the last commit that ended
    /// within it, it waited for that commit and for the earlier ones that ended within it.
    pub(super) fn waited_for(&self, device: DevId, (t0_ns, t1_ns): (u64, u64)) -> Vec<(u64, u64)> {
        let within = |&&(_, end_ns): &&(u64, u64)| (t0_ns + 1..=t1_ns).contains(&end_ns);
        let commits: Vec<_> = self.0.get(&device).into_iter().flatten().filter(within).collect();
        let last_ns = commits.iter().map(|commit| commit.1).max().unwrap_or(0);
        let grace_ns = GRACE_NS.max((t1_ns - t0_ns) / GRACE_PART);
        if t1_ns - t0_ns.max(last_ns) > grace_ns || commits.is_empty() {
            return Vec::new();
        }
        commits.into_iter().map(|&(from_ns, to_ns)| (from_ns.max(t0_ns), to_ns)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const DISK: DevId = DevId { major: 7, minor: 0 };

    fn waited_ms(commits: &[(u64, u64)], sync: (u64, u64)) -> Vec<(u64, u64)> {
        let mut committed = Committed::default();
        commits.iter().for_each(|&(from, to)| committed.push(DISK, (from * MS, to * MS)));
        assert_eq!(committed.waited_for(DevId { minor: 1, ..DISK }, (0, 1000 * MS)), []);
        let waited = committed.waited_for(DISK, (sync.0 * MS, sync.1 * MS));
        waited.into_iter().map(|(from, to)| (from / MS, to / MS)).collect()
    }

    #[test]
    fn a_sync_that_ends_with_a_commit_waited_for_it() {
        assert_eq!(waited_ms(&[(100, 200)], (50, 201)), [(100, 200)]);
        assert_eq!(waited_ms(&[(100, 200)], (150, 205)), [(150, 200)]);
        assert_eq!(waited_ms(&[(100, 200), (200, 300)], (150, 301)), [(150, 200), (200, 300)]);
    }

    #[test]
    fn one_that_goes_on_after_it_or_ends_before_did_not() {
        assert_eq!(waited_ms(&[(100, 110)], (50, 201)), []);
        assert_eq!(waited_ms(&[(100, 300)], (50, 201)), []);
        assert_eq!(waited_ms(&[(100, 110)], (120, 201)), []);
        assert_eq!(waited_ms(&[], (120, 120)), []);
    }

    #[test]
    fn old_commits_are_forgotten() {
        let many: Vec<_> = (0..1000).map(|at| (at, at + 1)).collect();
        assert_eq!(waited_ms(&many, (0, 1000)).len(), REMEMBERED);
    }
}
