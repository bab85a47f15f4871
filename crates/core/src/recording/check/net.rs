// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Invariants of what the network lost.

use super::amounts::fits;
use super::{Faults, Invariant};
use crate::recording::Record;

pub(super) const PARTS: Invariant =
    "what timers and probes sent again is part of what was sent again";
pub(super) const WAITED: Invariant =
    "the timers of a connection waited one after the other, the first of them before the tick too";

pub(super) fn check(record: &Record, faults: &mut Faults) {
    let Record::Resent(it) = record else { return };
    let parts = it.timeouts.saturating_add(it.probes).saturating_add(it.recoveries);
    let holds = parts <= it.times && it.dropped_here <= it.times && it.requests <= it.times;
    faults.unless(holds, PARTS, || format!("{parts} of {}", it.times));
    let length_ns = it.t1_ns.saturating_sub(it.t0_ns).saturating_add(it.rto_ns);
    let most_ns = length_ns.saturating_mul(it.connections.max(1));
    faults.unless(fits(it.timeout_ns, most_ns), WAITED, || {
        format!("{} ns in {most_ns} ns", it.timeout_ns)
    });
}
