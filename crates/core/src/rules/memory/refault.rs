// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MEM003: threads wait for pages that were in memory a short while ago.

use super::holders::Holders;
use super::limits::{self, Level};
use super::losses::{self, MemoryLoss, PAGE_WAIT, Victim, reclaimed};
use super::read_again::{READ_AGAIN, ReadAgain};
use super::reason::{self, Binding, Why};
use crate::finding::{Area, Evidence, Finding, Fix, Question, Unit};
use crate::recording::Source;
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, group_name};
use crate::rules::{Check, Rule, Status, Verdict, severity};
use crate::text::units;
use crate::view::{Group, Usage, View};
use std::collections::BTreeSet;

/// Of the victim's waiting for memory: another group that waits less says nothing about the host.
const OTHERS_SHARE: f64 = 0.05;

pub(in crate::rules) static RULE: Rule = Rule {
    code: "MEM003",
    area: Area::Memory,
    question: Question::Memory,
    name: "refault",
    summary: "threads wait for pages that were in memory a short while ago",
    any_of: &[Source::Sched],
    helps: &[Source::Reclaim, Source::Block, Source::Psi],
    limits: &[&[PAGE_WAIT, READ_AGAIN], &severity::LOSS_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("refault.md"),
    file: file!(),
    check: Check::Recording(check),
};

fn check(view: &View) -> Verdict {
    let groups = view.groups();
    let lost = |group: &Group<'_>, usage: &Usage| loss(view, group, usage);
    let said = ("waited for memory", "no thread waited for memory but to free some itself");
    match losses::victims(view, groups.list(), lost, said) {
        Ok(victims) => {
            let holders = Holders::of(view, &groups);
            Verdict::Fired(victims.iter().map(|it| finding(view, &holders, it)).collect())
        }
        Err(quiet) => quiet,
    }
}

fn loss(view: &View, group: &Group<'_>, usage: &Usage) -> MemoryLoss {
    let waits_ns = waits_ns(view, group, usage);
    match ReadAgain::of(view, group, usage) {
        Some(again) => again.loss(view, usage, waits_ns),
        None => MemoryLoss::of(view, usage, waits_ns),
    }
}

/// Waiting for memory in which the threads did not free some themselves.
fn waits_ns(view: &View, group: &Group<'_>, usage: &Usage) -> u64 {
    let told_ns = reclaimed(view, group, |_| true).memory_ns;
    usage.states.mem_stall_ns.saturating_sub(told_ns)
}

fn finding(view: &View, holders: &Holders<'_, '_>, victim: &Victim<'_, '_>) -> Finding {
    let Victim { severity, loss, group, usage } = victim;
    let wait = words::verb(group, "waits", "wait");
    let waits_ns = waits_ns(view, group, usage);
    let again = ReadAgain::of(view, group, usage);
    // Where it mostly waits for the disk, what the kernel counts as waiting for memory says nothing of the host.
    let reads = again.filter(|it| it.ns > waits_ns);
    let why = match &reads {
        Some(it) => reason::of_reads(view, group, it),
        None => reason::of_stalls(view, group, waits_ns),
    };
    let confidence = Confidence::of(view);
    let binding = Binding::of(view, group, why);
    let mut lines = match &reads {
        Some(_) => vec![],
        None => lines(view, waits_ns, group, usage, why),
    };
    lines.extend(again.iter().map(|it| read_again(view, it, usage)));
    lines.extend(losses::pressure(view));
    lines.extend(binding.lines(view));
    // Where a limit of its own binds, what others hold is nothing to it.
    if binding.levels.is_empty() && why != Why::AboveHigh {
        lines.extend(holders.lines(view));
    }
    lines.push(confidence.evidence(view));
    let for_what = match why {
        _ if reads.is_some() => "for the disk, to read what was in memory a short while ago",
        Why::Refaults { .. } => "for pages that were in memory a short while ago",
        Why::AboveHigh => "because its cgroup is above `memory.high`",
        Why::NotKnown => "because memory is short",
    };
    Finding {
        title: format!(
            "{} {wait} {} {for_what}",
            group_name(group),
            words::of_every_second(loss.ns_per_s)
        ),
        victim: words::group_entity(view, group),
        cost: loss.cost(),
        causes: binding.causes(view),
        evidence: lines,
        fix: fixes(view, binding.levels.first(), holders, reads.is_some()),
        confirm: Some(words::look_again(
            group,
            "with more memory, or with less use of it, the waiting for memory falls".into(),
        )),
        ..RULE.finding(*severity, confidence.value())
    }
}

/// What a group read again, where the waiting counts as block IO.
fn read_again(view: &View, again: &ReadAgain, usage: &Usage) -> Evidence {
    let note = format!(
        "at least, of {} that it read; the host's `workingset_activate_file`, less what others read. Of its {} of block IO, that \
         part is in the loss",
        units::bytes(again.read_bytes as f64),
        units::duration(usage.states.block_io_ns as f64)
    );
    let bytes = again.again_bytes as f64;
    evidence(view, "read again", bytes, Unit::Bytes, "/proc/vmstat", note)
}

fn lines(view: &View, waits_ns: u64, group: &Group<'_>, usage: &Usage, why: Why) -> Vec<Evidence> {
    let label = Source::Sched.label();
    let of_wall = units::share(waits_ns as f64 / usage.wall_ns.max(1) as f64);
    let reclaimed = reclaimed(view, group, |_| true);
    let note = match view.covers(Source::Reclaim) {
        true => format!(
            "{of_wall} of the wall time of its threads, without {} in which they freed memory themselves",
            units::duration(reclaimed.memory_ns as f64)
        ),
        false => {
            format!("{of_wall} of the wall time of its threads: reclaim, refaults, compaction")
        }
    };
    let mut lines =
        vec![evidence(view, "waiting for memory", waits_ns as f64, Unit::Ns, label, note)];
    if let Why::Refaults { pages, own } = why {
        let (source, of) = match own {
            true => ("memory.stat", "of the cgroups whose limit made it free memory"),
            false => ("/proc/vmstat", "of the whole host: not all may be its own"),
        };
        let note = format!("{of} (`workingset_refault_*`)");
        lines.push(evidence(view, "pages that came back", pages as f64, Unit::Count, source, note));
    }
    lines.push(others(view, waits_ns, group));
    lines
}

/// Who else waits for memory: what tells a limit of one cgroup from a host that is short of memory, but does not prove it.
fn others(view: &View, waits_ns: u64, group: &Group<'_>) -> Evidence {
    // What processes hold is looked at when that happens.
    let of_host = !view.reclaim().held().is_empty();
    let groups = view.groups();
    let waits = |other: &&Group<'_>| {
        let ns = other.usage.as_ref().map_or(0, |usage| usage.states.mem_stall_ns);
        !std::ptr::eq(*other, group)
            && other.comm != group.comm
            && ns > 0
            && ns as f64 >= OTHERS_SHARE * waits_ns as f64
    };
    let others: Vec<&Group<'_>> = groups.list().iter().filter(waits).collect();
    let elsewhere: BTreeSet<_> = others
        .iter()
        .filter(|other| other.cgroup != group.cgroup)
        .map(|other| other.cgroup)
        .collect();
    let note = match elsewhere.len() as u64 {
        0 if of_host => "no process outside its cgroup waits for memory, and the kernel looked for some to free for the host: neither a \
                         limit of that cgroup nor the host is more likely"
            .to_owned(),
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

/// The remedies; where pages of the host come back, those for the host come first.
fn fixes(
    view: &View,
    limit: Option<&Level>,
    holders: &Holders<'_, '_>,
    host_first: bool,
) -> Vec<Fix> {
    let fix = |action: &str, risk: &str| Fix {
        action: action.into(),
        command: None,
        risk: Some(risk.into()),
        expect: None,
    };
    let see = || {
        fix(
            "see whether a limit of its cgroup is what binds (`memory.events`: `high` and `max` grow; cgroup v1: \
             `memory.failcnt`), and raise it (`memory.high`, `memory.max`)",
            "the memory that it gets is taken from the host's other processes",
        )
    };
    let of_limit = limit.map_or_else(see, |limit| limits::raise(view, Some(limit)));
    let of_host = fix(
        &format!(
            "where the host itself is short of memory, run less on it, or give it more: {}",
            holders.where_to_see()
        ),
        "swap only helps where much of what is in memory is not used",
    );
    let less = fix(
        "have the application keep less in memory: smaller caches, fewer processes",
        "what is no longer kept must be computed or read again",
    );
    match host_first && limit.is_none() {
        true => vec![of_host, less, of_limit],
        false => vec![of_limit, of_host, less],
    }
}
