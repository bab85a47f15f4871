// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SCH rules: threads that are runnable but not running.

mod blame;
mod blamed_processes;
mod demand;
mod evidence;
pub(super) mod idle_while_waiting;
mod own_budget;
mod program;
mod quota;
pub(super) mod quota_throttle;
pub(super) mod run_queue_contention;
pub(super) mod runtime_oversubscribed;
mod sized_threads;

pub(super) use evidence::{may_suffer, target_is_host};

use crate::finding::Tail;
use crate::view::{Groups, View};

/// The tails that waiting for a CPU causes for a group: run-queue waits, then throttling.
pub(super) fn tails(view: &View, groups: &Groups<'_>, at: usize) -> impl Iterator<Item = Tail> {
    let queued = run_queue_contention::tail_of(view, groups, at);
    queued.into_iter().chain(quota_throttle::tail_of(view, &groups.list()[at]))
}
