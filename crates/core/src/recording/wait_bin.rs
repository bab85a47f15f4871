// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lengths of waits in short bins of time, for the processes of the target.

use super::observed::observed;
use super::{ProcId, Source, WaitHist};
use serde::{Deserialize, Serialize};

/// Run-queue waits of a process of the target in a bin of about 100 ms (BPF scheduler probe). They are in the
/// [`ProcessTick`](super::ProcessTick) of the second too, which also has those of threads that are not known to the bins
/// yet: a thread is met at the end of the second in which it began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitBin {
    /// Start of the bin.
    pub t0_ns: u64,
    /// End of the bin (readers are woken late on a busy host: bins are not exactly 100 ms).
    pub t1_ns: u64,
    /// The process. [`ProcId::OTHERS`] = the further processes of the target, summed.
    pub proc: ProcId,
    /// Waits that ended in this bin, each without its throttled time. The last bin also has those in progress, with their
    /// length so far.
    pub waits: WaitHist,
}

observed! { it: WaitBin over t0_ns..t1_ns, from Source::Sched; to [it.proc] }

impl WaitBin {
    /// Length of a bin that is not late.
    pub const BIN_NS: u64 = 100_000_000;
}
