// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a sleep waited for: the thread that ended it, or that held its lock, what that one did meanwhile, and for its
//! sleeps the same again. In each nanosecond it is one of them that does not sleep, or sleeps for a reason of its own.

use super::history::{Did, History, Part, Thread};
use super::kind::lock_of;
use deburr_bpf::sched::Sleep;
use deburr_core::recording::CHAIN;
use std::collections::BTreeMap;

/// A thread of a chain, and what it did; `S` = how sleeps are told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Link<S> {
    pub(super) thread: Thread,
    pub(super) did: Did<S>,
}

/// How sleeps are told, and whether it is worth to know what ended them.
pub(super) trait Tell {
    /// A sleep as it is told; `None` if it is none.
    type Told: Clone + Ord;
    fn told(&self, sleep: &Sleep) -> Option<Self::Told>;
    fn goes_on(&self, told: &Self::Told) -> bool;
    /// Whether it waits for whatever comes next, and not for what its thread has asked for or begun.
    fn is_for_whatever_comes(&self, sleep: &Sleep) -> bool;
}

/// The chains behind sleeps.
pub(super) struct Chains<'a, T: Tell> {
    pub(super) history: &'a History,
    pub(super) tell: &'a T,
    /// Parts that may still be looked at; of further ones nothing is told.
    pub(super) budget: usize,
}

/// Chains, and how long it was each of them.
type Sums<S> = BTreeMap<Vec<Link<S>>, u64>;

impl<T: Tell> Chains<'_, T> {
    /// What that sleep waited for in the last `of_ns` of it: chains, and how long it was each of them, `of_ns` in all. An
    /// empty chain = not known.
    pub(super) fn behind(&mut self, sleep: &Sleep, of_ns: u64) -> Sums<T::Told> {
        let to_ns = sleep.since_ns.saturating_add(sleep.slept_ns);
        let from_ns = to_ns.saturating_sub(of_ns.min(sleep.slept_ns));
        let mut sums = Sums::new();
        let root = Thread { tgid: sleep.tgid, tid: sleep.tid };
        self.walk(sleep, (root, from_ns, to_ns), &mut Vec::new(), &mut sums);
        let found_ns = to_ns - from_ns;
        if found_ns == 0 {
            sums.insert(Vec::new(), of_ns);
        } else if of_ns != found_ns {
            scale(&mut sums, found_ns, of_ns);
        }
        sums
    }

    fn walk(
        &mut self,
        sleep: &Sleep,
        (root, from_ns, to_ns): (Thread, u64, u64),
        path: &mut Vec<Link<T::Told>>,
        sums: &mut Sums<T::Told>,
    ) {
        for (from_ns, to_ns, thread) in self.history.holders(sleep, from_ns, to_ns) {
            // A thread that has been woken is told as asleep until it is in a run queue: who woke it may sleep by then.
            let is_circle = thread == root || path.iter().any(|link| link.thread == thread);
            if self.budget == 0 || is_circle {
                *sums.entry(path.clone()).or_default() += to_ns - from_ns;
                continue;
            }
            let mut parts = self.history.parts(thread, from_ns, to_ns);
            self.budget = self.budget.saturating_sub(parts.len());
            if lock_of(sleep).is_none() {
                self.skip_what_came_before(&mut parts);
            }
            for Part { from_ns, to_ns, did } in parts {
                let (did, ended) = match did {
                    Did::NotSeen => (Did::NotSeen, None),
                    Did::OnCpu => (Did::OnCpu, None),
                    Did::Queued => (Did::Queued, None),
                    Did::Throttled => (Did::Throttled, None),
                    Did::Slept(sleep) => match self.tell.told(&sleep) {
                        Some(told) => {
                            let on = self.tell.goes_on(&told).then_some(sleep);
                            (Did::Slept(told), on)
                        }
                        None => (Did::NotSeen, None),
                    },
                };
                path.push(Link { thread, did });
                match ended.filter(|_| path.len() < CHAIN) {
                    Some(sleep) => self.walk(&sleep, (root, from_ns, to_ns), path, sums),
                    None => *sums.entry(path.clone()).or_default() += to_ns - from_ns,
                }
                path.pop();
            }
        }
    }

    /// What an event loop did before its last sleep did not lead to what it did afterwards: that waited for what came then.
    /// With a lock in hand, it matters all the same.
    fn skip_what_came_before(&self, parts: &mut Vec<Part>) {
        let ends_it = |part: &Part| match &part.did {
            Did::Slept(sleep) => self.tell.is_for_whatever_comes(sleep),
            _ => false,
        };
        if let Some(last) = parts.iter().rposition(ends_it) {
            let from_ns = parts[0].from_ns;
            parts.drain(..last);
            parts[0].from_ns = from_ns;
        }
    }
}

/// Makes amounts that sum to `from` sum to `to`, in proportion.
fn scale<K: Ord>(sums: &mut BTreeMap<K, u64>, from: u64, to: u64) {
    let mut left = to;
    for ns in sums.values_mut() {
        let scaled = u128::from(*ns) * u128::from(to) / u128::from(from.max(1));
        *ns = u64::try_from(scaled).unwrap_or(u64::MAX).min(left);
        left -= *ns;
    }
    if let Some(most) = sums.values_mut().max() {
        *most += left;
    }
}

#[cfg(test)]
mod tests {
    use super::super::kind::tests::sleep;
    use super::*;
    use deburr_bpf::sched::{Context, Object, Run, Waker};
    use proptest::prelude::*;

    /// The thread that is an event loop.
    const LOOP: u32 = 5;

    /// Sleeps are told by the thread that slept, and all that a thread ended are followed.
    struct ByThread;

    impl Tell for ByThread {
        type Told = (u32, bool);

        fn told(&self, sleep: &Sleep) -> Option<Self::Told> {
            Some((sleep.tid, sleep.waker.context == Context::Thread))
        }

        fn goes_on(&self, told: &Self::Told) -> bool {
            told.1
        }

        fn is_for_whatever_comes(&self, sleep: &Sleep) -> bool {
            sleep.tid == LOOP
        }
    }

    fn slept(tid: u32, since_ns: u64, until_ns: u64, waker: Option<u32>) -> Sleep {
        let context = waker.map_or(Context::HardIrq, |_| Context::Thread);
        let it = sleep(Object::Anonymous(*b"[eventfd"), context);
        let waker = Waker { tid: waker.unwrap_or(99), tgid: 7, ..it.waker };
        let slept_ns = until_ns - since_ns;
        Sleep { tid, tgid: 7, since_ns, slept_ns, stands_for_ns: slept_ns, waker, ..it }
    }

    fn run(tid: u32, start_ns: u64, end_ns: u64, queued_ns: u64) -> Run {
        Run { tid, tgid: 7, start_ns, end_ns, queued_ns, throttled_ns: 0 }
    }

    fn told(sums: &Sums<(u32, bool)>) -> Vec<(String, u64)> {
        let link = |it: &Link<(u32, bool)>| match it.did {
            Did::NotSeen => format!("{}?", it.thread.tid),
            Did::OnCpu => format!("{} runs", it.thread.tid),
            Did::Queued => format!("{} queued", it.thread.tid),
            Did::Throttled => format!("{} throttled", it.thread.tid),
            Did::Slept(_) => format!("{} sleeps", it.thread.tid),
        };
        let words = |path: &[Link<_>]| path.iter().map(link).collect::<Vec<_>>().join(" < ");
        let mut all: Vec<(String, u64)> =
            sums.iter().map(|(path, ns)| (words(path), *ns)).collect();
        all.sort();
        all
    }

    fn behind(history: &History, sleep: &Sleep, of_ns: u64) -> Vec<(String, u64)> {
        told(&Chains { history, tell: &ByThread, budget: 1000 }.behind(sleep, of_ns))
    }

    /// 1 waits for 2 from 0 to 1000. 2 runs for 100, waits for 3 until 700, is queued for 50, and runs. 3 naps until 400,
    /// then it runs.
    fn three() -> (History, Sleep) {
        let mut history = History::default();
        history.follow(7, 0);
        history.ran(run(2, 0, 100, 0));
        history.slept(&slept(2, 100, 700, Some(3)));
        history.runs_now(run(2, 750, 2000, 50));
        history.slept(&slept(3, 50, 400, None));
        history.ran(run(3, 0, 50, 0));
        history.ran(run(3, 400, 900, 0));
        (history, slept(1, 0, 1000, Some(2)))
    }

    #[test]
    fn each_nanosecond_has_the_last_that_did_not_sleep() {
        let (history, sleep) = three();
        let expected = [
            ("2 queued", 50),
            ("2 runs", 100 + 250),
            ("2 sleeps < 3 runs", 300),
            ("2 sleeps < 3 sleeps", 300),
        ];
        let expected = expected.map(|(path, ns)| (path.to_owned(), ns));
        assert_eq!(behind(&history, &sleep, 1000), expected);
        // Its beginning was told before; and it stands for others that were not looked at.
        assert_eq!(behind(&history, &sleep, 200), [("2 runs".to_owned(), 200)]);
        let more = behind(&history, &sleep, 4000);
        assert_eq!(more.iter().map(|(_, ns)| ns).sum::<u64>(), 4000);
        assert_eq!(more[0], ("2 queued".to_owned(), 200));
    }

    /// 1 waits for an event loop, which first has an answer from 3, and then something that makes it wake 1.
    #[test]
    fn an_event_loop_waits_for_what_came_last() {
        let mut history = History::default();
        history.follow(7, 0);
        history.ran(run(3, 100, 300, 0));
        history.slept(&slept(LOOP, 0, 300, Some(3)));
        history.ran(run(LOOP, 300, 310, 0));
        history.slept(&slept(LOOP, 310, 900, None));
        history.ran(run(LOOP, 900, 1000, 0));
        let sleep = slept(1, 0, 1000, Some(LOOP));
        let told = |sleep| behind(&history, &sleep, 1000);
        let expected = [("5 runs", 100), ("5 sleeps", 900)];
        assert_eq!(told(sleep), expected.map(|(path, ns)| (path.to_owned(), ns)));
        // All of it, if that has a lock which 1 waits for.
        let (object, call) = (Object::None, deburr_bpf::sched::Call::System(202));
        let lock = Sleep { object, call, arguments: [0x1000, 128, 2], ..sleep };
        let expected = [
            ("5 runs", 110),
            ("5 sleeps", 590),
            ("5 sleeps < 3 runs", 200),
            ("5 sleeps < 3?", 100),
        ];
        assert_eq!(told(lock), expected.map(|(path, ns)| (path.to_owned(), ns)));
    }

    #[test]
    fn two_that_wait_for_each_other_end_somewhere() {
        let mut history = History::default();
        history.follow(7, 0);
        for (tid, other) in [(2, 3), (3, 2)] {
            history.slept(&slept(tid, 0, 1000, Some(other)));
        }
        let sums = Chains { history: &history, tell: &ByThread, budget: 1000 }
            .behind(&slept(1, 0, 1000, Some(2)), 1000);
        assert_eq!(sums.values().sum::<u64>(), 1000);
        assert_eq!(told(&sums), [("2 sleeps < 3 sleeps".to_owned(), 1000)]);
    }

    proptest! {
        #[test]
        fn chains_sum_to_the_sleep(
            runs in prop::collection::vec((2..6u32, 0..900u64, 0..50u64, 0..50u64), 0..60),
            sleeps in prop::collection::vec((2..6u32, 0..900u64, 0..300u64, 2..9u32), 0..60),
            of_ns in 0..5000u64, budget in 0..200usize,
        ) {
            let mut history = History::default();
            history.follow(7, 0);
            let mut runs = runs;
            runs.sort_unstable_by_key(|&(_, start, ..)| start);
            for (tid, start, length, queued) in runs {
                history.ran(run(tid, start, start + length, queued));
            }
            for (tid, since, length, waker) in sleeps {
                history.slept(&slept(tid, since, since + length, (waker < 7).then_some(waker)));
            }
            let sums = Chains { history: &history, tell: &ByThread, budget }
                .behind(&slept(1, 0, 1000, Some(2)), of_ns);
            prop_assert_eq!(sums.values().sum::<u64>(), of_ns);
            prop_assert!(sums.keys().all(|path| path.len() <= CHAIN));
        }
    }
}
