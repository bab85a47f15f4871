// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OBS rules: reasons to distrust the observations.

mod events_lost;
pub(super) mod losses;
mod observer_overhead;
mod window_too_short;

use super::{Rule, candidates, severity};
use crate::finding::Fix;
use crate::view::{Group, Groups, Usage, View};

/// The rules of this area, by code.
pub(super) const RULES: &[&Rule] =
    &[&events_lost::RULE, &window_too_short::RULE, &observer_overhead::RULE];

/// The groups of the target whose loss, as counted by `lost_ns`, is above the severity limits; biggest loss first.
fn losers<'g>(
    view: &View,
    groups: &'g Groups<'g>,
    lost_ns: impl Fn(&Usage) -> u64,
) -> Vec<(&'g Group<'g>, &'g Usage)> {
    let targets = groups.list().iter().filter(|group| group.in_target && !group.is_observer());
    let seen = targets.filter_map(|group| Some((group, group.usage.as_ref()?)));
    let mut losers: Vec<_> = seen
        .filter(|(_, usage)| {
            let share = lost_ns(usage) as f64 / usage.wanted_ns().max(1) as f64;
            severity::of_loss(view.per_second(lost_ns(usage)), share).is_some()
        })
        .collect();
    losers.sort_by_key(|(_, usage)| std::cmp::Reverse(lost_ns(usage)));
    losers
}

/// Remedy that makes observing cheaper and more complete: a narrower target, unless there is one already.
fn narrower(view: &View) -> Vec<Fix> {
    if !candidates::target_is_host(view) {
        return vec![];
    }
    vec![Fix {
        action: "look at one process, cgroup or container instead of the whole host".into(),
        command: None,
        risk: None,
        expect: None,
    }]
}
