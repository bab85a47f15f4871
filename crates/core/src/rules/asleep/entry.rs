// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a thread that serves requests, as the user said, slept at its entry, where it waits for the next request, or
//! inside of one.

use super::kind;
use crate::finding::SleepKind;
use crate::recording::{ProcId, SleepState, Slept, SleptOn};
use crate::view::SleepKey;

/// Outside of a request it waits for something that it has not asked for. `asked` = it had asked the thread that ended the
/// sleep; `None` = that is not known.
pub(super) fn of(own: ProcId, key: &SleepKey, asked: Option<bool>) -> SleepKind {
    if !kind::is_for_child(own, &key.slept) && is_at_entry(&key.slept, asked) {
        return SleepKind::WaitsForWork;
    }
    match kind::of_chain(own, key) {
        // Whatever the one does that it asked.
        SleepKind::NotKnown | SleepKind::WaitsForWork if asked == Some(true) => {
            SleepKind::WaitsForOthers
        }
        kind => kind,
    }
}

fn is_at_entry(slept: &Slept, asked: Option<bool>) -> bool {
    let has_sent = match slept.on {
        SleptOn::Inet { listens: Some(false), asked, .. } => asked,
        _ => None,
    };
    if slept.state == SleepState::Asleep && kind::is_event_loop(slept) {
        // It takes whatever comes, and its timeouts end nothing else.
        return asked != Some(true) && has_sent != Some(true);
    }
    match kind::of_sleep(slept) {
        SleepKind::WaitsForWork => true,
        SleepKind::NotKnown => asked.or(has_sent) == Some(false),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Awaited, Did, WokenBy};
    use crate::view::Role;

    fn slept(call: &str, on: SleptOn, woken: WokenBy) -> Slept {
        Slept { state: SleepState::Asleep, call: call.into(), on, woken }
    }

    fn connection(listens: bool, has_sent: Option<bool>) -> SleptOn {
        let (protocol, port) = ("tcp".into(), listens.then_some(80));
        let remote = (!listens).then(|| "10.0.0.7:5432".into());
        SleptOn::Inet {
            protocol,
            listens: Some(listens),
            port,
            remote,
            asked: has_sent,
            ready: false,
        }
    }

    #[test]
    fn outside_of_a_request_it_waits_for_what_it_has_not_asked_for() {
        use SleepKind::{NotKnown, OwnTimer, WaitsForOthers, WaitsForWork};
        let condition = || SleptOn::Futex { address: 64, value: 0, op: 9, user: None };
        let lock = || SleptOn::Futex { address: 64, value: 2, op: 0, user: None };
        let pair = || SleptOn::Unix { peer: None, accepted: false, ready: true };
        let poll = || SleptOn::Anonymous { name: "eventpo".into() };
        let thread = || WokenBy::Thread { proc: ProcId(1), call: "futex".into() };
        let (network, timer) = (|| WokenBy::SoftInterrupt, || WokenBy::HardInterrupt);
        let asks = Did::Slept(slept("recvfrom", connection(false, Some(true)), network()));
        let naps = Did::Slept(slept("clock_nanosleep", SleptOn::NotKnown, timer()));
        for (call, on, woken, asked, did, kind) in [
            // A queue, whose producer asks somebody, naps, or computes.
            ("futex", condition(), thread(), Some(false), Some(&asks), WaitsForWork),
            ("futex", condition(), thread(), Some(false), Some(&naps), WaitsForWork),
            ("futex", condition(), thread(), Some(false), Some(&Did::OnCpu), WaitsForWork),
            ("read", SleptOn::Pipe, thread(), Some(false), Some(&asks), WaitsForWork),
            // The same, of a thread that it gave something to do.
            ("futex", condition(), thread(), Some(true), Some(&asks), WaitsForOthers),
            ("futex", condition(), thread(), Some(true), Some(&naps), OwnTimer),
            ("futex", condition(), thread(), Some(true), Some(&Did::NotSeen), WaitsForOthers),
            // It is not known whether it did.
            ("futex", condition(), thread(), None, Some(&asks), WaitsForOthers),
            ("futex", condition(), thread(), None, None, NotKnown),
            // An event loop is at its entry, but for answers.
            ("epoll_wait", poll(), timer(), None, None, WaitsForWork),
            ("epoll_wait", poll(), WokenBy::NotYet, None, None, WaitsForWork),
            ("epoll_wait", connection(true, None), network(), None, None, WaitsForWork),
            ("epoll_wait", connection(false, Some(true)), network(), None, None, WaitsForOthers),
            ("epoll_wait", pair(), thread(), Some(false), Some(&Did::Queued), WaitsForWork),
            // Any call on several files.
            ("poll", pair(), thread(), Some(false), Some(&Did::Queued), WaitsForWork),
            ("epoll_wait", pair(), thread(), Some(true), Some(&Did::Queued), WaitsForOthers),
            // Whoever sends to it without being asked.
            ("recvfrom", connection(false, Some(false)), network(), None, None, WaitsForWork),
            ("recvfrom", connection(false, None), network(), None, None, NotKnown),
            // Of locks, clients that do not read, and timers it does not matter.
            ("futex", lock(), thread(), Some(false), Some(&Did::OnCpu), WaitsForOthers),
            ("sendto", connection(true, None), network(), Some(false), None, WaitsForOthers),
            ("clock_nanosleep", SleptOn::NotKnown, timer(), None, None, OwnTimer),
            ("futex", condition(), timer(), None, None, OwnTimer),
        ] {
            let by = |did: &Did| Awaited {
                proc: ProcId(1),
                thread: "helper".into(),
                too: false,
                did: did.clone(),
            };
            let behind = did.into_iter().map(by).collect();
            let role = Role::Entry { at: 0, asked };
            let key = SleepKey {
                role,
                slept: slept(call, on, woken),
                thread: None,
                in_request: false,
                behind,
            };
            assert_eq!(kind::of(ProcId(1), &key), kind, "{key:?}");
            // A child that it has started, and that ended, was given nothing to do by a fork.
            let woken = WokenBy::Thread { proc: ProcId(2), call: "exit_group".into() };
            let waits = slept("wait4", SleptOn::NotKnown, woken);
            let key = SleepKey { slept: waits, behind: vec![], ..key };
            assert_eq!(kind::of(ProcId(1), &key), WaitsForOthers, "{key:?}");
            let key = SleepKey { role: Role::NoEntry, ..key };
            assert_eq!(kind::of(ProcId(1), &key), SleepKind::NoEntry);
        }
    }
}
