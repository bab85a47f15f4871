// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a victim's wall time went. Time is conserved: the parts sum to the wall time.

use super::{Entity, Tail};
use serde::{Deserialize, Serialize};

/// A place for time to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LedgerState {
    /// Running.
    OnCpu,
    /// Waiting on a run queue.
    Queued,
    /// Out of CPU quota.
    Throttled,
    /// Queued or throttled: the fallback source cannot tell them apart.
    QueuedOrThrottled,
    /// Waiting for block IO.
    BlockIo,
    /// Waiting for memory.
    MemStall,
    /// Other uninterruptible sleep.
    Uninterruptible,
    /// Interruptible sleep.
    Sleep,
    /// Stopped or traced.
    Stopped,
    /// Not known.
    Unattributed,
}

/// One part of the wall time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerPart {
    /// Where.
    pub state: LedgerState,
    /// How much.
    pub ns: u64,
}

/// The wall time of one process's threads, in parts that sum to `wall_ns`. Of a host: the time in which its threads
/// wanted to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// Whose.
    pub victim: Entity,
    /// Sum over its threads of the time each existed in the window.
    pub wall_ns: u64,
    /// Most threads seen at once (in one second).
    pub threads: u32,
    /// The parts, in the order of [`LedgerState`]; parts that the source cannot see are absent.
    pub parts: Vec<LedgerPart>,
    /// What the parts are more than the threads existed, beyond what clocks differ by: counted twice by the observer.
    /// `wall_ns` is the sum of the parts then. 0 = nothing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub excess_ns: u64,
    /// What its waits do to the 99th percentile of what it does; those that can be told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tails: Vec<Tail>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_zero(ns: &u64) -> bool {
    *ns == 0
}
