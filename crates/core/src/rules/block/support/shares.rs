// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Neighbour whose requests a group waited, as causes and in words. A request waits beside those that are in the queue or
//! the device at the same time.

use crate::finding::{Cause, Entity, EntityKind, Share};
use crate::recording::DevId;
use crate::rules::words::{self, cgroup_entity, group_entity, group_name, ticked};
use crate::view::block::{Neighbour, Shares, main_device};
use crate::view::{Groups, View};

/// Causes below this share are not listed.
const MIN_CAUSE: f64 = 0.01;
const MAX_CAUSES: usize = 5;

/// Neighbour whose requests a group waited, as causes with shares of its waiting; on one device or, with `None`, on all.
pub(in crate::rules::block) fn causes(
    view: &View,
    groups: &Groups<'_>,
    victim: usize,
    device: Option<DevId>,
) -> Vec<Cause> {
    let shares = Shares::of(view, groups, victim, device);
    let mut all: Vec<(Neighbour, u64)> =
        shares.beside.iter().map(|(beside, ns)| (*beside, *ns)).collect();
    if shares.own_ns > 0 {
        all.push((Neighbour::Group(victim), shares.own_ns));
    }
    all.sort_by_key(|&(beside, ns)| (std::cmp::Reverse(ns), beside));
    let whole = shares.total_ns().max(1) as f64;
    let is_shown = |ns: u64| ns as f64 / whole >= MIN_CAUSE;
    let shown = all.iter().take(MAX_CAUSES).take_while(|(_, ns)| is_shown(*ns)).count();
    let rest: u64 = all.iter().skip(shown).map(|(_, ns)| ns).sum();
    let mut causes: Vec<Cause> = all
        .iter()
        .take(shown)
        .map(|&(beside, ns)| Cause {
            entity: entity(view, groups, victim, beside),
            share: Share::of(ns, shares.total_ns()),
        })
        .collect();
    if is_shown(rest) {
        let note = Some("many others, each with little".into());
        causes.push(Cause {
            entity: Entity { note, ..Entity::new(EntityKind::Unknown) },
            share: Share::of(rest, shares.total_ns()),
        });
    }
    causes
}

fn entity(view: &View, groups: &Groups<'_>, victim: usize, beside: Neighbour) -> Entity {
    let kernel = |note: &str| {
        let note = Some(note.to_owned());
        Entity { note, ..Entity::new(EntityKind::Kernel) }
    };
    match beside {
        Neighbour::Group(at) => {
            let mut entity = group_entity(view, &groups.list()[at]);
            if at == victim {
                entity.note =
                    Some("its own other requests, and writeback of its cgroup's pages".into());
            }
            entity
        }
        Neighbour::Asked(at) => {
            let note =
                Some("writeback that it asked for (`sync`), of whatever was dirty".to_owned());
            Entity { note, ..group_entity(view, &groups.list()[at]) }
        }
        Neighbour::Dirtied(at) => {
            let note = Some("writeback of what it made dirty".to_owned());
            Entity { note, ..group_entity(view, &groups.list()[at]) }
        }
        Neighbour::Writeback(id) => {
            let note = Some("writeback of its pages".to_owned());
            Entity { note, ..cgroup_entity(view, id) }
        }
        Neighbour::Unowned => kernel("writeback of pages whose owner is not known"),
        Neighbour::Filesystem => kernel("requests of journals and metadata"),
        Neighbour::Device => {
            let mut entity = Entity::new(EntityKind::Device);
            entity.device =
                main_device(view, groups, victim).map(|device| view.block().device_name(device));
            entity.note = Some("for the requests themselves".into());
            entity
        }
        Neighbour::Unnamed => Entity {
            note: Some("processes that are not known".into()),
            ..Entity::new(EntityKind::Unknown)
        },
    }
}

/// The culprit in words.
pub(in crate::rules) fn name_of(view: &View, groups: &Groups<'_>, beside: Neighbour) -> String {
    match beside {
        Neighbour::Group(at) => format!("requests of {}", group_name(&groups.list()[at])),
        Neighbour::Asked(at) => {
            format!("writeback that {} asked for (`sync`)", group_name(&groups.list()[at]))
        }
        Neighbour::Dirtied(at) => {
            format!("writeback of what {} wrote", group_name(&groups.list()[at]))
        }
        Neighbour::Writeback(id) => match words::cgroup_path(view, id) {
            Some(path) => format!("writeback for {}", ticked(&path)),
            None => "writeback for another cgroup".into(),
        },
        _ => "requests of others".into(),
    }
}
