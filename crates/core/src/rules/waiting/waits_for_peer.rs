// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OFF002: threads wait for the answers of another process or host.

use super::peers;
use super::waits::{self, For, Sleep, Waits};
use crate::finding::{Area, Finding, Fix, Question, Severity, SleepKind, Unit};
use crate::recording::{Slept, SleptOn, Source, WokenBy};
use crate::rules::asleep::kind;
use crate::rules::words::{self, evidence, group_name, ticked};
use crate::rules::{Check, Rule, Status, Verdict, severity};
use crate::text::{shell_quote, units};
use crate::view::View;
use std::collections::BTreeMap;

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

/// Share of the waits that ended without an answer, from which on it is told.
const LEAST_TOLD: f64 = 0.01;
/// How the other end of a question of DNS ends in words.
const NAMES: &str = ":53 (udp)";

fn check(view: &View) -> Verdict {
    waits::verdict(view, is_for_answer, (For::Others, "for answers of others"), finding)
}

/// It asked on a connection of its own, or a unix socket's other end was seen at work, which is not the process itself; or it waited
/// for a child.
fn is_for_answer((id, key, _): &Sleep<'_>) -> bool {
    let own = key.behind.first().is_some_and(|first| first.proc == *id);
    let is = kind::is_answer(&key.slept) || kind::is_for_child(*id, &key.slept);
    is && !own && kind::of(*id, key) == SleepKind::WaitsForOthers
}

/// Of it, what ended because a time was up, with nothing after it: datagrams that were asked for, a connection, and what the kernel
/// itself gives up. Whoever looks at a connection now and then may wait on.
fn given_up_ns(waits: &Waits<'_>) -> u64 {
    let gives_up = |slept: &Slept| match (&slept.woken, &slept.on) {
        (WokenBy::KernelTimer, _) => true,
        (WokenBy::Timer, SleptOn::Inet { protocol, .. }) => protocol == "udp",
        _ => false,
    };
    let given_up = waits.sleeps.iter().filter(|(_, key, _)| gives_up(&key.slept));
    given_up.fold(0, |sum: u64, (.., ns)| sum.saturating_add(*ns))
}

/// Whether most of it is for children that ended.
fn for_children(waits: &Waits<'_>) -> bool {
    let of_child = waits.sleeps.iter().filter(|(id, key, _)| kind::is_for_child(*id, &key.slept));
    let ns = of_child.fold(0, |sum: u64, (.., ns)| sum.saturating_add(*ns));
    ns as f64 >= 0.5 * waits.ns as f64
}

/// The name of the children that most of it is for.
fn child<'v>(waits: &Waits<'v>) -> Option<&'v str> {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, key, ns) in &waits.sleeps {
        if let Some(by) = key.behind.first().filter(|it| !it.thread.is_empty()) {
            let sum = sums.entry(&by.thread).or_default();
            *sum = sum.saturating_add(*ns);
        }
    }
    let (name, ns) = sums.into_iter().max_by_key(|(_, ns)| *ns)?;
    (ns as f64 >= 0.5 * waits.ns as f64).then_some(name)
}

/// Those that have ended are gone; others of the same name come.
fn look_at_children(name: Option<&str>) -> Fix {
    Fix {
        action: "see where the time of its children goes".into(),
        command: name.map(|name| format!("sudo deburr --comm {} -d 30", shell_quote(name))),
        risk: None,
        expect: None,
    }
}

fn finding(view: &View, severity: Severity, waits: &Waits<'_>) -> Finding {
    let behind = waits.behind_or(view, |sleep| peers::at_other_end(view, sleep));
    let all = peers::of(view, &waits.sleeps, |key| Some(&key.slept));
    let most = peers::most(&all, waits.ns);
    let whom = behind.whom.as_deref().or(most).unwrap_or("others");
    let mut finding = waits.finding(view, (&RULE, severity), ("waiting for answers", &behind));
    let given_up_ns = given_up_ns(waits);
    let given_up = given_up_ns as f64 / waits.ns.max(1) as f64;
    let mut lines = peers::lines(view, &all, waits.ns);
    if given_up >= LEAST_TOLD {
        let note = format!("{} of it: a time was up before an answer came", units::share(given_up));
        lines.push(evidence(
            view,
            "no answer",
            given_up_ns as f64,
            Unit::Ns,
            Source::Sched.label(),
            note,
        ));
    }
    finding.evidence.splice(1..1, lines);
    let does = match given_up >= 0.5 {
        true => " that do not come in time",
        false => behind.reason.of_peer(),
    };
    let resolver = most.filter(|peer| peer.ends_with(NAMES)).map(|_| Fix {
        action: "ask a name server that answers: it is a question of DNS".into(),
        command: Some("cat /etc/resolv.conf".into()),
        risk: Some(
            "a shorter `options timeout` gives up questions that take long to answer".into(),
        ),
        expect: None,
    });
    let less = Fix {
        action: "ask for less: fewer and larger requests, several at a time, or a cache".into(),
        command: None,
        risk: Some("a cache answers with what was true before".into()),
        expect: None,
    };
    let (what, look) = match (for_children(waits), child(waits)) {
        (true, name) => {
            let whom = name
                .map_or("one of its children".into(), |name| format!("its child {}", ticked(name)));
            (format!("until {whom} ends"), look_at_children(name))
        }
        (false, _) => (format!("for answers of {whom}"), peers::look(view, waits, "answers")),
    };
    Finding {
        title: format!(
            "{} {} {} {what}{does}",
            group_name(waits.group),
            words::verb(waits.group, "waits", "wait"),
            words::of_every_second(waits.ns_per_s),
        ),
        fix: [Some(look), resolver, Some(less)].into_iter().flatten().collect(),
        confirm: Some(waits.look_again(
            view,
            "when its peers answer faster, or are asked less often, the waiting falls".into(),
        )),
        ..finding
    }
}
