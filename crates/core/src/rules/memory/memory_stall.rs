// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MEM001: threads wait because memory is short.

use crate::finding::{Area, Cost, Evidence, Finding, Fix, Question, Severity, Unit};
use crate::recording::{PsiResource, Source};
use crate::rules::candidates::may_suffer;
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, group_name};
use crate::rules::{Check, Rule, Status, Verdict, severity};
use crate::text::units;
use crate::view::{Group, PsiView, Usage, View};
use std::cmp::Reverse;
use std::collections::BTreeSet;

const MAX_VICTIMS: usize = 5;
/// Of the victim's waiting for memory: another group that waits less says nothing about the host.
const OTHERS_SHARE: f64 = 0.05;

pub(in crate::rules) static RULE: Rule = Rule {
    code: "MEM001",
    area: Area::Memory,
    question: Question::Memory,
    name: "memory-stall",
    summary: "threads wait because memory is short",
    any_of: &[Source::Sched],
    helps: &[Source::Psi],
    limits: &[&severity::LOSS_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("memory_stall.md"),
    file: file!(),
    check: Check::Recording(check),
};

/// What a group lost.
struct MemoryLoss {
    ns: u64,
    ns_per_s: u64,
    /// Of the time in which it wanted to run, this waiting included.
    share: f64,
}

fn check(view: &View) -> Verdict {
    let groups = view.groups();
    let mut losers: Vec<(MemoryLoss, &Group<'_>, &Usage)> = groups
        .list()
        .iter()
        .filter(|group| may_suffer(view, group))
        .filter_map(|group| {
            let usage = group.usage.as_ref()?;
            Some((loss(view, usage), group, usage))
        })
        .collect();
    // Stable: of equals, the group that was seen first stays first.
    losers.sort_by_key(|(loss, ..)| Reverse(loss.ns));
    let victims: Vec<_> = losers
        .iter()
        .filter_map(|(loss, group, usage)| {
            Some((severity::of_loss(loss.ns_per_s, loss.share)?, loss, *group, *usage))
        })
        .take(MAX_VICTIMS)
        .collect();
    if victims.is_empty() {
        let closest = match losers.first().filter(|(loss, ..)| loss.ns > 0) {
            Some((loss, group, _)) => format!(
                "{} came nearest: it waited for memory for {}",
                group_name(group),
                words::of_every_second(loss.ns_per_s)
            ),
            None => "no thread waited for memory".into(),
        };
        return Verdict::Quiet { closest };
    }
    let findings = victims.into_iter();
    Verdict::Fired(
        findings
            .map(|(severity, loss, group, usage)| finding(view, severity, loss, group, usage))
            .collect(),
    )
}

fn loss(view: &View, usage: &Usage) -> MemoryLoss {
    let ns = usage.states.mem_stall_ns;
    let wanted_ns = usage.wanted_ns().saturating_add(ns);
    MemoryLoss { ns, ns_per_s: view.per_second(ns), share: ns as f64 / wanted_ns.max(1) as f64 }
}

fn finding(
    view: &View,
    severity: Severity,
    loss: &MemoryLoss,
    group: &Group<'_>,
    usage: &Usage,
) -> Finding {
    let wait = words::verb(group, "waits", "wait");
    let confidence = Confidence::of(view);
    let mut lines = lines(view, loss, group, usage);
    lines.push(confidence.evidence(view));
    Finding {
        title: format!(
            "{} {wait} {} because memory is short",
            group_name(group),
            words::of_every_second(loss.ns_per_s)
        ),
        victim: words::group_entity(view, group),
        cost: Cost { lost_ns_per_s: loss.ns_per_s, share: loss.share, ..Cost::default() },
        evidence: lines,
        fix: fixes(),
        confirm: Some(words::look_again(
            group,
            "with more memory, or with less use of it, the waiting for memory falls".into(),
        )),
        ..RULE.finding(severity, confidence.value())
    }
}

fn lines(view: &View, loss: &MemoryLoss, group: &Group<'_>, usage: &Usage) -> Vec<Evidence> {
    let label = Source::Sched.label();
    let of_wall = units::share(loss.ns as f64 / usage.wall_ns.max(1) as f64);
    let note = format!("{of_wall} of the wall time of its threads: reclaim, refaults, compaction");
    let mut lines =
        vec![evidence(view, "waiting for memory", loss.ns as f64, Unit::Ns, label, note)];
    lines.push(others(view, loss, group));
    if let Some(some) = view.psi(None, PsiResource::Memory).and_then(PsiView::some_share) {
        let note = "of the wall time in which some thread of the host waited for memory, within \
                    the limit of a cgroup or not"
            .to_owned();
        let label = Source::Psi.label();
        lines.push(evidence(view, "memory pressure", some, Unit::Ratio, label, note));
    }
    lines
}

/// Who else waits for memory: what tells a limit of one cgroup from a host that is short of memory, but does not prove it.
fn others(view: &View, loss: &MemoryLoss, group: &Group<'_>) -> Evidence {
    let groups = view.groups();
    let waits = |other: &&Group<'_>| {
        let ns = other.usage.as_ref().map_or(0, |usage| usage.states.mem_stall_ns);
        !std::ptr::eq(*other, group)
            && other.comm != group.comm
            && ns as f64 >= OTHERS_SHARE * loss.ns as f64
    };
    let others: Vec<&Group<'_>> = groups.list().iter().filter(waits).collect();
    let elsewhere: BTreeSet<_> = others
        .iter()
        .filter(|other| other.cgroup != group.cgroup)
        .map(|other| other.cgroup)
        .collect();
    let note = match elsewhere.len() as u64 {
        0 => "no process outside its cgroup waits for memory: a limit of that cgroup is more likely than a host that is \
              short of memory"
            .to_owned(),
        n => format!(
            "so do processes in {}: a host that is short of memory is more likely than a limit of one cgroup",
            units::counted(n, "other cgroup", "other cgroups")
        ),
    };
    let label = Source::Sched.label();
    evidence(view, "others who wait", others.len() as f64, Unit::Count, label, note)
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
            "see whether a limit of its cgroup is what binds (`memory.events`: `high` and `max` grow; cgroup v1: \
             `memory.failcnt`), and raise it (`memory.high`, `memory.max`)",
            "the memory that it gets is taken from the host's other processes",
        ),
        fix(
            "where the host itself is short of memory, run less on it, or give it more",
            "swap only helps where much of what is in memory is not used",
        ),
        fix(
            "have the application keep less in memory: smaller caches, fewer processes",
            "what is no longer kept must be computed or read again",
        ),
    ]
}
