// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Invariants of what the network lost.

use super::amounts::fits;
use super::{Faults, Invariant};
use crate::recording::{
    AcceptQueueTick, HeldBackTick, Record, ResentTick, SendingTick, UnreadTick,
};

pub(super) const PARTS: Invariant =
    "what timers and probes sent again is part of what was sent again";
pub(super) const WAITED: Invariant =
    "the timers of a connection waited one after the other, the first of them before the tick too";

pub(super) const HELD: Invariant =
    "a connection that is held up has something to send, and no longer than the tick lasts";

pub(super) const LATE: Invariant = "what waits to be read does so on connections that are watched, and no longer than the tick lasts";

pub(super) const ACCEPTED_LATE: Invariant =
    "connections wait to be accepted at looks, and no longer than the tick lasts";

pub(super) const HELD_BACK: Invariant =
    "connections hold something back at looks, and no longer than the tick lasts";

pub(super) fn check(record: &Record, faults: &mut Faults) {
    match record {
        Record::Resent(it) => resent(it, faults),
        Record::Sending(it) => sending(it, faults),
        Record::Unread(it) => unread(it, faults),
        Record::AcceptQueue(it) => accept_queue(it, faults),
        Record::HeldBack(it) => held_back(it, faults),
        _ => {}
    }
}

fn sending(it: &SendingTick, faults: &mut Faults) {
    let held_ns = it.window_ns.saturating_add(it.buffer_ns);
    let length_ns = it.t1_ns.saturating_sub(it.t0_ns).saturating_mul(it.connections.max(1));
    let holds = held_ns <= it.busy_ns && fits(it.busy_ns, length_ns);
    faults.unless(holds, HELD, || format!("{held_ns} ns of {} ns in {length_ns} ns", it.busy_ns));
}

fn unread(it: &UnreadTick, faults: &mut Faults) {
    let known_ns = it.on_cpu_ns.saturating_add(it.queued_ns).saturating_add(it.asleep_ns);
    let length_ns = it.t1_ns.saturating_sub(it.t0_ns);
    let holds = known_ns <= it.late_ns
        && fits(it.late_ns, length_ns)
        && it.late_ns <= it.unread_ns
        && it.occupied_looks <= it.looks
        && it.unread_ns <= it.late_ns.saturating_mul(it.connections);
    faults.unless(holds, LATE, || {
        format!("{known_ns} ns of {} ns of {} ns in {length_ns} ns", it.late_ns, it.unread_ns)
    });
}

fn accept_queue(it: &AcceptQueueTick, faults: &mut Faults) {
    let length_ns = it.t1_ns.saturating_sub(it.t0_ns);
    let holds = fits(it.late_ns, length_ns)
        && it.late_ns <= it.waiting_ns
        && it.late_looks <= it.looks
        && it.waiting_ns <= it.late_ns.saturating_mul(it.most_waiting);
    faults.unless(holds, ACCEPTED_LATE, || {
        format!("{} ns of {} ns in {length_ns} ns", it.late_ns, it.waiting_ns)
    });
}

fn held_back(it: &HeldBackTick, faults: &mut Faults) {
    let length_ns = it.t1_ns.saturating_sub(it.t0_ns);
    let holds = fits(it.held_ns, length_ns)
        && it.held_looks <= it.looks
        && it.corked_looks <= it.held_looks;
    faults.unless(holds, HELD_BACK, || {
        format!("{} ns at {} of {} looks in {length_ns} ns", it.held_ns, it.held_looks, it.looks)
    });
}

fn resent(it: &ResentTick, faults: &mut Faults) {
    let parts = it.timeouts.saturating_add(it.probes).saturating_add(it.recoveries);
    let holds = parts <= it.times && it.dropped_here <= it.times && it.requests <= it.times;
    faults.unless(holds, PARTS, || format!("{parts} of {}", it.times));
    let length_ns = it.t1_ns.saturating_sub(it.t0_ns).saturating_add(it.rto_ns);
    let most_ns = length_ns.saturating_mul(it.connections.max(1));
    faults.unless(fits(it.timeout_ns, most_ns), WAITED, || {
        format!("{} ns in {most_ns} ns", it.timeout_ns)
    });
}
