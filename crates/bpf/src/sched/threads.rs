// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each thread did since the last look: differences of the cumulative amounts that the probe keeps.

use super::amounts::{conserved_difference, difference, give_back_waits, longest_of, take_away};
use super::delta::{Held, ThreadDelta};
use super::reported::{ReportedUntil, ends_of_lost, reported_until};
use super::slot::SlotReading;
use super::unseen::{UnseenDepartures, UnseenProcess};
use super::waiting::has_arrived;
use super::{DEAD, STATES, SchedProbe, State, Waiting};
use crate::mapped::TornRead;
use crate::skel::sched::types::{sched_bucket, sched_thread, sched_waiting};
use deburr_core::recording::{WAIT_BUCKETS, WaitHist};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::time::Duration;

/// Number of further attempts to read threads that were being written.
const SECOND_LOOKS: usize = 10;
/// Delay before each of these attempts.
const BEFORE_SECOND_LOOK: Duration = Duration::from_millis(1);

/// Not a valid `seq` of a dead thread: those are even.
const NONE: u32 = 1;
/// Threads that the map of those without a slot has room for.
const OVERFLOW: usize = 2048;

/// What was read of a thread at the last look.
#[derive(Clone, Debug)]
struct LastReading {
    tid: u32,
    start_boot_ns: u64,
    at_ns: u64,
    /// Its states are known up to this time.
    known_ns: u64,
    seq: u32,
    states_ns: [u64; STATES],
    /// A wait that was reported while it was in progress. If no later reading has its end, the probe's histogram has not
    /// got it either: the thread was lost, or it ended and its slot was taken by another one.
    unfinished: Option<Box<ThreadDelta>>,
    /// How much of its wall time so far was reported in no state.
    unattributed_ns: u64,
    switches: u32,
    waits: WaitHist,
    /// Longest wait that was noted and is not in `waits` yet.
    longest_untold_ns: u64,
}

impl LastReading {
    fn is_of(&self, thread: &sched_thread) -> bool {
        self.tid == thread.tid && self.start_boot_ns == thread.start_boot_ns
    }

    /// The end of the thread, and of its wait, if the slot is that of another thread now.
    fn end_unread(&self, thread: &sched_thread) -> Option<ThreadDelta> {
        let wait = self.unfinished.as_deref().filter(|_| !self.is_of(thread))?;
        let mut waits = WaitHist::default();
        waits.add(wait.waiting_ns);
        Some(ThreadDelta {
            dead: true,
            from_ns: wait.until_ns(),
            wall_ns: 0,
            states_ns: [0; STATES],
            waits,
            wait_max_ns: wait.waiting_ns,
            waiting_ns: 0,
            switches: 0,
            ..wait.clone()
        })
    }
}

/// Reader of threads: remembers what it has read of each thread that exists.
#[derive(Debug, Default)]
pub struct ThreadScan {
    slots: Vec<Option<Box<LastReading>>>,
    /// For each slot, `seq` of the thread whose end was seen there, until another thread takes the slot; [`NONE`] =
    /// none. Where processes come and go by the thousand, most slots hold a dead thread, which is skipped.
    ended: Vec<u32>,
    overflow: BTreeMap<u32, Box<LastReading>>,
    /// Start of the window on the run queues' clock.
    start_ns: u64,
    /// Number of times a thread could not be read because it changed at every attempt.
    pub torn: u64,
    untold: UnseenDepartures,
    held: Held,
    /// Longest waits that were taken out of slots whose other amounts could not be read.
    longest_taken: BTreeMap<usize, u64>,
    /// Called with the thread id between any two readings of a thread: for tests of what happens when the reader is
    /// stopped there.
    pub between: Option<fn(u32)>,
}

impl ThreadScan {
    /// Begins at the start of the window: what happened before does not count. Calls `each` for every thread that
    /// exists; the amounts have no meaning yet.
    #[must_use]
    pub fn begin(
        probe: &SchedProbe,
        waiting: &Waiting,
        mut each: impl FnMut(&ThreadDelta),
    ) -> Self {
        let mut scan = Self { start_ns: waiting.at_ns(), ..Self::default() };
        scan.slots.resize_with(probe.threads.len(), || None);
        scan.ended.resize(probe.threads.len(), NONE);
        scan.look(probe, waiting, false, |thread| {
            if !thread.dead {
                each(thread);
            }
        });
        // It holds waits from before the window.
        scan.held = Held::default();
        scan
    }

    /// Calls `each` for every thread that existed since the last look. What they did is reported up to the time of
    /// `waiting`; what they did later, if they were read later, is reported by the next look. After the `last` look
    /// nothing more can be reported, so it holds nothing back: what a thread did off the CPU is reported up to the time of
    /// `waiting`, or up to its last switch if that came later, and [`ThreadScan::until_ns`] tells when the last one was.
    pub fn look(
        &mut self,
        probe: &SchedProbe,
        waiting: &Waiting,
        last: bool,
        mut each: impl FnMut(&ThreadDelta),
    ) {
        let cut_ns = (!last).then(|| self.in_window_ns(waiting.at_ns()));
        let look = Look { probe, waiting, cut_ns, last };
        let mut torn = Vec::new();
        self.held.begin_look();
        self.untold.begin_look(probe.left_unseen());
        for slot in 0..probe.threads.len() {
            let tid = probe.threads.u32(slot, offset_of!(sched_thread, tid));
            if tid != 0 && self.look_at_slot(&look, slot, &mut each).is_err() {
                torn.push(slot);
            }
            if tid != 0 {
                self.untold.see_slot(probe, slot);
            }
        }
        // A writer that a hypervisor interrupted continues within milliseconds; after the last look of a window nothing
        // can be reported later.
        for _ in 0..SECOND_LOOKS {
            if torn.is_empty() {
                break;
            }
            std::thread::sleep(BEFORE_SECOND_LOOK);
            torn.retain(|&slot| self.look_at_slot(&look, slot, &mut each).is_err());
        }
        self.torn += torn.len() as u64;
        for slot in torn {
            let from_ns = self.slots[slot].as_ref().map_or(self.start_ns, |seen| seen.at_ns);
            let thread = probe.threads.peek(slot, 0);
            each(&nothing_yet(&thread, Some(slot), self.in_window_ns(from_ns)));
        }
        self.look_at_overflow(&look, &mut each);
        self.held.tell_rest(None, cut_ns, &mut each);
    }

    /// The same for the threads in these slots only. `holds` = a look at all threads with the same `waiting` follows, and
    /// what they did later than that is held; otherwise it is reported now.
    pub fn look_at_slots(
        &mut self,
        probe: &SchedProbe,
        slots: &[usize],
        (waiting, holds): (&Waiting, bool),
        mut each: impl FnMut(&ThreadDelta),
    ) {
        let cut_ns = holds.then(|| self.in_window_ns(waiting.at_ns()));
        let look = Look { probe, waiting, cut_ns, last: false };
        self.held.begin_look();
        for &slot in slots {
            let looked = self.look_at_slot(&look, slot, &mut each);
            self.torn += u64::from(looked.is_err());
        }
        self.held.tell_rest(Some(slots), cut_ns, &mut each);
    }

    /// The time up to which anything was reported, in nanoseconds since the first look.
    #[must_use]
    pub fn until_ns(&self) -> u64 {
        self.held.until_ns()
    }

    /// That time of the run queues' clock, in nanoseconds since the first look.
    #[must_use]
    pub fn in_window_ns(&self, clock_ns: u64) -> u64 {
        clock_ns.saturating_sub(self.start_ns)
    }

    fn look_at_slot(
        &mut self,
        look: &Look<'_>,
        slot: usize,
        each: &mut dyn FnMut(&ThreadDelta),
    ) -> Result<(), TornRead> {
        let Look { probe, waiting, last, .. } = *look;
        let (seen, ended) = (&mut self.slots[slot], &mut self.ended[slot]);
        if *ended == probe.threads.u32(slot, offset_of!(sched_thread, seq)) {
            return Ok(());
        }
        let known = seen.as_ref().map(|seen| seen.seq);
        let mut longest_ns = self.longest_taken.remove(&slot).unwrap_or(0);
        let read = probe.read_thread(slot, known, &mut longest_ns, self.between);
        let Ok(SlotReading { thread, waits, on_cpu }) = read else {
            self.longest_taken.insert(slot, longest_ns);
            return Err(TornRead);
        };
        let found = waiting.of(Some(slot), &thread);
        let before_ns = seen.as_ref().map_or(self.start_ns, |seen| seen.at_ns);
        let known_before_ns = seen.as_ref().map_or(self.start_ns, |seen| seen.known_ns);
        let is_lost = found.is_none() && waiting.excludes(&thread);
        let is_of_before = seen.is_none() && thread.since_ns < self.start_ns;
        if is_lost && is_of_before && probe.has_ended(&thread) {
            // It ended while the probe was being attached: its end is not reported.
            *ended = thread.seq;
            return Ok(());
        }
        let ends = if is_lost {
            let before = ReportedUntil { wall_ns: before_ns, known_ns: known_before_ns };
            ends_of_lost(&thread, before, waiting.at_ns(), last)
        } else {
            let at_ns = reported_until(&thread, waiting.at_ns());
            Some(ReportedUntil { wall_ns: at_ns, known_ns: at_ns })
        };
        let Some(ReportedUntil { wall_ns: end_ns, known_ns }) = ends else {
            self.longest_taken.extend((longest_ns > 0).then_some((slot, longest_ns)));
            let from_ns = before_ns.saturating_sub(self.start_ns);
            self.held.tell(nothing_yet(&thread, Some(slot), from_ns), look.cut_ns, each);
            return Ok(());
        };
        let waiting_ns = match (found, seen.as_ref()) {
            (Some(found), _) => waiting.in_window_ns(found),
            (None, Some(seen)) if is_lost && seen.is_of(&thread) && seen.seq == thread.seq => {
                seen.unfinished.as_ref().map_or(0, |wait| wait.waiting_ns)
            }
            (None, _) => 0,
        };
        let reading = ThreadReading {
            states_ns: states_at(&thread, on_cpu, known_ns, found),
            known_ns,
            thread,
            waits,
            wait_max_ns: longest_ns,
            waiting_ns,
            slot: Some(slot),
        };
        *ended = if thread.state == DEAD { thread.seq } else { NONE };
        if let Some(end) = seen.as_ref().and_then(|seen| seen.end_unread(&thread)) {
            each(&end);
        }
        if let Some(delta) = reading.difference(seen, end_ns, self.start_ns) {
            self.held.tell(ThreadDelta { behind: is_lost && !last, ..delta }, look.cut_ns, each);
        }
        Ok(())
    }

    /// Processes whose switches away from a CPU this kernel never reports, as of the last look at all threads.
    #[must_use]
    pub fn unseen(&self) -> Vec<UnseenProcess> {
        self.untold.processes()
    }

    /// Switches lost between the start of the probe and the last look at all threads: a thread left a
    /// CPU without a reported switch, though switches of its process are reported otherwise.
    /// Uncertain cases count after the `last` look only.
    pub fn switches_missed(&mut self, last: bool) -> u64 {
        self.untold.missed(last)
    }

    fn look_at_overflow(&mut self, look: &Look<'_>, each: &mut dyn FnMut(&ThreadDelta)) {
        let Look { probe, waiting, .. } = *look;
        let mut before = std::mem::take(&mut self.overflow);
        for entry in probe.overflow_entries() {
            let thread = entry.thread;
            let end_ns = reported_until(&thread, waiting.at_ns());
            let found = waiting.of(None, &thread);
            let mut seen = before.remove(&thread.tid);
            let reading = ThreadReading {
                states_ns: states_at(&thread, probe.is_on_cpu(&thread), end_ns, found),
                known_ns: end_ns,
                thread,
                waits: Some(entry.waits.bucket),
                // Nobody exchanges it with 0: it may be of a wait that was told of.
                wait_max_ns: thread.wait_max_ns,
                waiting_ns: found.map_or(0, |found| waiting.in_window_ns(found)),
                slot: None,
            };
            if let Some(delta) = reading.difference(&mut seen, end_ns, self.start_ns) {
                self.held.tell(delta, look.cut_ns, each);
            }
            if thread.state == DEAD {
                probe.forget_overflow(thread.tid);
            } else if let Some(seen) = seen {
                self.overflow.insert(thread.tid, seen);
            }
        }
        // A look misses entries while others are removed. More than the map ever holds are not there any more.
        if before.len() <= OVERFLOW {
            self.overflow.append(&mut before);
        }
    }
}

/// What a look is about.
#[derive(Clone, Copy)]
struct Look<'a> {
    probe: &'a SchedProbe,
    waiting: &'a Waiting,
    /// What threads did later than this, in nanoseconds since the start of the window, is held; `None` = nothing is.
    cut_ns: Option<u64>,
    last: bool,
}

/// A thread of which nothing can be told yet.
fn nothing_yet(thread: &sched_thread, slot: Option<usize>, from_ns: u64) -> ThreadDelta {
    ThreadDelta {
        tid: thread.tid,
        tgid: thread.tgid,
        leader_boot_ns: thread.leader_boot_ns,
        start_boot_ns: thread.start_boot_ns,
        parent: thread.parent,
        comm: thread.comm,
        cgroup_id: thread.cgroup_id,
        dead: false,
        wall_ns: 0,
        from_ns,
        behind: true,
        states_ns: [0; STATES],
        waits: WaitHist::default(),
        wait_max_ns: 0,
        waiting_ns: 0,
        switches: 0,
        slot,
    }
}

/// The amounts of a thread at `end_ns`, with the state in progress. `on_cpu` = its CPU agrees that it runs: if not, a
/// switch was missed and its current state is not known. `found` = it waits, or got a CPU unseen.
fn states_at(
    thread: &sched_thread,
    on_cpu: bool,
    end_ns: u64,
    found: Option<&sched_waiting>,
) -> [u64; STATES] {
    let mut states = thread.in_state_ns;
    let known = thread.state != State::OnCpu as u8 || on_cpu;
    let mut off_ns = end_ns.saturating_sub(thread.since_ns);
    if usize::from(thread.state) < STATES && known {
        if let Some(found) = found {
            if has_arrived(found) {
                let came_ns = found.arrived_ns.clamp(thread.since_ns, end_ns.max(thread.since_ns));
                states[State::OnCpu as usize] += end_ns.saturating_sub(came_ns);
                off_ns = came_ns - thread.since_ns;
            }
            let queued_ns = found.queued_ns.min(off_ns);
            let throttled_ns = found.throttled_ns.min(off_ns - queued_ns);
            states[State::Queued as usize] += queued_ns;
            states[State::Throttled as usize] += throttled_ns;
            off_ns -= queued_ns + throttled_ns;
        }
        states[usize::from(thread.state)] += off_ns;
    }
    states
}

fn hist(buckets: [sched_bucket; WAIT_BUCKETS]) -> WaitHist {
    WaitHist { ns: buckets.map(|bucket| bucket.ns), count: buckets.map(|bucket| bucket.count) }
}

/// What was just read of a thread.
struct ThreadReading {
    thread: sched_thread,
    states_ns: [u64; STATES],
    /// Its states are known up to this time.
    known_ns: u64,
    /// Histogram of its waits; `None` = unchanged.
    waits: Option<[sched_bucket; WAIT_BUCKETS]>,
    wait_max_ns: u64,
    waiting_ns: u64,
    slot: Option<usize>,
}

impl ThreadReading {
    /// Updates `seen` and returns what is new; `None` for a dead thread that did nothing since the last look.
    fn difference(
        self,
        seen: &mut Option<Box<LastReading>>,
        end_ns: u64,
        start_ns: u64,
    ) -> Option<ThreadDelta> {
        let thread = &self.thread;
        let dead = thread.state == DEAD;
        let same = seen.as_deref().filter(|seen| seen.is_of(thread));
        let mut waits_so_far = self.waits.map(hist).unwrap_or_default();
        let (mut unattributed_ns, mut longest_ns) = (0, self.wait_max_ns);
        let (from_ns, wall_ns, states_ns, waits, switches);
        if let Some(before) = same {
            if self.waits.is_none() {
                waits_so_far = before.waits.clone();
            }
            from_ns = before.at_ns;
            wall_ns = end_ns.saturating_sub(from_ns);
            // Where waiting threads cannot be listed, time in progress in one state may turn out to have been spent in
            // another. The sum is kept: what one state must give back is taken from the others.
            unattributed_ns = before.unattributed_ns;
            longest_ns = longest_ns.max(before.longest_untold_ns);
            let mut states =
                conserved_difference(&self.states_ns, &before.states_ns, wall_ns, unattributed_ns);
            switches = u64::from(thread.switches.wrapping_sub(before.switches));
            waits = WaitHist {
                ns: difference(&waits_so_far.ns, &before.waits.ns),
                count: difference(&waits_so_far.count, &before.waits.count),
            };
            if from_ns == start_ns {
                let counted_ns = waits.total_ns() + self.waiting_ns;
                give_back_waits(&mut states, &before.states_ns, counted_ns);
            }
            states_ns = states;
        } else {
            let first_ns = thread.first_ns.max(start_ns);
            from_ns = first_ns;
            wall_ns = end_ns.saturating_sub(from_ns);
            // A thread that was first seen late is known from its last wake-up on, maybe from before the window.
            let mut states = self.states_ns;
            let before_ns = first_ns - thread.first_ns;
            let counted_ns = waits_so_far.total_ns() + self.waiting_ns;
            let queued_ns = &mut states[State::Queued as usize];
            let excess_ns = queued_ns.saturating_sub(counted_ns).min(before_ns);
            *queued_ns -= excess_ns;
            take_away(&mut states, before_ns - excess_ns);
            states_ns = states;
            switches = u64::from(thread.switches);
            waits = waits_so_far.clone();
        }
        unattributed_ns = (unattributed_ns + wall_ns).saturating_sub(states_ns.iter().sum());
        let (wait_max_ns, longest_untold_ns) = longest_of(&waits, longest_ns);
        let delta = ThreadDelta {
            dead,
            wall_ns,
            behind: false,
            states_ns,
            waits,
            wait_max_ns,
            waiting_ns: self.waiting_ns,
            switches,
            ..nothing_yet(thread, self.slot, from_ns.saturating_sub(start_ns))
        };
        let now = LastReading {
            tid: thread.tid,
            start_boot_ns: thread.start_boot_ns,
            at_ns: end_ns,
            known_ns: self.known_ns,
            seq: thread.seq,
            states_ns: self.states_ns,
            unfinished: (self.waiting_ns > 0).then(|| Box::new(delta.clone())),
            unattributed_ns,
            switches: thread.switches,
            waits: waits_so_far,
            longest_untold_ns,
        };
        match seen {
            _ if dead => *seen = None,
            Some(before) => **before = now,
            None => *seen = Some(Box::new(now)),
        }
        (!dead || wall_ns > 0 || switches > 0).then_some(delta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(thread: sched_thread, clock_ns: u64) -> ThreadReading {
        let states_ns = states_at(&thread, true, clock_ns, None);
        ThreadReading {
            thread,
            states_ns,
            known_ns: clock_ns,
            waits: None,
            wait_max_ns: 0,
            waiting_ns: 0,
            slot: None,
        }
    }

    #[test]
    fn a_woken_thread_waits_and_does_not_sleep() {
        let asleep = sched_thread { state: 3, since_ns: 100, ..sched_thread::default() };
        let found = sched_waiting { queued_ns: 30, throttled_ns: 5, ..sched_waiting::default() };
        let states = states_at(&asleep, false, 150, Some(&found));
        assert_eq!((states[1], states[2], states[3]), (30, 5, 15));
    }

    #[test]
    fn a_thread_that_came_unseen_runs_since() {
        let found = sched_waiting { queued_ns: 30, arrived_ns: 150, ..sched_waiting::default() };
        let asleep = sched_thread { state: 3, since_ns: 100, ..sched_thread::default() };
        assert_eq!(states_at(&asleep, false, 190, Some(&found)), [40, 30, 0, 20, 0, 0, 0, 0]);
        let preempted = sched_thread { state: 1, ..asleep };
        assert_eq!(states_at(&preempted, false, 190, Some(&found)), [40, 50, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_wait_whose_end_is_never_read_is_as_long_as_was_told() {
        let queued = sched_thread {
            tid: 7,
            tgid: 5,
            state: State::Queued as u8,
            since_ns: 100,
            in_state_ns: [50, 30, 0, 0, 0, 0, 0, 0],
            ..sched_thread::default()
        };
        let mut seen = None;
        let reading = ThreadReading { waiting_ns: 400, ..look(queued, 500) };
        reading.difference(&mut seen, 500, 0).unwrap();
        assert!(seen.as_ref().unwrap().end_unread(&queued).is_none(), "it may end yet");
        let other = sched_thread { tid: 8, ..queued };
        let end = seen.as_ref().unwrap().end_unread(&other).unwrap();
        assert_eq!((end.tid, end.tgid, end.dead, end.wall_ns), (7, 5, true, 0));
        assert_eq!((end.waits.total_count(), end.waits.total_ns(), end.wait_max_ns), (1, 400, 400));
        look(sched_thread { seq: 2, ..queued }, 600).difference(&mut seen, 600, 0).unwrap();
        assert!(seen.unwrap().end_unread(&other).is_none(), "the probe has counted it");
    }

    #[test]
    fn what_is_in_progress_counts_once() {
        let thread = sched_thread { state: 3, since_ns: 100, ..sched_thread::default() };
        assert_eq!(states_at(&thread, false, 150, None)[3], 50);
        assert_eq!(states_at(&thread, false, 90, None)[3], 0);
        let dead = sched_thread { state: DEAD, since_ns: 100, ..sched_thread::default() };
        assert_eq!(states_at(&dead, false, 150, None), [0; STATES]);
    }

    #[test]
    fn a_thread_that_its_cpu_does_not_have_is_unattributed() {
        let thread = sched_thread { state: 0, since_ns: 100, ..sched_thread::default() };
        assert_eq!(states_at(&thread, true, 150, None)[0], 50);
        assert_eq!(states_at(&thread, false, 150, None), [0; STATES]);
    }

    #[test]
    fn a_thread_that_is_met_late_has_only_the_time_of_the_window() {
        let thread =
            sched_thread { tid: 7, first_ns: 1000, since_ns: 1000, ..sched_thread::default() };
        let mut seen = None;
        let delta = look(thread, 5000).difference(&mut seen, 5000, 4000).unwrap();
        assert_eq!((delta.wall_ns, delta.states_ns[0]), (1000, 1000));
        let delta = look(thread, 6000).difference(&mut seen, 6000, 4000).unwrap();
        assert_eq!((delta.wall_ns, delta.states_ns[0]), (1000, 1000));
    }

    #[test]
    fn a_reused_slot_is_a_new_thread() {
        let mut seen = None;
        let first = sched_thread {
            tid: 7,
            start_boot_ns: 1,
            state: DEAD,
            since_ns: 50,
            in_state_ns: [50, 0, 0, 0, 0, 0, 0, 0],
            ..sched_thread::default()
        };
        assert_eq!(look(first, 100).difference(&mut seen, 50, 0).unwrap().wall_ns, 50);
        assert!(seen.is_none(), "nothing is kept of a thread that ended");
        let second = sched_thread {
            tid: 7,
            start_boot_ns: 2,
            since_ns: 120,
            first_ns: 120,
            ..sched_thread::default()
        };
        let delta = look(second, 200).difference(&mut seen, 200, 0).unwrap();
        assert_eq!((delta.wall_ns, delta.states_ns[0]), (80, 80));
    }
}
