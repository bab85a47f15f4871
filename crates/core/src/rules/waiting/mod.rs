// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OFF: time lost off the CPU because threads wait for other threads and processes.

mod chain_ends;
mod children;
mod file_lock;
mod held_in_kernel;
mod holder;
mod kernel_lock;
mod late_thread;
mod lock_wait;
mod own_timer;
mod peer_does_not_read;
mod peers;
mod pool_exhausted;
mod runtime_stops;
mod virtual_machine;
mod waits;
mod waits_for_peer;

use super::Rule;

/// The rules of this area, by code.
pub(super) const RULES: &[&Rule] = &[
    &lock_wait::RULE,
    &waits_for_peer::RULE,
    &late_thread::RULE,
    &own_timer::RULE,
    &kernel_lock::RULE,
    &peer_does_not_read::RULE,
    &file_lock::RULE,
    &pool_exhausted::RULE,
    &held_in_kernel::RULE,
    &runtime_stops::RULE,
];
