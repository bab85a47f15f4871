// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which groups were held up by IO, for how long, and by what.

use crate::finding::{Cost, Severity};
use crate::recording::{DevId, Stall, StallKind, WAIT_BUCKETS, WaitHist};
use crate::rules::candidates::{may_suffer, target_is_host};
use crate::rules::{Limit, severity};
use crate::view::block::stalls::time_of_ns;
use crate::view::{Group, Groups, View, waits};
use std::collections::{BTreeMap, BTreeSet};

pub(in crate::rules::block) const FELT_STALL: Limit = Limit {
    name: "felt_stall",
    value: 100.0,
    unit: "ms in one hold-up",
    why: "a client that is served meanwhile notices, however rare it is: at least `low`, from `min_lost` on",
};
pub(in crate::rules::block) const LONG_STALL: Limit = Limit {
    name: "long_stall",
    value: 1000.0,
    unit: "ms in one hold-up",
    why: "that breaks timeouts: at least `medium`, from `min_lost` on",
};
pub(in crate::rules::block) const MIN_LOST: Limit = Limit {
    name: "min_lost",
    value: 2.0,
    unit: "ms of each second",
    why: "less is a single hold-up in a minute",
};

pub(in crate::rules::block) const WAITED_PART: Limit = Limit {
    name: "waited_part",
    value: 0.5,
    unit: "of the time of its requests in which a process's threads were off their CPUs without being runnable",
    why: "with less, most of its requests are of a kind that nothing waits for: readahead, `io_uring`, `libaio`",
};

/// The limits for a process that is held up, beside [`severity::LOSS_LIMITS`], for the `limits` of rules.
pub(in crate::rules::block) const STALL_LIMITS: [Limit; 4] =
    [FELT_STALL, LONG_STALL, MIN_LOST, WAITED_PART];

/// Severity of a loss in IO waits, of which each turn on a CPU loses `per_turn_ns` on average, and the longest of which
/// took `longest_ns`: rare long waits count for more than their share of the time. `None` below the limits.
pub(in crate::rules::block) fn of_stalls(
    lost_ns_per_s: u64,
    share: f64,
    per_turn_ns: Option<u64>,
    longest_ns: u64,
) -> Option<Severity> {
    let by_time = severity::of_turns(lost_ns_per_s, share, per_turn_ns);
    let longest_ms = longest_ns as f64 / 1e6;
    let by_length =
        if (lost_ns_per_s as f64) < MIN_LOST.value * 1e6 || longest_ms < FELT_STALL.value {
            None
        } else if longest_ms < LONG_STALL.value {
            Some(Severity::Low)
        } else {
            Some(Severity::Medium)
        };
    by_time.max(by_length)
}

/// A group that was held up.
#[derive(Clone, Debug)]
pub(in crate::rules::block) struct Victim<'g> {
    /// The group.
    pub(in crate::rules::block) group: &'g Group<'g>,
    /// Its index among the groups.
    pub(in crate::rules::block) at: usize,
    /// Its long IO waits (10 ms or more), in the order in which they ended.
    pub(in crate::rules::block) stalls: Vec<&'g Stall>,
    /// By kind; boxed, because there may be very many victims.
    waits: [Option<Box<KindWaits>>; 3],
}

/// IO waits of one kind: their histogram, and the longest.
#[derive(Clone, Debug, Default)]
pub(in crate::rules::block) struct KindWaits {
    pub(in crate::rules::block) waits: WaitHist,
    pub(in crate::rules::block) max_ns: u64,
}

static NO_WAITS: KindWaits =
    KindWaits { waits: WaitHist { count: [0; WAIT_BUCKETS], ns: [0; WAIT_BUCKETS] }, max_ns: 0 };

fn place(kind: StallKind) -> usize {
    match kind {
        StallKind::Sync => 0,
        StallKind::DirtyThrottle => 1,
        StallKind::Request => 2,
    }
}

impl<'g> Victim<'g> {
    /// All groups that were held up by IO and may be victims.
    pub(in crate::rules::block) fn all(view: &'g View, groups: &'g Groups<'g>) -> Vec<Self> {
        let mut all: BTreeMap<usize, Self> = BTreeMap::new();
        let new = |at| {
            let group = &groups.list()[at];
            Self { group, at, stalls: vec![], waits: Default::default() }
        };
        for ((proc, kind, _), held) in view.block().waits() {
            if let Some(at) = groups.index_of(*proc) {
                let victim = all.entry(at).or_insert_with(|| new(at));
                let sum = victim.waits[place(*kind)].get_or_insert_default();
                sum.waits.merge(&held.waits);
                sum.max_ns = sum.max_ns.max(held.max_ns);
            }
        }
        for stall in view.block().stalls() {
            if let Some(at) = groups.index_of(stall.proc) {
                all.entry(at).or_insert_with(|| new(at)).stalls.push(stall);
            }
        }
        let mut all: Vec<Self> = all.into_values().collect();
        all.retain(|victim| {
            may_suffer(view, victim.group)
                && (victim.io_ns() > 0 || !victim.stalls.is_empty())
                && victim.waited_part() >= WAITED_PART.value
        });
        all
    }

    /// The group's IO waits of one kind.
    pub(in crate::rules::block) fn held(&self, kind: StallKind) -> &KindWaits {
        self.waits[place(kind)].as_deref().unwrap_or(&NO_WAITS)
    }

    /// Time that it was held up by IO, in nanoseconds. A sync waits for requests that are counted themselves, so the
    /// larger of the two counts.
    fn io_ns(&self) -> u64 {
        let ns = |kind| self.held(kind).waits.total_ns();
        ns(StallKind::Sync).max(ns(StallKind::Request)) + ns(StallKind::DirtyThrottle)
    }

    /// Share (0..1) of its time in IO waits in which its threads can have waited at all, by the ledger: they neither ran
    /// nor were runnable. 1 where that is not known. Another thread that sleeps meanwhile hides that nobody waits.
    fn waited_part(&self) -> f64 {
        let Some(usage) = self.group.usage.as_ref().filter(|_| self.io_ns() > 0) else {
            return 1.0;
        };
        let off_ns = usage.wall_ns.saturating_sub(usage.wanted_ns());
        (off_ns as f64 / self.io_ns() as f64).min(1.0)
    }

    /// A loss as a share (0..1) of the time in which the victim wanted to make progress: on CPU, queued, throttled,
    /// held up by IO.
    pub(in crate::rules::block) fn share(&self, lost_ns: u64) -> f64 {
        let wanted_ns = self.group.usage.as_ref().map_or(0, crate::view::Usage::wanted_ns);
        lost_ns as f64 / (wanted_ns + self.io_ns()).max(lost_ns).max(1) as f64
    }

    /// Severity of a loss in IO waits, the longest of which took `longest_ns`; `None` below the limits.
    pub(in crate::rules::block) fn severity(
        &self,
        view: &View,
        lost_ns: u64,
        longest_ns: u64,
    ) -> Option<Severity> {
        let per_turn_ns = self.group.usage.as_ref().and_then(|usage| usage.per_turn_ns(lost_ns));
        of_stalls(view.per_second(lost_ns), self.share(lost_ns), per_turn_ns, longest_ns)
    }

    /// The stalls of these kinds on a device; stalls whose device is not known are included.
    pub(in crate::rules::block) fn on_device(
        &self,
        view: &View,
        device: DevId,
        kinds: &[StallKind],
    ) -> Vec<&'g Stall> {
        let here = |stall: &&&Stall| {
            kinds.contains(&stall.kind)
                && stall.device.is_none_or(|dev| view.block().disk_of(dev) == device)
        };
        self.stalls.iter().filter(here).copied().collect()
    }

    /// The disks that its stalls are on; if the disk of a stall is not known, also all disks with passes or commits.
    pub(in crate::rules::block) fn devices(&self, view: &View) -> BTreeSet<DevId> {
        let block = view.block();
        let mut devices: BTreeSet<DevId> = self
            .stalls
            .iter()
            .filter_map(|stall| stall.device)
            .map(|dev| block.disk_of(dev))
            .collect();
        if self.stalls.iter().any(|stall| stall.device.is_none()) {
            devices.extend(block.passes().iter().map(|pass| block.disk_of(pass.device)));
            devices.extend(block.commits().iter().map(|commit| block.disk_of(commit.device)));
        }
        devices
    }

    /// The cost of a loss, with the percentiles of the IO waits of that kind.
    pub(in crate::rules::block) fn cost(
        &self,
        view: &View,
        lost_ns: u64,
        kind: StallKind,
        longest_ns: u64,
    ) -> Cost {
        let held = self.held(kind);
        let percentile = |p| waits::percentile_ns(&held.waits, p, held.max_ns);
        Cost {
            lost_ns_per_s: view.per_second(lost_ns),
            share: self.share(lost_ns),
            p50_ns: percentile(0.5),
            p99_ns: percentile(0.99),
            max_ns: Some(held.max_ns.max(longest_ns)).filter(|&ns| ns > 0),
            ..Cost::default()
        }
    }

    /// The kind that holds most of the stalls' time: sync or request; of equals, sync.
    pub(in crate::rules::block) fn main_kind(stalls: &[&Stall]) -> StallKind {
        let ns = |kind| time_of_ns(stalls, kind);
        if ns(StallKind::Sync) >= ns(StallKind::Request) {
            StallKind::Sync
        } else {
            StallKind::Request
        }
    }
}

/// The severity for a victim that is its own culprit: `Info` if the target is the whole host, else one level lower.
pub(in crate::rules::block) fn own_doing(view: &View, severity: Severity) -> Severity {
    if target_is_host(view) { Severity::Info } else { severity::lowered(severity) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_long_hold_ups_count_for_more_than_their_time() {
        let (ms, s) = (1_000_000, 1_000_000_000);
        assert_eq!(of_stalls(3 * ms, 0.02, None, 1_100 * ms), Some(Severity::Medium));
        assert_eq!(of_stalls(3 * ms, 0.02, None, 150 * ms), Some(Severity::Low));
        assert_eq!(of_stalls(3 * ms, 0.02, None, 40 * ms), None);
        assert_eq!(of_stalls(ms, 0.9, None, 2 * s), None, "one in a minute");
        assert_eq!(of_stalls(200 * ms, 0.3, None, 50 * ms), Some(Severity::High));
    }
}
