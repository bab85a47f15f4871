// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The latest journal commits, and which of them a sync waited for.

use deburr_core::recording::DevId;
use deburr_core::stats::Span;
use std::collections::{BTreeMap, VecDeque};

/// Commits that are kept per device.
const REMEMBERED: usize = 64;
/// A thread that waited for a commit continues within this time after it, or within one `GRACE_PART`th of its whole
/// wait.
const GRACE_NS: u64 = 2_000_000;
const GRACE_PART: u64 = 10;

/// Commits that have ended, by disk.
#[derive(Debug, Default)]
pub(super) struct Committed(BTreeMap<DevId, VecDeque<Span>>);

impl Committed {
    pub(super) fn push(&mut self, device: DevId, commit: Span) {
        let commits = self.0.entry(device).or_default();
        if commits.len() >= REMEMBERED {
            commits.pop_front();
        }
        commits.push_back(commit);
    }

    /// The parts of a sync in which it waited for a commit. If the sync ended right after the last commit that ended
    /// within it, it waited for that commit and for the earlier ones that ended within it.
    pub(super) fn waited_for(&self, device: DevId, sync: Span) -> Vec<Span> {
        let Span { t0_ns, t1_ns } = sync;
        let within = |commit: &&Span| (t0_ns + 1..=t1_ns).contains(&commit.t1_ns);
        let commits: Vec<_> = self.0.get(&device).into_iter().flatten().filter(within).collect();
        let last_ns = commits.iter().map(|commit| commit.t1_ns).max().unwrap_or(0);
        let grace_ns = GRACE_NS.max((t1_ns - t0_ns) / GRACE_PART);
        if t1_ns - t0_ns.max(last_ns) > grace_ns || commits.is_empty() {
            return Vec::new();
        }
        commits.into_iter().map(|it| Span::new(it.t0_ns.max(t0_ns), it.t1_ns)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const DISK: DevId = DevId { major: 7, minor: 0 };

    fn waited_ms(commits: &[(u64, u64)], sync: (u64, u64)) -> Vec<(u64, u64)> {
        let mut committed = Committed::default();
        let span = |(from, to): (u64, u64)| Span::new(from * MS, to * MS);
        commits.iter().for_each(|&commit| committed.push(DISK, span(commit)));
        assert_eq!(committed.waited_for(DevId { minor: 1, ..DISK }, span((0, 1000))), []);
        let waited = committed.waited_for(DISK, span(sync));
        waited.into_iter().map(|it| (it.t0_ns / MS, it.t1_ns / MS)).collect()
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
