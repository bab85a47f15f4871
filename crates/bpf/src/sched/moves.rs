// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From which run queue a thread was moved while it waited.

use super::SchedProbe;
use crate::mapped::{Plain, from_bytes};
use crate::skel::sched::types::{sched_move, sched_thread};
use libbpf_rs::{MapCore as _, MapFlags};
use std::mem::offset_of;

// SAFETY: generated from C structs of integers.
unsafe impl Plain for sched_move {}

/// Places of a thread in the table: `PROBES` of `sched.bpf.c`.
const PLACES: u32 = 4;

/// A place of that thread in the table, as `probe` of `sched_table.bpf.h` has it.
fn place(tid: u32, number: u32) -> u32 {
    if number == 0 { tid } else { (tid.wrapping_mul(0x9e37_79b1) >> 7).wrapping_add(number) }
}

impl SchedProbe {
    /// The last time that this thread was moved to another run queue while it waited: from that of which CPU, and when,
    /// on the run queues' clock. `None` = never, or the thread has no slot. One system call.
    #[must_use]
    pub fn last_move(&self, tid: u32) -> Option<(usize, u64)> {
        let mask = u32::try_from(self.threads.len()).ok()?.checked_sub(1)?;
        let mut places = (0..PLACES).map(|number| place(tid, number) & mask);
        let of = offset_of!(sched_thread, tid);
        let slot = places.find(|&slot| self.threads.u32(slot as usize, of) == tid)?;
        let moves = &self.object.skel.maps.moves;
        let bytes = moves.lookup(&slot.to_ne_bytes(), MapFlags::ANY).ok()??;
        let last: sched_move = from_bytes(&bytes)?;
        (last.queued_ns != 0).then_some((last.from_cpu as usize, last.queued_ns))
    }
}
