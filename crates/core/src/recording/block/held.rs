// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What limits of block IO (`io.max`, `blkio.throttle.*`) held back.

use super::{DevId, IoOp, ProcId};
use serde::{Deserialize, Serialize};

/// Transfers of a cgroup that a limit held back, and that the kernel let go in one second. What is still held back
/// is not told of; how long each one was, the kernel does not tell.
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
    /// Directory of the cgroup in the tree of the `blkio` or `io` controller, decoded; the limit is its own or one
    /// of its parents'. `None` = it was gone before it could be asked for.
    pub cgroup: Option<String>,
    /// Transfers, as they were submitted: before they were split or merged. All of them, also where requests are
    /// sampled.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How long the requests for such transfers of the device, in any cgroup, took on average from when they were
    /// let go; `None` = none of them was seen to end.
    pub service_ns: Option<u64>,
    /// Processes in the cgroup at the end of the tick, at most [`HeldTick::MEMBERS`].
    pub members: Vec<ProcId>,
}

impl HeldTick {
    /// As many processes are named.
    pub const MEMBERS: usize = 64;
}
