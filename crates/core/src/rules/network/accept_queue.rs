// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NET006: clients that have asked for something wait to be accepted.

use super::victims::{Victim, by_victim, causes, of_target_only, socket_entity, verdict};
use crate::finding::{Area, Cost, Evidence, Finding, Fix, Question, Severity, Unit};
use crate::recording::Source;
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, ticked};
use crate::rules::{Check, Limit, Rule, Status, Verdict};
use crate::text::units;
use crate::view::{AcceptQueue, NetKey, View};
use std::cmp::Reverse;

/// Sockets of a victim that are told one by one.
const MAX_SOCKETS: usize = 3;

const LEAST_LOOKS: Limit = Limit {
    name: "least_looks",
    value: 5.0,
    unit: "looks at which clients waited",
    why: "a look stands for a tenth of a second and more: fewer may be one request at a bad time",
};
const LOW_HELD: Limit = Limit {
    name: "low_held",
    value: 20.0,
    unit: "ms of each second",
    why: "one client in fifty comes while others wait already",
};
const MEDIUM_HELD: Limit = Limit {
    name: "medium_held",
    value: 50.0,
    unit: "ms of each second",
    why: "one client in twenty comes while others wait already",
};
const HIGH_HELD: Limit = Limit {
    name: "high_held",
    value: 100.0,
    unit: "ms of each second",
    why: "one client in ten comes while others wait already",
};

pub(in crate::rules) static RULE: Rule = Rule {
    code: "NET006",
    area: Area::Network,
    question: Question::Network,
    name: "accept-queue",
    summary: "clients that have asked for something wait to be accepted",
    any_of: &[Source::Unread],
    helps: &[],
    limits: &[&[LEAST_LOOKS, LOW_HELD, MEDIUM_HELD, HIGH_HELD]],
    status: Status::Preview("0.1"),
    doc: include_str!("accept_queue.md"),
    file: file!(),
    check: Check::Recording(check),
};

/// The listening sockets of a victim.
struct Waiting<'v> {
    victim: Victim<'v>,
    /// That at which clients waited longest first.
    sockets: Vec<&'v AcceptQueue>,
    /// The time in which clients waited there.
    ns_per_s: u64,
    share: f64,
}

fn check(view: &View) -> Verdict {
    if let Some(verdict) = of_target_only(view, "who waits to be accepted") {
        return verdict;
    }
    let all = by_victim(view, view.net().accept_queues()).into_iter();
    let all: Vec<Waiting<'_>> = all.map(|(who, of)| Waiting::of(view, who, of)).collect();
    verdict(
        all,
        |it| it.ns_per_s,
        |it| Some(finding(view, severity(view, it)?, it)),
        |first| {
            match first {
        Some(it) => format!(
            "{} came nearest: clients waited to be accepted for {}",
            it.victim.name(),
            words::of_every_second(it.ns_per_s)
        ),
        None => {
            "at no look had a client that had asked for something waited to be accepted for long"
                .into()
        }
    }
        },
    )
}

impl<'v> Waiting<'v> {
    fn of(view: &View, victim: Victim<'v>, of: Vec<(&'v NetKey, &'v Vec<AcceptQueue>)>) -> Self {
        let mut sockets: Vec<&AcceptQueue> = of.into_iter().flat_map(|(_, it)| it).collect();
        sockets.sort_by_key(|it| Reverse(it.sum.late_ns));
        // A client waits at one of several sockets: their times are not added up.
        let ns = sockets.first().map_or(0, |it| it.sum.late_ns);
        let share = (ns as f64 / view.window_ns().max(1) as f64).min(1.0);
        Self { victim, sockets, ns_per_s: view.per_second(ns), share }
    }

    fn worst(&self) -> &'v AcceptQueue {
        self.sockets[0]
    }
}

/// Who is dropped waits for a second and more: where a queue is full, that comes first.
fn severity(view: &View, it: &Waiting<'_>) -> Option<Severity> {
    if (it.worst().sum.late_looks as f64) < LEAST_LOOKS.value {
        return None;
    }
    let ms = it.ns_per_s as f64 / 1e6;
    let levels =
        [(HIGH_HELD, Severity::High), (MEDIUM_HELD, Severity::Medium), (LOW_HELD, Severity::Low)];
    let (_, severity) = levels.iter().find(|(limit, _)| ms >= limit.value)?;
    let mut listeners = view.net().listeners().iter();
    let drops = listeners.any(|(key, listener)| {
        key.local == it.worst().sum.local && listener.drops.is_some_and(|drops| drops > 0)
    });
    Some(if drops { (*severity).min(Severity::Medium) } else { *severity })
}

/// How many waited at a time on average, in words.
fn at_a_time(it: &AcceptQueue) -> String {
    units::count(it.sum.waiting_ns as f64 / it.sum.late_ns.max(1) as f64)
}

fn finding(view: &View, severity: Severity, it: &Waiting<'_>) -> Finding {
    let worst = it.worst();
    let confidence = Confidence::of(view).with_samples(worst.sum.late_looks);
    let mut lines = lines(view, it);
    lines.push(confidence.evidence(view));
    let title = format!(
        "clients wait until {} {} them at {} for {}, {} in the queue",
        it.victim.name(),
        it.victim.verb("accepts", "accept"),
        ticked(&worst.sum.local),
        words::of_every_second(it.ns_per_s),
        at_a_time(worst)
    );
    Finding {
        title,
        victim: it.victim.entity(view),
        cost: Cost { lost_ns_per_s: it.ns_per_s, share: it.share, ..Cost::default() },
        causes: causes(it.sockets.iter().map(|one| {
            let socket = socket_entity(&one.sum.local, "connections wait there to be accepted");
            (Some(socket), one.sum.waiting_ns)
        })),
        evidence: lines,
        fix: fixes(),
        confirm: Some(it.victim.confirm(
            "with workers that are free, the queue is empty at nearly every look (`Recv-Q` of `ss -ltn`)",
        )),
        ..RULE.finding(severity, confidence.value())
    }
}

fn lines(view: &View, it: &Waiting<'_>) -> Vec<Evidence> {
    let label = Source::Unread.label();
    let mut lines = Vec::new();
    for one in it.sockets.iter().take(MAX_SOCKETS) {
        let sum = &one.sum;
        let time =
            |name, ns: u64, note: String| evidence(view, name, ns as f64, Unit::Ns, label, note);
        lines.push(time(
            "clients waited",
            sum.late_ns,
            format!(
                "at {}: at {} of {}, in seconds in which any waited",
                ticked(&sum.local),
                units::count(sum.late_looks as f64),
                units::counted(sum.looks, "look", "looks")
            ),
        ));
        lines.push(time(
            "added up",
            sum.waiting_ns,
            format!(
                "{} in the queue on average, {} at most; some of them may have asked for nothing yet",
                at_a_time(one),
                units::count(sum.most_waiting as f64)
            ),
        ));
        lines.push(time("the longest", sum.longest_ns, "at least, when it was seen".into()));
    }
    lines
}

fn fixes() -> Vec<Fix> {
    let fix = |action: &str, risk: &str| Fix {
        action: action.into(),
        command: None,
        risk: Some(risk.into()),
        expect: None,
    };
    vec![
        fix(
            "see what occupies those that accept: the ledger of this report, and its findings about peers, locks, disks and CPUs (OFF, BLK, SCH). What makes each request shorter makes the queue shorter",
            "none",
        ),
        fix(
            "have more workers, if they wait for something else than a CPU: clearly more than requests come in a second, times the seconds that each takes",
            "memory, and more load on what they wait for",
        ),
        fix(
            "where a worker serves one connection until it is closed, close those soon on which nothing is asked (keep-alive timeout)",
            "clients connect more often",
        ),
        fix(
            "refuse what cannot be served in time: a shorter queue (the second argument of `listen`), or a limit in front",
            "clients that are refused must be able to bear it",
        ),
    ]
}
