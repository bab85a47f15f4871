// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transfers that limits of block IO (`io.max`, `blkio.throttle.*`) delayed.

use super::{DevId, IoOp, ProcId, Source, observed};
use serde::{Deserialize, Serialize};

/// Transfers of a cgroup that a limit delayed and that the kernel dispatched in one second. Transfers that are still
/// delayed are not included. The kernel does not report the length of each delay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldTick {
    /// Start of the tick.
    pub t0_ns: u64,
    /// End of the tick.
    pub t1_ns: u64,
    /// The whole disk.
    pub device: DevId,
    /// Direction.
    pub op: IoOp,
    /// Directory of the cgroup in the tree of the `blkio` or `io` controller, decoded. The limit is its own or that of
    /// an ancestor. `None` = the cgroup was removed before its directory could be looked up.
    pub cgroup: Option<String>,
    /// Number of transfers as submitted, before they were split or merged. Complete even where requests are sampled.
    pub ios: u64,
    /// Bytes of these transfers.
    pub bytes: u64,
    /// Mean time from dispatch to completion of the requests for delayed transfers of this device and direction, in any
    /// cgroup, in nanoseconds; `None` = no completion was seen.
    pub service_ns: Option<u64>,
    /// Processes in the cgroup at the end of the tick, without kernel threads, at most [`HeldTick::MEMBERS`].
    pub members: Vec<ProcId>,
}

observed! { it: HeldTick over t0_ns..t1_ns, from Source::Block; to [it.device], it.members.iter().copied() }

impl HeldTick {
    /// Maximum number of members.
    pub const MEMBERS: usize = 64;
}
