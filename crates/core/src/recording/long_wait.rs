// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The longest waits of a second, each told whole.

use super::observed::observed;
use super::{Culprit, ProcId, Source};
use serde::{Deserialize, Serialize};

/// A part of one wait for a CPU, in run queues or throttled by a quota: one of the longest of the process that ended
/// within a second. Records of the same wait follow each other, and have the same [`Self::t_ns`], [`Self::victim`] and
/// [`Self::tid`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LongWait {
    /// When the wait ended, or the window ended during it.
    pub t_ns: u64,
    /// The process that waited.
    pub victim: ProcId,
    /// Its thread that waited.
    pub tid: u32,
    /// Length of the whole wait, in nanoseconds. What the parts do not sum to, the CPU was idle or waking up.
    pub wait_ns: u64,
    /// What the thread waited behind in this part. May be its own process.
    pub culprit: Culprit,
    /// Length of this part, in nanoseconds.
    pub ns: u64,
}

observed! { it: LongWait at t_ns, from Source::Timeline; to [it.victim], it.culprit.process() }
