// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The other ends of connections that threads wait for: their names, and what to do about them.

use super::waits::{Reason, Sleep, Waits};
use crate::finding::{Evidence, Fix, Unit};
use crate::recording::{ProcId, Slept, SleptOn, Source};
use crate::rules::asleep::words as sleep_words;
use crate::rules::words::evidence;
use crate::text::units;
use crate::view::{SleepKey, View};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Addresses that are named.
const MAX_PEERS: usize = 3;

/// The address of the other end of the connection that a thread waits for.
pub(super) fn address<'v>((_, key, _): &Sleep<'v>) -> Option<&'v str> {
    match &key.slept.on {
        SleptOn::Inet { remote, .. } => remote.as_deref(),
        _ => None,
    }
}

/// The other process of this host that has that end open, where the kernel was asked: it was for connections that had
/// something to send and could not.
pub(super) fn at_other_end(view: &View, sleep: &Sleep<'_>) -> Option<ProcId> {
    view.net().at_other_end(sleep.0, address(sleep)?).filter(|by| *by != sleep.0)
}

/// The other ends in words, the one that is waited for longest first, with that time. `slept` = which sleep of a chain is on
/// the connection.
pub(super) fn of(
    view: &View,
    sleeps: &[Sleep<'_>],
    slept: impl Fn(&SleepKey) -> Option<&Slept>,
) -> Vec<(String, u64)> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for (_, key, ns) in sleeps {
        let on = slept(key).and_then(|slept| sleep_words::on(view, &slept.call, &slept.on));
        if let Some(on) = on {
            let sum = sums.entry(on).or_default();
            *sum = sum.saturating_add(*ns);
        }
    }
    let mut all: Vec<(String, u64)> = sums.into_iter().collect();
    all.sort_by_key(|(_, ns)| Reverse(*ns));
    all
}

/// The other end that most of it is for.
pub(super) fn most(peers: &[(String, u64)], whole_ns: u64) -> Option<&str> {
    let (peer, ns) = peers.first()?;
    (*ns as f64 >= 0.5 * whole_ns as f64).then_some(peer)
}

pub(super) fn lines(view: &View, peers: &[(String, u64)], whole_ns: u64) -> Vec<Evidence> {
    let line = |(peer, ns): &(String, u64)| {
        let share = units::share(*ns as f64 / whole_ns.max(1) as f64);
        let note = format!("{share} of it: {peer}");
        evidence(view, "other end", *ns as f64, Unit::Ns, Source::Sched.label(), note)
    };
    peers.iter().take(MAX_PEERS).map(line).collect()
}

/// To look at the process at the other end, which `does` something, if it is of this host; else there.
pub(super) fn look(view: &View, waits: &Waits<'_>, does: &str) -> Fix {
    let mut by_pid: BTreeMap<u32, u64> = BTreeMap::new();
    for sleep in &waits.sleeps {
        let (own, key, ns) = sleep;
        let other = key.behind.iter().find(|it| it.proc != *own).map(|it| it.proc);
        let other = other.or_else(|| at_other_end(view, sleep));
        let process = other.and_then(|it| view.processes().get(&it));
        if let Some(facts) = process.and_then(|process| process.facts.as_ref()) {
            let sum = by_pid.entry(facts.pid).or_default();
            *sum = sum.saturating_add(*ns);
        }
    }
    let most = by_pid.into_iter().max_by_key(|(_, ns)| *ns).map(|(pid, _)| pid);
    let rest = match most {
        Some(_) => "",
        None => ", on its host, and whether the network loses packets",
    };
    Fix {
        action: format!("see where the time of the process goes that {does}{rest}"),
        command: most.map(|pid| format!("sudo deburr -p {pid} -d 30")),
        risk: None,
        expect: None,
    }
}

impl Reason {
    /// What the other end does meanwhile, for most of the time.
    pub(super) fn of_peer(self) -> &'static str {
        match self {
            Self::OnCpu => ", which computes",
            Self::Queued => ", which waits for a CPU",
            Self::Throttled => ", which a CPU quota stops",
            Self::BlockIo => ", which waits for block IO",
            Self::Slept => ", which sleeps",
            Self::Stopped => ", which is stopped",
            Self::NotSeen => "",
        }
    }
}
