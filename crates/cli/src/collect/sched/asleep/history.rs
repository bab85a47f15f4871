// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the threads of some processes did lately: their runs, their waits for a CPU, and those of their sleeps that were
//! looked at. Times are those of the run queues' clock.

mod found;
mod parts;
mod pieces;

use super::kind::{Lock, is_condition, is_handed_over, lock_of};
use deburr_bpf::sched::{Call, Caller, Context, Run, Sleep};
pub(super) use found::{Found, Successor};
use parts::Parts;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// Runs of a thread that are kept, and of all threads; 32 bytes each.
const RUNS: usize = 2048;
const ALL_RUNS: usize = 32_768;
/// Runs of all others that are kept, for processes that are followed a moment later; 48 bytes each.
const STRANGERS: usize = 2048;
/// Sleeps of a thread that are kept, and of all threads; 136 bytes each.
const SLEEPS: usize = 1024;
const ALL_SLEEPS: usize = 4096;
/// Locks whose hand-overs are kept, and hand-overs of each.
const LOCKS: usize = 256;
const HANDED_OVER: usize = 256;

/// A thread of a process, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Thread {
    pub(super) tgid: u32,
    pub(super) tid: u32,
}

/// What a thread did at a time; `S` = how sleeps are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Did<S> {
    /// Not known.
    NotSeen,
    OnCpu,
    Queued,
    Throttled,
    Slept(S),
}

/// What a thread did from a time to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Part {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) did: Did<Sleep>,
}

/// A time on a CPU, and the waiting right before.
#[derive(Clone, Copy, Debug)]
struct Stay {
    start_ns: u64,
    end_ns: u64,
    queued_ns: u64,
    throttled_ns: u64,
}

impl Stay {
    fn of(run: Run) -> Self {
        let Run { start_ns, end_ns, queued_ns, throttled_ns, .. } = run;
        Self { start_ns, end_ns, queued_ns, throttled_ns }
    }
}

/// Kinds of sleeps of others that are kept of a thread, as it has ended them.
const KINDS_ENDED: usize = 4;

/// A sleep that a thread has ended: when, and in which way the other one waited.
#[derive(Clone, Copy, Debug)]
struct Ended {
    at_ns: u64,
    call: Call,
    condition: bool,
}

impl Ended {
    fn of(it: &Sleep) -> Self {
        let at_ns = it.since_ns.saturating_add(it.slept_ns);
        Self { at_ns, call: it.call, condition: is_condition(it) }
    }

    fn is_like(&self, other: &Self) -> bool {
        (self.call, self.condition) == (other.call, other.condition)
    }
}

#[derive(Debug, Default)]
struct Known {
    tgid: u32,
    /// What it did before is not kept.
    from_ns: u64,
    /// Of the same clock as in [`Found`]; 0 = no look has found it yet.
    start_boot_ns: u64,
    /// When it began: what was before is another one's.
    began_ns: u64,
    has_ended: bool,
    runs: VecDeque<Stay>,
    /// The run in progress at the last look.
    runs_now: Option<Stay>,
    sleeps: VecDeque<Sleep>,
    /// What ended the waits of which sleeps are pieces is known of those that began before.
    settled_ns: u64,
    /// The last sleeps of others that it ended while clients of those waited, one of each kind.
    ended: Vec<Ended>,
}

impl Known {
    fn keep_runs(&mut self, most: usize) -> usize {
        let before = self.runs.len();
        while self.runs.len() > most {
            if let Some(gone) = self.runs.pop_front() {
                self.from_ns = self.from_ns.max(gone.end_ns);
            }
        }
        before - self.runs.len()
    }
}

/// A process that is followed.
#[derive(Clone, Copy, Debug)]
struct Followed {
    /// From when on.
    since_ns: u64,
    /// Of the same clock as in [`Found`]; 0 = no look has found it yet.
    leader_boot_ns: u64,
    /// It is to be forgotten, unless it is followed again until the next second: what others waited for it may be told then.
    is_left: bool,
}

/// The threads of the processes that are followed.
#[derive(Debug, Default)]
pub(super) struct History {
    followed: HashMap<u32, Followed>,
    /// The latest threads that have ended.
    ended: VecDeque<u32>,
    threads: BTreeMap<u32, Known>,
    strangers: VecDeque<Run>,
    /// By process and address: when a lock was handed over, and by whom.
    locks: HashMap<Lock, VecDeque<(u64, Thread)>>,
    /// Threads with pieces of waits of which it is not known yet what ended them.
    in_pieces: BTreeSet<u32>,
    runs: usize,
    sleeps: usize,
}

impl History {
    /// Follows the threads of a process from now on.
    pub(super) fn follow(&mut self, tgid: u32, now_ns: u64) {
        if self.followed.contains_key(&tgid) {
            return;
        }
        let is_own = |run: &&Run| run.tgid == tgid;
        let own: Vec<Run> = self.strangers.iter().filter(is_own).copied().collect();
        if !own.is_empty() {
            self.strangers.retain(|run| run.tgid != tgid);
        }
        // Before its first run it waited for a CPU.
        let awake_ns = |it: &Run| it.start_ns.saturating_sub(it.queued_ns + it.throttled_ns);
        let from_ns = own.iter().map(awake_ns).fold(now_ns, u64::min);
        self.followed
            .insert(tgid, Followed { since_ns: from_ns, leader_boot_ns: 0, is_left: false });
        own.into_iter().for_each(|run| self.ran(run));
    }

    /// Whether a process is followed.
    pub(super) fn follows(&self, tgid: u32) -> bool {
        self.followed.contains_key(&tgid)
    }

    /// Whether something is kept of a thread that began then, on the clock of [`Found`].
    pub(super) fn has(&self, it: Thread, start_boot_ns: u64) -> bool {
        let known = self.threads.get(&it.tid).filter(|known| known.tgid == it.tgid);
        known.is_some_and(|known| known.start_boot_ns == start_boot_ns)
    }

    /// Follows these processes only, for a second more the others, and drops what is kept of those of which that was said a
    /// second ago.
    pub(super) fn retain(&mut self, tgids: &BTreeSet<u32>) {
        self.followed.retain(|tgid, process| {
            let was_left = std::mem::replace(&mut process.is_left, !tgids.contains(tgid));
            !(was_left && process.is_left)
        });
        let followed = &self.followed;
        self.threads.retain(|_, it| followed.contains_key(&it.tgid));
        let threads = &self.threads;
        self.ended.retain(|tid| threads.contains_key(tid));
        self.locks.retain(|lock, _| match lock {
            Lock::Word(tgid, _) | Lock::AddressSpace(tgid) => followed.contains_key(tgid),
            Lock::File(..) | Lock::Kernel(_) => true,
        });
        self.runs = self.threads.values().map(|it| it.runs.len()).sum();
        self.sleeps = self.threads.values().map(|it| it.sleeps.len()).sum();
    }

    fn known(&mut self, it: Thread) -> Option<&mut Known> {
        let &Followed { since_ns, .. } = self.followed.get(&it.tgid)?;
        let known = self.threads.entry(it.tid).or_default();
        if known.tgid != it.tgid {
            let gone = std::mem::take(known);
            self.runs -= gone.runs.len();
            self.sleeps -= gone.sleeps.len();
            known.tgid = it.tgid;
            known.from_ns = since_ns;
        }
        Some(known)
    }

    /// A thread has run.
    pub(super) fn ran(&mut self, run: Run) {
        let Some(known) = self.known(Thread { tgid: run.tgid, tid: run.tid }) else {
            if run.tid != 0 {
                self.strangers.push_back(run);
            }
            if self.strangers.len() > STRANGERS {
                self.strangers.pop_front();
            }
            return;
        };
        if run.start_ns < known.began_ns {
            return;
        }
        // Runs come CPU by CPU.
        let is_last = known.runs.back().is_none_or(|last| last.start_ns <= run.start_ns);
        let place = match is_last {
            true => known.runs.len(),
            false => known.runs.partition_point(|stay| stay.start_ns <= run.start_ns),
        };
        known.runs.insert(place, Stay::of(run));
        let gone = known.keep_runs(RUNS);
        self.runs += 1;
        self.runs -= gone;
        if self.runs > ALL_RUNS {
            let most = self.threads.values().map(|it| it.runs.len()).max().unwrap_or(0) / 2;
            let gone: usize = self.threads.values_mut().map(|it| it.keep_runs(most)).sum();
            self.runs -= gone;
        }
    }

    /// A thread runs now, up to the end of that run.
    pub(super) fn runs_now(&mut self, run: Run) {
        if let Some(known) = self.known(Thread { tgid: run.tgid, tid: run.tid }) {
            known.runs_now = Some(Stay::of(run));
        }
    }

    /// What runs is not known any more.
    pub(super) fn end_of_look(&mut self) {
        self.threads.values_mut().for_each(|it| it.runs_now = None);
    }

    /// A thread has slept, or sleeps. Its process is followed from then on, at the latest: it may have begun a moment ago.
    pub(super) fn slept(&mut self, sleep: &Sleep) {
        self.follow(sleep.tgid, sleep.since_ns);
        let thread = Thread { tgid: sleep.tgid, tid: sleep.tid };
        let Some(known) = self.known(thread).filter(|it| it.began_ns <= sleep.since_ns) else {
            return;
        };
        let place = known.sleeps.partition_point(|it| it.since_ns < sleep.since_ns);
        match known.sleeps.get_mut(place).filter(|it| it.since_ns == sleep.since_ns) {
            // One that was in progress has ended now.
            Some(same) => *same = *sleep,
            None => {
                known.sleeps.insert(place, *sleep);
                let gone = known.sleeps.len() > SLEEPS && known.sleeps.pop_front().is_some();
                self.sleeps += 1 - usize::from(gone);
            }
        }
        if self.sleeps > ALL_SLEEPS {
            self.drop_sleeps();
        }
        self.met(sleep);
        let by = Thread { tgid: sleep.waker.tgid, tid: sleep.waker.tid };
        if sleep.client.is_some()
            && sleep.waker.context == Context::Thread
            && let Some(waker) = self.known(by)
        {
            let ended = Ended::of(sleep);
            if let Some(it) = waker.ended.iter_mut().find(|it| it.is_like(&ended)) {
                // Each CPU tells its own.
                it.at_ns = it.at_ns.max(ended.at_ns);
            } else if waker.ended.len() < KINDS_ENDED {
                waker.ended.push(ended);
            }
        }
        if let Some(lock) = lock_of(sleep)
            && sleep.waker.context == Context::Thread
            && (is_handed_over(sleep) || !matches!(lock, Lock::Word(..)))
        {
            self.handed_over(lock, sleep);
        }
    }

    /// Those in progress go first: of thousands of threads at rest, each has one, and nobody waits for it. Of the others three
    /// quarters stay, which are those of a second.
    fn drop_sleeps(&mut self) {
        let threads = self.threads.values_mut();
        threads.for_each(|it| it.sleeps.retain(|it| it.waker.context != Context::NotYet));
        self.sleeps = self.threads.values().map(|it| it.sleeps.len()).sum();
        if self.sleeps > ALL_SLEEPS / 4 * 3 {
            for it in self.threads.values_mut() {
                let gone = it.sleeps.len().div_ceil(4);
                it.sleeps.drain(..gone);
                self.sleeps -= gone;
            }
        }
    }

    fn handed_over(&mut self, lock: Lock, sleep: &Sleep) {
        if self.locks.len() >= LOCKS && !self.locks.contains_key(&lock) {
            self.locks.clear();
        }
        let by = Thread { tgid: sleep.waker.tgid, tid: sleep.waker.tid };
        let at_ns = sleep.since_ns.saturating_add(sleep.slept_ns);
        let all = self.locks.entry(lock).or_default();
        // Sleeps come CPU by CPU.
        let place = all.partition_point(|&(before_ns, _)| before_ns <= at_ns);
        all.insert(place, (at_ns, by));
        if all.len() > HANDED_OVER {
            all.pop_front();
        }
    }

    /// Who held a lock while that sleep waited for it, in `from_ns..to_ns`: whoever handed it over next. The last one is
    /// whoever ended the sleep.
    pub(super) fn holders(
        &self,
        sleep: &Sleep,
        from_ns: u64,
        to_ns: u64,
    ) -> Vec<(u64, u64, Thread)> {
        let last = Thread { tgid: sleep.waker.tgid, tid: sleep.waker.tid };
        let handed = lock_of(sleep).and_then(|lock| self.locks.get(&lock));
        // Others may have it after a piece of a wait, and before the wait ends.
        let is_piece = matches!(sleep.caller, Caller::Interpreter(_));
        let next = handed
            .filter(|_| is_piece)
            .and_then(|all| all.iter().find(|&&(at_ns, _)| at_ns >= to_ns).map(|&(_, by)| by));
        let last = next.filter(|by| by.tid != sleep.tid).unwrap_or(last);
        let mut holders = Vec::new();
        let mut at_ns = from_ns;
        for &(end_ns, by) in handed.into_iter().flatten() {
            if end_ns > at_ns && end_ns < to_ns && by.tid != sleep.tid {
                holders.push((at_ns, end_ns, by));
                at_ns = end_ns;
            }
        }
        holders.push((at_ns, to_ns, last));
        holders
    }

    /// The last sleeps of a thread that are kept, the latest first.
    pub(super) fn lately(&self, it: Thread, most: usize) -> impl Iterator<Item = &Sleep> {
        let known = self.threads.get(&it.tid).filter(|known| known.tgid == it.tgid);
        known.into_iter().flat_map(|known| known.sleeps.iter().rev()).take(most)
    }

    /// When a thread last ended a sleep of that kind while a client of who slept waited; `None` = it was not seen to.
    pub(super) fn ended_ns(&self, it: Thread, like: &Sleep) -> Option<u64> {
        let known = self.threads.get(&it.tid).filter(|known| known.tgid == it.tgid)?;
        let like = Ended::of(like);
        known.ended.iter().find(|it| it.is_like(&like)).map(|it| it.at_ns)
    }

    /// The last of them that began before a time, the latest first.
    pub(super) fn before(
        &self,
        it: Thread,
        until_ns: u64,
        most: usize,
    ) -> impl Iterator<Item = &Sleep> {
        let known = self.threads.get(&it.tid).filter(|known| known.tgid == it.tgid);
        let earlier = known.map(|known| {
            let end = known.sleeps.partition_point(|sleep| sleep.since_ns < until_ns);
            known.sleeps.range(..end).rev().take(most)
        });
        earlier.into_iter().flatten()
    }

    /// What a thread did in `from_ns..to_ns`, in parts that follow each other without gaps.
    pub(super) fn parts(&self, it: Thread, from_ns: u64, to_ns: u64) -> Vec<Part> {
        let mut parts = Parts::new(from_ns, to_ns);
        let known = self.threads.get(&it.tid).filter(|known| known.tgid == it.tgid);
        if let Some(known) = known {
            parts.until(known.from_ns, Did::NotSeen);
            let first = known.runs.partition_point(|stay| stay.end_ns <= parts.at_ns);
            for stay in known.runs.range(first..).chain(&known.runs_now) {
                let queued_from_ns = stay.start_ns.saturating_sub(stay.queued_ns);
                let awake_ns = queued_from_ns.saturating_sub(stay.throttled_ns);
                parts.asleep_until(awake_ns, &known.sleeps);
                parts.until(queued_from_ns, Did::Throttled);
                parts.until(stay.start_ns, Did::Queued);
                parts.until(stay.end_ns, Did::OnCpu);
                if parts.at_ns >= to_ns {
                    break;
                }
            }
            parts.asleep_until(to_ns, &known.sleeps);
        }
        parts.until(to_ns, Did::NotSeen);
        parts.all
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::kind::tests::sleep;
    use super::*;
    use deburr_bpf::sched::{Call, Object, Waker};
    use proptest::prelude::*;

    const ONE: Thread = Thread { tgid: 7, tid: 7 };

    pub(super) fn run(tid: u32, start_ns: u64, end_ns: u64, queued_ns: u64) -> Run {
        Run { tid, tgid: 7, start_ns, end_ns, queued_ns, throttled_ns: 0 }
    }

    pub(super) fn slept(tid: u32, since_ns: u64, slept_ns: u64, waker: u32) -> Sleep {
        let by = sleep(Object::None, Context::Thread);
        let waker = Waker { tid: waker, tgid: 7, call: by.call, ..by.waker };
        Sleep { tid, since_ns, slept_ns, waker, ..by }
    }

    pub(super) fn told(parts: &[Part]) -> Vec<(u64, &'static str)> {
        let name = |did| match did {
            Did::NotSeen => "not seen",
            Did::OnCpu => "on CPU",
            Did::Queued => "queued",
            Did::Throttled => "throttled",
            Did::Slept(_) => "slept",
        };
        parts.iter().map(|part| (part.to_ns - part.from_ns, name(part.did))).collect()
    }

    #[test]
    fn a_time_is_divided_into_what_a_thread_did() {
        let mut history = History::default();
        history.follow(7, 100);
        history.ran(run(7, 200, 300, 0));
        history.slept(&slept(7, 300, 80, 9));
        history.ran(run(7, 400, 450, 20));
        history.runs_now(Run { throttled_ns: 30, ..run(7, 520, 600, 10) });
        let parts = history.parts(ONE, 50, 700);
        let expected = [
            (50, "not seen"),
            (100, "not seen"),
            (100, "on CPU"),
            (80, "slept"),
            (20, "queued"),
            (50, "on CPU"),
            (30, "not seen"),
            (30, "throttled"),
            (10, "queued"),
            (80, "on CPU"),
            (100, "not seen"),
        ];
        assert_eq!(told(&parts), expected);
        assert_eq!(told(&history.parts(ONE, 310, 390)), [(70, "slept"), (10, "queued")]);
        let other = Thread { tgid: 8, tid: 7 };
        assert_eq!(told(&history.parts(other, 310, 390)), [(80, "not seen")]);
        // One that is followed later: what it did a moment before is known.
        history.ran(Run { tgid: 9, tid: 9, ..run(9, 300, 350, 20) });
        let stranger = Thread { tgid: 9, tid: 9 };
        assert_eq!(told(&history.parts(stranger, 310, 340)), [(30, "not seen")]);
        history.follow(9, 400);
        let waited = [(10, "not seen"), (20, "queued"), (40, "on CPU")];
        assert_eq!(told(&history.parts(stranger, 270, 340)), waited);
        history.retain(&[9].into());
        assert_eq!(told(&history.parts(ONE, 310, 340)), [(30, "slept")]);
        history.retain(&[9].into());
        assert_eq!(told(&history.parts(ONE, 310, 390)), [(80, "not seen")]);
    }

    /// A thread that changes its CPU: what it did on one of them is told before what it did on the other.
    #[test]
    fn runs_are_in_order_whatever_cpu_they_were_on() {
        let mut history = History::default();
        history.follow(7, 0);
        for (start, end) in [(10, 20), (40, 50), (20, 30), (60, 70)] {
            history.ran(run(7, start, end, 0));
        }
        let parts = told(&history.parts(ONE, 10, 70));
        let expected = [
            (10, "on CPU"),
            (10, "on CPU"),
            (10, "not seen"),
            (10, "on CPU"),
            (10, "not seen"),
            (10, "on CPU"),
        ];
        assert_eq!(parts, expected);
    }

    #[test]
    fn a_lock_is_held_by_whoever_hands_it_over_next() {
        let mut history = History::default();
        history.follow(7, 0);
        // 1 waits from 100 to 400. Meanwhile 2 gives it to 3 at 200, and 3 to 4 at 300, which ends the wait of 1.
        for (tid, since, end, waker) in [(3, 50, 200, 2), (4, 60, 300, 3), (1, 100, 400, 4)] {
            history.slept(&slept(tid, since, end - since, waker));
        }
        let by = |tid| Thread { tgid: 7, tid };
        let holders = history.holders(&slept(1, 100, 300, 4), 100, 400);
        assert_eq!(holders, [(100, 200, by(2)), (200, 300, by(3)), (300, 400, by(4))]);
        // Who interrupts a wait, as by a signal, has not held the lock.
        let signalled = slept(5, 150, 100, 9);
        let waker = Waker { call: Call::Unknown, ..signalled.waker };
        history.slept(&Sleep { waker, ..signalled });
        assert_eq!(history.holders(&slept(1, 100, 300, 4), 100, 400), holders);
        // Of another one, or no lock at all, it is whoever ended it.
        let other = Sleep { arguments: [0x2000, 128, 2], ..slept(1, 100, 300, 4) };
        assert_eq!(history.holders(&other, 100, 400), [(100, 400, by(4))]);
        let condition = Sleep { arguments: [0x1000, 128, 0], ..slept(1, 100, 300, 4) };
        assert_eq!(history.holders(&condition, 100, 400), [(100, 400, by(4))]);
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_is_gone_is_not_seen() {
        let mut history = History::default();
        history.follow(7, 0);
        for at in 0..100_000 {
            history.ran(run(at as u32 % 100, at * 10, at * 10 + 5, 0));
            history.slept(&slept(at as u32 % 100, at * 10, 5, 3));
        }
        assert!(history.runs <= ALL_RUNS && history.sleeps <= ALL_SLEEPS);
        let counted: usize = history.threads.values().map(|it| it.runs.len()).sum();
        let sleeps: usize = history.threads.values().map(|it| it.sleeps.len()).sum();
        assert_eq!((history.runs, history.sleeps), (counted, sleeps));
        let parts = history.parts(Thread { tgid: 7, tid: 0 }, 0, 5);
        assert_eq!(told(&parts), [(5, "not seen")]);
    }

    #[test]
    fn thousands_at_rest_do_not_make_others_forgotten() {
        let mut history = History::default();
        history.follow(7, 0);
        history.slept(&slept(7, 300, 80, 9));
        for tid in 100..20_100 {
            let it = slept(tid, 0, 1000, 0);
            let waker = Waker { context: Context::NotYet, ..it.waker };
            history.slept(&Sleep { waker, ..it });
        }
        assert!(history.sleeps <= ALL_SLEEPS);
        assert_eq!(told(&history.parts(ONE, 310, 390)), [(70, "slept"), (10, "not seen")]);
    }

    proptest! {
        #[test]
        fn parts_follow_each_other_whatever_is_known(
            stays in prop::collection::vec((0..900u64, 0..100u64, 0..200u64, 0..200u64), 0..20),
            sleeps in prop::collection::vec((0..900u64, 0..300u64), 0..20),
            from in 0..1000u64, length in 0..1000u64,
        ) {
            let mut history = History::default();
            history.follow(7, 10);
            let mut stays = stays;
            stays.sort_unstable();
            for (start, length, queued_ns, throttled_ns) in stays {
                history.ran(Run { throttled_ns, ..run(7, start, start + length, queued_ns) });
            }
            for (since, length) in sleeps {
                history.slept(&slept(7, since, length, 3));
            }
            let mut at = from;
            for part in history.parts(ONE, from, from + length) {
                prop_assert_eq!(part.from_ns, at);
                prop_assert!(part.to_ns > at);
                at = part.to_ns;
            }
            prop_assert_eq!(at, from + length);
        }
    }
}
