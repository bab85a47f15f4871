// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BLK008: a process waits for a disk, nearly all of that for its own requests, and no other rule has a reason for it.

use super::support::clocks::Compared;
use super::support::overload::{Overload, SLOW, SLOW_ROTATING, device_loss};
use super::support::own_waits::Own;
use super::support::victims::{Victim, WAITED_PART};
use super::support::{files, saturation, shares};
use crate::finding::{Area, Confirm, Evidence, Finding, Fix, Question, Severity, Unit};
use crate::recording::{SleptOn, Source, StallKind};
use crate::rules::asleep::kind;
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, group_name, ticked};
use crate::rules::{Check, Limit, Rule, Status, Verdict};
use crate::text::units;
use crate::view::{Groups, View, waits};
use std::cmp::Reverse;
use std::collections::BTreeMap;

const OWN_PART: Limit = Limit {
    name: "own_part",
    value: 0.85,
    unit: "of the waiting for requests that is for its own",
    why: "with more of others', they are the reason (BLK004), or it is not known whose they are",
};
const OWN_LOST: Limit = Limit {
    name: "own_lost",
    value: 200.0,
    unit: "ms of each second",
    why: "a service that keeps what it is told waits for its disk now and then",
};
const OWN_SHARE: Limit = Limit {
    name: "own_share",
    value: 0.2,
    unit: "of the time in which the victim wanted to run",
    why: "with less, most of its time goes elsewhere",
};
const MAX_VICTIMS: usize = 5;
/// Calls in which a victim waits that are shown, and the least part of its waiting for one.
const MAX_CALLS: usize = 3;
const LEAST_OF_CALL: f64 = 0.05;

pub(in crate::rules) static RULE: Rule = Rule {
    code: "BLK008",
    area: Area::Block,
    question: Question::Disk,
    name: "own-requests",
    summary: "a process waits for the disk as much as what it asks for takes, and nobody else is in its way",
    any_of: &[Source::Block],
    helps: &[Source::Writeback, Source::Settings],
    limits: &[&[OWN_PART, OWN_LOST, OWN_SHARE, WAITED_PART, SLOW, SLOW_ROTATING]],
    status: Status::Preview("0.1"),
    doc: include_str!("own_requests.md"),
    file: file!(),
    check: Check::Recording(check),
};

fn check(view: &View) -> Verdict {
    let groups = view.groups();
    let all = Own::all(view, &groups);
    let much = all.iter().filter(|it| is_much(view, it)).map(|it| it.without_read_again(view));
    let found = much.filter(|it| is_much(view, it) && !has_a_reason(view, &groups, it));
    let found: Vec<Finding> =
        found.take(MAX_VICTIMS).map(|it| finding(view, &groups, &it)).collect();
    if !found.is_empty() {
        return Verdict::Fired(found);
    }
    let closest = match all.first() {
        Some(it) => format!(
            "{} {} {} for requests of its own, {} of its waiting{}",
            group_name(it.victim.group),
            words::verb(it.victim.group, "waits", "wait"),
            words::of_every_second(view.per_second(it.ns)),
            units::share(it.part),
            if is_much(view, it) { ", for which another rule looks for the reason" } else { "" }
        ),
        None => "no process waited for requests of its own".into(),
    };
    Verdict::Quiet { closest }
}

/// Whether it loses enough.
fn is_much(view: &View, it: &Own<'_>) -> bool {
    it.part >= OWN_PART.value
        && view.per_second(it.ns) as f64 >= OWN_LOST.value * 1e6
        && it.victim.share(it.ns) >= OWN_SHARE.value
}

/// Whether the disk, or one of the kernel's clocks, is the reason, or that is not known: these have rules of their own.
fn has_a_reason(view: &View, groups: &Groups<'_>, it: &Own<'_>) -> bool {
    let Own { victim, device, .. } = it;
    let Some(activity) = view.block().activity().get(device) else { return true };
    let overload = Overload::of(view, *device, activity);
    if overload != Overload::Stretches
        || device_loss(view, groups, victim, *device, overload).is_some()
    {
        return true;
    }
    let stalls = victim.on_device(view, *device, &[StallKind::Request, StallKind::Sync]);
    let compared = Compared::new(view, *device, &stalls);
    compared.blames_passes() || compared.blames_commits()
}

fn finding(view: &View, groups: &Groups<'_>, it: &Own<'_>) -> Finding {
    let Own { victim, device, ns, part, .. } = it;
    let held = victim.held(StallKind::Request);
    let confidence = Confidence::of(view).with_samples(held.waits.total_count());
    let disk = view.block().device_name(*device);
    let count = held.waits.total_count();
    let note = format!(
        "of {}; {} on average",
        units::counted(count, "wait", "waits"),
        units::duration(held.waits.total_ns() as f64 / count.max(1) as f64)
    );
    let label = Source::Block.label();
    let mut lines = vec![evidence(view, "for its own requests", *part, Unit::Ratio, label, note)];
    lines.extend(calls(view, victim));
    lines.extend(saturation::line(view, *device, &[crate::stats::Span::ALWAYS]));
    lines.extend(saturation::latency_lines(view, *device));
    lines.push(confidence.evidence(view));
    Finding {
        title: format!(
            "{} {} {} for {}, nearly all of it for {} own requests",
            group_name(victim.group),
            words::verb(victim.group, "waits", "wait"),
            words::of_every_second(view.per_second(*ns)),
            ticked(&disk),
            words::verb(victim.group, "its", "their")
        ),
        device: Some(disk),
        victim: words::group_entity(view, victim.group),
        cost: victim.cost(view, *ns, StallKind::Request, held.max_ns),
        causes: shares::causes(view, groups, victim.at, Some(*device)),
        evidence: lines,
        sizes: waits::size_classes(&held.waits),
        files: files::table(view, "read and written", |key| {
            view.block().disk_of(key.device) == *device
        }),
        fix: vec![
            Fix {
                action: "ask for less: sync several changes at once, read more at a time, keep in memory what is read again".into(),
                command: None,
                risk: Some("what is not synced yet is lost in a crash".into()),
                expect: None,
            },
            Fix {
                action: "or put these files on a disk that answers faster".into(),
                command: None,
                risk: Some("what answers faster because it does not keep what it acknowledged loses data".into()),
                expect: None,
            },
        ],
        confirm: Some(Confirm {
            command: "deburr -d 60".into(),
            expect: Some("with fewer requests, the waiting for the disk falls by their part".into()),
        }),
        ..RULE.finding(Severity::Info, confidence.value())
    }
}

/// In which calls its threads wait for block IO, and for which files, where that was recorded.
fn calls(view: &View, victim: &Victim<'_>) -> Vec<Evidence> {
    let mut all: BTreeMap<String, u64> = BTreeMap::new();
    let members = victim.group.members.iter();
    let sleeps = members.filter_map(|(id, _)| view.processes().get(id)?.sleeps.as_ref());
    for (key, ns) in sleeps.flat_map(|it| it.iter()) {
        if key.slept.is_for_disk() && !kind::is_of_served_file(&key.slept) {
            *all.entry(call(&key.slept.call, &key.slept.on)).or_default() += ns;
        }
    }
    let total_ns = all.values().sum::<u64>().max(1);
    let mut all: Vec<(String, u64)> = all.into_iter().collect();
    all.sort_by_key(|(_, ns)| Reverse(*ns));
    let shown = all.into_iter().take(MAX_CALLS);
    shown
        .map(|(call, ns)| (call, ns, ns as f64 / total_ns as f64))
        .take_while(|(.., share)| *share >= LEAST_OF_CALL)
        .map(|(call, ns, share)| {
            let note = format!("{} of its block IO, on all disks: {call}", units::share(share));
            evidence(view, "in a call", ns as f64, Unit::Ns, Source::Sched.label(), note)
        })
        .collect()
}

fn call(name: &str, on: &SleptOn) -> String {
    match on {
        SleptOn::File { path: Some(path), .. } => format!("{} of {}", ticked(name), ticked(path)),
        _ => ticked(name),
    }
}
