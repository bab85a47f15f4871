// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long waits and requests are in both recordings, class by class of their lengths.

use super::document::{
    Change, Comparison, DeviceSide, FindingPair, Loss, LossChange, MeasureOf, ProcessPair,
    ProcessSide,
};
use super::findings::is_same;
use crate::finding::{Area, SizeClass};

/// A class of lengths in both recordings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizePair {
    /// Lower bound of the class, inclusive, in nanoseconds.
    pub from_ns: u64,
    /// Upper bound, exclusive, in nanoseconds; `None` = no upper bound.
    pub to_ns: Option<u64>,
    /// What A and what B has of it.
    pub sides: [SizePart; 2],
}

/// What one recording has of a class of lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SizePart {
    /// Number of waits or requests.
    pub count: u64,
    /// Sum of their durations, in nanoseconds.
    pub ns: u64,
    /// Share of their number in that of all of this recording, 0..1.
    pub count_share: f64,
    /// Share of their time in that of all of this recording, 0..1.
    pub ns_share: f64,
    /// Number in each second.
    pub count_per_s: f64,
    /// Nanoseconds of each second, summed over threads.
    pub ns_per_s: f64,
}

/// The run-queue waits of a process in both recordings; empty if one of them does not know them, or if there are none.
#[must_use]
pub fn waits(pair: &ProcessPair) -> Vec<SizePair> {
    // Without the scheduler probe there is no ledger. With it, no waits are no waits.
    let is_known =
        !pair.ledger.is_empty() || [&pair.a, &pair.b].iter().all(|it| !it.waits.is_empty());
    if !is_known {
        return vec![];
    }
    // Waits are of the whole window, of which the blocks leave out less than one.
    let seconds = |side: &ProcessSide| f64::from(side.blocks) * side.block_ns as f64 / 1e9;
    beside([&pair.a.waits, &pair.b.waits], [&pair.a, &pair.b].map(seconds))
}

/// The requests of a device in one direction (`read`, `write`, `other`) in both recordings; empty if one of them does not
/// know them.
#[must_use]
pub fn requests<'s>(it: &'s Comparison, device: &str, op: &str) -> Vec<SizePair> {
    let Some(pair) = it.devices.iter().find(|it| it.device == device) else { return vec![] };
    let of = |side: &'s Option<DeviceSide>| {
        let mut all = side.iter().flat_map(|side| &side.requests);
        Some(all.find(|it| it.op == op)?.sizes.as_slice())
    };
    let (Some(a), Some(b)) = (of(&pair.a), of(&pair.b)) else { return vec![] };
    beside([a, b], [it.a.window.seconds, it.b.window.seconds])
}

/// The direction of the requests that a measure is of; `None` if it is of something else.
#[must_use]
pub fn requests_of(what: MeasureOf) -> Option<&'static str> {
    match what {
        MeasureOf::ReadLatency => Some("read"),
        MeasureOf::WriteLatency => Some("write"),
        _ => None,
    }
}

/// Whether what a process loses most more or less, or loses most if nothing differs, is waiting for a CPU.
#[must_use]
pub fn is_about_cpus(pair: &ProcessPair) -> bool {
    let weight = |it: &LossChange| {
        let changed = matches!(it.change, Change::Grown | Change::Shrunk);
        let (a, b) = (it.a_ns_per_s, it.b_ns_per_s);
        (changed, if changed { (b - a).abs() } else { a.max(b) })
    };
    let largest = pair.losses.iter().max_by(|x, y| {
        let (x, y) = (weight(x), weight(y));
        x.0.cmp(&y.0).then(x.1.total_cmp(&y.1))
    });
    largest.is_some_and(|it| !matches!(it.loss, Loss::BlockIo | Loss::MemStall))
}

/// The process that loses what a finding is about, if that is a wait for a CPU: its place among the compared processes.
#[must_use]
pub fn waiting(finding: &FindingPair, processes: &[ProcessPair]) -> Option<usize> {
    let is_victim = |pair: &ProcessPair| {
        let in_b = is_same(&finding.victim, &pair.b.process, true);
        in_b || finding.a.is_some() && is_same(&finding.victim, &pair.a.process, true)
    };
    let waits = finding.code.starts_with(Area::Sched.prefix());
    waits.then(|| processes.iter().position(is_victim)).flatten()
}

/// The classes of both, in order and without a gap: where neither has a class, there is an empty one.
fn beside(sides: [&[SizeClass]; 2], seconds: [f64; 2]) -> Vec<SizePair> {
    let mut bounds: Vec<(u64, Option<u64>)> =
        sides.into_iter().flatten().map(|class| (class.from_ns, class.to_ns)).collect();
    bounds.sort_unstable();
    bounds.dedup_by_key(|(from_ns, _)| *from_ns);
    let sums = sides.map(|side| {
        let sum = |of: fn(&SizeClass) -> u64| side.iter().map(of).fold(0, u64::saturating_add);
        (sum(|class| class.count), sum(|class| class.ns))
    });
    let part = |side: usize, from_ns: u64| {
        let Some(class) = sides[side].iter().find(|class| class.from_ns == from_ns) else {
            return SizePart::default();
        };
        let (count, ns) = sums[side];
        let seconds = seconds[side].max(1e-9);
        SizePart {
            count: class.count,
            ns: class.ns,
            count_share: class.count as f64 / count.max(1) as f64,
            ns_share: class.ns as f64 / ns.max(1) as f64,
            count_per_s: class.count as f64 / seconds,
            ns_per_s: class.ns as f64 / seconds,
        }
    };
    let mut pairs: Vec<SizePair> = Vec::with_capacity(bounds.len());
    for (from_ns, to_ns) in bounds {
        let end_ns = pairs.last().and_then(|last| last.to_ns).filter(|end_ns| *end_ns < from_ns);
        if let Some(end_ns) = end_ns {
            let sides = [SizePart::default(); 2];
            pairs.push(SizePair { from_ns: end_ns, to_ns: Some(from_ns), sides });
        }
        pairs.push(SizePair { from_ns, to_ns, sides: [0, 1].map(|side| part(side, from_ns)) });
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::WaitHist;
    use crate::view::waits::{by_bucket, size_classes};
    use proptest::prelude::*;

    fn hist(lengths_ns: &[u64]) -> WaitHist {
        let mut hist = WaitHist::default();
        lengths_ns.iter().for_each(|ns| hist.add(*ns));
        hist
    }

    #[test]
    fn where_neither_has_anything_is_an_empty_class() {
        let (a, b) = (by_bucket(&hist(&[1500, 1500, 3000])), by_bucket(&hist(&[70_000])));
        let pairs = beside([&a, &b], [2.0, 1.0]);
        let bounds: Vec<_> = pairs.iter().map(|it| (it.from_ns, it.to_ns)).collect();
        assert_eq!(
            bounds,
            [(1000, Some(2000)), (2000, Some(4000)), (4000, Some(64_000)), (64_000, Some(128_000))]
        );
        let first = pairs[0].sides[0];
        assert_eq!((first.count, first.ns, first.count_per_s), (2, 3000, 1.0));
        assert!((first.count_share - 2.0 / 3.0).abs() < 1e-9 && first.ns_share == 0.5);
        assert_eq!(pairs[2].sides, [SizePart::default(); 2]);
        assert_eq!(pairs[3].sides[1].ns_per_s, 70_000.0);
        assert_eq!(beside([&a, &[]], [1.0, 1.0])[0].sides[1], SizePart::default());
    }

    proptest! {
        #[test]
        fn shares_sum_to_one_and_classes_touch(
            a in prop::collection::vec(1..20_000_000_000u64, 1..30),
            b in prop::collection::vec(1..20_000_000_000u64, 1..30),
            fine in any::<bool>(),
        ) {
            let classes = |ns: &[u64]| if fine { by_bucket(&hist(ns)) } else { size_classes(&hist(ns)) };
            let pairs = beside([&classes(&a), &classes(&b)], [1.0, 1.0]);
            for side in 0..2 {
                let sum = |of: fn(&SizePart) -> f64| pairs.iter().map(|it| of(&it.sides[side])).sum::<f64>();
                prop_assert!((sum(|it| it.count_share) - 1.0).abs() < 1e-9);
                prop_assert!((sum(|it| it.ns_share) - 1.0).abs() < 1e-9);
            }
            for pair in pairs.windows(2) {
                prop_assert_eq!(pair[0].to_ns, Some(pair[1].from_ns));
            }
        }
    }
}
