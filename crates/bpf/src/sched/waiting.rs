// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who waits at a moment, and for how long already.
//!
//! A switch tells of a wait when it is over; until then a woken thread looks asleep. Whoever reads what threads did
//! asks first who waits, tells everything as of the moment of that question, and never has to take anything back.

use super::{Clock, SchedProbe, State};
use crate::mapped::{Plain, from_bytes};
use crate::object;
use crate::skel::sched::types::{sched_thread, sched_told, sched_waiting};
use libbpf_rs::{Iter, Link};
use std::collections::HashMap;
use std::io::Read as _;
use std::mem::offset_of;

// SAFETY: generated from C structs of integers.
unsafe impl Plain for sched_waiting {}
// SAFETY: as above.
unsafe impl Plain for sched_told {}

/// No slot, no CPU.
const NONE: u32 = u32::MAX;

/// A thread that waits in a run queue, or for its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Which thread.
    pub tid: u32,
    /// Of which process.
    pub tgid: u32,
    /// It is off the CPU since then, on the run queues' clock: it may have slept at first.
    pub since_ns: u64,
    /// Queued for so long, within the window.
    pub queued_ns: u64,
    /// Of that, the last part, on the queue of `cpu`.
    pub here_ns: u64,
    /// Whose queue it is on.
    pub cpu: usize,
    /// From whose queue it was moved there, and when; `None` = it was not, or more is not known.
    pub moved: Option<(usize, u64)>,
    slot: usize,
    seq: u32,
}

impl Waiter {
    /// One of no thread, for tests of who computes with it.
    #[must_use]
    pub fn example(queued_ns: u64, here_ns: u64, cpu: usize) -> Self {
        let (tid, tgid, since_ns, slot, seq) = (1, 1, 0, 0, 0);
        Self { tid, tgid, since_ns, queued_ns, here_ns, cpu, moved: None, slot, seq }
    }
}

/// Since wake-ups were last looked at for less, so many threads were moved asleep.
const MANY_MOVES_ASLEEP: u64 = 5;
/// Wake-ups are looked at for so long after it was last necessary.
const LOOKS_FOR_NS: u64 = 5_000_000_000;

/// Wake-ups that the kernel's own account of a thread does not show: it was moved to another queue while it slept.
#[derive(Debug, Default)]
pub(super) struct HiddenWakeups {
    /// Moves of sleeping threads that were reckoned with.
    moves: u64,
    /// When there were many, on the run queues' clock.
    last_ns: u64,
    hook: Option<Link>,
}

/// The threads that wait at one moment.
#[derive(Debug, Default)]
pub struct Waiting {
    at_ns: u64,
    window_start_ns: u64,
    /// The kernel could be asked.
    asked: bool,
    by_slot: HashMap<u32, sched_waiting>,
    /// Those without a slot.
    by_tid: HashMap<u32, sched_waiting>,
}

impl Waiting {
    /// The moment, on the run queues' clock.
    #[must_use]
    pub fn at_ns(&self) -> u64 {
        self.at_ns
    }

    /// What was found of the thread as it was read: in that slot, `None` = without one. Only if it is the same stay off
    /// the CPU.
    pub(super) fn of(&self, slot: Option<usize>, thread: &sched_thread) -> Option<&sched_waiting> {
        let found = match slot {
            Some(slot) => self.by_slot.get(&u32::try_from(slot).ok()?),
            None => self.by_tid.get(&thread.tid),
        };
        found.filter(|found| found.tid == thread.tid && found.seq == thread.seq)
    }

    /// Whether the thread was read as waiting, and does not: it is about to get a CPU from one that the kernel tells
    /// nothing of, or is gone. What it did is known when it leaves the CPU, and told then.
    pub(super) fn excludes(&self, thread: &sched_thread) -> bool {
        let waits = [State::Queued as u8, State::Throttled as u8].contains(&thread.state);
        self.asked && waits && thread.since_ns < self.at_ns
    }

    /// How much of the time in a run queue lies in the window.
    pub(super) fn in_window_ns(&self, found: &sched_waiting) -> u64 {
        let end_ns = if has_arrived(found) { found.arrived_ns } else { self.at_ns };
        found.queued_ns.min(end_ns.saturating_sub(self.window_start_ns))
    }

    /// Those in a run queue who still waited when this was called, with what of that lies in the window. Threads
    /// beyond the table are left out.
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
                here_ns: found.here_ns.min(queued_ns),
                cpu: found.cpu as usize,
                moved: (found.was_cpu != NONE).then_some((found.was_cpu as usize, found.moved_ns)),
                slot,
                seq: found.seq,
            };
            (queued_ns > 0 && probe.still_waits(&waiter)).then_some(waiter)
        })
    }

    /// Sums of what all waited so far, from before the window too: queued, throttled.
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

/// Whether it does not wait any more: it has a CPU, and got it from a thread that the kernel tells nothing of.
pub(super) fn has_arrived(found: &sched_waiting) -> bool {
    found.arrived_ns != 0
}

impl SchedProbe {
    /// Begins a window: of waits that began before, only the part in it counts as a wait from now on.
    ///
    /// # Errors
    /// If the kernel does not let its threads be looked at.
    pub fn begin_window(&mut self, clock: Clock) -> Result<Waiting, String> {
        let now = clock.now();
        let data = self.skel.maps.bss_data.as_deref_mut().expect("the object has variables");
        // SAFETY: a valid, aligned field of the mapped section; programs read it at any time.
        unsafe { std::ptr::write_volatile(&raw mut data.window_start_ns, now) };
        // As of the same moment: what is waited in between would be in the sizes of waits, and not in the ledger.
        self.who_waits_at(now)
    }

    /// Asks who waits now. Without an iterator over threads nobody is known to.
    ///
    /// # Errors
    /// If the kernel does not let its threads be looked at.
    pub fn who_waits(&mut self, clock: Clock) -> Result<Waiting, String> {
        self.who_waits_at(clock.now())
    }

    fn who_waits_at(&mut self, at_ns: u64) -> Result<Waiting, String> {
        let data = self.skel.maps.bss_data.as_deref_mut().expect("the object has variables");
        // SAFETY: as above.
        unsafe { std::ptr::write_volatile(&raw mut data.asked_ns, at_ns) };
        let moves_asleep = data.moves_asleep;
        let mut waiting =
            Waiting { at_ns, window_start_ns: data.window_start_ns, ..Waiting::default() };
        self.mind_hidden_wakeups(moves_asleep, at_ns)?;
        let Some(link) = &self.waiting else { return Ok(waiting) };
        waiting.asked = true;
        let failed = |error: &dyn std::fmt::Display| format!("look at who waits: {error}");
        let mut bytes = Vec::new();
        let mut iterator = Iter::new(link).map_err(|error| failed(&error))?;
        iterator.read_to_end(&mut bytes).map_err(|error| failed(&error))?;
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

    /// Looks at wake-ups where threads are moved asleep so often that asking who waits comes too late for most of them,
    /// until that has not been so for a while.
    fn mind_hidden_wakeups(&mut self, moves_asleep: u64, at_ns: u64) -> Result<(), String> {
        let hidden = &mut self.hidden_wakeups;
        if moves_asleep - hidden.moves >= MANY_MOVES_ASLEEP {
            (hidden.moves, hidden.last_ns) = (moves_asleep, at_ns);
            if hidden.hook.is_none() {
                let link = object::attach(&self.skel, self.names.hidden_wakeup)?;
                hidden.hook = Some(link);
            }
        } else if at_ns.saturating_sub(hidden.last_ns) > LOOKS_FOR_NS {
            *hidden = HiddenWakeups { moves: moves_asleep, last_ns: at_ns, hook: None };
        }
        Ok(())
    }

    /// What is known where nobody waits at that moment of the run queues' clock.
    #[must_use]
    pub fn nobody_waits(&self, at_ns: u64) -> Waiting {
        let data = self.skel.maps.bss_data.as_deref().expect("the object has variables");
        let window_start_ns = data.window_start_ns;
        Waiting { at_ns, window_start_ns, asked: self.waiting.is_some(), ..Waiting::default() }
    }

    /// How much of this wait was told before.
    #[must_use]
    pub fn told_ns(&self, waiter: &Waiter) -> u64 {
        let (since, queued) = (offset_of!(sched_told, since_ns), offset_of!(sched_told, queued_ns));
        let is_of_it = self.tolds.u64(waiter.slot, since) == waiter.since_ns;
        if is_of_it { self.tolds.u64(waiter.slot, queued) } else { 0 }
    }

    /// Notes that this wait is told as far as it is known, so that its end tells only the rest. `false` = it ended meanwhile, and
    /// may have been told as a whole: the caller must not tell it.
    #[must_use]
    pub fn note_told(&self, waiter: &Waiter) -> bool {
        let queued_ns = waiter.queued_ns.max(self.told_ns(waiter));
        let (since, queued) = (offset_of!(sched_told, since_ns), offset_of!(sched_told, queued_ns));
        if self.tolds.u64(waiter.slot, since) != waiter.since_ns {
            self.tolds.set_u64(waiter.slot, since, 0);
        }
        self.tolds.set_u64(waiter.slot, queued, queued_ns);
        self.tolds.set_u64(waiter.slot, since, waiter.since_ns);
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
