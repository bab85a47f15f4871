// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a pair of processes loses in each recording, and whether that differs beyond chance.

use super::decide::{Decided, Tested};
use super::document::{Behind, Loss, LossChange};
use super::series::{Blocks, LOSSES};
use super::summary::{Culprit, Rates};
use crate::finding::{Entity, EntityKind};
use crate::text::Share;
use std::collections::BTreeMap;

/// Least time lost, and least difference, that is worth a row: 1 ms of each second.
pub(super) const MATTERS_NS_PER_S: f64 = 1e6;
/// Least share of a difference for which somebody is named.
const LEAST_SHARE: f64 = 0.05;

/// The losses of a pair that reach 1 ms of each second on one side, and their comparisons.
pub(super) fn tested([a, b]: [&Blocks; 2]) -> Vec<(Loss, Tested)> {
    let of = |(at, loss): (usize, &Loss)| {
        let values = [a, b].map(|side| &*side.losses[at]);
        let tested = Tested::amount(values, [&a.on_cpu, &b.on_cpu], MATTERS_NS_PER_S);
        (tested.most() >= MATTERS_NS_PER_S).then_some((*loss, tested))
    };
    LOSSES.iter().enumerate().filter_map(of).collect()
}

/// How a loss changed.
pub(super) fn loss_change(loss: Loss, it: Decided) -> LossChange {
    LossChange {
        loss,
        change: it.change,
        a_ns_per_s: it.means[0],
        b_ns_per_s: it.means[1],
        difference_ns_per_s: it.difference,
        ratio: it.ratio,
        ratio_by_work: it.ratio_by_work,
        chance: it.chance,
        detectable_ns_per_s: it.detectable,
        behind: vec![],
    }
}

/// Behind whom a pair waited more in B than in A, or less if that is asked. `called` names the culprits of A as B does.
pub(super) fn behind(
    waited: [&Rates; 2],
    windows_ns: [u64; 2],
    more: bool,
    called: impl Fn(&str, &Option<String>) -> Option<String>,
) -> Vec<Behind> {
    let mut rates: BTreeMap<Culprit, [f64; 2]> = BTreeMap::new();
    for side in [0, 1] {
        for (culprit, ns) in waited[side] {
            let culprit = match culprit {
                Culprit::Named(comm, path) if side == 0 => {
                    Culprit::Named(comm.clone(), called(comm, path).or_else(|| path.clone()))
                }
                other => other.clone(),
            };
            rates.entry(culprit).or_default()[side] +=
                *ns as f64 * 1e9 / windows_ns[side].max(1) as f64;
        }
    }
    let extra = |[a, b]: [f64; 2]| if more { (b - a).max(0.0) } else { (a - b).max(0.0) };
    let whole: f64 = rates.values().map(|rate| extra(*rate)).sum();
    let mut behind: Vec<Behind> = rates
        .into_iter()
        .filter(|(_, rate)| extra(*rate) >= LEAST_SHARE * whole && extra(*rate) > 0.0)
        .map(|(culprit, rate)| Behind {
            process: entity(culprit),
            a_ns_per_s: rate[0],
            b_ns_per_s: rate[1],
            share: Share::saturating(extra(rate) / whole),
        })
        .collect();
    behind.sort_by(|x, y| y.share.get().total_cmp(&x.share.get()));
    behind
}

fn entity(culprit: Culprit) -> Entity {
    match culprit {
        Culprit::Named(comm, cgroup) => {
            Entity { comm: Some(comm), cgroup, ..Entity::new(EntityKind::Process) }
        }
        Culprit::Writeback => {
            Entity { comm: Some("writeback".into()), ..Entity::new(EntityKind::Kernel) }
        }
        Culprit::Filesystem => {
            Entity { comm: Some("journal and metadata".into()), ..Entity::new(EntityKind::Kernel) }
        }
        Culprit::Device => Entity {
            note: Some("the device itself: nothing else was queued".into()),
            ..Entity::new(EntityKind::Device)
        },
        Culprit::Unknown => Entity {
            note: Some("migrated, not looked up, or too small to be told apart".into()),
            ..Entity::new(EntityKind::Unknown)
        },
    }
}
