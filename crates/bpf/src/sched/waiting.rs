// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which threads wait at a given time, and for how long they have.
//!
//! A switch reports a wait when it is over; until then a woken thread appears to sleep. So the reader first lists the
//! waiting threads, then reports everything as of the time of that list, and never has to revoke anything.

use super::{Clock, SchedProbe, State};
use crate::mapped::{Plain, from_bytes, set};
use crate::skel::sched::types::{sched_reported, sched_thread, sched_waiting};
use std::collections::HashMap;
use std::mem::offset_of;

// SAFETY: generated from C structs of integers.
unsafe impl Plain for sched_waiting {}
// SAFETY: as above.
unsafe impl Plain for sched_reported {}

/// No slot, or no CPU.
const NONE: u32 = u32::MAX;

/// A thread that waits in a run queue, or for its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Thread id.
    pub tid: u32,
    /// Thread-group id.
    pub tgid: u32,
    /// When it left the CPU, on the run queues' clock; it may have slept at first.
    pub since_ns: u64,
    /// How long it has been queued, within the window.
    pub queued_ns: u64,
    /// How long it has been throttled besides, also before the window.
    pub throttled_ns: u64,
    /// The last part of `queued_ns`, on the queue of `cpu`.
    pub here_ns: u64,
    /// The CPU on whose queue it is.
    pub cpu: usize,
    /// The CPU from whose queue it was moved there, and when; `None` = it was not moved, or this is not known.
    pub moved: Option<(usize, u64)>,
    slot: usize,
    seq: u32,
}

impl Waiter {
    /// A waiter for tests, of no real thread.
    #[must_use]
    pub fn example(queued_ns: u64, here_ns: u64, cpu: usize) -> Self {
        let (tid, tgid, since_ns, slot, seq) = (1, 1, 0, 0, 0);
        let throttled_ns = 0;
        Self { tid, tgid, since_ns, queued_ns, throttled_ns, here_ns, cpu, moved: None, slot, seq }
    }
}

/// Number of moves of sleeping threads since `HiddenWakeups::moves` was updated, from which on wake-ups are traced.
const MANY_MOVES_ASLEEP: u64 = 5;
/// How long wake-ups are traced after that was last necessary.
const LOOKS_FOR_NS: u64 = 5_000_000_000;

/// Tracing of wake-ups that the kernel's own accounting hides: the thread was moved to another queue while it slept.
#[derive(Debug, Default)]
pub(super) struct HiddenWakeups {
    /// Number of moves of sleeping threads that have been taken into account.
    moves: u64,
    /// When there were last many of them, on the run queues' clock.
    last_ns: u64,
    traced: bool,
}

/// The threads that wait at one point in time, or that got a CPU unseen.
#[derive(Debug, Default)]
pub struct Waiting {
    at_ns: u64,
    window_start_ns: u64,
    /// The kernel could list them.
    asked: bool,
    by_slot: HashMap<u32, sched_waiting>,
    /// Threads without a slot.
    by_tid: HashMap<u32, sched_waiting>,
}

impl Waiting {
    /// The time of this list, on the run queues' clock.
    #[must_use]
    pub fn at_ns(&self) -> u64 {
        self.at_ns
    }

    /// What was found of a thread that was read from `slot` (`None` = it has no slot),
    /// if it is still in the same off-CPU period.
    pub(super) fn of(&self, slot: Option<usize>, thread: &sched_thread) -> Option<&sched_waiting> {
        let found = match slot {
            Some(slot) => self.by_slot.get(&u32::try_from(slot).ok()?),
            None => self.by_tid.get(&thread.tid),
        };
        found.filter(|found| found.tid == thread.tid && found.seq == thread.seq)
    }

    /// Whether the thread was read as waiting but is not: it is about to get a CPU in a switch that the kernel
    /// does not report, or has ended. What it did is known when it leaves the CPU, and is reported then.
    pub(super) fn excludes(&self, thread: &sched_thread) -> bool {
        let waits = [State::Queued as u8, State::Throttled as u8].contains(&thread.state);
        self.asked && waits && thread.since_ns < self.at_ns
    }

    /// How much of its time in a run queue lies in the window.
    pub(super) fn in_window_ns(&self, found: &sched_waiting) -> u64 {
        let end_ns = if has_arrived(found) { found.arrived_ns } else { self.at_ns };
        found.queued_ns.min(end_ns.saturating_sub(self.window_start_ns))
    }

    /// The threads in run queues that still wait when this is called, with the part of their waits within the window.
    /// Threads without a slot are omitted.
    pub fn queued<'a>(&'a self, probe: &'a SchedProbe) -> impl Iterator<Item = Waiter> + 'a {
        let mut all: Vec<&sched_waiting> =
            self.by_slot.values().filter(|found| !has_arrived(found)).collect();
        all.sort_unstable_by_key(|found| found.tid);
        all.into_iter().filter_map(|found| {
            let slot = found.slot as usize;
            let queued_ns = self.in_window_ns(found);
            let waiter = Waiter {
                tid: found.tid,
                tgid: found.tgid,
                since_ns: found.since_ns,
                queued_ns,
                throttled_ns: found.throttled_ns,
                here_ns: found.here_ns.min(queued_ns),
                cpu: found.cpu as usize,
                moved: (found.was_cpu != NONE).then_some((found.was_cpu as usize, found.moved_ns)),
                slot,
                seq: found.seq,
            };
            (queued_ns > 0 && probe.still_waits(&waiter)).then_some(waiter)
        })
    }

    /// Queued and throttled time so far of all waiting threads, including time before the window.
    pub(super) fn sums_ns(&self, probe: &SchedProbe) -> (u64, u64) {
        let seq = offset_of!(sched_thread, seq);
        let slotted = self
            .by_slot
            .values()
            .filter(|found| probe.threads.u32(found.slot as usize, seq) == found.seq);
        let all = slotted.chain(self.by_tid.values()).filter(|found| !has_arrived(found));
        all.fold((0, 0), |(queued, throttled), found| {
            (queued + found.queued_ns, throttled + found.throttled_ns)
        })
    }
}

/// Whether the thread no longer waits: it got a CPU in a switch that the kernel did not report.
pub(super) fn has_arrived(found: &sched_waiting) -> bool {
    found.arrived_ns != 0
}

impl SchedProbe {
    /// Begins a window: of waits that began earlier, only the part within it counts from now on.
    ///
    /// # Errors
    /// If the kernel's threads cannot be iterated.
    pub fn begin_window(&mut self, clock: Clock) -> Result<Waiting, String> {
        let now = clock.now();
        let maps = &mut self.object.skel.maps;
        let data = maps.bss_data.as_deref_mut().expect("the object has variables");
        set(&mut data.window_start_ns, now);
        // As of the same time: waiting in between would be in the lengths of waits, and not in the ledger.
        self.who_waits_at(now)
    }

    /// Lists the threads that wait now. Without task iterators the list is empty.
    ///
    /// # Errors
    /// If the kernel's threads cannot be iterated.
    pub fn who_waits(&mut self, clock: Clock) -> Result<Waiting, String> {
        self.who_waits_at(clock.now())
    }

    fn who_waits_at(&mut self, at_ns: u64) -> Result<Waiting, String> {
        let maps = &mut self.object.skel.maps;
        let data = maps.bss_data.as_deref_mut().expect("the object has variables");
        set(&mut data.asked_ns, at_ns);
        let moves_asleep = data.moves_asleep;
        let mut waiting =
            Waiting { at_ns, window_start_ns: data.window_start_ns, ..Waiting::default() };
        self.mind_hidden_wakeups(moves_asleep, at_ns)?;
        let Some(name) = self.names.waiting_iterator else { return Ok(waiting) };
        waiting.asked = true;
        let bytes =
            self.object.iterate(name).map_err(|error| format!("look at who waits: {error}"))?;
        for found in bytes.chunks_exact(size_of::<sched_waiting>()).filter_map(from_bytes) {
            let found: sched_waiting = found;
            if found.slot == NONE {
                waiting.by_tid.insert(found.tid, found);
            } else if (found.slot as usize) < self.threads.len() {
                waiting.by_slot.insert(found.slot, found);
            }
        }
        Ok(waiting)
    }

    /// Traces wake-ups while sleeping threads are moved so often that listing the waiting ones comes too late for most
    /// of them; stops when that has not been the case for a while.
    fn mind_hidden_wakeups(&mut self, moves_asleep: u64, at_ns: u64) -> Result<(), String> {
        let hidden = &mut self.hidden_wakeups;
        let name = self.names.hidden_wakeup;
        if moves_asleep - hidden.moves >= MANY_MOVES_ASLEEP {
            (hidden.moves, hidden.last_ns) = (moves_asleep, at_ns);
            if !hidden.traced {
                self.object.attach(name)?;
                hidden.traced = true;
            }
        } else if at_ns.saturating_sub(hidden.last_ns) > LOOKS_FOR_NS {
            self.object.detach(name);
            *hidden = HiddenWakeups { moves: moves_asleep, last_ns: at_ns, traced: false };
        }
        Ok(())
    }

    /// An empty list, as of this time of the run queues' clock: no thread waits.
    #[must_use]
    pub fn nobody_waits(&self, at_ns: u64) -> Waiting {
        let data = self.object.skel.maps.bss_data.as_deref().expect("the object has variables");
        let (window_start_ns, asked) =
            (data.window_start_ns, self.names.waiting_iterator.is_some());
        Waiting { at_ns, window_start_ns, asked, ..Waiting::default() }
    }

    /// How much of this wait was already reported, in nanoseconds.
    #[must_use]
    pub fn reported_ns(&self, waiter: &Waiter) -> u64 {
        let (since, queued) =
            (offset_of!(sched_reported, since_ns), offset_of!(sched_reported, queued_ns));
        let is_of_it = self.reported_waits.u64(waiter.slot, since) == waiter.since_ns;
        if is_of_it { self.reported_waits.u64(waiter.slot, queued) } else { 0 }
    }

    /// Notes that this wait is reported as far as it is known, so that at its end only the rest is reported. `false` =
    /// it ended meanwhile and may have been reported as a whole: the caller must not report it.
    #[must_use]
    pub fn note_told(&self, waiter: &Waiter) -> bool {
        let queued_ns = waiter.queued_ns.max(self.reported_ns(waiter));
        let (since, queued) =
            (offset_of!(sched_reported, since_ns), offset_of!(sched_reported, queued_ns));
        if self.reported_waits.u64(waiter.slot, since) != waiter.since_ns {
            self.reported_waits.set_u64(waiter.slot, since, 0);
        }
        self.reported_waits.set_u64(waiter.slot, queued, queued_ns);
        self.reported_waits.set_u64(waiter.slot, since, waiter.since_ns);
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.still_waits(waiter)
    }

    fn still_waits(&self, waiter: &Waiter) -> bool {
        self.threads.u32(waiter.slot, offset_of!(sched_thread, seq)) == waiter.seq
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_read_as_waiting_and_was_not_found_does_something_else() {
        let asked = Waiting { at_ns: 100, asked: true, ..Waiting::default() };
        let thread = |state: State, since_ns| sched_thread {
            state: state as u8,
            since_ns,
            ..sched_thread::default()
        };
        assert!(asked.excludes(&thread(State::Queued, 50)));
        assert!(!asked.excludes(&thread(State::Queued, 150)), "it was preempted since");
        assert!(!asked.excludes(&thread(State::Sleep, 50)));
        let not_asked = Waiting { at_ns: 100, ..Waiting::default() };
        assert!(!not_asked.excludes(&thread(State::Queued, 50)));
    }

    #[test]
    fn a_wait_that_is_over_ended_when_the_thread_came() {
        let asked = Waiting { at_ns: 100, window_start_ns: 40, ..Waiting::default() };
        let waits = sched_waiting { queued_ns: 80, ..sched_waiting::default() };
        assert_eq!(asked.in_window_ns(&waits), 60);
        assert_eq!(asked.in_window_ns(&sched_waiting { arrived_ns: 70, ..waits }), 30);
        assert_eq!(asked.in_window_ns(&sched_waiting { arrived_ns: 30, ..waits }), 0);
    }
}
