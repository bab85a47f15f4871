// SPDX-License-Identifier: Apache-2.0 OR MIT
//! On what a group of processes slept, and whether that is time that somebody lost. What cannot be told apart is not
//! known: nothing is guessed.

use crate::finding::{LedgerState, SleepKind, SleepPart};
use crate::recording::{ProcId, SleepState, SleptOn, ThreadStates, WokenBy};
use crate::text::ticked;
use crate::view::{Group, SleepKey, View};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Parts that are told one by one, those that took longest; the others are summed.
const PARTS: usize = 24;
/// The parts of a state may lack so much of it, by the amount that each thread's last record did not stand for; what is
/// missing beyond is told.
const TOLERATED: f64 = 0.02;

/// Calls that end when a time has passed.
const SLEEPS: &[&str] = &["nanosleep", "clock_nanosleep"];
/// Calls that take a time after which they end in any case.
const TIMED: &[&str] = &[
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "futex",
    "futex_waitv",
    "rt_sigtimedwait",
    "recvmmsg",
    "semtimedop",
    "io_getevents",
    "io_pgetevents",
    "mq_timedreceive",
];
/// Calls that wait for a client to come.
const ACCEPTS: &[&str] = &["accept", "accept4"];
/// Calls that wait until the other end takes what was sent.
const SENDS: &[&str] = &[
    "write", "writev", "pwritev", "pwritev2", "sendto", "sendmsg", "sendmmsg", "sendfile", "splice",
];
/// Calls that wait for a lock of a file.
const FILE_LOCKS: &[&str] = &["flock", "fcntl"];
/// Calls that wait for a process to end.
const CHILDREN: &[&str] = &["wait4", "waitid"];

/// Operations of a futex: `FUTEX_WAIT`, `FUTEX_LOCK_PI`, `FUTEX_LOCK_PI2`.
const WAIT: u32 = 0;
const LOCKS: [u32; 2] = [6, 13];
/// What a mutex of glibc holds while somebody waits for it.
const CONTENDED: u32 = 2;

/// The parts of the sleep of a group, those of each kind together, the longest first; none if it was not recorded.
pub(super) fn of(view: &View, group: &Group<'_>) -> Vec<SleepPart> {
    let mut sums: BTreeMap<SleepState, BTreeMap<Told, u64>> = BTreeMap::new();
    for (id, _) in &group.members {
        let Some(process) = view.processes().get(id) else { continue };
        for (key, ns) in process.sleeps.iter().flat_map(|sleeps| sleeps.iter()) {
            let of_state = sums.entry(key.state).or_default();
            let sum = of_state.entry(told(view, *id, key)).or_default();
            *sum = sum.saturating_add(ns);
        }
    }
    let Some(usage) = group.usage.as_ref().filter(|_| !sums.is_empty()) else { return vec![] };
    let mut parts = Vec::new();
    for (state, (ledger, whole_ns)) in states(&usage.states) {
        parts.extend(of_state(ledger, whole_ns, sums.remove(&state).unwrap_or_default()));
    }
    parts.sort_by_key(|part| (part.kind, Reverse(part.ns)));
    limited(parts)
}

/// The states that are told apart, apart from block IO, which the ledger of the disks tells.
fn states(states: &ThreadStates) -> [(SleepState, (LedgerState, u64)); 3] {
    [
        (SleepState::Asleep, (LedgerState::Sleep, states.sleep_ns)),
        (SleepState::Memory, (LedgerState::MemStall, states.mem_stall_ns)),
        (SleepState::Uninterruptible, (LedgerState::Uninterruptible, states.uninterruptible_ns)),
    ]
}

/// What is told of a sleep.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Told {
    kind: SleepKind,
    call: String,
    on: Option<String>,
    woken_by: Option<String>,
}

/// The parts of a state, which sum to it: the scheduler probe knows it exactly, and sampled what it is made of.
fn of_state(state: LedgerState, whole_ns: u64, sums: BTreeMap<Told, u64>) -> Vec<SleepPart> {
    let known_ns = sums.values().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
    let missing = whole_ns.saturating_sub(known_ns) as f64 > whole_ns as f64 * TOLERATED;
    let of_ns = if missing { whole_ns } else { known_ns };
    let mut left_ns = whole_ns;
    let mut parts: Vec<SleepPart> = Vec::new();
    for (Told { kind, call, on, woken_by }, ns) in sums {
        let part = u128::from(ns) * u128::from(whole_ns) / u128::from(of_ns.max(1));
        let ns = u64::try_from(part).unwrap_or(u64::MAX).min(left_ns);
        left_ns -= ns;
        parts.push(SleepPart { kind, state, call, on, woken_by, ns });
    }
    match parts.iter_mut().max_by_key(|part| part.ns) {
        // What rounding left.
        Some(most) if !missing => most.ns += left_ns,
        _ => parts.push(SleepPart {
            kind: SleepKind::NotKnown,
            state,
            call: "(not recorded)".into(),
            on: None,
            woken_by: None,
            ns: left_ns,
        }),
    }
    parts.retain(|part| part.ns > 0);
    parts
}

/// Sums those that took least, by kind and state.
fn limited(parts: Vec<SleepPart>) -> Vec<SleepPart> {
    let mut by_size: Vec<u64> = parts.iter().map(|part| part.ns).collect();
    by_size.sort_unstable_by_key(|&ns| Reverse(ns));
    let Some(&least_ns) = by_size.get(PARTS) else { return parts };
    let (mut kept, rest): (Vec<_>, Vec<_>) = parts.into_iter().partition(|it| it.ns > least_ns);
    let mut others: BTreeMap<(SleepKind, LedgerState), u64> = BTreeMap::new();
    for part in rest {
        *others.entry((part.kind, part.state)).or_default() += part.ns;
    }
    kept.extend(others.into_iter().map(|((kind, state), ns)| {
        let (call, on, woken_by) = ("(others)".into(), None, None);
        SleepPart { kind, state, call, on, woken_by, ns }
    }));
    kept.sort_by_key(|part| (part.kind, Reverse(part.ns)));
    kept
}

fn told(view: &View, own: ProcId, key: &SleepKey) -> Told {
    let (kind, call) = (kind_of(key), key.call.clone());
    Told { kind, call, on: on_words(view, key), woken_by: woken_words(view, own, &key.woken) }
}

/// The order of evidence: what is a delay whoever ends it; whose turn it is at a socket; timers. What another thread
/// ended is not known, until it is known what that one waited for.
fn kind_of(key: &SleepKey) -> SleepKind {
    use SleepKind::{NotKnown, OwnTimer, WaitsForOthers, WaitsForWork};
    let call = key.call.as_str();
    if key.state != SleepState::Asleep || FILE_LOCKS.contains(&call) {
        return WaitsForOthers;
    }
    if SLEEPS.contains(&call) {
        return OwnTimer;
    }
    if key.woken == WokenBy::HardInterrupt && TIMED.contains(&call) {
        return OwnTimer;
    }
    let sends = SENDS.contains(&call);
    match &key.on {
        SleptOn::Futex { op, .. } if LOCKS.contains(op) => WaitsForOthers,
        SleptOn::Futex { op: WAIT, value: CONTENDED, .. } => WaitsForOthers,
        SleptOn::Anonymous { name } if name == "timerfd" => OwnTimer,
        _ if ACCEPTS.contains(&call) => WaitsForWork,
        SleptOn::Pipe | SleptOn::Inet { .. } | SleptOn::Unix { .. } if sends => WaitsForOthers,
        SleptOn::Inet { listens: Some(true), .. } | SleptOn::Unix { accepted: true, .. } => {
            WaitsForWork
        }
        SleptOn::Inet { listens: Some(false), remote: Some(_), .. }
        | SleptOn::Unix { peer: Some(_), .. } => WaitsForOthers,
        _ => NotKnown,
    }
}

fn on_words(view: &View, key: &SleepKey) -> Option<String> {
    let call = key.call.as_str();
    Some(match &key.on {
        SleptOn::NotKnown if CHILDREN.contains(&call) => "a child process".into(),
        SleptOn::NotKnown | SleptOn::Others => return None,
        SleptOn::Futex { op, value, address } => {
            let lock = LOCKS.contains(op) || (*op == WAIT && *value == CONTENDED);
            format!("{} at {address:#x}", if lock { "a lock" } else { "a futex" })
        }
        SleptOn::File { device, inode } => format!("inode {inode} of {device}"),
        SleptOn::Pipe => "a pipe".into(),
        SleptOn::Character => "a character device".into(),
        SleptOn::Anonymous { name } if name.starts_with("eventpo") => return None,
        SleptOn::Anonymous { name } => name.clone(),
        SleptOn::Inet { port: Some(port), .. } => format!("clients of port {port}"),
        SleptOn::Inet { remote: Some(remote), protocol, .. } => format!("{remote} ({protocol})"),
        SleptOn::Inet { protocol, .. } => format!("a socket ({protocol})"),
        SleptOn::Unix { accepted: true, .. } => "clients of a unix socket".into(),
        SleptOn::Unix { peer: Some(peer), .. } => {
            format!("a unix socket of {}", name_of(view, *peer)?)
        }
        SleptOn::Unix { peer: None, .. } => "a unix socket".into(),
        SleptOn::Socket { family } => format!("a socket of family {family}"),
    })
}

fn woken_words(view: &View, own: ProcId, woken: &WokenBy) -> Option<String> {
    Some(match woken {
        // It may have been woken since it was looked at.
        WokenBy::NotKnown | WokenBy::NotYet => return None,
        WokenBy::Thread { proc, .. } | WokenBy::Sender { proc } if *proc == own => {
            "its own threads".into()
        }
        WokenBy::Thread { proc, .. } | WokenBy::Sender { proc } => name_of(view, *proc)?,
        WokenBy::SoftInterrupt => "a soft interrupt".into(),
        WokenBy::HardInterrupt => "a timer or device".into(),
    })
}

fn name_of(view: &View, id: ProcId) -> Option<String> {
    let facts = view.processes().get(&id)?.facts.as_ref()?;
    Some(ticked(&facts.comm))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(call: &str, on: SleptOn, woken: WokenBy) -> SleepKey {
        SleepKey { state: SleepState::Asleep, call: call.into(), on, woken }
    }

    fn inet(listens: Option<bool>) -> SleptOn {
        let remote = (listens == Some(false)).then(|| "10.0.0.7:5432".into());
        SleptOn::Inet { protocol: "tcp".into(), listens, port: None, remote, ready: false }
    }

    #[test]
    fn kinds_follow_the_order_of_evidence() {
        use SleepKind::{NotKnown, OwnTimer, WaitsForOthers, WaitsForWork};
        let by = WokenBy::SoftInterrupt;
        let futex = |op, value| SleptOn::Futex { address: 64, value, op };
        let poll = SleptOn::Anonymous { name: "eventpo".into() };
        for (call, on, woken, kind) in [
            ("recvfrom", inet(Some(true)), by.clone(), WaitsForWork),
            ("recvfrom", inet(Some(false)), by.clone(), WaitsForOthers),
            ("recvfrom", inet(None), by.clone(), NotKnown),
            // A client that does not read.
            ("sendto", inet(Some(true)), by.clone(), WaitsForOthers),
            ("accept4", SleptOn::NotKnown, by.clone(), WaitsForWork),
            ("futex", futex(0, 2), by.clone(), WaitsForOthers),
            ("futex", futex(6, 1), by.clone(), WaitsForOthers),
            // A condition, or a pool without work.
            ("futex", futex(9, 0), by.clone(), NotKnown),
            ("futex", futex(9, 2), by.clone(), NotKnown),
            ("futex", futex(9, 0), WokenBy::HardInterrupt, OwnTimer),
            ("clock_nanosleep", SleptOn::NotKnown, by.clone(), OwnTimer),
            ("epoll_wait", poll.clone(), WokenBy::HardInterrupt, OwnTimer),
            ("epoll_wait", poll, WokenBy::NotYet, NotKnown),
            ("flock", SleptOn::NotKnown, by, WaitsForOthers),
        ] {
            let key = key(call, on, woken);
            assert_eq!(kind_of(&key), kind, "{key:?}");
        }
    }

    fn sums(all: &[(&str, u64)]) -> BTreeMap<Told, u64> {
        let told = |call: &str| Told {
            kind: SleepKind::NotKnown,
            call: call.into(),
            on: None,
            woken_by: None,
        };
        all.iter().map(|(call, ns)| (told(call), *ns)).collect()
    }

    #[test]
    fn parts_sum_to_the_state_and_what_was_not_recorded_is_told() {
        let parts = of_state(LedgerState::Sleep, 1000, sums(&[("a", 660), ("b", 330)]));
        assert_eq!(parts.iter().map(|part| part.ns).collect::<Vec<_>>(), [667, 333]);
        let parts = of_state(LedgerState::Sleep, 1000, sums(&[("a", 600)]));
        assert_eq!((parts[0].ns, parts[1].ns, &*parts[1].call), (600, 400, "(not recorded)"));
        // More than there was, by what the records before stood for.
        let parts = of_state(LedgerState::Sleep, 1000, sums(&[("a", 1500), ("b", 500)]));
        assert_eq!(parts.iter().map(|part| part.ns).collect::<Vec<_>>(), [750, 250]);
        assert_eq!(of_state(LedgerState::Sleep, 0, sums(&[("a", 5)])), []);
        let none = of_state(LedgerState::Sleep, 7, BTreeMap::new());
        assert_eq!((none.len(), none[0].ns), (1, 7));
    }

    #[test]
    fn many_parts_are_summed() {
        let part = |ns: u64| SleepPart {
            kind: SleepKind::NotKnown,
            state: LedgerState::Sleep,
            call: ns.to_string(),
            on: None,
            woken_by: None,
            ns,
        };
        let all = limited((1..=100).map(part).collect());
        assert_eq!(all.len(), PARTS + 1);
        assert_eq!(all.iter().map(|part| part.ns).sum::<u64>(), 5050);
    }
}
