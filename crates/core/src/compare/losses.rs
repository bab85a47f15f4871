// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a pair of processes loses in each recording, and whether that differs beyond chance.

use super::document::{Behind, Change, Loss, LossChange};
use super::series::{Blocks, LOSSES};
use super::summary::{Culprit, GroupSummary};
use crate::finding::{Entity, EntityKind};
use crate::stats::{SIGNIFICANT, Shift, holm, ratios, shift};
use crate::text::Share;
use std::collections::BTreeMap;

/// Least time lost, and least difference, that is worth a row: 1 ms of each second.
pub(super) const MATTERS_NS_PER_S: f64 = 1e6;
/// Least share of a difference for which somebody is named.
const LEAST_SHARE: f64 = 0.05;

/// One comparison.
#[derive(Clone, Debug)]
pub(super) struct Tested {
    pub(super) loss: Loss,
    means: [f64; 2],
    /// The loss itself; `None` if there are too few blocks.
    amount: Option<Shift>,
    /// The loss for each second on a CPU; `None` if it did not run.
    by_work: Option<Shift>,
}

impl Tested {
    /// p-value of a loss that differs both by itself and in proportion to the work: the larger of the two. 1 if one is
    /// more and the other is less.
    pub(super) fn p(&self) -> f64 {
        match (self.amount, self.by_work) {
            (None, _) => 1.0,
            (Some(amount), None) => amount.p,
            (Some(amount), Some(by_work)) if (amount.b > amount.a) == (by_work.b > by_work.a) => {
                amount.p.max(by_work.p)
            }
            (Some(_), Some(_)) => 1.0,
        }
    }

    /// Whether it counts as a comparison.
    pub(super) fn counts(&self) -> bool {
        self.amount.is_some()
    }
}

/// The comparisons of a pair: losses that reach 1 ms of each second on one side.
pub(super) fn tested([a, b]: [&Blocks; 2]) -> Vec<Tested> {
    let of = |(at, loss): (usize, &Loss)| {
        let values = [a, b].map(|side| &*side.losses[at]);
        let means = values.map(mean);
        if means[0].max(means[1]) < MATTERS_NS_PER_S {
            return None;
        }
        let amount = shift(values[0], values[1]);
        let work =
            [(values[0], &a.on_cpu), (values[1], &b.on_cpu)].map(|(it, per)| ratios(it, per));
        let by_work = match work {
            [Some(a), Some(b)] => shift(&a, &b),
            _ => None,
        };
        Some(Tested { loss: *loss, means, amount, by_work })
    };
    LOSSES.iter().enumerate().filter_map(of).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Decides all comparisons together.
#[derive(Debug)]
pub(super) struct Family {
    adjusted: Vec<f64>,
    /// p-values of the losses alone, adjusted likewise: for [`Change::OtherLoad`].
    amounts: Vec<f64>,
    pub(super) comparisons: usize,
}

impl Family {
    pub(super) fn of(tested: &[&Tested]) -> Self {
        let counted: Vec<f64> = tested.iter().filter(|it| it.counts()).map(|it| it.p()).collect();
        let amounts: Vec<f64> =
            tested.iter().filter_map(|it| it.amount.map(|amount| amount.p)).collect();
        Self { comparisons: counted.len(), adjusted: holm(&counted), amounts: holm(&amounts) }
    }

    /// The level at which each comparison is made, for what could have been seen.
    pub(super) fn level(&self) -> f64 {
        SIGNIFICANT / self.comparisons.max(1) as f64
    }

    /// What the comparison with that number among those that count comes to.
    pub(super) fn change(&self, tested: &Tested, number: Option<usize>) -> LossChange {
        let mut change = LossChange {
            loss: tested.loss,
            change: Change::NotComparable,
            a_ns_per_s: tested.means[0],
            b_ns_per_s: tested.means[1],
            difference_ns_per_s: None,
            ratio: None,
            ratio_by_work: None,
            chance: None,
            detectable_ns_per_s: None,
            behind: vec![],
        };
        let (Some(amount), Some(number)) = (tested.amount, number) else { return change };
        let large = (amount.b - amount.a).abs() >= MATTERS_NS_PER_S;
        change.change = if !large {
            Change::Alike
        } else if self.adjusted[number] < SIGNIFICANT {
            if amount.b > amount.a { Change::Grown } else { Change::Shrunk }
        } else if self.amounts[number] < SIGNIFICANT && tested.by_work.is_some() {
            Change::OtherLoad
        } else {
            Change::Alike
        };
        change.difference_ns_per_s = Some(amount.difference());
        change.ratio = amount.ratio();
        change.ratio_by_work = tested.by_work.and_then(|it| it.ratio());
        change.chance = Some(self.adjusted[number]);
        let detectable = amount.detectable(self.level()).max(MATTERS_NS_PER_S);
        change.detectable_ns_per_s = Some(detectable).filter(|it| it.is_finite());
        change
    }
}

/// Behind whom a pair waited more in B than in A, or less if that is asked. `called` names the culprits of A as B does.
pub(super) fn behind(
    groups: [&GroupSummary; 2],
    windows_ns: [u64; 2],
    more: bool,
    called: impl Fn(&str, &Option<String>) -> Option<String>,
) -> Vec<Behind> {
    let mut rates: BTreeMap<Culprit, [f64; 2]> = BTreeMap::new();
    for side in [0, 1] {
        for (culprit, ns) in &groups[side].behind {
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
        Culprit::Unknown => Entity {
            note: Some("migrated, not looked up, or too small to be told apart".into()),
            ..Entity::new(EntityKind::Unknown)
        },
    }
}
