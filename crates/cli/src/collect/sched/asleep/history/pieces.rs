// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits in pieces. Who waits for another thread and sets a limit, and waits on when that has passed, sleeps anew each time.
//! CPython's threads wait so for the interpreter's lock: a timer ends each piece but the last, and the wait is for no timer.

use super::super::kind::{lock_of, waits_in_memory};
use super::{History, Known, Thread, is_handed_over};
use deburr_bpf::sched::{Call, Caller, Context, Sleep, Waker};

/// Pieces of a wait that are looked at.
const PIECES: usize = 256;
/// Who only looks whether to wait on runs for such a part of a piece at most.
const OF_PIECE: u64 = 32;
/// Other threads than the one that has a lock run for such a part of a piece at most.
const OTHERS_RUN: u64 = 8;
/// glibc's conditions have two words on which threads wait, within so many bytes (`pthread_cond_t`).
const CONDITION_BYTES: u64 = 48;

/// What is known of the wait of which a sleep is a piece.
enum Wait<'a> {
    /// It is none.
    No,
    /// Its last piece has not ended, or is not known.
    GoesOn,
    /// Another thread ended this last piece of it.
    Ended(&'a Sleep),
}

impl History {
    /// A sleep with what ended the wait of which it is a piece.
    pub(in super::super) fn within_wait(&self, sleep: &Sleep) -> Sleep {
        let waker = match self.wait_of(sleep) {
            Wait::Ended(last) => last.waker,
            Wait::No if is_piece(sleep) && matches!(sleep.caller, Caller::Interpreter(_)) => {
                let holder = self.alone_on_cpu(sleep);
                let by = |it: Thread| Waker {
                    context: Context::Thread,
                    tid: it.tid,
                    tgid: it.tgid,
                    call: Call::Unknown,
                    sends_to: None,
                };
                holder.map_or(sleep.waker, by)
            }
            Wait::No | Wait::GoesOn => sleep.waker,
        };
        Sleep { waker, ..*sleep }
    }

    /// The thread of the same process that alone ran meanwhile. It has the lock of the interpreter if nobody that sleeps gave
    /// that on: it did so when it was asked to, between two sleeps of the waiting thread.
    fn alone_on_cpu(&self, sleep: &Sleep) -> Option<Thread> {
        let others = self.threads.iter();
        let others = others.filter(|(tid, it)| it.tgid == sleep.tgid && **tid != sleep.tid);
        let mut ran = others.filter_map(|(&tid, it)| {
            let ran_ns = it.ran_ns(sleep.since_ns, ended_ns(sleep))?;
            (ran_ns > sleep.slept_ns / OTHERS_RUN).then_some((tid, ran_ns))
        });
        let (tid, ran_ns) = ran.next()?;
        let is_alone = ran.next().is_none() && ran_ns > sleep.slept_ns / 2;
        is_alone.then_some(Thread { tgid: sleep.tgid, tid })
    }

    /// Whether a sleep that has ended is a piece of a wait that goes on, as far as is known.
    pub(in super::super) fn goes_on(&self, sleep: &Sleep) -> bool {
        matches!(self.wait_of(sleep), Wait::GoesOn)
    }

    fn wait_of(&self, sleep: &Sleep) -> Wait<'_> {
        let known = self.threads.get(&sleep.tid).filter(|known| known.tgid == sleep.tgid);
        let Some(known) = known.filter(|_| is_piece(sleep)) else { return Wait::No };
        let first = known.sleeps.partition_point(|it| it.since_ns <= sleep.since_ns);
        let (mut before, mut looked_ns, mut looks) = (sleep, 0_u64, 0_u64);
        for next in known.sleeps.range(first..).take(PIECES) {
            let Some(ran_ns) = known.ran_ns(ended_ns(before), next.since_ns) else {
                return Wait::No;
            };
            if !is_same(before, next) || ran_ns > before.slept_ns / OF_PIECE {
                return Wait::No;
            }
            (looked_ns, looks) = (looked_ns + ran_ns, looks + 1);
            match next.waker.context {
                Context::NotYet => return Wait::GoesOn,
                _ if is_piece(next) => before = next,
                // Who looks whether to wait on has more to do if it is not to. Who sets timers for what is to be done then has
                // done that by the time that it sleeps again, and has less to do if another thread tells it of more.
                _ if is_handed_over(next)
                    && (lock_of(next).is_some() || known.runs_for(next, 2 * looked_ns / looks)) =>
                {
                    return Wait::Ended(next);
                }
                _ => return Wait::No,
            }
        }
        Wait::GoesOn
    }
}

impl Known {
    /// How long the thread ran between two times; `None` if that is not known.
    fn ran_ns(&self, from_ns: u64, to_ns: u64) -> Option<u64> {
        let first = self.runs.partition_point(|stay| stay.end_ns <= from_ns);
        let within = self.runs.range(first..).take_while(|stay| stay.start_ns < to_ns);
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
        let it = history(pieces, runs).within_wait(&pieces[0]);
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
            assert_eq!(history(&pieces, &runs).goes_on(&pieces[0]), goes_on, "{pieces:?}");
        }
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
