// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OFF002: threads wait for the answers of another process or host.

use super::waits::{self, For, Sleep, Waits};
use super::{children, peers};
use crate::finding::{Area, Finding, Fix, Question, Severity, SleepKind, Unit};
use crate::recording::{ProcId, Slept, SleptOn, Source, WokenBy};
use crate::rules::asleep::kind;
use crate::rules::network::holding;
use crate::rules::words::{self, evidence, group_name, ticked};
use crate::rules::{Check, Rule, Status, Verdict, severity};
use crate::text::units;
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
        (WokenBy::KernelTimer, _) => !kind::is_of_served_file(slept),
        (WokenBy::Timer, SleptOn::Inet { protocol, .. }) => protocol == "udp",
        _ => false,
    };
    let given_up = waits.sleeps.iter().filter(|(_, key, _)| gives_up(&key.slept));
    given_up.fold(0, |sum: u64, (.., ns)| sum.saturating_add(*ns))
}

fn finding(view: &View, severity: Severity, waits: &Waits<'_>) -> Finding {
    let behind = waits.behind_or(view, |sleep| peers::at_other_end(view, sleep));
    let all = peers::of(view, &waits.sleeps, |key| Some(&key.slept));
    let most = peers::most(&all, waits.ns);
    let given_up_ns = given_up_ns(waits);
    let given_up = given_up_ns as f64 / waits.ns.max(1) as f64;
    let (held_back_ns, is_corked) = held_back_ns(view, waits);
    let held_back = held_back_ns as f64 / waits.ns.max(1) as f64;
    let for_children = children::are_most(waits);
    let is_held_back = held_back >= 0.5 && !for_children;
    let does = match given_up >= 0.5 {
        _ if is_held_back => ", to which its own end holds back what it asks (NET007)",
        true => " that do not come in time",
        false => behind.reason.of_peer(),
    };
    let (what, severity, fix, expect) = if for_children {
        let name = children::name(waits);
        let whom =
            name.map_or("one of its children".into(), |it| format!("its child {}", ticked(it)));
        (
            format!("until {whom} ends"),
            children::severity(severity, behind.reason),
            children::fixes(name),
            "when its children end sooner, or fewer are started, the waiting falls",
        )
    } else {
        let whom = behind.whom.as_deref().or(most).unwrap_or("others");
        let is_of_names = most.is_some_and(|peer| peer.ends_with(NAMES)) && given_up >= LEAST_TOLD;
        (
            format!("for answers of {whom}"),
            match is_held_back {
                true if is_corked => severity.min(Severity::Medium),
                true => Severity::Info,
                false => severity,
            },
            match is_held_back {
                true => holding::fixes(is_corked),
                false => fixes(peers::look(view, waits, "answers"), is_of_names),
            },
            match is_held_back {
                true => "with that changed, the waiting falls by what was held back",
                false => "when its peers answer faster, or are asked less often, the waiting falls",
            },
        )
    };
    let name = if for_children { "waiting for children" } else { "waiting for answers" };
    let mut finding = waits.finding(view, (&RULE, severity), (name, &behind));
    let mut lines = peers::lines(view, &all, waits.ns);
    if given_up >= LEAST_TOLD {
        let note = format!("{} of it: a time was up before an answer came", units::share(given_up));
        let (name, label) = ("no answer", Source::Sched.label());
        lines.push(evidence(view, name, given_up_ns as f64, Unit::Ns, label, note));
    }
    if held_back >= LEAST_TOLD {
        let note = format!(
            "about {} of it: its own end of the connection held back what it asked (NET007)",
            units::share(held_back)
        );
        let (name, label) = ("not asked yet", Source::Unread.label());
        lines.push(evidence(view, name, held_back_ns as f64, Unit::Ns, label, note));
    }
    finding.evidence.splice(1..1, lines);
    if is_held_back {
        // Whoever was not asked is no cause.
        finding.causes.clear();
    }
    Finding {
        title: format!(
            "{} {} {} {what}{does}",
            group_name(waits.group),
            words::verb(waits.group, "waits", "wait"),
            words::of_every_second(waits.ns_per_s),
        ),
        fix,
        confirm: Some(waits.look_again(view, expect.into())),
        ..finding
    }
}

/// Of it, what the own end of the connections held back of what was asked there: until that is sent, no answer can come. And whether it
/// was corked for most of that, which may be because it was not complete.
fn held_back_ns(view: &View, waits: &Waits<'_>) -> (u64, bool) {
    let mut by_end: BTreeMap<(ProcId, &str), u64> = BTreeMap::new();
    for sleep in &waits.sleeps {
        if let Some(address) = peers::address(sleep) {
            let sum = by_end.entry((sleep.0, address)).or_default();
            *sum = sum.saturating_add(sleep.2);
        }
    }
    let (mut all_ns, mut all_corked_ns) = (0u64, 0u64);
    for ((id, at), ns) in by_end {
        let (held_ns, corked_ns) = holding::told_ns(view, id, at);
        all_ns = all_ns.saturating_add(ns.min(held_ns));
        all_corked_ns = all_corked_ns.saturating_add(ns.min(corked_ns));
    }
    (all_ns, all_corked_ns.saturating_mul(2) > all_ns)
}

/// What to do about answers; `is_of_names` = they are those of a name server, some of which did not come.
fn fixes(look: Fix, is_of_names: bool) -> Vec<Fix> {
    let resolver = is_of_names.then(|| Fix {
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
    [Some(look), resolver, Some(less)].into_iter().flatten().collect()
}
