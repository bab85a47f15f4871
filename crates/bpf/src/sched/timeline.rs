// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which threads ran on each CPU, run by run, from the probe's rings.

use super::SchedProbe;
use crate::skel::sched::types::{sched_area, sched_run};
use std::mem::offset_of;

/// One run of a thread on a CPU. Thread 0 is the idle task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Thread id.
    pub tid: u32,
    /// Thread-group id.
    pub tgid: u32,
    /// Start, on the run queues' clock.
    pub start_ns: u64,
    /// End, on the run queues' clock.
    pub end_ns: u64,
    /// How long the thread waited in run queues right before.
    pub queued_ns: u64,
    /// How long it was throttled besides, in units of 2^14 ns.
    pub throttled_ns: u64,
}

/// `WAIT_THROTTLED` and its shifts in `sched.h`.
const WAIT_THROTTLED: u64 = 1 << 63;
const WAIT_QUEUED_BITS: u32 = 40;
const WAIT_THROTTLED_SHIFT: u32 = 14;

/// Time in run queues and throttled time of a wait, as the probe packs them.
fn unpacked(waited: u64) -> (u64, u64) {
    if waited & WAIT_THROTTLED == 0 {
        return (waited, 0);
    }
    let queued_ns = waited & ((1 << WAIT_QUEUED_BITS) - 1);
    (queued_ns, (waited & !WAIT_THROTTLED) >> WAIT_QUEUED_BITS << WAIT_THROTTLED_SHIFT)
}

/// The reader's position in each ring.
#[derive(Debug, Default)]
pub struct Timeline {
    heads: Vec<u64>,
    /// Runs that were overwritten before they were read.
    pub overrun: u64,
}

/// Number of runs in a ring, and how many of them are not read: the newest and the
/// oldest may be half-written meanwhile.
const RUNS: u64 =
    ((size_of::<sched_area>() - offset_of!(sched_area, run)) / size_of::<sched_run>()) as u64;
const MARGIN: u64 = 8;

impl Timeline {
    /// Begins now: older runs are skipped.
    #[must_use]
    pub fn begin(probe: &SchedProbe) -> Self {
        let heads = (0..probe.areas.len()).map(|cpu| head(probe, cpu)).collect();
        Self { heads, overrun: 0 }
    }

    /// Calls `each` for every run on this CPU that ended since the last call, in order.
    /// Returns `true` if none was lost in between.
    pub fn read(&mut self, probe: &SchedProbe, cpu: usize, mut each: impl FnMut(Run)) -> bool {
        let end = head(probe, cpu);
        let wanted = self.heads[cpu];
        let oldest = end.saturating_sub(RUNS - MARGIN);
        let mut from = wanted.max(oldest);
        let mut runs: Vec<sched_run> = (from.saturating_sub(1)..end)
            .map(|at| {
                let index = (at % RUNS) as usize;
                let offset = offset_of!(sched_area, run) + index * size_of::<sched_run>();
                probe.areas.peek(cpu, offset)
            })
            .collect();
        // Entries that the kernel may have overwritten meanwhile are dropped.
        let safe = head(probe, cpu).saturating_sub(RUNS - MARGIN);
        if safe > from {
            let drop = usize::try_from(safe - from).unwrap_or(usize::MAX).min(runs.len());
            runs.drain(..drop);
            from = safe;
        }
        self.overrun += from.min(end) - wanted.min(from.min(end));
        self.heads[cpu] = end;
        // The first entry only provides the start of the second.
        for pair in runs.windows(2) {
            each(run(pair[0].end_ns, &pair[1]));
        }
        from == wanted
    }

    /// The run in progress on this CPU (thread 0 = it is idle), up to `now_ns`; `None` before the first switch, or if
    /// the CPU's data could not be read.
    #[must_use]
    pub fn current(probe: &SchedProbe, cpu: usize, now_ns: u64) -> Option<Run> {
        let cpu = probe.cpu(cpu).filter(|cpu| cpu.since_ns != 0)?;
        let (start_ns, end_ns) = (cpu.since_ns, now_ns.max(cpu.since_ns));
        let (queued_ns, throttled_ns) = unpacked(cpu.waited);
        Some(Run { tid: cpu.tid, tgid: cpu.tgid, start_ns, end_ns, queued_ns, throttled_ns })
    }
}

fn head(probe: &SchedProbe, cpu: usize) -> u64 {
    probe.areas.u64(cpu, offset_of!(sched_area, cpu.head))
}

fn run(start_ns: u64, entry: &sched_run) -> Run {
    let (queued_ns, throttled_ns) = unpacked(entry.waited);
    Run {
        tid: entry.tid,
        tgid: entry.tgid,
        start_ns: start_ns.min(entry.end_ns),
        end_ns: entry.end_ns,
        queued_ns,
        throttled_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_times_of_a_wait_are_unpacked() {
        assert_eq!(unpacked(7_000_000), (7_000_000, 0));
        let packed = WAIT_THROTTLED | (100 << WAIT_QUEUED_BITS) | 7_000_000;
        assert_eq!(unpacked(packed), (7_000_000, 100 << 14));
        let most = ((1 << 40) - 1, ((1 << 23) - 1) << 14);
        assert_eq!(unpacked(u64::MAX), most);
    }
}
