// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The flusher's passes. Parts that follow each other closely are joined into one pass. Also the passes and journal
//! commits of one disk, and the groups that dirtied what was written back.

use super::{BlockView, BoundedList};
use crate::recording::{DevId, JournalCommit, ProcId, WritebackPass};
use crate::view::Groups;
use std::collections::BTreeMap;

/// Parts with a shorter gap between them belong to one pass: the flusher works in parts of some 100 ms.
const GAP_NS: u64 = 1_000_000_000;
/// Maximum number of entries (seconds) of a histogram.
const MAX_SECONDS: usize = 512;
/// Maximum number of processes in `dirtied_by` and in `asked_by` of a pass.
const MAX_NAMED: usize = 16;

/// The passes of all devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Passes {
    pub(super) kept: BoundedList<WritebackPass>,
    /// Index of the latest pass of a device and reason.
    last: BTreeMap<(DevId, String), usize>,
}

impl Passes {
    pub(super) fn push(&mut self, pass: &WritebackPass) {
        let key = (pass.device, pass.reason.clone());
        if let Some(&at) = self.last.get(&key)
            && let Some(last) = self.kept.get_mut(at)
            && pass.t0_ns < last.t1_ns.saturating_add(GAP_NS)
            && last.t0_ns <= pass.t1_ns
        {
            return join(last, pass);
        }
        if let Some(at) = self.kept.push(pass.clone()) {
            self.last.insert(key, at);
        } else {
            self.last.remove(&key);
        }
    }
}

impl BlockView {
    /// The flusher's passes over a disk and its partitions, by start time. Passes that an application requested
    /// (`sync`) and passes that wrote nothing are left out.
    #[must_use]
    pub fn unasked_passes_over(&self, disk: DevId) -> Vec<&WritebackPass> {
        let mut passes: Vec<_> = self
            .passes()
            .iter()
            .filter(|pass| self.disk_of(pass.device) == disk && pass.reason != "sync")
            .filter(|pass| pass.ios > 0 || pass.inodes > 0)
            .collect();
        passes.sort_by_key(|pass| pass.t0_ns);
        passes
    }

    /// The commits of the journals on a disk and its partitions, by start time.
    #[must_use]
    pub fn commits_on(&self, disk: DevId) -> Vec<&JournalCommit> {
        let mut commits: Vec<_> =
            self.commits().iter().filter(|commit| self.disk_of(commit.device) == disk).collect();
        commits.sort_by_key(|commit| commit.t0_ns);
        commits
    }
}

/// Number of inodes written by these passes, by the group that first dirtied them, most first (`None` = a process
/// without a group), and the sum of these numbers.
#[must_use]
pub fn dirtied_inodes(
    groups: &Groups<'_>,
    passes: &[&WritebackPass],
) -> (Vec<(Option<usize>, u64)>, u64) {
    let mut by_group: BTreeMap<Option<usize>, u64> = BTreeMap::new();
    for &(proc, inodes) in passes.iter().flat_map(|pass| &pass.dirtied_by) {
        *by_group.entry(groups.index_of(proc)).or_default() += u64::from(inodes);
    }
    let known: u64 = by_group.values().sum();
    let mut sorted: Vec<_> = by_group.into_iter().collect();
    sorted.sort_by_key(|&(_, inodes)| std::cmp::Reverse(inodes));
    (sorted, known)
}

fn join(pass: &mut WritebackPass, more: &WritebackPass) {
    pass.t0_ns = pass.t0_ns.min(more.t0_ns);
    pass.t1_ns = pass.t1_ns.max(more.t1_ns);
    pass.inodes += more.inodes;
    pass.bytes += more.bytes;
    pass.ios += more.ios;
    pass.ages = histogram(&pass.ages, &more.ages);
    pass.since_last = histogram(&pass.since_last, &more.since_last);
    pass.dirtied_by = most(&pass.dirtied_by, &more.dirtied_by);
    pass.asked_by = most(&pass.asked_by, &more.asked_by);
}

/// Sum of both lists, largest numbers first, at most [`MAX_NAMED`] entries.
fn most(a: &[(ProcId, u32)], b: &[(ProcId, u32)]) -> Vec<(ProcId, u32)> {
    let mut sums: BTreeMap<ProcId, u32> = BTreeMap::new();
    for &(proc, number) in a.iter().chain(b) {
        let sum = sums.entry(proc).or_default();
        *sum = sum.saturating_add(number);
    }
    let mut most: Vec<_> = sums.into_iter().collect();
    most.sort_by_key(|&(_, number)| std::cmp::Reverse(number));
    most.truncate(MAX_NAMED);
    most
}

fn histogram(a: &[(u32, u32)], b: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let mut sum: BTreeMap<u32, u32> = BTreeMap::new();
    for &(seconds, inodes) in a.iter().chain(b) {
        let at = sum.entry(seconds).or_default();
        *at = at.saturating_add(inodes);
    }
    let mut list: Vec<(u32, u32)> = sum.into_iter().collect();
    // The longest times share the last entry.
    while list.len() > MAX_SECONDS {
        let (_, inodes) = list.pop().unwrap_or_default();
        if let Some(last) = list.last_mut() {
            last.1 = last.1.saturating_add(inodes);
        }
    }
    list
}
