// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From which run queue a thread was moved while it waited.

use super::{DEAD, SchedProbe};
use crate::mapped::{Plain, from_bytes};
use crate::skel::sched::types::{sched_move, sched_thread};
use libbpf_rs::{MapCore as _, MapFlags};

// SAFETY: generated from C structs of integers.
unsafe impl Plain for sched_move {}

/// Places of a thread in the table: `PROBES` of `sched.bpf.c`.
const PLACES: u32 = 4;

/// A place of that thread in the table, as `probe` of `sched_table.bpf.h` has it.
fn place(tid: u32, number: u32) -> u32 {
    if number == 0 { tid } else { (tid.wrapping_mul(0x9e37_79b1) >> 7).wrapping_add(number) }
}

/// A move of a thread to another run queue while it waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastMove {
    /// The CPU from whose run queue it was moved.
    pub from_cpu: usize,
    /// When, on the run queues' clock.
    pub at_ns: u64,
    /// How long it had been in that run queue if it was moved there in the same wait; `None` = since the wait began.
    pub stayed_ns: Option<u64>,
}

impl SchedProbe {
    /// The slot of that thread, if it has one. A thread that has ended keeps its slot for a while, and another one may have
    /// its id by then: after an `exec` by a thread that is not the leader.
    pub(super) fn slot_of(&self, tid: u32) -> Option<u32> {
        let mask = u32::try_from(self.threads.len()).ok()?.checked_sub(1)?;
        let mut places = (0..PLACES).map(|number| place(tid, number) & mask);
        places.find(|&slot| {
            let thread: sched_thread = self.threads.peek(slot as usize, 0);
            thread.tid == tid && thread.state != DEAD
        })
    }

    /// The last time that this thread was moved to another run queue while it waited. `None` = never, or the thread has no
    /// slot. One system call.
    #[must_use]
    pub fn last_move(&self, tid: u32) -> Option<LastMove> {
        let slot = self.slot_of(tid)?;
        let moves = &self.object.skel.maps.moves;
        let bytes = moves.lookup(&slot.to_ne_bytes(), MapFlags::ANY).ok()??;
        let last: sched_move = from_bytes(&bytes)?;
        (last.queued_ns != 0).then_some(LastMove {
            from_cpu: last.from_cpu as usize,
            at_ns: last.queued_ns,
            stayed_ns: (last.after_us != u32::MAX).then(|| u64::from(last.after_us) * 1000),
        })
    }
}
