// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits in pieces. Who waits for another thread and sets a limit, and waits on when that has passed, sleeps anew each time.
//! CPython's threads wait so for the interpreter's lock: a timer ends each piece but the last, and the wait is for no timer.

use super::super::kind::{lock_of, waits_in_memory};
use super::{History, Known, is_handed_over};
use deburr_bpf::sched::{Call, Caller, Context, Sleep, Waker};
use std::collections::HashMap;

/// Who only looks whether to wait on runs for such a part of a piece at most.
const OF_PIECE: u64 = 32;
/// At a condition, it runs for so long at most, however long the piece was.
const LOOKS_NS: u64 = 200_000;
/// Other threads than the one that has a lock run for such a part of a piece at most.
const OTHERS_RUN: u64 = 8;
/// Threads of a process, among which the one that has a lock is looked for.
const THREADS: usize = 64;
/// glibc's conditions have two words on which threads wait, within so many bytes (`pthread_cond_t`).
const CONDITION_BYTES: u64 = 48;

/// How a wait in pieces ends.
enum End {
    /// It is not known yet.
    GoesOn,
    /// No thread has ended it.
    Passed,
    By(Waker),
}

/// What is found out of a thread's sleeps.
struct Settled {
    /// Up to which beginning.
    to_ns: u64,
    /// What ended the waits of which sleeps are pieces, by their places.
    wakers: Vec<(usize, Waker)>,
    /// There are pieces of which it is not known.
    is_open: bool,
}

impl History {
    /// Finds out what ended the waits of which sleeps are pieces. `known_to_ns` = up to when all runs have been told. Of waits
    /// that go on it is found out later, but of pieces that ended before `until_ns`.
    pub(in super::super) fn settle(&mut self, known_to_ns: u64, until_ns: u64) {
        let mut of_process = HashMap::new();
        for tid in std::mem::take(&mut self.in_pieces) {
            let settled = self.settled_of(tid, (known_to_ns, until_ns), &mut of_process);
            let Some(settled) = settled else { continue };
            let Some(known) = self.threads.get_mut(&tid) else { continue };
            known.settled_ns = settled.to_ns;
            for (at, waker) in settled.wakers {
                known.sleeps[at].waker = waker;
            }
            if settled.is_open {
                self.in_pieces.insert(tid);
            }
        }
    }

    /// A sleep has been told.
    pub(super) fn met(&mut self, sleep: &Sleep) {
        if is_piece(sleep) {
            self.in_pieces.insert(sleep.tid);
        }
    }

    /// Whether a sleep is a piece of a wait of which it is not known yet what ended it.
    pub(in super::super) fn goes_on(&self, sleep: &Sleep) -> bool {
        let known = || self.threads.get(&sleep.tid).filter(|known| known.tgid == sleep.tgid);
        is_piece(sleep)
            && self.in_pieces.contains(&sleep.tid)
            && known().is_some_and(|known| known.settled_ns <= sleep.since_ns)
    }

    /// A sleep with what ended the wait of which it is a piece.
    pub(in super::super) fn within_wait(&self, sleep: &Sleep) -> Sleep {
        let known = self.threads.get(&sleep.tid).filter(|known| known.tgid == sleep.tgid);
        let kept = known.filter(|_| is_piece(sleep)).and_then(|known| {
            let at = known.sleeps.partition_point(|it| it.since_ns < sleep.since_ns);
            known.sleeps.get(at).filter(|it| it.since_ns == sleep.since_ns)
        });
        Sleep { waker: kept.map_or(sleep.waker, |it| it.waker), ..*sleep }
    }

    /// `of_process` = the threads of those processes that were asked for already.
    fn settled_of(
        &self,
        tid: u32,
        (known_to_ns, until_ns): (u64, u64),
        of_process: &mut HashMap<u32, Vec<u32>>,
    ) -> Option<Settled> {
        let known = self.threads.get(&tid)?;
        let mut at = known.sleeps.partition_point(|it| it.since_ns < known.settled_ns);
        let mut settled = Settled { to_ns: known.settled_ns, wakers: vec![], is_open: false };
        while let Some(sleep) = known.sleeps.get(at) {
            if !is_piece(sleep) {
                at += 1;
                continue;
            }
            let (pieces, end) = known.wait(at, known_to_ns);
            for at in at..at + pieces {
                let piece = &known.sleeps[at];
                if matches!(end, End::GoesOn) && ended_ns(piece) >= until_ns {
                    return Some(Settled { to_ns: piece.since_ns, is_open: true, ..settled });
                }
                let is_lock = matches!(piece.caller, Caller::Interpreter(_));
                let waker = match end {
                    End::By(waker) => Some(waker),
                    _ if is_lock => {
                        let all = of_process.entry(known.tgid);
                        let all = all.or_insert_with(|| self.threads_of(known.tgid));
                        self.alone_on_cpu(all, piece)
                    }
                    _ => None,
                };
                settled.wakers.extend(waker.map(|waker| (at, waker)));
            }
            at += pieces;
        }
        // One that goes on may end as a piece.
        settled.to_ns = known.sleeps.back().map_or(settled.to_ns, |last| {
            last.since_ns + u64::from(last.waker.context != Context::NotYet)
        });
        Some(settled)
    }

    /// The threads of a process; none if there are too many.
    fn threads_of(&self, tgid: u32) -> Vec<u32> {
        let all = self.threads.iter().filter(|(_, it)| it.tgid == tgid);
        let all: Vec<u32> = all.map(|(&tid, _)| tid).take(THREADS + 1).collect();
        if all.len() > THREADS { vec![] } else { all }
    }

    /// The one of these threads that alone ran meanwhile. It has the lock of the interpreter if nobody that sleeps gave that on:
    /// it did so when it was asked to, between two sleeps of the thread that waits.
    fn alone_on_cpu(&self, tids: &[u32], sleep: &Sleep) -> Option<Waker> {
        let others = tids.iter().filter(|&&tid| tid != sleep.tid);
        let mut ran = others.filter_map(|&tid| {
            let ran_ns = self.threads.get(&tid)?.ran_ns(sleep.since_ns, ended_ns(sleep))?;
            (ran_ns > sleep.slept_ns / OTHERS_RUN).then_some((tid, ran_ns))
        });
        let (tid, ran_ns) = ran.next()?;
        let is_alone = ran.next().is_none() && ran_ns > sleep.slept_ns / 2;
        is_alone.then_some(Waker {
            context: Context::Thread,
            tid,
            tgid: sleep.tgid,
            call: Call::Unknown,
            sends_to: None,
        })
    }
}

impl Known {
    /// The number of the pieces of a wait from that sleep on, which is one, and how the wait ends.
    fn wait(&self, first: usize, known_to_ns: u64) -> (usize, End) {
        let (mut pieces, mut looked_ns) = (0, 0_u64);
        for (before, next) in self.sleeps.range(first..).zip(self.sleeps.range(first + 1..)) {
            pieces += 1;
            if next.since_ns > known_to_ns {
                return (pieces, End::GoesOn);
            }
            let ran_ns = self.ran_ns(ended_ns(before), next.since_ns);
            let is_lock = lock_of(before).is_some();
            let looks = |ran_ns: &u64| {
                *ran_ns <= before.slept_ns / OF_PIECE && (is_lock || *ran_ns <= LOOKS_NS)
            };
            let Some(ran_ns) = ran_ns.filter(looks).filter(|_| is_same(before, next)) else {
                return (pieces, End::Passed);
            };
            looked_ns += ran_ns;
            match next.waker.context {
                Context::NotYet => return (pieces, End::GoesOn),
                _ if is_piece(next) => {}
                // What it did then has not been told.
                _ if ended_ns(next) > known_to_ns => return (pieces, End::GoesOn),
                // Who looks whether to wait on has more to do if it is not to. Who sets timers for what is to be done then has
                // done that by the time that it sleeps again, and has less to do if another thread tells it of more.
                _ if is_handed_over(next)
                    && (lock_of(next).is_some()
                        || self.runs_for(next, 2 * looked_ns / pieces as u64)) =>
                {
                    return (pieces, End::By(next.waker));
                }
                _ => return (pieces, End::Passed),
            }
        }
        (pieces + 1, End::GoesOn)
    }

    /// How long the thread ran between two times; `None` if that is not known.
    fn ran_ns(&self, from_ns: u64, to_ns: u64) -> Option<u64> {
        let first = self.runs.partition_point(|stay| stay.end_ns <= from_ns);
        let runs = self.runs.range(first..).chain(&self.runs_now);
        let within = runs.take_while(|stay| stay.start_ns < to_ns);
        let ran = within.map(|it| it.end_ns.min(to_ns).saturating_sub(it.start_ns.max(from_ns)));
        (self.from_ns <= from_ns).then(|| ran.fold(0, u64::saturating_add)).filter(|&ns| ns > 0)
    }

    /// Whether the thread ran for at least so long after a sleep, as far as is known.
    fn runs_for(&self, sleep: &Sleep, ns: u64) -> bool {
        let first = self.runs.partition_point(|stay| stay.end_ns <= ended_ns(sleep));
        let run = self.runs.get(first);
        run.is_none_or(|run| run.end_ns.saturating_sub(run.start_ns) >= ns)
    }
}

fn ended_ns(it: &Sleep) -> u64 {
    it.since_ns.saturating_add(it.slept_ns)
}

/// Whether the limit that the thread has set has passed.
fn is_piece(it: &Sleep) -> bool {
    let by_limit = matches!(it.waker.context, Context::Timer | Context::HardIrq);
    it.is_timed && by_limit && waits_in_memory(it)
}

/// Whether both wait for the same lock, or at the same condition.
fn is_same(one: &Sleep, other: &Sleep) -> bool {
    let is_near = one.arguments[0].abs_diff(other.arguments[0]) < CONDITION_BYTES;
    waits_in_memory(other) && is_near && lock_of(one) == lock_of(other)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{run, slept};
    use super::*;
    use deburr_bpf::sched::{Call, Waker};

    const ADDRESS: u64 = 0x1000;
    /// `FUTEX_WAIT_BITSET`, private, by the clock of the day.
    const BITSET: u64 = 9 | 128 | 256;

    /// A sleep of thread 7 in a condition, with a limit. Times in us. `by` = the thread that ended it; 0 = the limit.
    fn piece(since: u64, until: u64, by: u32) -> Sleep {
        let it = slept(7, since * 1000, (until - since) * 1000, by);
        let context = if by == 0 { Context::Timer } else { Context::Thread };
        let arguments = [ADDRESS, BITSET, 0];
        Sleep { arguments, is_timed: true, waker: Waker { context, ..it.waker }, ..it }
    }

    fn history(pieces: &[Sleep], runs: &[(u64, u64)]) -> History {
        let mut history = History::default();
        history.follow(7, 0);
        pieces.iter().for_each(|it| history.slept(it));
        runs.iter().for_each(|(from, to)| history.ran(run(7, from * 1000, to * 1000, 0)));
        history
    }

    /// The thread that ended the wait of which the first piece is one; 0 = none has.
    fn by(pieces: &[Sleep], runs: &[(u64, u64)]) -> u32 {
        let mut history = history(pieces, runs);
        history.settle(u64::MAX, u64::MAX);
        let it = history.within_wait(&pieces[0]);
        if it.waker.context == Context::Thread { it.waker.tid } else { 0 }
    }

    #[test]
    fn a_wait_is_for_who_ends_its_last_piece() {
        let pieces = [piece(0, 5000, 0), piece(5010, 10_000, 0), piece(10_010, 12_000, 9)];
        let runs = [(5000, 5010), (10_000, 10_010), (12_000, 13_000)];
        assert_eq!(by(&pieces, &runs), 9);
        // The words of a condition are used in turn; another condition is another wait.
        let at = |bytes, it: Sleep| Sleep { arguments: [ADDRESS + bytes, BITSET, 0], ..it };
        assert_eq!(by(&[pieces[0], at(4, pieces[1]), pieces[2]], &runs), 9);
        assert_eq!(by(&[pieces[0], pieces[1], at(64, pieces[2])], &runs), 0);
        // What it ran in between is not known.
        assert_eq!(by(&pieces, &runs[1..]), 0);
        // It slept elsewhere in between, as in a sleep that has no limit but a file.
        let elsewhere = Sleep { call: Call::System(0), ..piece(5010, 10_000, 8) };
        assert_eq!(by(&[pieces[0], elsewhere, pieces[2]], &runs), 0);
        // Its last piece is ended by a signal, or by nobody yet.
        let waker = |call, context| Waker { call, context, ..pieces[2].waker };
        let signalled = Sleep { waker: waker(Call::System(62), Context::Thread), ..pieces[2] };
        assert_eq!(by(&[pieces[0], pieces[1], signalled], &runs), 0);
        let open = Sleep { waker: waker(Call::Unknown, Context::NotYet), ..pieces[2] };
        assert_eq!(by(&[pieces[0], pieces[1], open], &runs), 0);
        for (pieces, goes_on) in
            [(vec![pieces[0], open], true), (vec![pieces[0]], true), (pieces.to_vec(), false)]
        {
            let mut history = history(&pieces, &runs);
            history.settle(u64::MAX, 4_000_000);
            assert_eq!(history.goes_on(&pieces[0]), goes_on, "{pieces:?}");
            // What takes longer is told before.
            history.settle(u64::MAX, 10_000_001);
            assert!(!history.goes_on(&pieces[0]));
        }
        // A piece that went on at the last look.
        let mut later = history(&[open], &runs);
        later.met(&pieces[0]);
        later.settle(u64::MAX, 0);
        let ended = piece(10_010, 12_000, 0);
        let last = piece(12_010, 13_000, 9);
        [ended, last].iter().for_each(|it| later.slept(it));
        later.ran(run(7, 12_000_000, 12_010_000, 0));
        later.settle(u64::MAX, 0);
        assert_eq!(later.within_wait(&ended).waker.tid, 9);
        // What it ran before its last piece has not been told yet.
        let mut early = history(&pieces, &runs);
        early.settle(10_005_000, 4_000_000);
        assert!(early.goes_on(&pieces[0]));
        early.settle(11_000_000, 4_000_000);
        assert!(early.goes_on(&pieces[0]), "what it did after that, neither");
        early.settle(12_000_000, 4_000_000);
        assert_eq!(early.within_wait(&pieces[0]).waker.tid, 9);
    }

    #[test]
    fn what_is_forgotten_holds_nothing_back() {
        let mut history = history(&[piece(0, 5000, 0)], &[(5000, 5010)]);
        assert!(history.goes_on(&piece(0, 5000, 0)));
        history.threads.get_mut(&7).unwrap().sleeps.clear();
        history.settle(u64::MAX, 0);
        assert!(!history.goes_on(&piece(0, 5000, 0)));
    }

    /// The thread that waits is 7; 8 computes and gives the lock of the interpreter on to 9, which had slept.
    #[test]
    fn a_piece_is_for_whoever_gives_the_lock_on_next() {
        let caller = Caller::Interpreter(ADDRESS);
        let mine = [piece(0, 5000, 0), piece(5010, 10_000, 0), piece(10_010, 20_000, 9)];
        let mine = mine.map(|it| Sleep { caller, ..it });
        let given = Sleep { tid: 9, caller, ..piece(11_000, 12_000, 8) };
        let mut history = history(&mine, &[(5000, 5010), (10_000, 10_010), (20_000, 20_005)]);
        history.slept(&given);
        history.settle(u64::MAX, u64::MAX);
        let holders = |of: &Sleep| {
            let it = history.within_wait(of);
            let all = history.holders(&it, it.since_ns, ended_ns(&it));
            all.into_iter()
                .map(|(from, to, by)| (from / 1000, to / 1000, by.tid))
                .collect::<Vec<_>>()
        };
        assert_eq!(holders(&mine[0]), [(0, 5000, 8)]);
        assert_eq!(holders(&mine[1]), [(5010, 10_000, 8)]);
        assert_eq!(holders(&mine[2]), [(10_010, 12_000, 8), (12_000, 20_000, 9)]);
    }

    /// Between two sleeps nobody gave it on: it is the only other thread that ran.
    #[test]
    fn who_alone_ran_has_the_lock_of_the_interpreter() {
        let it = Sleep { caller: Caller::Interpreter(ADDRESS), ..piece(0, 5000, 0) };
        let of = |runs: &[(u32, u64, u64)]| {
            let mut history = history(&[it], &[(5000, 9000)]);
            for &(tid, from, to) in runs {
                history.ran(run(tid, from * 1000, to * 1000, 0));
            }
            history.settle(u64::MAX, u64::MAX);
            let by = history.within_wait(&it).waker;
            if by.context == Context::Thread { by.tid } else { 0 }
        };
        assert_eq!(of(&[(8, 0, 4900)]), 8);
        assert_eq!(of(&[(8, 0, 4900), (9, 0, 300)]), 8, "one that runs for a moment");
        assert_eq!(of(&[(8, 0, 4900), (9, 0, 3000)]), 0, "one of two");
        assert_eq!(of(&[(8, 0, 2000)]), 0, "a part of the time only");
        assert_eq!(of(&[]), 0);
    }

    /// A thread that does what is due, and is told of more now and then.
    #[test]
    fn who_does_something_after_a_limit_waits_for_its_timer() {
        let pieces = [piece(0, 5000, 0), piece(5100, 8000, 9)];
        assert_eq!(by(&pieces, &[(5000, 5100), (8000, 8200)]), 9);
        assert_eq!(by(&pieces, &[(5000, 5100), (8000, 8010)]), 0, "it has less to do then");
        let later = [piece(0, 5000, 0), piece(5200, 8000, 9)];
        assert_eq!(by(&later, &[(5000, 5200), (8000, 9000)]), 0, "it has done something");
    }
}
