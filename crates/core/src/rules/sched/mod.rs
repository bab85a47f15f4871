// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SCH rules: threads that are runnable but not running.

mod blame;
mod blamed_processes;
mod demand;
mod evidence;
mod idle_while_waiting;
mod longest_wait;
pub(super) mod oversized;
mod own_budget;
mod program;
mod quota;
mod quota_throttle;
mod run_queue_contention;
mod runtime_oversubscribed;
mod sized_threads;
pub(super) mod tails;

use super::Rule;

/// The rules of this area, by code.
pub(super) const RULES: &[&Rule] = &[
    &run_queue_contention::RULE,
    &quota_throttle::RULE,
    &idle_while_waiting::RULE,
    &runtime_oversubscribed::RULE,
];
