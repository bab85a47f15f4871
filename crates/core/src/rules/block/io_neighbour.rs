// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BLK004: requests wait while the device serves those of others.

use super::support::beside_others::{
    HIDDEN_TIMES, LONG_PART, OTHERS_SHARE, Severities, hidden, severities,
};
use super::support::clocks::Compared;
use super::support::rhythms::{RHYTHM, TimingEvidence};
use super::support::shares::{causes, name_of};
use super::support::time_parts::{self, BEFORE};
use super::support::victims::{STALL_LIMITS, Victim};
use super::support::{files, knobs, saturation};
use crate::finding::{Area, Confirm, Cost, Evidence, Finding, Fix, Question, Severity, Tail, Unit};
use crate::recording::{DevId, Source, StallKind};
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, group_entity, group_name, ticked};
use crate::rules::{Check, Rule, Status, Verdict, remedy, severity, tail};
use crate::stats::Span;
use crate::text::units;
use crate::view::block::stalls::spans;
use crate::view::block::{Neighbour, Shares, main_device};
use crate::view::{Group, Groups, View, waits};

const MAX_VICTIMS: usize = 5;

pub(in crate::rules) static RULE: Rule = Rule {
    code: "BLK004",
    area: Area::Block,
    question: Question::Disk,
    name: "io-neighbour",
    summary: "requests wait while the device works for other processes or cgroups",
    any_of: &[Source::Block],
    helps: &[Source::Writeback, Source::Settings],
    limits: &[
        &[OTHERS_SHARE, LONG_PART, HIDDEN_TIMES, RHYTHM, BEFORE],
        &severity::LOSS_LIMITS,
        &STALL_LIMITS,
        &tail::LIMITS,
    ],
    status: Status::Preview("0.1"),
    doc: include_str!("io_neighbour.md"),
    file: file!(),
    check: Check::Recording(check),
};

fn check(view: &View) -> Verdict {
    let groups = view.groups();
    let mut found = Vec::new();
    let mut nearest: Option<(f64, String)> = None;
    let mut own: Option<(u64, String)> = None;
    for victim in Victim::all(view, &groups) {
        let shares = Shares::of(view, &groups, victim.at, None);
        let (others_ns, total_ns) = (shares.others_ns(), shares.total_ns());
        let Some((worst, worst_ns)) = shares.worst() else {
            if own.as_ref().is_none_or(|own| shares.own_ns > own.0) {
                own = beside_own(view, &victim, &shares).map(|text| (shares.own_ns, text)).or(own);
            }
            continue;
        };
        let Severities { by_mean, by_tail, tail } = severities(view, &victim, &shares);
        if let Some(severity) = by_mean.max(by_tail) {
            let hit = WaitingVictim { severity, victim, shares, worst: (worst, worst_ns), tail };
            found.push((others_ns, by_tail > by_mean, hit));
        } else if nearest.as_ref().is_none_or(|nearest| others_ns as f64 > nearest.0) {
            let text = format!(
                "{} waits {} for requests beside others, {} of its waiting, most of it beside {}",
                group_name(victim.group),
                words::of_every_second(view.per_second(others_ns)),
                units::share(others_ns as f64 / total_ns.max(1) as f64),
                name_of(view, &groups, worst)
            );
            nearest = Some((others_ns as f64, text));
        }
    }
    if found.is_empty() {
        if let Some(missing) = hidden(view, &groups) {
            return Verdict::NoData { missing: vec![missing] };
        }
        let closest = nearest.map(|(_, text)| text).unwrap_or_else(|| {
            let own = own.map_or(String::new(), |(_, text)| format!(": {text}"));
            format!("no process waited for requests beside others{own}")
        });
        return Verdict::Quiet { closest };
    }
    found.sort_by_key(|(ns, _, hit)| (std::cmp::Reverse((hit.severity, *ns)), hit.victim.at));
    found.truncate(MAX_VICTIMS);
    let findings = found.iter().map(|(_, leads, hit)| finding(view, &groups, hit, *leads));
    Verdict::Fired(findings.collect())
}

/// A victim whose requests wait.
struct WaitingVictim<'g> {
    severity: Severity,
    victim: Victim<'g>,
    shares: Shares,
    worst: (Neighbour, u64),
    tail: Option<Tail>,
}

/// A sentence that the group waits beside its own other requests; `None` if it does not.
fn beside_own(view: &View, victim: &Victim<'_>, shares: &Shares) -> Option<String> {
    let total_ns = shares.total_ns();
    (shares.own_ns > 0).then(|| {
        format!(
            "{} {} {} for requests, {} of it beside {}",
            group_name(victim.group),
            words::verb(victim.group, "waits", "wait"),
            words::of_every_second(view.per_second(total_ns)),
            units::share(shares.own_ns as f64 / total_ns.max(1) as f64),
            words::verb(victim.group, "its own other ones", "each other's")
        )
    })
}

fn finding(view: &View, groups: &Groups<'_>, hit: &WaitingVictim<'_>, leads: bool) -> Finding {
    let WaitingVictim { severity, victim, shares, worst: (worst, _), tail } = hit;
    let held = victim.held(StallKind::Request);
    let total_ns = shares.total_ns();
    let confidence = Confidence::of(view).with_samples(held.waits.total_count());
    let device = main_device(view, groups, victim.at);
    let timed = device.map(|device| {
        let stalls = victim.on_device(view, device, &[StallKind::Request, StallKind::Sync]);
        let compared = Compared::new(view, device, &stalls);
        let what = ("stalls", spans(&stalls));
        TimingEvidence::of(view, groups, device, Some(victim.at), what, Some(&compared))
    });
    let share = |ns: u64| units::share(ns as f64 / total_ns.max(1) as f64);
    let note = format!(
        "of the waiting for requests; {} beside its own other ones, {} for the requests themselves",
        share(shares.own_ns),
        share(shares.beside.get(&Neighbour::Device).copied().unwrap_or(0))
    );
    let part = shares.others_ns() as f64 / total_ns.max(1) as f64;
    let mut lines: Vec<Evidence> =
        vec![evidence(view, "beside others", part, Unit::Ratio, Source::Block.label(), note)];
    lines.extend(tail.iter().map(|tail| tail::line(view, tail, Source::Block.label())));
    if let Some(device) = device {
        lines.extend(saturation::line(view, device, &[Span::ALWAYS]));
        lines.extend(saturation::latency_lines(view, device));
    }
    lines.extend(timed.iter().flat_map(|timed| timed.lines.clone()));
    lines.extend(knobs::lines(view, device));
    lines.push(confidence.evidence(view));
    Finding {
        title: title(view, groups, hit, (device, leads))
            + timed.as_ref().map_or("", |timed| &timed.words),
        device: device.map(|device| view.block().device_name(device)),
        victim: group_entity(view, victim.group),
        cost: Cost {
            tail: *tail,
            ..victim.cost(view, total_ns, StallKind::Request, held.max_ns)
        },
        causes: causes(view, groups, victim.at, None),
        evidence: lines,
        sizes: waits::size_classes(&held.waits),
        rhythm_ns: timed.as_ref().and_then(|timed| timed.period_ns),
        chart: timed.filter(|timed| timed.period_ns.is_some()).and_then(|timed| timed.chart),
        files: device.and_then(|device| {
            files::table(view, "read and written", |key| view.block().disk_of(key.device) == device)
        }),
        fix: fixes(view, groups, *worst, device),
        confirm: Some(Confirm {
            command: "deburr -d 60".into(),
            expect: Some("with the other one stopped or limited for that time, the waiting falls by about its share".into()),
        }),
        ..RULE.finding(*severity, confidence.value())
    }
}

fn title(
    view: &View,
    groups: &Groups<'_>,
    hit: &WaitingVictim<'_>,
    (device, leads): (Option<DevId>, bool),
) -> String {
    let WaitingVictim { victim, shares, worst: (worst, worst_ns), tail, .. } = hit;
    let total_ns = shares.total_ns();
    let name = group_name(victim.group);
    let of =
        device.map_or("block devices".into(), |device| ticked(&view.block().device_name(device)));
    let beside = format!(
        "{} of it beside {}",
        units::share(*worst_ns as f64 / total_ns.max(1) as f64),
        name_of(view, groups, *worst)
    );
    if let Some(tail) = tail.as_ref().filter(|_| leads) {
        return format!(
            "{} of {name} to {of} takes {}, {beside}: {}",
            tail::one_in(tail, "request"),
            units::duration(tail.late_ns as f64),
            tail::words(tail, "their")
        );
    }
    let wait = words::verb(victim.group, "waits", "wait");
    let time = words::of_every_second(view.per_second(total_ns));
    format!("{name} {wait} {time} for {of}, {beside}")
}

fn fixes(view: &View, groups: &Groups<'_>, worst: Neighbour, device: Option<DevId>) -> Vec<Fix> {
    let culprit: Option<&Group<'_>> = match worst {
        Neighbour::Group(at) => groups.list().get(at),
        _ => None,
    };
    if let Neighbour::Asked(at) = worst {
        let whom = ticked(groups.list()[at].comm);
        return vec![
            Fix {
                action: format!(
                    "have {whom} write back only what it needs (`fsync`, `sync FILE`), not everything that is dirty on the host"
                ),
                command: None,
                risk: Some(
                    "what no process syncs stays dirty for `vm.dirty_expire_centisecs`".into(),
                ),
                expect: None,
            },
            Fix {
                action: format!(
                    "have the processes that write much write it back soon, so that little is left for {whom} to request"
                ),
                command: Some("sysctl -w vm.dirty_background_bytes=33554432".into()),
                risk: Some(format!(
                    "for the whole host: more is written in total, in smaller pieces; {}",
                    knobs::background_limit(view)
                )),
                expect: None,
            },
        ];
    }
    if let Some(kernel) = culprit.filter(|group| group.is_kernel()) {
        return vec![remedy::of_kernel(kernel.comm)];
    }
    let whom = match (culprit, worst) {
        (Some(group), _) => ticked(group.comm),
        (None, Neighbour::Dirtied(at)) => ticked(groups.list()[at].comm),
        (None, Neighbour::Writeback(id)) => {
            words::cgroup_path(view, id).map_or("the other cgroup".into(), |p| ticked(&p))
        }
        (None, _) => "the others".into(),
    };
    let mut fixes: Vec<Fix> =
        device.and_then(|device| time_parts::fix(view, device)).into_iter().collect();
    let scheduler = device.and_then(|device| knobs::queue(view, device, "scheduler"));
    let heeds = |line: &str| ["[bfq]", "[mq-deadline]"].iter().any(|name| line.contains(name));
    let pids = culprit.and_then(|group| remedy::pids_of(group));
    if let Some(pids) = pids.filter(|_| scheduler.is_none_or(heeds)) {
        let risk = "it may starve while others are busy; writeback of what it dirtied does not heed it; threads that it starts \
                    inherit it";
        let only = "only the schedulers `bfq` and `mq-deadline` heed it; ";
        fixes.push(Fix {
            action: format!("put {whom} last: it gets the device when no other process wants it"),
            command: Some(format!("ionice -c 3 -p {}", remedy::threads(&pids))),
            risk: Some(format!("{}{risk}", if scheduler.is_none() { only } else { "" })),
            expect: None,
        });
    }
    fixes.push(Fix {
        action: format!("limit the IO of {whom} with its cgroup (`io.max`, `IOReadBandwidthMax=`, `IOWriteBandwidthMax=`; `blkio.throttle.*` on cgroup v1) or weigh it (`io.weight`)"),
        command: None,
        risk: Some("a limit stands in the way when the device is idle too; weights need `bfq` or `io.cost`".into()), expect: None,
    });
    fixes.push(Fix {
        action: format!("put {whom} on another device"),
        command: None,
        risk: Some("partitions and loop devices of one disk share its queue".into()),
        expect: None,
    });
    fixes
}
