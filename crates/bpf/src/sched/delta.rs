// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a thread did between two looks, and where it is cut so that all threads are told up to the same time.
//!
//! Threads are read one after the other, and each is known up to its last switch. The reader may be stopped, or get no CPU,
//! before any of these readings. What a thread did after the time of the look is therefore held, and told by the next
//! look: the amounts of a look never exceed the time between it and the look before.

use super::STATES;
use deburr_core::recording::WaitHist;
use std::collections::{BTreeMap, BTreeSet};

/// What a thread did between two looks.
#[derive(Clone, Debug)]
pub struct ThreadDelta {
    /// Thread id.
    pub tid: u32,
    /// Thread-group id.
    pub tgid: u32,
    /// Start time of the group's leader, in nanoseconds of `CLOCK_BOOTTIME`:
    /// distinguishes processes with a reused tgid.
    pub leader_boot_ns: u64,
    /// Start time of the thread, on the same clock.
    pub start_boot_ns: u64,
    /// Thread-group id of the parent process when the thread was first seen; 0 = the kernel.
    pub parent: u32,
    /// Comm of the thread.
    pub comm: [u8; 16],
    /// kernfs id of the cgroup.
    pub cgroup_id: u64,
    /// Whether the thread has ended.
    pub dead: bool,
    /// Wall time between the looks during which the thread existed.
    pub wall_ns: u64,
    /// Where that time begins, in nanoseconds since the start of the window. A thread that is met late has time from
    /// before the last look.
    pub from_ns: u64,
    /// Whether it is known to have existed after that time, up to the look, but what it did is told later.
    pub behind: bool,
    /// How that time is divided among states, including the state in progress; indexed by [`super::State`].
    pub states_ns: [u64; STATES],
    /// Run-queue waits that ended.
    pub waits: WaitHist,
    /// Longest of these waits.
    pub wait_max_ns: u64,
    /// Length, within the window, of the wait in progress, or of one that ended unseen: not in `waits` yet.
    pub waiting_ns: u64,
    /// Times the thread got a CPU.
    pub switches: u64,
    /// Index of its slot in the thread table, if it has one.
    pub slot: Option<usize>,
}

impl ThreadDelta {
    /// Where its time ends, in nanoseconds since the start of the window.
    #[must_use]
    pub fn until_ns(&self) -> u64 {
        self.from_ns + self.wall_ns
    }

    fn is_of_the_thread_of(&self, other: &Self) -> bool {
        let key = |it: &Self| (it.tid, it.tgid, it.leader_boot_ns, it.start_boot_ns);
        key(self) == key(other) && !self.dead
    }

    /// This, followed by what the same thread did next.
    fn then(self, next: Self) -> Self {
        let mut waits = self.waits;
        waits.merge(&next.waits);
        Self {
            from_ns: self.from_ns,
            wall_ns: self.wall_ns + next.wall_ns,
            states_ns: std::array::from_fn(|state| self.states_ns[state] + next.states_ns[state]),
            waits,
            wait_max_ns: self.wait_max_ns.max(next.wait_max_ns),
            switches: self.switches + next.switches,
            ..next
        }
    }

    /// The parts before and after `cut_ns`, both of them together what there was. In which order the thread was in its
    /// states is not known, so each part has its share of each. What is counted goes with the longer part.
    fn cut(self, cut_ns: u64) -> (Self, Self) {
        let before_ns = cut_ns.saturating_sub(self.from_ns).min(self.wall_ns);
        let part = |ns: u64| {
            let part = u128::from(ns) * u128::from(before_ns) / u128::from(self.wall_ns.max(1));
            u64::try_from(part).unwrap_or(ns)
        };
        let mut before =
            Self { wall_ns: before_ns, states_ns: self.states_ns.map(part), ..self.clone() };
        let mut after = Self {
            from_ns: self.from_ns + before_ns,
            wall_ns: self.wall_ns - before_ns,
            states_ns: std::array::from_fn(|state| self.states_ns[state] - before.states_ns[state]),
            ..self
        };
        // It had not ended yet.
        (before.dead, before.behind) = (false, false);
        before.waiting_ns = 0;
        let other = if before_ns >= after.wall_ns { &mut after } else { &mut before };
        (other.waits, other.wait_max_ns, other.switches) = (WaitHist::default(), 0, 0);
        (before, after)
    }
}

/// What threads did after the look that read it.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// By slot, `None` = without one, and thread id; with the number of the look that put it here.
    parts: BTreeMap<(Option<usize>, u32), (u64, ThreadDelta)>,
    look: u64,
    /// The time up to which anything was told, in nanoseconds since the start of the window.
    until_ns: u64,
}

impl Held {
    /// A look begins.
    pub(super) fn begin_look(&mut self) {
        self.look += 1;
    }

    /// Tells what a thread did, with what was held of it. What comes after `cut_ns` is held; `None` = nothing is.
    pub(super) fn tell(
        &mut self,
        mut delta: ThreadDelta,
        cut_ns: Option<u64>,
        each: &mut dyn FnMut(&ThreadDelta),
    ) {
        if let Some((_, held)) = self.parts.remove(&(delta.slot, delta.tid)) {
            if held.is_of_the_thread_of(&delta) {
                delta = held.then(delta);
            } else {
                self.tell_part(held, cut_ns, each);
            }
        }
        self.tell_part(delta, cut_ns, each);
    }

    /// Tells what is held of threads that this look did not read: those that have ended. `slots` = only of those.
    pub(super) fn tell_rest(
        &mut self,
        slots: Option<&[usize]>,
        cut_ns: Option<u64>,
        each: &mut dyn FnMut(&ThreadDelta),
    ) {
        if self.parts.is_empty() {
            return;
        }
        let slots: Option<BTreeSet<usize>> = slots.map(|slots| slots.iter().copied().collect());
        let is_asked = |slot: Option<usize>| {
            slots.as_ref().is_none_or(|slots| slot.is_some_and(|slot| slots.contains(&slot)))
        };
        let look = self.look;
        let rest = self.parts.extract_if(.., |key, (at, _)| *at != look && is_asked(key.0));
        for (_, (_, held)) in rest.collect::<Vec<_>>() {
            self.tell_part(held, cut_ns, each);
        }
    }

    fn tell_part(
        &mut self,
        delta: ThreadDelta,
        cut_ns: Option<u64>,
        each: &mut dyn FnMut(&ThreadDelta),
    ) {
        let told = match cut_ns {
            Some(cut_ns) if delta.until_ns() > cut_ns => {
                let (before, after) = delta.cut(cut_ns);
                self.parts.insert((after.slot, after.tid), (self.look, after));
                before
            }
            _ => delta,
        };
        self.until_ns = self.until_ns.max(told.until_ns());
        each(&told);
    }

    /// The time up to which anything was told, in nanoseconds since the start of the window.
    pub(super) fn until_ns(&self) -> u64 {
        self.until_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn did(tid: u32, from_ns: u64, states_ns: [u64; STATES]) -> ThreadDelta {
        ThreadDelta {
            tid,
            tgid: 1,
            leader_boot_ns: 1,
            start_boot_ns: 1,
            parent: 0,
            comm: [0; 16],
            cgroup_id: 0,
            dead: false,
            wall_ns: states_ns.iter().sum(),
            from_ns,
            behind: false,
            states_ns,
            waits: WaitHist::default(),
            wait_max_ns: 0,
            waiting_ns: 0,
            switches: 1,
            slot: Some(3),
        }
    }

    /// What is told, as `(from, until, dead)`.
    fn told(held: &mut Held, delta: ThreadDelta, cut_ns: Option<u64>) -> Vec<(u64, u64, bool)> {
        let mut all = Vec::new();
        held.begin_look();
        held.tell(delta, cut_ns, &mut |it| all.push((it.from_ns, it.until_ns(), it.dead)));
        held.tell_rest(None, cut_ns, &mut |it| all.push((it.from_ns, it.until_ns(), it.dead)));
        all
    }

    #[test]
    fn what_came_after_the_look_is_told_by_the_next_one() {
        let mut held = Held::default();
        let runs = |from_ns, ns| did(7, from_ns, [ns, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(told(&mut held, runs(0, 500), Some(100)), [(0, 100, false)]);
        assert_eq!(told(&mut held, runs(500, 50), Some(540)), [(100, 540, false)]);
        let dead = ThreadDelta { dead: true, ..runs(550, 100) };
        assert_eq!(told(&mut held, dead, Some(600)), [(540, 600, false)], "not dead yet");
        assert_eq!(
            told(&mut held, did(8, 640, [0; STATES]), Some(640)),
            [(640, 640, false), (600, 640, false)]
        );
        assert_eq!(
            told(&mut held, did(8, 640, [60, 0, 0, 0, 0, 0, 0, 0]), None),
            [(640, 700, false), (640, 650, true)]
        );
        assert_eq!(held.until_ns(), 700);
    }

    #[test]
    fn another_thread_in_the_slot_is_not_the_same() {
        let mut held = Held::default();
        let dead = ThreadDelta { dead: true, ..did(7, 0, [500, 0, 0, 0, 0, 0, 0, 0]) };
        assert_eq!(told(&mut held, dead, Some(100)), [(0, 100, false)]);
        let other = ThreadDelta { leader_boot_ns: 2, ..did(7, 500, [500, 0, 0, 0, 0, 0, 0, 0]) };
        assert_eq!(told(&mut held, other, Some(1000)), [(100, 500, true), (500, 1000, false)]);
    }

    /// Wherever a thread is cut, nothing is lost and nothing is invented, and no part is longer than its time.
    #[test]
    fn the_parts_are_the_whole() {
        let mut whole = did(7, 100, [7, 4_000_000_000, 0, 913, 1, 0, 86_000_001, 3]);
        whole.waits.add(5_000);
        for cut_ns in [0, 99, 100, 101, 1_000, 3_999_999_999, whole.until_ns(), u64::MAX] {
            let (before, after) = whole.clone().cut(cut_ns);
            for part in [&before, &after] {
                let states_ns = part.states_ns.iter().sum::<u64>();
                assert!(states_ns <= part.wall_ns + STATES as u64, "at {cut_ns}: {part:?}");
            }
            assert!(before.wall_ns == 0 || before.until_ns() <= cut_ns, "at {cut_ns}");
            assert_eq!(before.switches + after.switches, 1);
            let again = before.then(after);
            assert_eq!(again.states_ns, whole.states_ns);
            assert_eq!((again.from_ns, again.wall_ns), (whole.from_ns, whole.wall_ns));
            assert_eq!(again.waits, whole.waits);
        }
    }
}
