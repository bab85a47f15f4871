// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether threads take turns at something that is not seen: a connection of a pool, a row of a database.

use super::super::super::listening::Listening;
use super::history::{self, History, Thread};
use super::kind::{OtherEnd, is_condition, is_in_request};
use super::sums::NamedLink;
use deburr_bpf::sched::{Context, Sleep};

/// Sleeps of a thread that are looked at.
const LATELY: usize = 64;
/// Sleeps of one wait before the last, and the time between two, at most.
const PARTS: usize = 2;
const BETWEEN_NS: u64 = 2_000_000;
/// Who has its turn keeps it for so long, and for such a part of the wait of who is next: who only passes on what it was told
/// itself does so at once.
const HELD_NS: u64 = 100_000;
const OF_WAIT: u64 = 512;
/// How long ago a thread that takes turns has last ended another one's, at most.
const ROUND_NS: u64 = 10_000_000_000;

/// Which thread of its process used what a thread waits for its turn on: a connection to another end, which the waiting
/// one has lately waited for itself.
pub(super) fn user(sleep: &Sleep, behind: &[NamedLink], history: &History) -> Option<usize> {
    if !is_condition(sleep) {
        return None;
    }
    let thread = Thread { tgid: sleep.tgid, tid: sleep.tid };
    let own = behind.iter().take_while(|link| link.tgid == sleep.tgid);
    let mut ends = own.enumerate().filter_map(|(at, link)| match &link.did {
        history::Did::Slept(slept) => Some((at, OtherEnd::of(slept)?)),
        _ => None,
    });
    let (user, end) = ends.next()?;
    let slept_on = |it: &Sleep| end.is_of(&it.object);
    history.lately(thread, LATELY).any(slept_on).then_some(user)
}

/// Whether a thread waited for an answer of another end, at which threads may take turns, too ([`user`]).
pub(super) fn asks(link: &NamedLink) -> bool {
    matches!(&link.did, history::Did::Slept(slept) if OtherEnd::of(slept).is_some())
}

/// Whether the thread that ended a sleep in which a client waited had its turn before: it was waiting in the same way, for another
/// thread while a client of its own waited, was served first, and kept others waiting for a while. It came before; or it came
/// later, as where locks are not fair, and the one that slept has lately ended a wait of the same kind itself. Who brings news to those that
/// wait for any does not wait among them.
pub(super) fn before(sleep: &Sleep, history: &History, listening: &Listening) -> bool {
    let by = Thread { tgid: sleep.waker.tgid, tid: sleep.waker.tid };
    let own = Thread { tgid: sleep.tgid, tid: sleep.tid };
    let since_ns = began_ns(sleep, history, listening);
    let gives_turns = history
        .ended_ns(own, sleep)
        .is_some_and(|at_ns| at_ns.saturating_add(ROUND_NS) > ended_ns(sleep));
    let same_way = |it: &Sleep| {
        it.call == sleep.call
            && is_condition(it) == is_condition(sleep)
            && waits_in_request(it, listening)
    };
    let kept_it = |it: &Sleep| {
        let held_ns = ended_ns(sleep).saturating_sub(ended_ns(it));
        held_ns >= HELD_NS
            && held_ns.saturating_mul(OF_WAIT) >= ended_ns(sleep).saturating_sub(since_ns)
    };
    let served_first = |it: &Sleep| {
        same_way(it) && kept_it(it) && (gives_turns || began_ns(it, history, listening) < since_ns)
    };
    waits_in_request(sleep, listening)
        && history
            .before(by, ended_ns(sleep), LATELY)
            .take_while(|it| ended_ns(it) > since_ns)
            .any(served_first)
}

fn ended_ns(it: &Sleep) -> u64 {
    it.since_ns.saturating_add(it.slept_ns)
}

fn waits_in_request(it: &Sleep, listening: &Listening) -> bool {
    it.waker.context == Context::Thread && is_in_request(it, listening)
}

/// When the wait began that ends with a sleep: who is first in a queue may sleep anew there.
fn began_ns(sleep: &Sleep, history: &History, listening: &Listening) -> u64 {
    let own = Thread { tgid: sleep.tgid, tid: sleep.tid };
    let mut began_ns = sleep.since_ns;
    for it in history.before(own, sleep.since_ns, PARTS) {
        let goes_on = began_ns.saturating_sub(ended_ns(it)) <= BETWEEN_NS;
        if !goes_on || it.call != sleep.call || !waits_in_request(it, listening) {
            break;
        }
        began_ns = it.since_ns;
    }
    began_ns
}

#[cfg(test)]
mod tests {
    use super::super::kind::tests::sleep;
    use super::*;
    use deburr_bpf::sched::{Client, Object, Waker};

    const ONE: u32 = 1;
    const OTHER: u32 = 2;
    const THIRD: u32 = 3;

    /// A sleep on a condition while a client waits, which a thread ended. Times in ms.
    fn waits(tid: u32, since: u64, until: u64, by: u32) -> Sleep {
        let it = sleep(Object::None, Context::Thread);
        let waker = Waker { tid: by, tgid: 7, ..it.waker };
        let client = Some(Client::Process(99));
        let (since_ns, slept_ns) = (since * 1_000_000, (until - since) * 1_000_000);
        Sleep { tid, tgid: 7, since_ns, slept_ns, waker, client, arguments: [0x1000, 137, 0], ..it }
    }

    fn has_turn_before(earlier: &[Sleep], it: Sleep) -> bool {
        let mut history = History::default();
        history.follow(7, 0);
        earlier.iter().for_each(|it| history.slept(it));
        history.slept(&it);
        before(&it, &history, &Listening::default())
    }

    #[test]
    fn who_waited_before_and_was_served_first_takes_turns() {
        let first = waits(OTHER, 10, 50, THIRD);
        assert!(has_turn_before(&[first], waits(ONE, 20, 90, OTHER)));
        // Who is first in the queue waits for another thing than the others, right after.
        let first = waits(OTHER, 30, 50, THIRD);
        let queued = waits(OTHER, 10, 29, THIRD);
        let own = waits(ONE, 20, 51, OTHER);
        let goes_on = waits(ONE, 52, 90, OTHER);
        assert!(has_turn_before(&[queued, first, own], goes_on));
        assert!(!has_turn_before(&[queued, first], goes_on), "it came when the other had it");
        assert!(!has_turn_before(&[first, own], goes_on), "the other came later");
    }

    /// Locks need not be fair: who came last may be served first. They all pass it on.
    #[test]
    fn who_came_later_and_was_served_first_takes_turns_with_one_that_passes_it_on() {
        let own = waits(ONE, 20, 90, OTHER);
        let later = waits(OTHER, 30, 50, THIRD);
        let passed_on = waits(THIRD, 5, 19, ONE);
        assert!(!has_turn_before(&[later], own), "it waits for what the other one brings");
        assert!(has_turn_before(&[passed_on, later], own));
        let long_ago = Sleep { since_ns: 0, slept_ns: 1_000_000, ..passed_on };
        let much_later = |it: Sleep| Sleep { since_ns: it.since_ns + ROUND_NS, ..it };
        assert!(!has_turn_before(&[long_ago, much_later(later)], much_later(own)));
        // Nobody waited for an answer when it ended another one's sleep.
        let idle = Sleep { client: None, ..passed_on };
        assert!(!has_turn_before(&[idle, later], own));
    }

    /// Who was told of something tells the next: nobody keeps it for a while.
    #[test]
    fn who_passes_on_news_takes_no_turns() {
        let after = |until, held_ns| {
            let own = waits(ONE, 20, until, OTHER);
            let own = Sleep { slept_ns: own.slept_ns + held_ns, ..own };
            has_turn_before(&[waits(OTHER, 10, until, THIRD)], own)
        };
        assert!(!after(40, HELD_NS / 2) && after(40, HELD_NS));
        // Of a second that is next to nothing.
        assert!(!after(1_020, 5 * HELD_NS) && after(1_020, 50 * HELD_NS));
    }

    /// Sleeps are told a second later: the thread has slept many times since.
    #[test]
    fn what_came_later_hides_no_turn() {
        let first = waits(OTHER, 10, 50, THIRD);
        let later = |at| Sleep { client: None, ..waits(OTHER, at, at + 1, THIRD) };
        let mut all = vec![first];
        all.extend((100..).step_by(2).map(later).take(2 * LATELY));
        assert!(has_turn_before(&all, waits(ONE, 20, 90, OTHER)));
    }

    /// An answer may be what threads take turns at themselves, which is told of it.
    #[test]
    fn who_waits_for_an_answer_is_told_apart() {
        use super::super::kind::Slept;
        use super::super::kind::tests::inet;
        let listening = Listening::of(7, 80, 40_000);
        let did = |object| {
            let slept = Slept::of(&sleep(object, Context::SoftIrq), &listening).unwrap();
            let did = history::Did::Slept(slept);
            NamedLink { tgid: 7, name: String::new(), too: false, did }
        };
        assert!(asks(&did(inet(40_000))));
        assert!(!asks(&did(inet(80))) && !asks(&did(Object::None)));
    }

    /// Threads that wait for news have them from one that did not wait, or waited for something else.
    #[test]
    fn who_brings_news_takes_no_turns() {
        let news = waits(ONE, 20, 90, OTHER);
        assert!(!has_turn_before(&[], news));
        for own in [
            Sleep { client: None, ..waits(OTHER, 10, 50, THIRD) },
            Sleep { call: deburr_bpf::sched::Call::System(0), ..waits(OTHER, 10, 50, THIRD) },
            waits(OTHER, 0, 15, THIRD),
            waits(OTHER, 100, 110, THIRD),
        ] {
            assert!(!has_turn_before(&[own], news), "{own:?}");
        }
        let timed = sleep(Object::None, Context::HardIrq).waker;
        let naps = Sleep { waker: timed, ..waits(OTHER, 10, 50, THIRD) };
        assert!(!has_turn_before(&[naps], news));
        let first = waits(OTHER, 10, 50, THIRD);
        assert!(!has_turn_before(&[first], Sleep { waker: timed, ..news }));
        assert!(!has_turn_before(&[first], Sleep { client: None, ..news }));
    }
}
