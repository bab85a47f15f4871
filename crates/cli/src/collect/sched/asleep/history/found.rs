// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which threads there are: what one did is no history of the next that has its number.

use super::{History, Known, Thread};

/// Ended threads of which something is kept: who waited for them may be told later.
const ENDED: usize = 4096;

/// A thread that a look at all threads has found.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Found {
    pub(in super::super) thread: Thread,
    /// Start times of the thread and of its process: they tell it from another one of the same number.
    pub(in super::super) start_boot_ns: u64,
    pub(in super::super) leader_boot_ns: u64,
    pub(in super::super) has_ended: bool,
}

/// What has the number of one that was known before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Successor {
    Thread,
    Process,
}

impl Known {
    /// The thread began then: what is kept from before is another one's. Returns how many runs and sleeps that were.
    fn begin(&mut self, began_ns: u64) -> [usize; 2] {
        let before = [self.runs.len(), self.sleeps.len()];
        self.began_ns = began_ns;
        self.from_ns = self.from_ns.max(began_ns);
        self.runs.retain(|stay| stay.start_ns >= began_ns);
        self.sleeps.retain(|sleep| sleep.since_ns >= began_ns);
        [before[0] - self.runs.len(), before[1] - self.sleeps.len()]
    }
}

impl History {
    /// A look has found a thread, which began at the time that `began` makes of its start. What another one did that had its
    /// number is forgotten. Returns what has another one's number, if it does.
    pub(in super::super) fn found(
        &mut self,
        it: Found,
        began: impl Fn(u64) -> u64,
    ) -> Option<Successor> {
        let Thread { tgid, tid } = it.thread;
        let process = self.followed.get_mut(&tgid)?;
        let before = process.leader_boot_ns;
        if before > it.leader_boot_ns {
            return None;
        }
        process.leader_boot_ns = it.leader_boot_ns;
        let mut successor = None;
        if before != 0 && before != it.leader_boot_ns {
            successor = Some(Successor::Process);
            let began_ns = began(it.leader_boot_ns);
            let of_before = |known: &&mut Known| known.tgid == tgid && known.began_ns < began_ns;
            for known in self.threads.values_mut().filter(of_before) {
                let [runs, sleeps] = known.begin(began_ns);
                self.runs -= runs;
                self.sleeps -= sleeps;
            }
        }
        let Some(known) = self.threads.get_mut(&tid).filter(|known| known.tgid == tgid) else {
            return successor;
        };
        if known.start_boot_ns < it.start_boot_ns {
            if known.start_boot_ns != 0 {
                successor = successor.or(Some(Successor::Thread));
            }
            known.start_boot_ns = it.start_boot_ns;
            known.has_ended = false;
            let [runs, sleeps] = known.begin(began(it.start_boot_ns));
            self.runs -= runs;
            self.sleeps -= sleeps;
        }
        if it.has_ended && !known.has_ended && known.start_boot_ns == it.start_boot_ns {
            known.has_ended = true;
            self.ended.push_back(tid);
            self.forget_ended();
        }
        successor
    }

    /// Of threads that ended long ago nothing is kept.
    fn forget_ended(&mut self) {
        if self.ended.len() > ENDED
            && let Some(oldest) = self.ended.pop_front()
            && self.threads.get(&oldest).is_some_and(|known| known.has_ended)
            && let Some(gone) = self.threads.remove(&oldest)
        {
            self.runs -= gone.runs.len();
            self.sleeps -= gone.sleeps.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{run, slept, told};
    use super::*;

    /// The same, with alike parts that follow each other as one.
    fn merged(parts: &[(u64, &'static str)]) -> Vec<(u64, &'static str)> {
        let mut all: Vec<(u64, &str)> = Vec::new();
        for &(ns, did) in parts {
            match all.last_mut().filter(|last| last.1 == did) {
                Some(last) => last.0 += ns,
                None => all.push((ns, did)),
            }
        }
        all
    }

    fn found(tid: u32, start_boot_ns: u64, leader_boot_ns: u64) -> Found {
        let thread = Thread { tgid: 7, tid };
        Found { thread, start_boot_ns, leader_boot_ns, has_ended: false }
    }

    /// Thread 8 of process 7 runs from 10 to 20 and sleeps until 30. Then something else has its number, from 50 on.
    fn followed_by_another(leader_boot_ns: u64) -> (History, Option<Successor>) {
        let mut history = History::default();
        history.follow(7, 0);
        history.ran(run(8, 10, 20, 0));
        history.slept(&slept(8, 20, 10, 7));
        let began = |boot_ns: u64| boot_ns - 1000;
        assert_eq!(history.found(found(8, 1005, 1000), began), None);
        assert_eq!(history.found(found(8, 1005, 1000), began), None);
        history.ran(run(8, 60, 70, 0));
        let successor = history.found(found(8, 1050, leader_boot_ns), began);
        // What is told late of the one before is not the other one's either.
        history.ran(run(8, 30, 40, 0));
        history.slept(&slept(8, 40, 5, 7));
        let runs: usize = history.threads.values().map(|it| it.runs.len()).sum();
        let sleeps: usize = history.threads.values().map(|it| it.sleeps.len()).sum();
        assert_eq!((history.runs, history.sleeps), (runs, sleeps));
        (history, successor)
    }

    #[test]
    fn who_has_the_number_of_another_thread_has_not_done_what_that_one_did() {
        let thread = Thread { tgid: 7, tid: 8 };
        let (history, successor) = followed_by_another(1000);
        assert_eq!(successor, Some(Successor::Thread));
        let expected = [(60, "not seen"), (10, "on CPU"), (10, "not seen")];
        assert_eq!(merged(&told(&history.parts(thread, 0, 80))), expected);
        assert_eq!(history.lately(thread, 9).count(), 0, "nobody gave it something to do");
    }

    #[test]
    fn who_has_the_number_of_another_process_has_not_done_what_that_one_did() {
        let (mut history, successor) = followed_by_another(1050);
        assert_eq!(successor, Some(Successor::Process));
        history.ran(run(9, 20, 30, 0));
        assert_eq!(history.found(found(9, 1060, 1050), |boot_ns| boot_ns - 1000), None);
        assert_eq!(
            merged(&told(&history.parts(Thread { tgid: 7, tid: 9 }, 0, 80))),
            [(80, "not seen")]
        );
        // An older reading that comes late changes nothing.
        assert_eq!(history.found(found(8, 1005, 1000), |boot_ns| boot_ns - 1000), None);
        assert_eq!(history.lately(Thread { tgid: 7, tid: 8 }, 9).count(), 0);
    }

    #[test]
    fn of_ended_threads_so_many_are_kept() {
        let mut history = History::default();
        history.follow(7, 0);
        for tid in 0..3 * ENDED as u32 {
            history.ran(run(tid, u64::from(tid), u64::from(tid) + 1, 0));
            let it = Found { has_ended: true, ..found(tid, 1000 + u64::from(tid), 1000) };
            history.found(it, |boot_ns| boot_ns - 1000);
        }
        assert_eq!((history.threads.len(), history.runs), (ENDED, ENDED));
        let last = 3 * ENDED as u32 - 1;
        let parts = history.parts(Thread { tgid: 7, tid: last }, last.into(), u64::from(last) + 1);
        assert_eq!(told(&parts), [(1, "on CPU")]);
    }
}
