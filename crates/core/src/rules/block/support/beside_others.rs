// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the requests of others cost a group whose own requests wait beside them.

use super::knobs;
use super::victims::Victim;
use crate::finding::{Severity, Tail, TailOf};
use crate::recording::StallKind;
use crate::rules::Limit;
use crate::rules::candidates::target_is_host;
use crate::rules::tail::{self, ExcludedWaiting};
use crate::rules::words::{self, group_name, ticked};
use crate::text::units;
use crate::view::block::Shares;
use crate::view::{Groups, View, waits};

pub(in crate::rules::block) const OTHERS_SHARE: Limit = Limit {
    name: "others_share",
    value: 0.2,
    unit: "of the victim's waiting beside requests of others",
    why: "less changes little when they are gone",
};
pub(in crate::rules::block) const LONG_PART: Limit = Limit {
    name: "long_part",
    value: 0.25,
    unit: "of the victim's waiting in waits of 1 ms or more",
    why: "many short waits are what a healthy device serves",
};
pub(in crate::rules::block) const HIDDEN_TIMES: Limit = Limit {
    name: "hidden_times",
    value: 5.0,
    unit: "times as long held up as its requests took, with an IO limit in force",
    why: "a limit holds a thread back before a request exists, where no probe of requests sees it",
};

/// What the requests of others cost a victim.
pub(in crate::rules::block) struct Severities {
    /// Severity of the sum of its waiting beside them.
    pub(in crate::rules::block) by_mean: Option<Severity>,
    /// Severity of the tail.
    pub(in crate::rules::block) by_tail: Option<Severity>,
    pub(in crate::rules::block) tail: Option<Tail>,
}

pub(in crate::rules::block) fn severities(
    view: &View,
    victim: &Victim<'_>,
    shares: &Shares,
) -> Severities {
    let others_ns = shares.others_ns();
    let part = others_ns as f64 / shares.total_ns().max(1) as f64;
    let held = victim.held(StallKind::Request);
    let long = waits::at_least(&held.waits, waits::LONG_WAIT_NS).1 as f64
        / held.waits.total_ns().max(1) as f64;
    let by_mean = victim
        .severity(view, others_ns, (held.max_ns as f64 * part) as u64)
        .filter(|_| part >= OTHERS_SHARE.value && long >= LONG_PART.value);
    let tail = tail_of(view, victim, shares);
    let by_tail = tail.and_then(|tail| by_tail(view, victim, &tail, others_ns));
    Severities { by_mean, by_tail, tail }
}

/// The severity of this rule's finding about a victim; `None` if it has none.
pub(in crate::rules::block) fn severity_for(
    view: &View,
    groups: &Groups<'_>,
    victim: &Victim<'_>,
) -> Option<Severity> {
    let shares = Shares::of(view, groups, victim.at, None);
    shares.worst()?;
    let Severities { by_mean, by_tail, .. } = severities(view, victim, &shares);
    by_mean.max(by_tail)
}

/// The tail that the requests of others cause for a target's own. How much of each wait was beside others is not known,
/// only the sum. A request's own length is the mean of what was not beside others; of what is beyond that, long and
/// short waits get parts of the sum in proportion.
fn tail_of(view: &View, victim: &Victim<'_>, shares: &Shares) -> Option<Tail> {
    let waits = &victim.held(StallKind::Request).waits;
    let requests = waits.total_count();
    if target_is_host(view) || requests == 0 {
        return None;
    }
    let tail = tail::of_waits(TailOf::BlockIo, (requests, 0), waits, ExcludedWaiting::default())?;
    let all_ns = waits.total_ns();
    let others_ns = shares.others_ns().min(all_ns);
    let own_ns = (all_ns - others_ns) / requests;
    let long_ns = tail.late.saturating_mul(tail.late_ns).min(all_ns);
    let beyond = |ns: u64, number: u64| ns.saturating_sub(number.saturating_mul(own_ns)) as f64;
    let beyond_long = beyond(long_ns, tail.late);
    let beyond_short = beyond(all_ns - long_ns, requests - tail.late);
    let beside_ns = others_ns as f64 * beyond_long / (beyond_long + beyond_short).max(1.0);
    let left = 1.0 - (beside_ns / long_ns.max(1) as f64).min(1.0);
    let own_ns = ((tail.p99_ns as f64 * left) as u64).max(own_ns).min(tail.p99_ns);
    Some(Tail { own_ns, ..tail })
}

/// The severity of the tail; `None` if the waiting fell into one second.
fn by_tail(view: &View, victim: &Victim<'_>, tail: &Tail, others_ns: u64) -> Option<Severity> {
    let usage = victim.group.usage.as_ref();
    if usage.is_some_and(|usage| tail::came_at_once(&usage.block_io)) {
        return None;
    }
    tail::severity(view, tail, view.per_second(others_ns))
}

/// The tail that waiting beside the requests of others causes for the group at that index.
pub(in crate::rules) fn tail_at(view: &View, groups: &Groups<'_>, at: usize) -> Option<Tail> {
    let victim = Victim::all(view, groups).into_iter().find(|victim| victim.at == at)?;
    tail_of(view, &victim, &Shares::of(view, groups, at, None))
}

/// The reason for `NoData` if a group's syncs take far longer than its requests while an IO limit is in force.
pub(in crate::rules::block) fn hidden(view: &View, groups: &Groups<'_>) -> Option<String> {
    let (path, value) = knobs::limits(view).into_iter().next()?;
    Victim::all(view, groups).iter().find_map(|victim| {
        let held = victim.held(StallKind::Sync).waits.total_ns();
        let requests = victim.held(StallKind::Request).waits.total_ns();
        let felt = victim.severity(view, held, victim.held(StallKind::Sync).max_ns).is_some();
        (felt && held as f64 >= HIDDEN_TIMES.value * requests as f64).then(|| {
            format!(
                "{} is held up {}, its requests take {} of that: {} ({}) holds it back before a request exists, where no \
                 probe of requests sees beside whom",
                group_name(victim.group),
                words::of_every_second(view.per_second(held)),
                units::duration(view.per_second(requests) as f64),
                ticked(path),
                ticked(value)
            )
        })
    })
}
