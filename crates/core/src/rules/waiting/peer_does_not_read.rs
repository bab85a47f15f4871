// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OFF006: threads wait until another process or host reads what they sent.

use super::peers;
use super::waits::{self, For, Sleep, Waits};
use crate::finding::{Area, Finding, Fix, Question, Severity};
use crate::recording::{ProcId, SleptOn, Source};
use crate::rules::asleep::kind;
use crate::rules::words::{self, group_name};
use crate::rules::{Check, Rule, Status, Verdict, severity};
use crate::view::View;
use std::collections::BTreeMap;

pub(in crate::rules) static RULE: Rule = Rule {
    code: "OFF006",
    area: Area::Waiting,
    question: Question::Others,
    name: "peer-does-not-read",
    summary: "threads wait until another process or host reads what they sent",
    any_of: &[Source::Sched],
    helps: &[],
    limits: &[&severity::LOSS_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("peer_does_not_read.md"),
    file: file!(),
    check: Check::Recording(check),
};

/// Share of the waits at an address after which one process is taken for the one that reads there: whoever an interrupt came
/// to in such a call, on a CPU that had nothing to do with it, is named now and then.
const NEARLY_ALWAYS: f64 = 0.95;

fn check(view: &View) -> Verdict {
    waits::verdict(view, is_full, (For::Others, "until others read what it sent"), finding)
}

/// It stands in a call that sends, as there is no room in the pipe or the socket.
fn is_full((_, key, _): &Sleep<'_>) -> bool {
    let takes = matches!(
        key.slept.on,
        SleptOn::Pipe
            | SleptOn::Character { terminal: true }
            | SleptOn::Inet { .. }
            | SleptOn::Unix { .. }
    );
    let is_queue = kind::SENDS_MESSAGES.contains(&key.slept.call.as_str());
    is_queue || takes && kind::sends(&key.slept)
}

/// The process at each other end, if it is the same that makes room there nearly always. The kernel makes some, too: what was
/// read is confirmed by a timer if nothing was sent meanwhile, and who does not read is the same.
fn readers<'v>(sleeps: &[Sleep<'v>]) -> BTreeMap<&'v str, ProcId> {
    let mut all: BTreeMap<&str, BTreeMap<ProcId, u64>> = BTreeMap::new();
    for sleep in sleeps {
        let by = sleep.1.behind.first().map(|it| it.proc).filter(|by| *by != sleep.0);
        if let (Some(end), Some(by)) = (peers::address(sleep), by) {
            let ns = all.entry(end).or_default().entry(by).or_default();
            *ns = ns.saturating_add(sleep.2);
        }
    }
    let only = |of: BTreeMap<ProcId, u64>| {
        let sum = of.values().fold(0u64, |sum, ns| sum.saturating_add(*ns));
        let (by, ns) = of.into_iter().max_by_key(|(_, ns)| *ns)?;
        (ns as f64 >= sum as f64 * NEARLY_ALWAYS).then_some(by)
    };
    all.into_iter().filter_map(|(end, of)| Some((end, only(of)?))).collect()
}

fn finding(view: &View, severity: Severity, waits: &Waits<'_>) -> Finding {
    let readers = readers(&waits.sleeps);
    let behind = waits.behind_or(view, |sleep| {
        let reader = readers.get(peers::address(sleep)?).copied();
        reader.or_else(|| peers::at_other_end(view, sleep))
    });
    let all = peers::of(view, &waits.sleeps, |key| Some(&key.slept));
    let most = peers::most(&all, waits.ns);
    let whom = behind.whom.as_deref().or(most).unwrap_or("others");
    let mut finding = waits.finding(view, (&RULE, severity), ("waiting to send", &behind));
    finding.evidence.splice(1..1, peers::lines(view, &all, waits.ns));
    let apart = Fix {
        action: "send from a thread of its own with a queue that has a limit, so that requests do not wait for who reads \
                 slowly"
            .into(),
        command: None,
        risk: Some("decide what is dropped when the queue is full".into()),
        expect: None,
    };
    Finding {
        title: format!(
            "{} {} {} until {whom} reads what it sent{}",
            group_name(waits.group),
            words::verb(waits.group, "waits", "wait"),
            words::of_every_second(waits.ns_per_s),
            behind.reason.of_peer()
        ),
        fix: vec![peers::look(view, waits, "does not read"), apart],
        confirm: Some(
            waits.look_again(view, "when the other end reads faster, the waiting falls".into()),
        ),
        ..finding
    }
}
