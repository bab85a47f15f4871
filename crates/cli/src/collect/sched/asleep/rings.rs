// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who waits in a call for transfers that it has asked disks for without waiting (libaio, io_uring). Such a thread sleeps like
//! any other. A transfer that is complete ends its sleep, and it was under way all the while, if no other thread asks for
//! transfers in its stead. Who waits for other things in the same way, too, is an event loop, which takes whatever comes.

use super::super::super::requesters::Requesters;
use deburr_bpf::sched::{Call, Context as Woke, Object, Sleep, State};
use std::collections::BTreeMap;

const CALLS: &[&str] = &["io_getevents", "io_pgetevents", "io_uring_enter"];
/// Seconds for which a thread is an event loop after something else than a disk ended its sleep.
const LOOP_FOR_S: u32 = 10;
/// Event loops that are known at a time.
const LOOPS: usize = 1000;

/// Threads by id that wait for other things in such calls, and for how many seconds more that is taken for granted.
#[derive(Debug, Default)]
pub(super) struct Rings {
    loops: BTreeMap<u32, u32>,
}

impl Rings {
    pub(super) fn second(&mut self) {
        self.loops.retain(|_, seconds| {
            *seconds = seconds.saturating_sub(1);
            *seconds > 0
        });
    }

    /// Says of a sleep that it was for transfers of its own thread, if it was.
    pub(super) fn meet(&mut self, sleep: &mut Sleep, requesters: &Requesters) {
        let is_call = matches!(sleep.call, Call::System(_)) && CALLS.contains(&&*sleep.call.name());
        if !is_call || sleep.state != State::Sleep as u8 {
            return;
        }
        let waker = sleep.waker;
        let is_own_worker = waker.tgid == sleep.tgid && requesters.has(waker.tid);
        let by_disk = match waker.context {
            Woke::Disk | Woke::OtherCpu => requesters.has(sleep.tid),
            // The rest of some transfers is done by workers of the kernel; others, all of it, by a worker of the ring.
            Woke::Thread if waker.call == Call::Kernel => {
                is_own_worker || (waker.tid == waker.tgid && requesters.has(sleep.tid))
            }
            Woke::Thread | Woke::Network | Woke::Socket | Woke::Sent | Woke::Device(_) => {
                if self.loops.len() < LOOPS || self.loops.contains_key(&sleep.tid) {
                    self.loops.insert(sleep.tid, LOOP_FOR_S);
                }
                false
            }
            // A time that has passed is nothing to take; and what is not known is nothing.
            _ => false,
        };
        if by_disk && !self.loops.contains_key(&sleep.tid) {
            sleep.object = Object::Transfers;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::kind::tests::sleep;
    use super::*;

    fn in_ring(context: Woke) -> Sleep {
        // io_getevents
        Sleep { call: Call::System(208), ..sleep(Object::None, context) }
    }

    #[test]
    fn who_asks_disks_itself_and_takes_nothing_else_waits_for_its_transfers() {
        let mut rings = Rings::default();
        let mut requesters = Requesters::default();
        let is_for_transfers = |mut it: Sleep, rings: &mut Rings, requesters: &Requesters| {
            rings.meet(&mut it, requesters);
            it.object == Object::Transfers
        };
        let by_disk = in_ring(Woke::Disk);
        assert!(!is_for_transfers(by_disk, &mut rings, &requesters), "another thread asks");
        requesters.note(by_disk.tid, 1);
        assert!(is_for_transfers(by_disk, &mut rings, &requesters));
        assert!(!is_for_transfers(in_ring(Woke::Timer), &mut rings, &requesters));
        assert!(is_for_transfers(by_disk, &mut rings, &requesters), "after a time that passed");
        let other = sleep(Object::None, Woke::Disk);
        assert!(!is_for_transfers(other, &mut rings, &requesters), "no such call");
        assert!(!is_for_transfers(in_ring(Woke::Network), &mut rings, &requesters));
        assert!(!is_for_transfers(by_disk, &mut rings, &requesters), "an event loop");
        (0..LOOP_FOR_S).for_each(|_| rings.second());
        assert!(is_for_transfers(by_disk, &mut rings, &requesters), "it is none any more");
    }
}
