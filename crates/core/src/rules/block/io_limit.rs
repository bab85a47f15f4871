// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BLK007: an IO limit of a cgroup holds back its transfers.

use super::support::active_limits::{self, ActiveLimit};
use super::support::victims::{STALL_LIMITS, of_stalls};
use super::support::{beside_others, knobs};
use crate::finding::{
    Area, Cause, Confirm, Cost, Evidence, Finding, Fix, Promise, Question, Severity, Share, Unit,
};
use crate::recording::{DevId, IoOp, Source, StallKind};
use crate::rules::candidates::may_suffer;
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, group_name, ticked};
use crate::rules::{Check, Limit, Rule, Status, Verdict, severity};
use crate::text::units;
use crate::text::{Target, setting_value, shell_quote};
use crate::view::block::{HeldOfCgroup, held_by_cgroup, held_transfers};
use crate::view::{Group, Groups, View};

const MAX_VICTIMS: usize = 5;

const HELD: Limit = Limit {
    name: "held",
    value: 1.0,
    unit: "transfer that was held back and let go, at least",
    why: "without any, no limit stood in the way",
};

pub(in crate::rules) static RULE: Rule = Rule {
    code: "BLK007",
    area: Area::Block,
    question: Question::Disk,
    name: "io-limit",
    summary: "a limit of a cgroup on block IO holds its transfers back before the device is asked",
    any_of: &[Source::Block],
    helps: &[Source::Sched, Source::Settings, Source::Writeback],
    limits: &[&[HELD], &severity::LOSS_LIMITS, &STALL_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("io_limit.md"),
    file: file!(),
    check: Check::Recording(check),
};

/// A group whose transfers are held back.
struct LimitedGroup<'g> {
    group: &'g Group<'g>,
    at: usize,
    cgroup: &'g str,
    of: &'g HeldOfCgroup<'g>,
    lost_ns: u64,
    share: f64,
    longest_ns: u64,
}

fn check(view: &View) -> Verdict {
    let groups = view.groups();
    let held = held_transfers(view);
    if (held as f64) < HELD.value {
        return nothing_held(view, &groups);
    }
    let all = held_by_cgroup(view);
    let hits: Vec<LimitedGroup<'_>> =
        all.iter().flat_map(|(cgroup, of)| of_cgroup(view, &groups, cgroup, of)).collect();
    let mut felt: Vec<(Severity, &LimitedGroup<'_>)> = hits
        .iter()
        .filter_map(|hit| {
            let lost = view.per_second(hit.lost_ns);
            Some((of_stalls(lost, hit.share, None, hit.longest_ns)?, hit))
        })
        .collect();
    if felt.is_empty() {
        return unfelt(view, held, &hits);
    }
    felt.sort_by_key(|(severity, hit)| (std::cmp::Reverse((*severity, hit.lost_ns)), hit.at));
    felt.truncate(MAX_VICTIMS);
    Verdict::Fired(felt.into_iter().map(|(severity, hit)| finding(view, hit, severity)).collect())
}

fn nothing_held(view: &View, groups: &Groups<'_>) -> Verdict {
    // Where the time before requests was recorded, held-back transfers were, too.
    let told = view.block().latency().values().any(|latency| latency.before.is_some());
    if let Some(missing) = beside_others::hidden(view, groups).filter(|_| !told) {
        return Verdict::NoData { missing: vec![missing] };
    }
    let limits = knobs::limits(view).len() as u64;
    let limits = match limits {
        0 => "no limit is known to be in force".to_owned(),
        _ => format!("{} in force", units::counted(limits, "limit is", "limits are")),
    };
    Verdict::Quiet { closest: format!("no transfer was held back; {limits}") }
}

fn unfelt(view: &View, held: u64, hits: &[LimitedGroup<'_>]) -> Verdict {
    let transfers = units::counted(held, "transfer was", "transfers were");
    if !view.covers(Source::Sched) && !view.covers(Source::Writeback) {
        let missing = format!(
            "{transfers} held back; only the ledger of threads, or syncs, would show for how long"
        );
        return Verdict::NoData { missing: vec![missing] };
    }
    let worst = hits.iter().max_by_key(|hit| hit.lost_ns).map_or(String::new(), |hit| {
        let time = words::of_every_second(view.per_second(hit.lost_ns));
        format!(": {} waits {time} for that", group_name(hit.group))
    });
    Verdict::Quiet { closest: format!("{transfers} held back by a limit{worst}") }
}

/// The groups with processes in a cgroup that lost time because its transfers were held back.
fn of_cgroup<'g>(
    view: &'g View,
    groups: &'g Groups<'g>,
    cgroup: &'g str,
    of: &'g HeldOfCgroup<'g>,
) -> Vec<LimitedGroup<'g>> {
    let group = |(at, group): (usize, &'g Group<'g>)| {
        let mine = |id| of.members.get(id);
        let lost_ns: u64 = group.members.iter().filter_map(|(id, _)| mine(id)).sum();
        let usage = group.usage.as_ref();
        let wanted_ns = usage.map_or(0, |usage| usage.wanted_ns() + usage.states.block_io_ns);
        let share = lost_ns as f64 / wanted_ns.max(lost_ns).max(1) as f64;
        if lost_ns == 0 || !may_suffer(view, group) {
            return None;
        }
        let waits = group.members.iter().flat_map(|(id, _)| view.block().waits_of(*id));
        let syncs = waits.filter(|((_, kind, _), _)| *kind == StallKind::Sync);
        let longest_ns = syncs.map(|(_, waits)| waits.max_ns).max().unwrap_or(0);
        Some(LimitedGroup { group, at, cgroup, of, lost_ns, share, longest_ns })
    };
    groups.list().iter().enumerate().filter_map(group).collect()
}

/// The device and direction with the most transfers held back.
fn main_kind(of: &HeldOfCgroup<'_>) -> Option<(DevId, IoOp)> {
    let kinds = of.kinds.iter();
    kinds
        .max_by_key(|(key, held)| (held.ios.total(), std::cmp::Reverse(**key)))
        .map(|(key, _)| *key)
}

fn word(op: IoOp) -> &'static str {
    match op {
        IoOp::Read => "reads",
        IoOp::Write => "writes",
        IoOp::Other => "other transfers",
    }
}

fn lines(view: &View, hit: &LimitedGroup<'_>, limits: &[ActiveLimit<'_>]) -> Vec<Evidence> {
    let mut lines = Vec::new();
    for ((device, op), held) in &hit.of.kinds {
        let count = held.ios.total();
        let mut note = format!(
            "{} to {} of cgroup {}, {} in total, released by the kernel when the limit allowed it",
            word(*op),
            ticked(&view.block().device_name(*device)),
            ticked(hit.cgroup),
            units::bytes(held.bytes as f64)
        );
        let service_ns = held.service_ns.total();
        if service_ns > 0 {
            let each = service_ns as f64 / count.max(1) as f64;
            note += &format!("; then each took {}", units::duration(each));
        }
        let label = Source::Block.label();
        lines.push(evidence(view, "held back", count as f64, Unit::Count, label, note));
    }
    if let Some(usage) = &hit.group.usage {
        let note = format!(
            "of its threads; {} of it in the seconds with such transfers, and neither its own requests nor theirs explain it",
            units::share(hit.lost_ns as f64 / usage.states.block_io_ns.max(1) as f64)
        );
        let ns = usage.states.block_io_ns as f64;
        lines.push(evidence(
            view,
            "waiting for block IO",
            ns,
            Unit::Ns,
            Source::Sched.label(),
            note,
        ));
    }
    for limit in limits {
        let note = format!("{} says {}", ticked(limit.path), ticked(limit.line));
        let label = Source::Settings.label();
        lines.push(evidence(view, "limit in force", 0.0, Unit::Text, label, note));
    }
    lines
}

fn finding(view: &View, hit: &LimitedGroup<'_>, severity: Severity) -> Finding {
    let kind = main_kind(hit.of);
    let limits: Vec<ActiveLimit<'_>> = hit
        .of
        .kinds
        .keys()
        .flat_map(|kind| active_limits::limits(view, hit.cgroup, *kind))
        .collect();
    let first =
        kind.and_then(|kind| active_limits::limits(view, hit.cgroup, kind).into_iter().next());
    let samples = hit.of.kinds.values().map(|held| held.ios.total()).sum();
    let confidence = Confidence::of(view)
        .with_samples(samples)
        .with("limit known", if first.is_some() { 1.0 } else { 0.7 })
        .with("time from the ledger", if hit.group.usage.is_some() { 1.0 } else { 0.7 });
    let mut lines = lines(view, hit, &limits);
    lines.push(confidence.evidence(view));
    let by = first.as_ref().map_or("a limit on block IO".into(), |limit| {
        ticked(limit.path.rsplit('/').next().unwrap_or(limit.path))
    });
    let to = kind.map_or(String::new(), |(device, op)| {
        format!("{} to {}", word(op), ticked(&view.block().device_name(device)))
    });
    let cause = first.as_ref().map(|limit| Cause {
        entity: crate::finding::Entity {
            value: Some(limit.line.to_owned()),
            ..knobs::cause(
                view,
                limit.path,
                Share::WHOLE,
                "it holds transfers back before they reach the device",
            )
            .entity
        },
        share: Share::WHOLE,
    });
    Finding {
        title: format!(
            "{} {} {} because {by} of cgroup {} holds {to} back",
            group_name(hit.group),
            words::verb(hit.group, "waits", "wait"),
            words::of_every_second(view.per_second(hit.lost_ns)),
            ticked(hit.cgroup)
        ),
        device: kind.map(|(device, _)| view.block().device_name(device)),
        victim: words::group_entity(view, hit.group),
        cost: Cost {
            lost_ns_per_s: view.per_second(hit.lost_ns),
            share: hit.share,
            max_ns: (hit.longest_ns > 0).then_some(hit.longest_ns),
            ..Cost::default()
        },
        causes: cause.into_iter().collect(),
        evidence: lines,
        fix: fixes(first.as_ref(), promise(hit, &limits)),
        confirm: Some(Confirm {
            command: "deburr -d 30".into(),
            expect: Some(
                "with a higher limit: fewer transfers are held back, and the waiting falls".into(),
            ),
        }),
        ..RULE.finding(severity, confidence.value())
    }
}

/// Files of cgroups that a command may write a limit to.
const LIMITS: [&str; 2] = ["/sys/fs/cgroup/*/io.max", "/sys/fs/cgroup/*/blkio.throttle.*_device"];

/// Promised upper bound of the share of the held-back time that is left with twice the limit. A transfer is then held
/// for half as long if others follow it without a pause, else for less; the device's own time stays.
const LEFT_BY_TWICE: f64 = 0.6;

/// The promise of twice the limit, on each transfer's wait. `None` if several limits are in force, since another one
/// may bind then, or if the group has no ledger.
fn promise(hit: &LimitedGroup<'_>, limits: &[ActiveLimit<'_>]) -> Option<Promise> {
    let usage = hit.group.usage.as_ref()?;
    let held = hit.lost_ns as f64 / usage.states.block_io_ns.max(hit.lost_ns).max(1) as f64;
    let left = ((1.0 - held * (1.0 - LEFT_BY_TWICE)) * 100.0).ceil() / 100.0;
    (limits.len() == 1).then(|| Promise::each_transfer_left_at_most(left))
}

fn fixes(limit: Option<&ActiveLimit<'_>>, promise: Option<Promise>) -> Vec<Fix> {
    let mut fixes = Vec::new();
    if let Some(limit) = limit {
        let command = active_limits::doubled(limit.line)
            .and_then(|line| {
                Some((setting_value(&line)?.to_owned(), Target::of_kernel(limit.path, &LIMITS)?))
            })
            .map(|(line, file)| format!("echo {} > {file}", shell_quote(&line)));
        fixes.push(Fix {
            action: format!("raise the limit in {}, or take it away", ticked(limit.path)),
            risk: Some(format!(
                "those who share the disk lose what it gets; whoever set it (systemd's `IOReadIOPSMax=` and the like, a \
                 container's runtime) sets it again, so change it there, too; it was {}",
                ticked(limit.line)
            )),
            expect: promise.filter(|_| command.is_some()),
            command,
        });
    }
    fixes.push(Fix {
        action: "ask for less: bigger transfers if they are counted, smaller ones if bytes are; fewer syncs; more in memory".into(),
        command: None,
        risk: Some("what is not synced is lost when the power fails".into()), expect: None,
    });
    fixes.push(Fix {
        action: "where the limit protects another process, use a weight instead (`io.weight`): it takes nothing while the disk is idle".into(),
        command: None,
        risk: Some("weights need the scheduler `bfq` or the controller `io.cost` on that disk".into()), expect: None,
    });
    fixes
}
