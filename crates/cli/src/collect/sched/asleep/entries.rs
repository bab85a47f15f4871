// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which threads serve requests, as the user said, and whether they had asked for what they waited for.

use super::super::super::listening::Listening;
use super::history::{History, Thread};
use super::kind::{gives_something_to_do, is_condition, port_of};
use deburr_bpf::sched::{Context, Sleep};
use deburr_core::recording::Entry;
use std::collections::BTreeMap;

/// Threads of entries that are known.
const THREADS: usize = 16_384;
/// Sleeps of a thread that are looked at, of those in which it may have been given something to do.
const LOOKED_AT: usize = 8;
/// Sleeps of who gave it that are looked at.
const OWN_SLEEPS: usize = 128;

/// The entries of the session.
#[derive(Debug, Default)]
pub(super) struct Entries {
    all: Vec<Entry>,
    /// The threads that were seen to belong to them, and to which.
    threads: BTreeMap<Thread, u32>,
}

impl Entries {
    pub(super) fn new(all: Vec<Entry>) -> Self {
        Self { all, threads: BTreeMap::new() }
    }

    /// The entry that a thread of that name belongs to, by what it sleeps on, too.
    pub(super) fn of(&mut self, sleep: &Sleep, name: &str, listening: &Listening) -> Option<u32> {
        let thread = Thread { tgid: sleep.tgid, tid: sleep.tid };
        let own_port = port_of(sleep).map(|(_, port)| port);
        let is_it = |it: &Entry| match it {
            Entry::Thread { tid } => *tid == sleep.tid,
            Entry::Name { .. } => it.names(name),
            Entry::Port { port } => {
                own_port == Some(*port) && listening.has(sleep.tgid, *port) == Some(true)
            }
        };
        // Who has served a port still does while it sleeps on something else; a name is what it is now.
        let had = self.threads.get(&thread).copied();
        let stays = |at: &u32| matches!(self.all.get(*at as usize), Some(Entry::Port { .. }));
        let found = self.all.iter().position(is_it).and_then(|at| u32::try_from(at).ok());
        let at = found.or(had.filter(stays));
        match at {
            Some(at) if had.is_some() || self.threads.len() < THREADS => {
                self.threads.insert(thread, at);
            }
            Some(_) => {}
            None => {
                self.threads.remove(&thread);
            }
        }
        at
    }

    /// Whether the thread that ended the sleep of an entry's thread did so because it was asked: it was last given something
    /// to do by a thread of an entry; if it is one itself, by the one that slept. `None` = no thread ended it, or what that
    /// one did before is not known.
    pub(super) fn asked(
        &self,
        sleep: &Sleep,
        history: &History,
        listening: &Listening,
    ) -> Option<bool> {
        let waker = Thread { tgid: sleep.waker.tgid, tid: sleep.waker.tid };
        if sleep.waker.context != Context::Thread || waker.tid == 0 || waker.tid == sleep.tid {
            return None;
        }
        let ended_ns = |it: &Sleep| it.since_ns.saturating_add(it.slept_ns);
        let until_ns = ended_ns(sleep);
        let before = || history.lately(waker, usize::MAX).filter(|it| ended_ns(it) <= until_ns);
        // One that only ever had answers, or slept by a timer, was given nothing.
        before().next()?;
        let gives = |it: &&Sleep| gives_something_to_do(it, listening);
        let mut may_be = before().filter(gives).take(LOOKED_AT);
        let given = may_be.find(|it| !is_handed_round(it, history));
        Some(given.is_some_and(|it| {
            let by = Thread { tgid: it.waker.tgid, tid: it.waker.tid };
            let is_helper = !self.threads.contains_key(&waker);
            let counts = by.tid == sleep.tid || (is_helper && self.threads.contains_key(&by));
            it.waker.context == Context::Thread && counts
        }))
    }

    /// The numbers of these are other threads' now.
    pub(super) fn forget(&mut self, is_gone: impl Fn(Thread) -> bool) {
        self.threads.retain(|thread, _| !is_gone(*thread));
    }

    /// Drops the threads of processes that are not watched any more.
    pub(super) fn retain(&mut self, is_watched: impl Fn(u32) -> bool) {
        self.threads.retain(|thread, _| is_watched(thread.tgid));
    }
}

/// Whether who ended the sleep waits for the same itself, at times: a word that all have in turn, as an interpreter's lock, which looks
/// like a condition. Who gives something to do waits elsewhere.
fn is_handed_round(it: &Sleep, history: &History) -> bool {
    // The two groups of waiters of a condition (glibc) have words beside each other.
    let word = |it: &Sleep| (it.tgid, it.arguments[0] & !7);
    let by = Thread { tgid: it.waker.tgid, tid: it.waker.tid };
    let waits = |other: &Sleep| is_condition(other) && word(other) == word(it);
    is_condition(it) && by.tid != it.tid && history.lately(by, OWN_SLEEPS).any(waits)
}

#[cfg(test)]
mod tests {
    use super::super::kind::tests::{inet, sleep};
    use super::*;
    use deburr_bpf::sched::{Call, Object, Waker};

    const WORKER: u32 = 1;
    const HELPER: u32 = 2;
    const PRODUCER: u32 = 3;
    const OTHER_WORKER: u32 = 4;

    /// A sleep on a condition that a thread ended. Times in 100 us.
    fn condition(tid: u32, since: u64, until: u64, by: u32) -> Sleep {
        let (since_ns, until_ns) = (since * 100_000, until * 100_000);
        let it = sleep(Object::None, Context::Thread);
        let waker = Waker { tid: by, tgid: 7, ..it.waker };
        let (arguments, slept_ns) = ([0x1000, 137, 0], until_ns - since_ns);
        Sleep { tid, tgid: 7, since_ns, slept_ns, arguments, waker, ..it }
    }

    fn asked(before: &[Sleep], it: Sleep) -> Option<bool> {
        let mut history = History::default();
        history.follow(7, 0);
        before.iter().for_each(|it| history.slept(it));
        let mut entries = Entries::new(vec![Entry::Name { name: "worker".into() }]);
        let listening = Listening::of(7, 80, 40_000);
        for tid in [WORKER, OTHER_WORKER] {
            entries.of(&condition(tid, 0, 1, 0), "worker", &listening);
        }
        entries.asked(&it, &history, &listening)
    }

    #[test]
    fn who_gave_something_to_do_to_the_one_that_it_waits_for_has_asked() {
        let given = condition(HELPER, 0, 100, WORKER);
        let waits = condition(WORKER, 110, 500, HELPER);
        assert_eq!(asked(&[given], waits), Some(true));
        // What it does for it matters not: it asks others, naps, and waits for a lock that somebody hands over.
        let asks = Sleep { object: inet(40_000), ..condition(HELPER, 150, 200, 9) };
        let by = Waker { context: Context::HardIrq, ..given.waker };
        let naps = Sleep { call: Call::System(230), waker: by, ..condition(HELPER, 250, 300, 9) };
        let timed = Sleep { waker: by, ..condition(HELPER, 310, 320, 9) };
        let lock = Sleep { arguments: [0x2000, 128, 2], ..condition(HELPER, 350, 400, 9) };
        assert_eq!(asked(&[given, asks, naps, timed, lock], waits), Some(true));
        // A busy helper takes the next from a queue: it may have been woken for another one.
        assert_eq!(asked(&[condition(HELPER, 0, 100, OTHER_WORKER)], waits), Some(true));
        // A producer got it elsewhere: from another thread, from a client, though the worker woke it before; or it was given
        // nothing by anybody.
        let waits = condition(WORKER, 110, 500, PRODUCER);
        let before = condition(PRODUCER, 0, 100, WORKER);
        let elsewhere = condition(PRODUCER, 150, 200, HELPER);
        assert_eq!(asked(&[before, elsewhere], waits), Some(false));
        let client = Sleep { object: inet(80), ..condition(PRODUCER, 150, 200, WORKER) };
        let client = Sleep { waker: Waker { context: Context::SoftIrq, ..by }, ..client };
        assert_eq!(asked(&[before, client], waits), Some(false));
        let broker = Sleep { object: inet(40_000), ..condition(PRODUCER, 150, 200, 9) };
        assert_eq!(asked(&[broker], waits), Some(false));
        // Workers that hand the next turn to each other.
        let turn = condition(OTHER_WORKER, 0, 100, 9);
        let next = condition(WORKER, 110, 500, OTHER_WORKER);
        assert_eq!(asked(&[turn], next), Some(false));
        let own = condition(OTHER_WORKER, 0, 100, WORKER);
        assert_eq!(asked(&[own], next), Some(true));
        // An interpreter's lock, which the worker gave up.
        let moment = condition(PRODUCER, 250, 255, WORKER);
        assert_eq!(asked(&[before, elsewhere, moment], waits), Some(false));
        // The same for longer than a moment, as the worker was preempted; the worker waits for it at times, too.
        let word = |it: Sleep, at: u64| Sleep { arguments: [at, 137, 0], ..it };
        let turn = word(condition(PRODUCER, 250, 300, WORKER), 0x9000);
        assert_eq!(
            asked(&[before, elsewhere, turn], waits),
            Some(true),
            "it looks like a condition"
        );
        let other_turn = word(condition(WORKER, 90, 95, PRODUCER), 0x9004);
        assert_eq!(asked(&[before, other_turn, elsewhere, turn], waits), Some(false));
        // What it did afterwards does not count, and what is not known is not.
        let later = condition(PRODUCER, 600, 700, WORKER);
        assert_eq!(asked(&[later], waits), None);
        assert_eq!(asked(&[given], Sleep { waker: by, ..waits }), None);
    }

    #[test]
    fn threads_are_told_by_id_by_name_and_by_the_port_that_they_serve() {
        let named = Entry::Name { name: "worker*".into() };
        let all = vec![Entry::Thread { tid: 5 }, named, Entry::Port { port: 80 }];
        let mut entries = Entries::new(all);
        let listening = Listening::of(7, 80, 40_000);
        let on = |tid, object| Sleep { tid, object, ..sleep(object, Context::SoftIrq) };
        let mut of = |sleep, name| entries.of(&sleep, name, &listening);
        assert_eq!(of(on(5, Object::None), "x"), Some(0));
        assert_eq!(of(on(6, Object::None), "worker-1"), Some(1));
        assert_eq!(of(on(8, Object::None), "x"), None);
        assert_eq!(of(on(8, inet(40_000)), "x"), None);
        assert_eq!(of(on(8, inet(80)), "x"), Some(2));
        assert_eq!(of(on(8, Object::None), "x"), Some(2), "it stays one");
        assert_eq!(of(on(6, Object::None), "x"), None, "it has another name now");
        entries.retain(|_| false);
        assert_eq!(entries.of(&on(8, Object::None), "x", &listening), None);
    }
}
