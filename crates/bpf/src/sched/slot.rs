// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads one slot of the thread table, all parts of it as of the same time, however long the reader stands still between
//! two of them.

use super::SchedProbe;
use super::unseen::MIN_TIMES;
use crate::mapped::TornRead;
use crate::skel::sched::types::{sched_area, sched_bucket, sched_thread, sched_waits};
use deburr_core::recording::WAIT_BUCKETS;
use std::mem::offset_of;

/// Number of attempts to read all parts of a thread as of the same time.
const CONSISTENT_READS: usize = 10;

/// What a slot holds, all of it as of the same time.
pub(super) struct SlotReading {
    pub(super) thread: sched_thread,
    /// Histogram of its waits; `None` = it has not switched since it was known.
    pub(super) waits: Option<[sched_bucket; WAIT_BUCKETS]>,
    /// Whether its CPU agrees that it runs.
    pub(super) on_cpu: bool,
}

impl SchedProbe {
    /// Reads a thread. `known` = its `seq` when it was last read. `longest_ns` grows to the longest wait since then, which
    /// is taken out of the slot, whether the rest can be read or not.
    ///
    /// The parts are read one after the other, and the thread may switch in between, as often as it likes if the reader is
    /// stopped there. So `seq` must be the same after the last part as in the first one. The histogram is written at the
    /// end of a switch, after `seq`: the thread's CPU must be seen outside of a switch before it is read.
    pub(super) fn read_thread(
        &self,
        slot: usize,
        known: Option<u32>,
        longest_ns: &mut u64,
        between: Option<fn(u32)>,
    ) -> Result<SlotReading, TornRead> {
        let threads = &self.threads;
        let seq = offset_of!(sched_thread, seq);
        for attempt in 0..CONSISTENT_READS {
            let thread: sched_thread = threads.consistent(slot, seq, || threads.peek(slot, 0))?;
            let pause = || between.into_iter().for_each(|pause| pause(thread.tid));
            pause();
            let mut waits = None;
            if known != Some(thread.seq) {
                self.wait_for_switch(usize::from(thread.cpu))?;
                pause();
                let buckets = self.waits.peek(slot, offset_of!(sched_waits, bucket));
                waits = Some(buckets.ok_or(TornRead)?);
                pause();
                let taken_ns = threads.take_u64(slot, offset_of!(sched_thread, wait_max_ns));
                *longest_ns = taken_ns.max(*longest_ns);
            }
            pause();
            let on_cpu = self.is_on_cpu(&thread);
            pause();
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
            if threads.u32(slot, seq) == thread.seq {
                return Ok(SlotReading { thread, waits, on_cpu });
            }
            if attempt > CONSISTENT_READS / 2 {
                std::thread::yield_now();
            }
        }
        Err(TornRead)
    }

    /// Waits until no switch is in progress on that CPU.
    fn wait_for_switch(&self, cpu: usize) -> Result<(), TornRead> {
        if cpu >= self.areas.len() {
            return Ok(());
        }
        let versions = (offset_of!(sched_area, cpu.head), offset_of!(sched_area, cpu.done));
        self.areas.settled(cpu, versions, || ())
    }

    /// Whether the thread still has the CPU that it was last seen to get, as far as is known: `false` for a thread
    /// that is never seen to leave a CPU.
    pub(super) fn is_on_cpu(&self, thread: &sched_thread) -> bool {
        let cpu = usize::from(thread.cpu);
        cpu < self.areas.len()
            && self.areas.u32(cpu, offset_of!(sched_area, cpu.tid)) == thread.tid
            && !never_seen_to_leave(thread)
    }
}

/// Whether a thread has left CPUs, but no such switch was ever reported; it may have a CPU now. Once or twice may be
/// chance: for a thread that computes for seconds, all of its time would become unattributed.
fn never_seen_to_leave(thread: &sched_thread) -> bool {
    u64::from(thread.left_unseen) >= MIN_TIMES
        && thread.switches <= thread.left_unseen.saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_nobody_sees_leave_is_not_told_to_run() {
        let thread = |switches, left_unseen| sched_thread {
            switches,
            left_unseen,
            ..sched_thread::default()
        };
        assert!(!never_seen_to_leave(&thread(40, 0)), "it always tells");
        assert!(!never_seen_to_leave(&thread(40, 3)), "three were lost");
        assert!(!never_seen_to_leave(&thread(2, 1)), "it computes since, and one was lost");
        assert!(never_seen_to_leave(&thread(4, 3)) && never_seen_to_leave(&thread(3, 3)));
    }
}
