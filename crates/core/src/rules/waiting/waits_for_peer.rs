// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OFF002: threads wait for the answers of another process or host.

use super::waits::{self, Reason, Sleep, Waits};
use crate::finding::{Area, Evidence, Finding, Fix, Question, Severity, SleepKind, Unit};
use crate::recording::{SleptOn, Source};
use crate::rules::asleep::kind;
use crate::rules::asleep::words as sleep_words;
use crate::rules::words::{self, evidence, group_name};
use crate::rules::{Check, Rule, Status, Verdict, severity};
use crate::text::units;
use crate::view::View;
use std::collections::BTreeMap;

/// Addresses that are named.
const MAX_PEERS: usize = 3;

pub(in crate::rules) static RULE: Rule = Rule {
    code: "OFF002",
    area: Area::Waiting,
    question: Question::Others,
    name: "waits-for-peer",
    summary: "threads wait for the answers of another process or host",
    any_of: &[Source::Sched],
    helps: &[],
    limits: &[&severity::LOSS_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("waits_for_peer.md"),
    file: file!(),
    check: Check::Recording(check),
};

fn check(view: &View) -> Verdict {
    waits::verdict(view, is_for_answer, "for answers of others", finding)
}

/// It asked on a connection of its own, or a unix socket's other end was seen at work, which is not the process itself.
fn is_for_answer((id, key, _): &Sleep<'_>) -> bool {
    let connection = match key.slept.on {
        SleptOn::Inet { listens, .. } => listens == Some(false),
        SleptOn::Unix { accepted, .. } => !accepted,
        _ => false,
    };
    let own = key.behind.first().is_some_and(|first| first.proc == *id);
    connection && !own && kind::of(key) == SleepKind::WaitsForOthers && !kind::sends(&key.slept)
}

fn finding(view: &View, severity: Severity, waits: &Waits<'_>) -> Finding {
    let behind = waits.behind(view);
    let peers = peers(view, &waits.sleeps);
    let first = peers.first();
    let whom = match (&behind.whom, first) {
        (Some(whom), _) => whom.clone(),
        (None, Some((peer, ns))) if *ns as f64 >= 0.5 * waits.ns as f64 => peer.clone(),
        _ => "others".into(),
    };
    let mut finding = waits.finding(view, (&RULE, severity), ("waiting for answers", &behind));
    finding.evidence.splice(1..1, lines(view, &peers, waits.ns));
    let at_work = match behind.reason {
        Reason::OnCpu => ", which computes",
        Reason::Queued => ", which waits for a CPU",
        Reason::Throttled => ", which a CPU quota stops",
        Reason::BlockIo => ", which waits for block IO",
        Reason::Slept => ", which sleeps",
        Reason::NotSeen => "",
    };
    Finding {
        title: format!(
            "{} {} {} for answers of {whom}{at_work}",
            group_name(waits.group),
            words::verb(waits.group, "waits", "wait"),
            words::of_every_second(waits.ns_per_s)
        ),
        fix: fixes(view, waits),
        confirm: Some(words::look_again(
            waits.group,
            "when its peers answer faster, or are asked less often, the waiting falls".into(),
        )),
        ..finding
    }
}

/// The other ends, the one that is waited for longest first.
fn peers(view: &View, sleeps: &[Sleep<'_>]) -> Vec<(String, u64)> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for (_, key, ns) in sleeps {
        if let Some(on) = sleep_words::on(view, &key.slept.call, &key.slept.on) {
            let sum = sums.entry(on).or_default();
            *sum = sum.saturating_add(*ns);
        }
    }
    let mut all: Vec<(String, u64)> = sums.into_iter().collect();
    all.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    all
}

fn lines(view: &View, peers: &[(String, u64)], whole_ns: u64) -> Vec<Evidence> {
    let line = |(peer, ns): &(String, u64)| {
        let share = units::share(*ns as f64 / whole_ns.max(1) as f64);
        let note = format!("{share} of it: {peer}");
        evidence(view, "other end", *ns as f64, Unit::Ns, Source::Sched.label(), note)
    };
    peers.iter().take(MAX_PEERS).map(line).collect()
}

/// Look at the peer itself, if it is a process of this host; else there.
fn fixes(view: &View, waits: &Waits<'_>) -> Vec<Fix> {
    let mut by_pid: BTreeMap<u32, u64> = BTreeMap::new();
    for (_, key, ns) in &waits.sleeps {
        let process = key.behind.first().and_then(|first| view.processes().get(&first.proc));
        if let Some(facts) = process.and_then(|process| process.facts.as_ref()) {
            let sum = by_pid.entry(facts.pid).or_default();
            *sum = sum.saturating_add(*ns);
        }
    }
    let most = by_pid.into_iter().max_by_key(|(_, ns)| *ns).map(|(pid, _)| pid);
    let look = Fix {
        action: match most {
            Some(_) => "see where the time of the process goes that answers",
            None => "see on its host where the time of the process goes that answers, and whether the network loses \
                     packets",
        }
        .into(),
        command: most.map(|pid| format!("sudo deburr -p {pid} -d 30")),
        risk: None,
        expect: None,
    };
    let less = Fix {
        action: "ask for less: fewer and larger requests, several at a time, or a cache".into(),
        command: None,
        risk: Some("a cache answers with what was true before".into()),
        expect: None,
    };
    vec![look, less]
}
