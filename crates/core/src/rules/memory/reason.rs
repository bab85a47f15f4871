// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a group waits for pages that were in memory, and which limits of cgroups pushed them out.

use super::limits::{self, Level};
use super::losses::{PAGE_WAIT, reclaimed};
use super::read_again::{READ_AGAIN, ReadAgain};
use crate::finding::{Cause, Evidence, Share};
use crate::recording::{MemoryBound, ReclaimKind, Source};
use crate::rules::words;
use crate::view::{Group, MemoryCounters, View};
use std::collections::BTreeSet;

/// The smallest page: where it is larger, fewer come back.
const PAGE_BYTES: u64 = 4096;
/// Limits that are named; the others are left out of the list.
const MAX_CAUSES: usize = 3;

/// What the threads waited for, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// For so many pages that came back, in its cgroups or in the whole host.
    Refaults {
        pages: u64,
        own: bool,
    },
    /// The kernel made them pause, for their cgroup is above its `memory.high`.
    AboveHigh,
    NotKnown,
}

pub(super) fn of_stalls(view: &View, group: &Group<'_>, ns: u64) -> Why {
    if !view.covers(Source::Reclaim) {
        return Why::NotKnown;
    }
    let keys = || group.members.iter().flat_map(|(id, _)| view.reclaim().of(*id));
    let cgroups: BTreeSet<_> = keys().filter_map(|(key, _)| key.cgroup).collect();
    let counted = |cgroup| view.reclaim().counters(cgroup).and_then(MemoryCounters::refaults);
    // Where a limit of its own binds, its own pages come back. The host's are those of anybody.
    let own = cgroups.into_iter().filter_map(|id| counted(Some(id))).reduce(u64::saturating_add);
    let pages = own.or_else(|| counted(None)).unwrap_or(0);
    if pages > 0 && pages as f64 * PAGE_WAIT.value * 1e6 >= ns as f64 {
        return Why::Refaults { pages, own: own.is_some() };
    }
    let high = keys().any(|(key, _)| key.bound == Some(MemoryBound::High));
    if high { Why::AboveHigh } else { Why::NotKnown }
}

/// Why a group reads again: at a limit of its own only if most of those pages came back in the cgroups at whose limit it freed
/// memory. On cgroup v1 only all pages that came back are counted there.
pub(super) fn of_reads(view: &View, group: &Group<'_>, again: &ReadAgain) -> Why {
    let keys = group.members.iter().flat_map(|(id, _)| view.reclaim().of(*id));
    let cgroups: BTreeSet<_> = keys.filter_map(|(key, _)| key.cgroup).collect();
    let counters = || cgroups.iter().filter_map(|id| view.reclaim().counters(Some(*id)));
    let pages = counters().filter_map(MemoryCounters::refaults).fold(0, u64::saturating_add);
    let all_pages = |it: &MemoryCounters| it.refaults().unwrap_or(0).saturating_mul(PAGE_BYTES);
    let bytes = counters().map(|it| it.read_again_bytes().unwrap_or_else(|| all_pages(it)));
    let own =
        bytes.fold(0, u64::saturating_add) as f64 >= READ_AGAIN.value * again.again_bytes as f64;
    Why::Refaults { pages, own }
}

/// The limits of cgroups that made the threads wait, as far as it is known that these did.
pub(super) struct Binding {
    pub(super) levels: Vec<Level>,
    /// The time in which the threads freed memory, at any limit or because the host was short of it.
    all_ns: u64,
}

impl Binding {
    /// Those of a group that waits for that reason. Where only the host's pages are counted, or too few came back, no limit
    /// is known to be the reason, although the threads may have freed memory there.
    pub(super) fn of(view: &View, group: &Group<'_>, why: Why) -> Self {
        let is_reason = |level: &Level| match why {
            Why::Refaults { own, .. } => own,
            Why::AboveHigh => level.bound == Some(MemoryBound::High),
            Why::NotKnown => false,
        };
        let mut levels = limits::levels(view, group);
        levels.retain(|level| level.cgroup.is_some() && is_reason(level));
        let all_ns = reclaimed(view, group, |key| key.kind != ReclaimKind::Compaction).ns;
        Self { levels, all_ns }
    }

    /// The cgroups, each with its part of the time in which the threads freed memory: what is dropped there is read again,
    /// but which page was dropped at which limit is not recorded.
    pub(super) fn causes(&self, view: &View) -> Vec<Cause> {
        let mut sums: Vec<(Level, u64)> = Vec::new();
        for level in &self.levels {
            match sums.iter_mut().find(|(of, _)| of.cgroup == level.cgroup) {
                Some((_, ns)) => *ns += level.ns,
                None => sums.push((*level, level.ns)),
            }
        }
        sums.sort_by_key(|&(_, ns)| std::cmp::Reverse(ns));
        let cause = |(level, ns): (Level, u64)| {
            let mut entity = words::cgroup_entity(view, level.cgroup?);
            entity.note = Some(format!(
                "its limit, {}: the share is of the time in which the threads freed memory",
                limits::file_of(level.bound)
            ));
            Some(Cause { entity, share: Share::of(ns.min(self.all_ns), self.all_ns) })
        };
        sums.into_iter().filter_map(cause).take(MAX_CAUSES).collect()
    }

    pub(super) fn lines(&self, view: &View) -> Vec<Evidence> {
        let of = "of the time in which its threads freed memory";
        let levels = self.levels.iter().take(MAX_CAUSES);
        levels.map(|level| limits::line(view, level, self.all_ns, of)).collect()
    }
}
