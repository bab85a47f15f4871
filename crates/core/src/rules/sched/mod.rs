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
mod stopped;
pub(super) mod tails;

use super::Rule;
use super::words::cgroup_path;
use crate::recording::CgroupId;
use crate::view::{Groups, View};

/// The rules of this area, by code.
pub(super) const RULES: &[&Rule] = &[
    &run_queue_contention::RULE,
    &quota_throttle::RULE,
    &idle_while_waiting::RULE,
    &runtime_oversubscribed::RULE,
    &stopped::RULE,
];

/// Behind which groups a group waits for a CPU, in words, most first; `None` if that was not recorded.
pub(super) fn behind_whom(groups: &Groups<'_>, at: usize) -> Option<String> {
    blame::Blame::of(groups, at).in_words()
}

/// The cgroup whose CPU quota stops the processes of a cgroup most; `None` if it is not known.
pub(super) fn throttled_by(view: &View, cgroup: Option<CgroupId>) -> Option<String> {
    cgroup_path(view, quota::of(view, cgroup).level()?)
}
