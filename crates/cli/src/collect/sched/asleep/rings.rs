// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who waits in a call for transfers that it has asked disks for without waiting (libaio, io_uring). Such a thread sleeps like
//! any other. A transfer that is complete ends its sleep, and it was under way all the while, if the thread had asked for it
//! itself: it has requests in flight while it sleeps in such a call. Who waits for other things in the same way, too, is an
//! event loop, which takes whatever comes.

use super::super::super::requesters::Requesters;
use deburr_bpf::sched::{Call, Clock, Context as Woke, Object, Sleep, State};
use std::collections::BTreeMap;

const CALLS: &[&str] = &["io_getevents", "io_pgetevents", "io_uring_enter"];
/// Of shorter sleeps the two clocks, of sleeps and of requests, may not tell that a request was in flight in their middle.
const LEAST_NS: u64 = 20_000;
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
    pub(super) fn meet(&mut self, sleep: &mut Sleep, clock: Clock, requesters: &mut Requesters) {
        let is_call = matches!(sleep.call, Call::System(_)) && CALLS.contains(&&*sleep.call.name());
        if !is_call || sleep.state != State::Sleep as u8 || sleep.slept_ns < LEAST_NS {
            return;
        }
        let waker = sleep.waker;
        let middle_ns = clock.monotonic_ns(sleep.since_ns.saturating_add(sleep.slept_ns / 2));
        let by_disk = match waker.context {
            Woke::Disk | Woke::OtherCpu => requesters.had(sleep.tid, middle_ns),
            // The rest of some transfers is done by workers of the kernel; others, all of it, by a worker of the ring.
            Woke::Thread if waker.call == Call::Kernel && waker.tid == waker.tgid => {
                requesters.had(sleep.tid, middle_ns)
            }
            Woke::Thread if waker.call == Call::Kernel && waker.tgid == sleep.tgid => {
                requesters.had(waker.tid, middle_ns)
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
    use deburr_core::stats::Span;

    fn in_ring(context: Woke) -> Sleep {
        let (since_ns, slept_ns) = (1_000_000, 500_000);
        // io_getevents
        Sleep { call: Call::System(208), since_ns, slept_ns, ..sleep(Object::None, context) }
    }

    #[test]
    fn who_asks_disks_itself_and_takes_nothing_else_waits_for_its_transfers() {
        let mut rings = Rings::default();
        let mut requesters = Requesters::default();
        let clock = Clock { monotonic_minus_clock_ns: 7_000_000 };
        let is_for_transfers = |mut it: Sleep, rings: &mut Rings, requesters: &mut Requesters| {
            rings.meet(&mut it, clock, requesters);
            it.object == Object::Transfers
        };
        let by_disk = in_ring(Woke::Disk);
        assert!(!is_for_transfers(by_disk, &mut rings, &mut requesters));
        // A request for which it waited before it came to sleep there.
        requesters.note(by_disk.tid, Span { t0_ns: 7_500_000, t1_ns: 8_000_000 });
        assert!(!is_for_transfers(by_disk, &mut rings, &mut requesters), "another thread asks");
        requesters.note(by_disk.tid, Span { t0_ns: 7_900_000, t1_ns: 8_500_000 });
        assert!(is_for_transfers(by_disk, &mut rings, &mut requesters));
        assert!(!is_for_transfers(in_ring(Woke::Timer), &mut rings, &mut requesters));
        assert!(is_for_transfers(by_disk, &mut rings, &mut requesters), "after a time that passed");
        let other = Sleep { call: Call::System(202), ..by_disk };
        assert!(!is_for_transfers(other, &mut rings, &mut requesters), "no such call");
        assert!(!is_for_transfers(in_ring(Woke::Network), &mut rings, &mut requesters));
        assert!(!is_for_transfers(by_disk, &mut rings, &mut requesters), "an event loop");
        (0..LOOP_FOR_S).for_each(|_| rings.second());
        assert!(is_for_transfers(by_disk, &mut rings, &mut requesters), "it is none any more");
    }

    #[test]
    fn what_a_worker_of_the_ring_does_is_a_transfer_if_it_asks_a_disk_meanwhile() {
        let (mut rings, mut requesters) = (Rings::default(), Requesters::default());
        let clock = Clock { monotonic_minus_clock_ns: 0 };
        let mut by_worker = in_ring(Woke::Thread);
        by_worker.waker.tgid = by_worker.tgid;
        by_worker.waker.call = Call::Kernel;
        let mut first = by_worker;
        rings.meet(&mut first, clock, &mut requesters);
        requesters.note(by_worker.waker.tid, Span { t0_ns: 1_100_000, t1_ns: 1_400_000 });
        rings.meet(&mut by_worker, clock, &mut requesters);
        assert_eq!((first.object, by_worker.object), (Object::None, Object::Transfers));
    }
}
