// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OFF002: threads wait for the answers of another process or host.

use super::peers;
use super::waits::{self, For, Sleep, Waits};
use crate::finding::{Area, Finding, Fix, Question, Severity, SleepKind};
use crate::recording::Source;
use crate::rules::asleep::kind;
use crate::rules::words::{self, group_name};
use crate::rules::{Check, Rule, Status, Verdict, severity};
use crate::view::View;

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
    waits::verdict(view, is_for_answer, (For::Others, "for answers of others"), finding)
}

/// It asked on a connection of its own, or a unix socket's other end was seen at work, which is not the process itself.
fn is_for_answer((id, key, _): &Sleep<'_>) -> bool {
    let own = key.behind.first().is_some_and(|first| first.proc == *id);
    kind::is_answer(&key.slept) && !own && kind::of(*id, key) == SleepKind::WaitsForOthers
}

fn finding(view: &View, severity: Severity, waits: &Waits<'_>) -> Finding {
    let behind = waits.behind_or(view, |sleep| peers::at_other_end(view, sleep));
    let all = peers::of(view, &waits.sleeps, |key| Some(&key.slept));
    let most = peers::most(&all, waits.ns);
    let whom = behind.whom.as_deref().or(most).unwrap_or("others");
    let mut finding = waits.finding(view, (&RULE, severity), ("waiting for answers", &behind));
    finding.evidence.splice(1..1, peers::lines(view, &all, waits.ns));
    let less = Fix {
        action: "ask for less: fewer and larger requests, several at a time, or a cache".into(),
        command: None,
        risk: Some("a cache answers with what was true before".into()),
        expect: None,
    };
    Finding {
        title: format!(
            "{} {} {} for answers of {whom}{}",
            group_name(waits.group),
            words::verb(waits.group, "waits", "wait"),
            words::of_every_second(waits.ns_per_s),
            behind.reason.of_peer()
        ),
        fix: vec![peers::look(view, waits, "answers"), less],
        confirm: Some(waits.look_again(
            view,
            "when its peers answer faster, or are asked less often, the waiting falls".into(),
        )),
        ..finding
    }
}
