// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whose allocations make a group free memory: at a limit, or because the host is short of it.

use crate::finding::{Cause, Share};
use crate::recording::{CgroupId, ProcId};
use crate::rules::words::{self, group_name};
use crate::text::units;
use crate::view::{Group, Groups, View};
use std::collections::{BTreeMap, BTreeSet};

/// Causes that are named; the others are left out of the list.
const MAX_CAUSES: usize = 4;
/// Of the victim's time: whoever allocates less is not named.
const LEAST_SHARE: f64 = 0.05;

/// Groups, each with its share of the victim's time, the largest first.
pub(super) struct Allocators<'g, 'v> {
    groups: &'g Groups<'v>,
    all: Vec<(usize, f64)>,
}

impl<'g, 'v> Allocators<'g, 'v> {
    /// Those that allocate at these places (`None` = the host), of the victim's loss.
    pub(super) fn of(
        view: &View,
        groups: &'g Groups<'v>,
        (victim, lost_ns): (&Group<'_>, u64),
        places: impl IntoIterator<Item = Option<CgroupId>>,
    ) -> Self {
        let victims: Vec<ProcId> = victim.members.iter().map(|(id, _)| *id).collect();
        let places: BTreeSet<Option<CgroupId>> = places.into_iter().collect();
        let mut sums: BTreeMap<usize, u64> = BTreeMap::new();
        for place in places {
            for (cause, ns) in view.reclaim().blame(&victims, place) {
                if let Some(at) = groups.index_of(cause) {
                    *sums.entry(at).or_default() += ns;
                }
            }
        }
        let share = |ns: u64| ns as f64 / lost_ns.max(1) as f64;
        let mut all: Vec<(usize, f64)> = sums.into_iter().map(|(at, ns)| (at, share(ns))).collect();
        all.retain(|(_, share)| *share >= LEAST_SHARE);
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        all.truncate(MAX_CAUSES);
        Self { groups, all }
    }

    /// What the first one allocates, as the end of a title; nothing if that is the victim itself.
    pub(super) fn behind(&self, victim: &Group<'_>) -> String {
        let first = self.all.first().map(|&(at, share)| (&self.groups.list()[at], share));
        let first = first.filter(|(group, _)| !std::ptr::eq(*group, victim));
        first.map_or_else(String::new, |(group, share)| {
            let share = units::share(share);
            format!(", {share} of it for what {} allocates", group_name(group))
        })
    }

    pub(super) fn causes(&self, view: &View) -> Vec<Cause> {
        let cause = |&(at, share): &(usize, f64)| Cause {
            entity: words::group_entity(view, &self.groups.list()[at]),
            share: Share::saturating(share),
        };
        self.all.iter().map(cause).collect()
    }
}
