// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SCH: runnable but not running.

mod binding;
mod blame;
mod evidence;
pub(super) mod idle_while_waiting;
pub(super) mod quota_throttle;
pub(super) mod run_queue_contention;
