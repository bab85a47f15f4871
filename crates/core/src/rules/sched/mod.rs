// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SCH rules: threads that are runnable but not running.

mod blame;
mod blamed_processes;
mod demand;
mod evidence;
mod idle_while_waiting;
mod own_budget;
mod program;
mod quota;
mod quota_throttle;
mod run_queue_contention;
mod runtime_oversubscribed;
mod sized_threads;

pub(super) use evidence::{may_suffer, target_is_host};

use super::Rule;
use crate::finding::Tail;
use crate::view::{Groups, View};

/// The rules of this area, by code.
pub(super) const RULES: &[&Rule] = &[
    &run_queue_contention::RULE,
    &quota_throttle::RULE,
    &idle_while_waiting::RULE,
    &runtime_oversubscribed::RULE,
];

/// The tails that waiting for a CPU causes for a group: run-queue waits, then throttling.
pub(super) fn tails(view: &View, groups: &Groups<'_>, at: usize) -> impl Iterator<Item = Tail> {
    let queued = run_queue_contention::tail_of(view, groups, at);
    queued.into_iter().chain(quota_throttle::tail_of(view, &groups.list()[at]))
}
