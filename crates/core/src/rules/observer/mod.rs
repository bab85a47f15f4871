// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OBS: reasons to distrust what was observed.

pub(super) mod events_lost;
pub(super) mod losses;
pub(super) mod observer_overhead;
pub(super) mod window_too_short;

use super::{sched, severity};
use crate::finding::Fix;
use crate::view::{Usage, View};

/// Number of waits of each group of the target whose loss, as `lost_ns` counts it, is above the limits.
fn waits_of_losers(view: &View, lost_ns: impl Fn(&Usage) -> u64) -> Vec<u64> {
    let groups = view.groups();
    let targets = groups.list().iter().filter(|group| group.in_target && !group.is_observer());
    let losers = targets.filter_map(|group| group.usage.as_ref()).filter(|usage| {
        let lost_ns = lost_ns(usage);
        let share = lost_ns as f64 / usage.wanted_ns().max(1) as f64;
        severity::of_loss(view.per_second(lost_ns), share).is_some()
    });
    losers.map(|usage| usage.waits.total_count()).collect()
}

/// What makes observing cheaper and more complete, if it was not done already.
fn narrower(view: &View) -> Vec<Fix> {
    if !sched::target_is_host(view) {
        return vec![];
    }
    vec![Fix {
        action: "look at one process, cgroup or container instead of the whole host".into(),
        command: None,
        risk: None,
    }]
}
