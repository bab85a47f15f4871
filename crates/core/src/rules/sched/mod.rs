// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SCH: runnable but not running.

mod blame;
mod evidence;
pub(super) mod idle_while_waiting;
mod quota;
pub(super) mod quota_throttle;
pub(super) mod run_queue_contention;
pub(super) mod runtime_oversubscribed;
mod sized;

pub(super) use evidence::{may_suffer, target_is_host};
