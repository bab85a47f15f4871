// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which level of the cgroup tree stopped a group: its own cgroup may have no quota, and one above it has.

use crate::finding::{Cause, Entity, EntityKind};
use crate::recording::CgroupId;
use crate::rules::words::cgroup_entity;
use crate::view::{CgroupView, View};

/// The levels whose quota stopped a group, the one that did it most first.
#[derive(Clone, Debug, Default)]
pub(super) struct Binding {
    /// Each with its part of the stopping.
    levels: Vec<(CgroupId, f64)>,
    /// How the levels were found, if not by their counters.
    guess: Option<&'static str>,
}

/// What binds a group in that cgroup: the levels whose quota ran out by the kernel's count, else the tightest.
pub(super) fn of(view: &View, cgroup: Option<CgroupId>) -> Binding {
    let path = cgroup.map(|id| view.cgroup_path(id)).unwrap_or_default();
    let weight = |level: &CgroupView| {
        let throttled = level.nr_throttled.delta().filter(|&periods| periods > 0)?;
        Some(level.throttled_ns.delta().filter(|&ns| ns > 0).unwrap_or(throttled) as f64)
    };
    let mut counted: Vec<(CgroupId, f64)> =
        path.iter().filter_map(|(id, level)| Some((*id, weight(level)?))).collect();
    if counted.is_empty() {
        let limits = path.iter().filter_map(|(id, level)| Some((*id, level.limit_cpus()?)));
        let limits: Vec<_> = limits.collect();
        let guess = match limits.len() {
            1 => "the only level above it that has a quota",
            _ => "the tightest of the levels that have a quota; no counter says which one ran out",
        };
        let tightest = limits.into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
        return match tightest {
            Some((id, _)) => Binding { levels: vec![(id, 1.0)], guess: Some(guess) },
            None => Binding::default(),
        };
    }
    let whole: f64 = counted.iter().map(|(_, weight)| weight).sum();
    counted.iter_mut().for_each(|(_, weight)| *weight /= whole);
    // Stable: of equals, the one further down stays first.
    counted.sort_by(|a, b| b.1.total_cmp(&a.1));
    Binding { levels: counted, guess: None }
}

/// That level alone.
pub(super) fn of_level(id: CgroupId) -> Binding {
    Binding { levels: vec![(id, 1.0)], guess: None }
}

impl Binding {
    /// The level that binds most.
    pub(super) fn level(&self) -> Option<CgroupId> {
        self.levels.first().map(|&(id, _)| id)
    }

    /// Whether counters say so.
    pub(super) fn counted(&self) -> bool {
        !self.levels.is_empty() && self.guess.is_none()
    }

    /// The levels as causes.
    pub(super) fn causes(&self, view: &View) -> Vec<Cause> {
        if self.levels.is_empty() {
            let note = "the limits of its cgroups could not be read";
            let entity = Entity { note: Some(note.into()), ..Entity::new(EntityKind::Unknown) };
            return vec![Cause { entity, share: 1.0 }];
        }
        let cause = |&(id, share): &(CgroupId, f64)| {
            let note = self.guess.map(str::to_owned);
            Cause { entity: Entity { note, ..cgroup_entity(view, id) }, share }
        };
        self.levels.iter().map(cause).collect()
    }
}
