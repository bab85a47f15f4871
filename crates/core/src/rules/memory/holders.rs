// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who holds the host's memory, and who took some in the window: evidence, not a cause, for whose pages were dropped for it is
//! not known.

use crate::finding::{Evidence, Unit};
use crate::rules::words::{evidence, group_name};
use crate::text::units;
use crate::view::{Group, Groups, View};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Groups that are told.
const TOLD: usize = 3;

/// What a group holds of the host's memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Memory {
    anon: u64,
    swapped: u64,
    /// More than at the start of the window, as far as that is known.
    grown: u64,
    /// Processes of which it is not known what is new.
    unknown: u64,
}

/// The groups that hold memory of a host which is short of it; none if that was not recorded.
pub(super) struct Holders<'g, 'v> {
    /// Those that took most first, then those that hold most.
    all: Vec<(&'g Group<'v>, Memory)>,
}

impl<'g, 'v> Holders<'g, 'v> {
    pub(super) fn of(view: &View, groups: &'g Groups<'v>) -> Self {
        let mut sums: BTreeMap<usize, Memory> = BTreeMap::new();
        for held in view.reclaim().held() {
            let Some(at) = groups.index_of(held.proc) else { continue };
            if groups.list()[at].is_observer() {
                continue;
            }
            let sum = sums.entry(at).or_default();
            sum.anon = sum.anon.saturating_add(held.anon_bytes);
            sum.swapped = sum.swapped.saturating_add(held.swapped_bytes.unwrap_or(0));
            sum.grown = sum.grown.saturating_add(held.grown_bytes.unwrap_or(0));
            sum.unknown += u64::from(held.grown_bytes.is_none());
        }
        let mut all: Vec<_> = sums.into_iter().map(|(at, it)| (&groups.list()[at], it)).collect();
        // Less than what the kernel keeps free anyway is nothing that was taken from others.
        let least = view.reclaim().counters(None).and_then(|it| it.low_bytes).unwrap_or(0);
        let taken = |it: &Memory| if it.grown >= least { it.grown } else { 0 };
        // Stable: of equals, the group that was seen first stays first.
        all.sort_by_key(|(_, it)| Reverse((taken(it), it.anon.saturating_add(it.swapped))));
        Self { all }
    }

    pub(super) fn lines(&self, view: &View) -> Vec<Evidence> {
        let line = |(group, it): &(&Group<'_>, Memory)| {
            let mut note = format!("by {}, with no file behind it: ", group_name(group));
            note.push_str(&match (it.grown, it.unknown) {
                (0, 0) => "no more than at the start of the window".to_owned(),
                (0, _) => "which of it is new is not known".to_owned(),
                (bytes, _) => {
                    format!("{} more than at the start of the window", units::bytes(bytes as f64))
                }
            });
            if it.swapped > 0 {
                note.push_str(&format!(
                    "; {} more is swapped out",
                    units::bytes(it.swapped as f64)
                ));
            }
            evidence(view, "memory held", it.anon as f64, Unit::Bytes, "/proc/PID/statm", note)
        };
        self.all.iter().take(TOLD).map(line).collect()
    }

    /// Where the reader sees who holds memory, as a clause.
    pub(super) fn where_to_see(&self) -> &'static str {
        match self.all.is_empty() {
            true => "see which processes hold most (`ps --sort=-rss`)",
            false => {
                "`memory held` in the evidence says who holds most, and who took some meanwhile"
            }
        }
    }
}
