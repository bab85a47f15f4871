// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads that are met late: some kernels tell nobody of a process when it gets or leaves a CPU, nor of the threads that it starts
//! meanwhile.

use deburr_bpf::sched::ThreadDelta;
use std::borrow::Cow;

/// A thread was met late if its time begins so long before the record of its process. The times of looks and records differ by
/// less.
const MET_LATE_NS: u64 = 20_000_000;

/// What a thread did since `t0_ns` of the window, when the record of its process began. The records before did not know of it, and
/// what it did then does not fit into this one. Its waits are kept: they ended now. `first_look_ns` = when its times begin.
pub(super) fn since(t0_ns: u64, thread: &ThreadDelta, first_look_ns: u64) -> Cow<'_, ThreadDelta> {
    let early_ns = t0_ns.saturating_sub(first_look_ns + thread.from_ns);
    if early_ns < MET_LATE_NS || thread.wall_ns == 0 {
        return Cow::Borrowed(thread);
    }
    let left_ns = thread.wall_ns.saturating_sub(early_ns);
    let part = |ns: u64| {
        let part = u128::from(ns) * u128::from(left_ns) / u128::from(thread.wall_ns);
        u64::try_from(part).unwrap_or(ns)
    };
    Cow::Owned(ThreadDelta {
        from_ns: thread.from_ns + (thread.wall_ns - left_ns),
        wall_ns: left_ns,
        states_ns: thread.states_ns.map(part),
        ..thread.clone()
    })
}
