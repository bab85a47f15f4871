// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The longest wait of a victim, told whole.

use super::quota;
use crate::finding::{Entity, EntityKind, LongestWait, WaitPart};
use crate::recording::{CgroupId, Culprit, ProcId};
use crate::rules::words::{cgroup_entity, process_entity, window_time};
use crate::view::{Group, View, WholeWait};

/// Processes that are named; the others are summed up.
const NAMED: usize = 4;
/// Of throttled time, where no level of the cgroup tree is known to have a quota.
const BY_QUOTA: &str = "throttled by a quota";
/// A wait that is shorter than this share of the longest one is not told as the longest: that one began before the window.
const OF_LONGEST: f64 = 0.95;

/// The longest wait of the group that began in the window, in run queues and throttled; `None` if it is not known whole.
pub(super) fn of(view: &View, group: &Group<'_>) -> Option<LongestWait> {
    let usage = group.usage.as_ref()?;
    // Recordings made before each wait's throttled time was known have none of it.
    let throttled = |wait: &WholeWait| wait.parts.iter().any(|&(it, _)| it == Culprit::Throttled);
    let waits = group.members.iter().filter_map(|&(id, _)| {
        let process = view.processes().get(&id)?;
        Some((id, process.longest_wait.as_deref()?))
    });
    let (id, wait) = waits.max_by_key(|(id, wait)| (wait.wait_ns, std::cmp::Reverse(*id)))?;
    let is_longest = wait.wait_ns as f64 >= OF_LONGEST * usage.wait_max_ns as f64;
    let known = usage.states.throttled_ns == 0 || throttled(wait);
    (is_longest && known).then(|| told(view, id, quota::of(view, group.cgroup).level(), wait))
}

fn told(view: &View, victim: ProcId, level: Option<CgroupId>, wait: &WholeWait) -> LongestWait {
    let mut named: Vec<(ProcId, u64)> = Vec::new();
    let (mut rest_ns, mut moved_ns, mut unknown_ns, mut throttled_ns) = (0, 0, 0, 0);
    for &(culprit, ns) in &wait.parts {
        match culprit {
            Culprit::Process(id) if id == ProcId::OTHERS => rest_ns += ns,
            Culprit::Process(id) => named.push((id, ns)),
            Culprit::Migrated => moved_ns += ns,
            Culprit::NotSampled => unknown_ns += ns,
            Culprit::Throttled => throttled_ns += ns,
        }
    }
    named.sort_by_key(|&(id, ns)| (std::cmp::Reverse(ns), id));
    rest_ns += named.iter().skip(NAMED).map(|&(_, ns)| ns).sum::<u64>();
    named.truncate(NAMED);
    let mut parts: Vec<WaitPart> = named
        .into_iter()
        .map(|(id, ns)| WaitPart { entity: process(view, victim, id), ns })
        .collect();
    if throttled_ns > 0 {
        let entity = level.map_or_else(
            || Entity { note: Some(BY_QUOTA.into()), ..Entity::new(EntityKind::Unknown) },
            |level| cgroup_entity(view, level),
        );
        parts.push(WaitPart { entity, ns: throttled_ns });
    }
    let told_ns = wait.parts.iter().map(|&(_, ns)| ns).sum();
    for (ns, note) in [
        (rest_ns, "others"),
        (moved_ns, "on other run queues, before it was moved"),
        (unknown_ns, "not known"),
        (wait.wait_ns.saturating_sub(told_ns), "the CPU was idle or waking up"),
    ] {
        if ns > 0 {
            let entity = Entity { note: Some(note.into()), ..Entity::new(EntityKind::Unknown) };
            parts.push(WaitPart { entity, ns });
        }
    }
    LongestWait {
        at: window_time(view, wait.t_ns),
        at_s: wait.t_ns as f64 / 1e9,
        pid: view.processes().get(&victim).and_then(|it| it.facts.as_ref()).map(|it| it.pid),
        tid: wait.tid,
        wait_ns: wait.wait_ns,
        parts,
    }
}

fn process(view: &View, victim: ProcId, id: ProcId) -> Entity {
    let mut entity = process_entity(view, id);
    if id == victim {
        entity.note = Some("its own other threads".into());
    }
    entity
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_sum_to_the_wait() {
        let parts = (1..=7).map(|id| (Culprit::Process(ProcId(id)), u64::from(id) * 10));
        let mut parts: Vec<_> = parts.collect();
        let others = [(Culprit::Migrated, 5), (Culprit::NotSampled, 6), (Culprit::Throttled, 20)];
        parts.extend(others);
        let wait = WholeWait { t_ns: 1_500_000_000, tid: 3, wait_ns: 320, parts };
        let told = told(&View::default(), ProcId(7), None, &wait);
        let ns: Vec<u64> = told.parts.iter().map(|part| part.ns).collect();
        assert_eq!(ns, [70, 60, 50, 40, 20, 60, 5, 6, 9]);
        assert_eq!(told.parts[0].entity.note.as_deref(), Some("its own other threads"));
        assert_eq!(told.at_s.to_bits(), 1.5_f64.to_bits());
    }
}
