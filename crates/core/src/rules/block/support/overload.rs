// SPDX-License-Identifier: Apache-2.0 OR MIT
//! In what way a device cannot keep up, and how much a group loses by it.

use super::beside_others;
use super::clocks::Compared;
use super::victims::{self, Victim};
use super::{knobs, saturation};
use crate::finding::Severity;
use crate::recording::{DevId, IoOp, Stall, StallKind};
use crate::rules::Limit;
use crate::stats::overlaps;
use crate::view::block::stalls::{longest_ns, stall_ns};
use crate::view::block::{Activity, others_share, own_share};
use crate::view::{Groups, View};

pub(in crate::rules::block) const BUSY: Limit = Limit {
    name: "busy",
    value: 0.9,
    unit: "of the window with a request in the queue or the device, more than `depth` of them on average",
    why: "what comes then waits for what is there",
};
pub(in crate::rules::block) const DEPTH: Limit = Limit {
    name: "depth",
    value: saturation::MIN_DEPTH,
    unit: "requests at once on average, to be exceeded",
    why: "one at a time waits for no other request",
};

pub(in crate::rules::block) const SLOW: Limit = Limit {
    name: "slow",
    value: 5.0,
    unit: "ms that a request takes on average, at no more than `calm` at once",
    why: "no queue explains it: the device itself is slow",
};
pub(in crate::rules::block) const SLOW_ROTATING: Limit = Limit {
    name: "slow_rotating",
    value: 20.0,
    unit: "ms likewise, on a device that says it rotates",
    why: "8 to 12 ms are a seek and half a turn",
};
pub(in crate::rules::block) const CALM: Limit = Limit {
    name: "calm",
    value: 2.0,
    unit: "requests at once on average while the device is busy",
    why: "with more of them, waiting for each other is the reason",
};

/// In what way a device cannot keep up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::rules::block) enum Overload {
    /// Busy nearly all the time, with more than one request on average.
    Always,
    /// Slow by itself: a request takes this many nanoseconds on average, though hardly any others are there.
    Slow(f64),
    /// Saturated in stretches, if at all.
    Stretches,
}

impl Overload {
    pub(in crate::rules::block) fn of(view: &View, device: DevId, activity: &Activity) -> Self {
        let depth = depth(activity);
        let mean_ns = mean_ns(view, device).unwrap_or(0.0);
        let rotates = knobs::queue(view, device, "rotational").is_some_and(|it| it.trim() == "1");
        let slow = if rotates { SLOW_ROTATING } else { SLOW };
        if mean_ns >= slow.value * 1e6 && depth <= CALM.value {
            Self::Slow(mean_ns)
        } else if activity.busy_share() >= BUSY.value && depth > DEPTH.value {
            Self::Always
        } else {
            Self::Stretches
        }
    }
}

pub(in crate::rules::block) fn depth(activity: &Activity) -> f64 {
    activity.depth.total() as f64 / activity.busy_ns.max(1) as f64
}

/// Mean latency of a device's requests, reads and writes together, in nanoseconds; `None` without any.
fn mean_ns(view: &View, device: DevId) -> Option<f64> {
    let latencies = [IoOp::Read, IoOp::Write];
    let seen = latencies.iter().filter_map(|&op| view.block().latency().get(&(device, op)));
    let (count, ns) = seen.fold((0, 0), |(count, ns), latency| {
        (count + latency.total.total_count(), ns + latency.total.total_ns())
    });
    (count > 0).then(|| ns as f64 / count as f64)
}

/// A victim's loss on a device that cannot keep up.
pub(in crate::rules::block) struct DeviceLoss<'g> {
    pub(in crate::rules::block) victim: Victim<'g>,
    pub(in crate::rules::block) stalls: Vec<&'g Stall>,
    pub(in crate::rules::block) lost_ns: u64,
    pub(in crate::rules::block) longest_ns: u64,
    pub(in crate::rules::block) severity: Severity,
}

/// What a victim lost while the device was saturated, or to its slowness; `None` below the limits.
pub(in crate::rules::block) fn device_loss<'g>(
    view: &'g View,
    groups: &Groups<'g>,
    victim: &Victim<'g>,
    device: DevId,
    how: Overload,
) -> Option<DeviceLoss<'g>> {
    let mut stalls: Vec<&Stall> =
        victim.on_device(view, device, &[StallKind::Request, StallKind::Sync]);
    if how == Overload::Stretches {
        // Stalls that the flusher's and the journal's rules (BLK001, BLK005) report are left out.
        let compared = Compared::new(view, device, &stalls);
        if compared.blames_passes() {
            stalls.retain(|stall| !compared.in_passes.contains(stall));
        }
        if compared.blames_commits() {
            stalls.retain(|stall| !compared.in_commits.contains(stall));
        }
    }
    if !matches!(how, Overload::Slow(_)) {
        let spells: Vec<_> =
            saturation::full(view, device).iter().map(|spell| spell.span()).collect();
        stalls.retain(|stall| overlaps(&spells, stall.span()));
    }
    let longest_ns = longest_ns(&stalls);
    let members = victim.group.members.iter();
    let waits = members.flat_map(|(id, _)| view.block().waits_of(*id));
    let waits = waits.filter(|((_, kind, dev), _)| {
        *kind == StallKind::Request && dev.is_some_and(|dev| view.block().disk_of(dev) == device)
    });
    let waits_ns: u64 = waits.map(|(_, waits)| waits.waits.total_ns()).sum();
    let in_stalls_ns = stall_ns(&stalls);
    let lost_ns =
        if how == Overload::Stretches { in_stalls_ns } else { in_stalls_ns.max(waits_ns) };
    let mut severity = victim.severity(view, lost_ns, longest_ns)?;
    let own = own_share(view, groups, victim.at, Some(device));
    if !matches!(how, Overload::Slow(_)) && own.is_some_and(|own| own >= 0.5) {
        severity = victims::own_doing(view, severity);
    } else if others_share(view, groups, victim.at, device) >= beside_others::OTHERS_SHARE.value
        && let Some(named) = beside_others::severity_for(view, groups, victim)
    {
        severity = crate::rules::severity::lowered(severity.min(named));
    }
    Some(DeviceLoss { victim: victim.clone(), stalls, lost_ns, longest_ns, severity })
}
