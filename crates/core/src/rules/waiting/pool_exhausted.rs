// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OFF008: threads wait for each other, as they share too few connections.

use super::peers;
use super::waits::{self, For, Sleep, Waits};
use crate::finding::{Area, Finding, Fix, Question, Severity, SleepKind};
use crate::recording::{Did, ProcId, Slept, SleptOn, Source};
use crate::rules::asleep::kind;
use crate::rules::words::{self, group_name};
use crate::rules::{Check, Rule, Status, Verdict, severity};
use crate::view::{SleepKey, View};

pub(in crate::rules) static RULE: Rule = Rule {
    code: "OFF008",
    area: Area::Waiting,
    question: Question::Others,
    name: "pool-exhausted",
    summary: "threads wait for each other, as they share too few connections",
    any_of: &[Source::Sched],
    helps: &[],
    limits: &[&severity::LOSS_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("pool_exhausted.md"),
    file: file!(),
    check: Check::Recording(check),
};

fn check(view: &View) -> Verdict {
    waits::verdict(
        view,
        is_for_turn,
        (For::Turn, "for connections that others of its threads use"),
        finding,
    )
}

/// Another thread of the process ended it, which waited for an answer meanwhile, and both ask the same other end.
fn is_for_turn((id, key, _): &Sleep<'_>) -> bool {
    matches!(key.slept.on, SleptOn::Futex { .. }) && user(*id, key).is_some() && {
        !kind::is_lock(&key.slept) && kind::of(*id, key) == SleepKind::WaitsForOthers
    }
}

/// What the thread waited for that used the connection. An event loop uses none: it serves all of them at once.
fn user(own: ProcId, key: &SleepKey) -> Option<&Slept> {
    let user = key.behind.iter().take_while(|it| it.proc == own).find(|it| it.too)?;
    match &user.did {
        Did::Slept(slept) if kind::is_answer(slept) && !kind::is_event_loop(slept) => Some(slept),
        _ => None,
    }
}

fn finding(view: &View, severity: Severity, waits: &Waits<'_>) -> Finding {
    let behind = waits.behind(view);
    let own = |key: &SleepKey| key.behind.first().map(|it| it.proc);
    let all = peers::of(view, &waits.sleeps, |key| user(own(key)?, key));
    let whom = peers::most(&all, waits.ns).unwrap_or("others");
    let mut finding = waits.finding(view, (&RULE, severity), ("waiting for a turn", &behind));
    finding.evidence.splice(1..1, peers::lines(view, &all, waits.ns));
    let more = Fix {
        action: "let more requests be asked at a time: a larger pool of connections".into(),
        command: None,
        risk: Some(
            "the other end must serve as many at a time; if it is busy already, more of them make it slower".into(),
        ),
        expect: None,
    };
    Finding {
        title: format!(
            "{} {} {} for a turn to ask {whom}, while other threads of it wait for answers",
            group_name(waits.group),
            words::verb(waits.group, "waits", "wait"),
            words::of_every_second(waits.ns_per_s),
        ),
        fix: vec![more, peers::look(view, waits, "answers")],
        confirm: Some(waits.look_again(
            view,
            "with more connections, or faster answers, the waiting falls".into(),
        )),
        ..finding
    }
}
