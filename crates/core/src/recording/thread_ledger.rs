// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the wall time of single threads went, for the processes of the target.

use super::observed::observed;
use super::{ProcId, Source, ThreadStates};
use serde::{Deserialize, Serialize};

/// Where the wall time of a thread of the target went, from when its process was met to the end of the process or of the
/// window (BPF scheduler probe). The records of a process sum to its [`ProcessTick`](super::ProcessTick)s.
/// `wall_ns` minus the sum of `states` is *unattributed*.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadLedger {
    /// When its process was met.
    pub t0_ns: u64,
    /// End of the last tick of its process.
    pub t1_ns: u64,
    /// The process.
    pub proc: ProcId,
    /// Thread id; `None` = the further threads of the process, summed.
    pub tid: Option<u32>,
    /// Comm of the thread; empty for the further threads.
    pub comm: String,
    /// Number of threads.
    pub threads: u32,
    /// Time that it existed within the range.
    pub wall_ns: u64,
    /// Breakdown of `wall_ns` by state.
    pub states: ThreadStates,
}

observed! { it: ThreadLedger over t0_ns..t1_ns, from Source::Sched; to [it.proc] }
