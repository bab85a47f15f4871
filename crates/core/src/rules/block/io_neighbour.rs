// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BLK004: requests wait beside those of others.

use super::victims::{STALL_LIMITS, Victim, of_stalls};
use super::{files, knobs, saturation};
use crate::finding::{Cause, Confirm, Entity, EntityKind, Evidence, Finding, Fix, Severity, Unit};
use crate::recording::{CgroupId, DevId, IoCulprit, Source, StallKind};
use crate::render::units;
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, cgroup_entity, evidence, group_entity, group_name, ticked};
use crate::rules::{Limit, Rule, Status, Verdict};
use crate::view::{Group, Groups, View, waits};
use std::collections::BTreeMap;

/// Causes below this share are summed up.
const MIN_CAUSE: f64 = 0.01;
const MAX_CAUSES: usize = 5;
const MAX_VICTIMS: usize = 5;

pub(super) const OTHERS_SHARE: Limit = Limit {
    name: "others_share",
    value: 0.2,
    unit: "of the victim's waiting beside requests of others",
    why: "less changes little when they are gone",
};
const LONG_PART: Limit = Limit {
    name: "long_part",
    value: 0.25,
    unit: "of the victim's waiting in waits of 1 ms and more",
    why: "many short waits are what a healthy device serves",
};
const HIDDEN_TIMES: Limit = Limit {
    name: "hidden_times",
    value: 5.0,
    unit: "times as long held up as its requests took, with an IO limit in force",
    why: "a limit holds a thread back before a request exists, where no probe of requests sees it",
};

pub(in crate::rules) static RULE: Rule = Rule {
    code: "BLK004",
    name: "io-neighbour",
    summary: "requests wait while the device works for other processes or cgroups",
    needs: &[Source::Block],
    helps: &[Source::Writeback, Source::Settings],
    limits: &{
        let [a, b, c, d, e, f, g, h, i, j] = STALL_LIMITS;
        [OTHERS_SHARE, LONG_PART, HIDDEN_TIMES, a, b, c, d, e, f, g, h, i, j]
    },
    status: Status::Preview("0.2"),
    doc: include_str!("io_neighbour.md"),
    file: file!(),
    check,
};

/// Beside whom, as groups and cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Beside {
    Group(usize),
    Writeback(CgroupId),
    Unowned,
    Filesystem,
    Device,
    Unnamed,
}

/// The waiting of a group, by beside whom.
#[derive(Clone, Debug, Default)]
struct Shares {
    own_ns: u64,
    beside: BTreeMap<Beside, u64>,
}

impl Shares {
    fn of(view: &View, groups: &Groups<'_>, victim: usize, device: Option<DevId>) -> Self {
        let own_cgroup = groups.list()[victim].cgroup;
        let mut shares = Self::default();
        for ((proc, dev, culprit), ns) in view.block().blame() {
            let here = device.is_none_or(|device| view.block().disk_of(*dev) == device);
            if !here || groups.index_of(*proc) != Some(victim) {
                continue;
            }
            let beside = match culprit {
                IoCulprit::Process(id) => {
                    groups.index_of(*id).map_or(Beside::Unnamed, Beside::Group)
                }
                IoCulprit::Writeback(Some(id)) if is_own(view, own_cgroup, *id) => {
                    Beside::Group(victim)
                }
                IoCulprit::Writeback(Some(id)) if words::cgroup_path(view, *id).is_some() => {
                    Beside::Writeback(*id)
                }
                IoCulprit::Writeback(Some(_)) => Beside::Unowned,
                IoCulprit::Writeback(None) => Beside::Unowned,
                IoCulprit::Filesystem => Beside::Filesystem,
                IoCulprit::Device => Beside::Device,
            };
            if beside == Beside::Group(victim) {
                shares.own_ns += ns;
            } else {
                *shares.beside.entry(beside).or_default() += ns;
            }
        }
        shares
    }

    fn total_ns(&self) -> u64 {
        self.own_ns + self.beside.values().sum::<u64>()
    }

    fn is_other(beside: Beside) -> bool {
        matches!(beside, Beside::Group(_) | Beside::Writeback(_) | Beside::Unnamed)
    }

    fn others_ns(&self) -> u64 {
        self.beside.iter().filter(|(beside, _)| Self::is_other(**beside)).map(|(_, ns)| ns).sum()
    }

    /// Who else most.
    fn worst(&self) -> Option<(Beside, u64)> {
        let others = self.beside.iter().filter(|(beside, _)| Self::is_other(**beside));
        others
            .max_by_key(|&(beside, ns)| (*ns, std::cmp::Reverse(*beside)))
            .map(|(beside, ns)| (*beside, *ns))
    }
}

/// Whether pages of a cgroup are the victim's. With cgroup v1 the owner is a directory of the memory controller's
/// tree and the victim's of the CPU controller's: the same path is the same cgroup to people.
fn is_own(view: &View, own: Option<CgroupId>, owner: CgroupId) -> bool {
    let path = |id| words::cgroup_path(view, id);
    own == Some(owner) || own.and_then(path).is_some_and(|own| path(owner) == Some(own))
}

/// Share of a group's waiting that is its own: beside its own requests, or in a device that served it alone.
pub(super) fn own_share(
    view: &View,
    groups: &Groups<'_>,
    victim: usize,
    device: Option<DevId>,
) -> Option<f64> {
    let shares = Shares::of(view, groups, victim, device);
    let alone = shares.beside.get(&Beside::Device).copied().unwrap_or(0);
    (shares.total_ns() > 0).then(|| (shares.own_ns + alone) as f64 / shares.total_ns() as f64)
}

/// Share of a group's waiting that is beside others.
pub(super) fn others_share(view: &View, groups: &Groups<'_>, victim: usize, device: DevId) -> f64 {
    let shares = Shares::of(view, groups, victim, Some(device));
    shares.others_ns() as f64 / shares.total_ns().max(1) as f64
}

/// Beside whom a group waited, as causes whose shares are of its waiting.
pub(super) fn causes(
    view: &View,
    groups: &Groups<'_>,
    victim: usize,
    device: Option<DevId>,
) -> Vec<Cause> {
    let shares = Shares::of(view, groups, victim, device);
    let mut all: Vec<(Beside, u64)> =
        shares.beside.iter().map(|(beside, ns)| (*beside, *ns)).collect();
    if shares.own_ns > 0 {
        all.push((Beside::Group(victim), shares.own_ns));
    }
    all.sort_by_key(|&(beside, ns)| (std::cmp::Reverse(ns), beside));
    let whole = shares.total_ns().max(1) as f64;
    let is_shown = |ns: u64| ns as f64 / whole >= MIN_CAUSE;
    let rest: u64 = all.iter().skip(MAX_CAUSES).map(|(_, ns)| ns).sum();
    let mut causes: Vec<Cause> = all
        .iter()
        .take(MAX_CAUSES)
        .filter(|(_, ns)| is_shown(*ns))
        .map(|&(beside, ns)| Cause {
            entity: entity(view, groups, victim, beside),
            share: ns as f64 / whole,
        })
        .collect();
    if is_shown(rest) {
        let note = Some("many others, each with little".into());
        causes.push(Cause {
            entity: Entity { note, ..Entity::new(EntityKind::Unknown) },
            share: rest as f64 / whole,
        });
    }
    causes
}

fn entity(view: &View, groups: &Groups<'_>, victim: usize, beside: Beside) -> Entity {
    let kernel = |note: &str| {
        let note = Some(note.to_owned());
        Entity { note, ..Entity::new(EntityKind::Kernel) }
    };
    match beside {
        Beside::Group(at) => {
            let mut entity = group_entity(view, &groups.list()[at]);
            if at == victim {
                entity.note = Some("its own other requests".into());
            }
            entity
        }
        Beside::Writeback(id) => {
            let note = Some("writeback of its pages".to_owned());
            Entity { note, ..cgroup_entity(view, id) }
        }
        Beside::Unowned => kernel("writeback of pages whose owner is not known"),
        Beside::Filesystem => kernel("requests of journals and metadata"),
        Beside::Device => {
            let mut entity = Entity::new(EntityKind::Device);
            entity.device =
                main_device(view, groups, victim).map(|device| view.block().device_name(device));
            entity.note = Some("alone, without anybody beside".into());
            entity
        }
        Beside::Unnamed => Entity {
            note: Some("processes that are not known".into()),
            ..Entity::new(EntityKind::Unknown)
        },
    }
}

fn name_of(view: &View, groups: &Groups<'_>, beside: Beside) -> String {
    match beside {
        Beside::Group(at) => format!("requests of {}", group_name(&groups.list()[at])),
        Beside::Writeback(id) => match words::cgroup_path(view, id) {
            Some(path) => format!("writeback for {}", ticked(&path)),
            None => "writeback for another cgroup".into(),
        },
        _ => "requests of others".into(),
    }
}

fn check(view: &View) -> Verdict {
    let groups = view.groups();
    let mut found = Vec::new();
    let mut nearest: Option<(f64, String)> = None;
    for victim in Victim::all(view, &groups) {
        let shares = Shares::of(view, &groups, victim.at, None);
        let (others_ns, total_ns) = (shares.others_ns(), shares.total_ns());
        let Some((worst, worst_ns)) = shares.worst() else { continue };
        let part = others_ns as f64 / total_ns.max(1) as f64;
        let held = victim.held(StallKind::Request);
        let long = waits::at_least(&held.waits, waits::LONG_WAIT_NS).1 as f64
            / held.waits.total_ns().max(1) as f64;
        let severity = of_stalls(
            view.per_second(others_ns),
            victim.share(others_ns),
            (held.max_ns as f64 * part) as u64,
        );
        if let (Some(severity), true) =
            (severity, part >= OTHERS_SHARE.value && long >= LONG_PART.value)
        {
            found.push((severity, others_ns, victim, shares, worst, worst_ns));
        } else if nearest.as_ref().is_none_or(|nearest| others_ns as f64 > nearest.0) {
            let text = format!(
                "{} waits {} for requests beside others, {} of its waiting, most of it beside {}",
                group_name(victim.group),
                words::of_every_second(view.per_second(others_ns)),
                units::share(part),
                name_of(view, &groups, worst)
            );
            nearest = Some((others_ns as f64, text));
        }
    }
    if found.is_empty() {
        if let Some(missing) = hidden(view, &groups) {
            return Verdict::NoData { missing: vec![missing] };
        }
        let closest =
            nearest.map_or("nobody waited for requests beside others".into(), |(_, text)| text);
        return Verdict::Quiet { closest };
    }
    found
        .sort_by_key(|(severity, ns, victim, ..)| (std::cmp::Reverse((*severity, *ns)), victim.at));
    found.truncate(MAX_VICTIMS);
    let findings = found
        .into_iter()
        .map(|(severity, _, victim, shares, worst, worst_ns)| {
            finding(view, &groups, &victim, &shares, (worst, worst_ns), severity)
        })
        .collect();
    Verdict::Fired(findings)
}

/// Whether somebody is held up far longer than its requests take while a limit on IO is in force.
fn hidden(view: &View, groups: &Groups<'_>) -> Option<String> {
    let (path, value) = knobs::limits(view).into_iter().next()?;
    Victim::all(view, groups).iter().find_map(|victim| {
        let held = victim.held(StallKind::Sync).waits.total_ns();
        let requests = victim.held(StallKind::Request).waits.total_ns();
        let share = victim.share(held);
        let felt = of_stalls(view.per_second(held), share, victim.held(StallKind::Sync).max_ns).is_some();
        (felt && held as f64 >= HIDDEN_TIMES.value * requests as f64).then(|| {
            format!(
                "{} is held up {}, its requests take {} of that: {} ({}) holds it back before a request exists, where no \
                 probe of requests sees beside whom",
                group_name(victim.group),
                words::of_every_second(view.per_second(held)),
                units::duration(view.per_second(requests) as f64),
                ticked(path),
                ticked(value)
            )
        })
    })
}

fn finding(
    view: &View,
    groups: &Groups<'_>,
    victim: &Victim<'_>,
    shares: &Shares,
    (worst, worst_ns): (Beside, u64),
    severity: Severity,
) -> Finding {
    let held = victim.held(StallKind::Request);
    let total_ns = shares.total_ns();
    let confidence = Confidence::of(view).with_samples(held.waits.total_count());
    let device = main_device(view, groups, victim.at);
    let share = |ns: u64| units::share(ns as f64 / total_ns.max(1) as f64);
    let note = format!(
        "of the waiting for requests; {} beside its own, {} alone in the device",
        share(shares.own_ns),
        share(shares.beside.get(&Beside::Device).copied().unwrap_or(0))
    );
    let part = shares.others_ns() as f64 / total_ns.max(1) as f64;
    let mut lines: Vec<Evidence> =
        vec![evidence(view, "beside others", part, Unit::Ratio, Source::Block.label(), note)];
    if let Some(device) = device {
        lines.extend(saturation::line(view, device, &[(0, u64::MAX)]));
        lines.extend(saturation::latency_lines(view, device));
    }
    lines.extend(knobs::lines(view, device));
    lines.push(confidence.evidence(view));
    let many = victim.group.members.len() > 1;
    Finding {
        code: RULE.code.into(),
        name: RULE.name.into(),
        severity,
        confidence: confidence.value(),
        title: format!(
            "{} {} {} for {}, {} of it beside {}",
            group_name(victim.group),
            if many { "wait" } else { "waits" },
            words::of_every_second(view.per_second(total_ns)),
            device.map_or("block devices".into(), |device| ticked(&view.block().device_name(device))),
            share(worst_ns),
            name_of(view, groups, worst)
        ),
        victim: group_entity(view, victim.group),
        cost: victim.cost(view, total_ns, StallKind::Request, held.max_ns),
        causes: causes(view, groups, victim.at, None),
        evidence: lines,
        sizes: waits::size_classes(&held.waits),
        files: device.and_then(|device| {
            files::table(view, "read and written", |key| view.block().disk_of(key.device) == device)
        }),
        fix: fixes(view, groups, worst, device),
        confirm: Some(Confirm {
            command: "deburr -d 60".into(),
            expect: Some("with the other one stopped or limited for that time, the waiting falls by about its share".into()),
        }),
    }
}

/// The device that a group waits for most.
fn main_device(view: &View, groups: &Groups<'_>, victim: usize) -> Option<DevId> {
    let mut by_device: BTreeMap<DevId, u64> = BTreeMap::new();
    for ((proc, device, _), ns) in view.block().blame() {
        if groups.index_of(*proc) == Some(victim) {
            *by_device.entry(view.block().disk_of(*device)).or_default() += ns;
        }
    }
    by_device
        .into_iter()
        .max_by_key(|&(device, ns)| (ns, std::cmp::Reverse(device)))
        .map(|(device, _)| device)
}

fn fixes(view: &View, groups: &Groups<'_>, worst: Beside, device: Option<DevId>) -> Vec<Fix> {
    let culprit: Option<&Group<'_>> = match worst {
        Beside::Group(at) => groups.list().get(at),
        _ => None,
    };
    let whom = match (culprit, worst) {
        (Some(group), _) => ticked(group.comm),
        (None, Beside::Writeback(id)) => {
            words::cgroup_path(view, id).map_or("the other cgroup".into(), |p| ticked(&p))
        }
        (None, _) => "the others".into(),
    };
    let mut fixes = Vec::new();
    if let Some((_, process)) = culprit
        .and_then(|group| group.members.first())
        .filter(|_| culprit.is_some_and(|g| g.members.len() == 1))
    {
        let scheduler =
            device.and_then(|device| knobs::queue(view, device, "scheduler")).unwrap_or_default();
        let heeded = ["[bfq]", "[mq-deadline]"].iter().any(|name| scheduler.contains(name));
        fixes.push(Fix {
            action: format!("let {whom} go last: it gets the device when nobody else wants it"),
            command: Some(format!("ionice -c 3 -p {}", process.pid)),
            risk: Some(if heeded {
                "it may starve while others are busy; writeback of what it dirtied does not heed it".into()
            } else {
                "only the schedulers `bfq` and `mq-deadline` heed it; writeback of what it dirtied does not".into()
            }),
        });
    }
    fixes.push(Fix {
        action: format!("limit the IO of {whom} with its cgroup (`io.max`, `IOReadBandwidthMax=`, `IOWriteBandwidthMax=`) or weigh it (`io.weight`)"),
        command: None,
        risk: Some("a limit stands in the way when the device is idle too; weights need `bfq` or `io.cost`".into()),
    });
    fixes.push(Fix {
        action: format!("put {whom} on another device"),
        command: None,
        risk: Some("partitions and loop devices of one disk share its queue".into()),
    });
    fixes
}
