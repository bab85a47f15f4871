// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BLK003 of a disk whose requests do not end: no probe of completions sees them, and the kernel's own counters do.

use super::overload::DeviceLoss;
use super::{knobs, shares};
use crate::finding::{
    Cause, Cost, Entity, EntityKind, Evidence, Finding, Fix, Severity, Share, Unit,
};
use crate::recording::{DevId, Source, StallKind};
use crate::rules::candidates::may_suffer;
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, group_name, ticked};
use crate::rules::{Limit, Rule, severity};
use crate::stats::Span;
use crate::text::units;
use crate::view::block::DiskView;
use crate::view::{Group, Groups, View};
use std::collections::BTreeMap;

pub(in crate::rules::block) const HUNG: Limit = Limit {
    name: "hung",
    value: 2.0,
    unit: "s in which requests are in flight and none ends, by the kernel's counters",
    why: "no disk that works takes so long for one, and a probe that watches requests end hears nothing of it",
};

/// The disks on which requests were in flight and none ended for that long, with the findings of `rule` about them.
pub(in crate::rules::block) fn findings(
    view: &View,
    groups: &Groups<'_>,
    rule: &Rule,
) -> BTreeMap<DevId, Finding> {
    let block = view.block();
    let hung = |disk: &DiskView| {
        disk.longest_stuck().filter(|stretch| stretch.length_ns() as f64 / 1e9 >= HUNG.value)
    };
    let disks = block.disks().iter().filter(|(device, _)| block.disk_of(**device) == **device);
    disks
        .filter_map(|(&device, disk)| {
            Some((device, finding(view, groups, device, hung(disk)?, rule)))
        })
        .collect()
}

/// Adds what was measured of requests that ended after all, if the same process waited for them.
pub(in crate::rules::block) fn measured(
    finding: &mut Finding,
    view: &View,
    groups: &Groups<'_>,
    device: DevId,
    hit: &DeviceLoss<'_>,
) {
    let causes = shares::causes(view, groups, hit.victim.at, Some(device));
    if !causes.is_empty() && finding.victim == words::group_entity(view, hit.victim.group) {
        finding.cost = hit.victim.cost(view, hit.lost_ns, StallKind::Request, hit.longest_ns);
        finding.causes = causes;
    }
}

/// The group that waited longest for block IO, by its ledger, and its loss in nanoseconds.
fn victim<'g>(view: &View, groups: &'g Groups<'g>) -> Option<(&'g Group<'g>, u64, Severity)> {
    let waits = |group: &'g Group<'g>| {
        let usage = group.usage.as_ref()?;
        let ns = usage.states.block_io_ns + usage.states.uninterruptible_ns;
        let share = ns as f64 / (usage.wanted_ns() + ns).max(1) as f64;
        Some((group, ns, severity::of_turns(view.per_second(ns), share, usage.per_turn_ns(ns))?))
    };
    let all = groups.list().iter().filter(|group| may_suffer(view, group)).filter_map(waits);
    all.max_by_key(|&(_, ns, severity)| (severity, ns))
}

fn finding(view: &View, groups: &Groups<'_>, device: DevId, stretch: Span, rule: &Rule) -> Finding {
    let name = view.block().device_name(device);
    let length = units::duration(stretch.length_ns() as f64);
    let device_is = format!("{} had requests in flight for {length} and ended none", ticked(&name));
    let mut entity = Entity::new(EntityKind::Device);
    entity.device = Some(name.clone());
    let confidence = Confidence::of(view).with("coarse counters", 0.9);
    let victim = victim(view, groups);
    let mut lines = vec![in_flight(view, stretch)];
    lines.extend(knobs::lines(view, Some(device)));
    lines.push(confidence.evidence(view));
    let (title, who, cost) = match &victim {
        Some((group, ns, _)) => {
            let usage = group.usage.clone().unwrap_or_default();
            let lost_ns_per_s = view.per_second(*ns);
            let share = *ns as f64 / (usage.wanted_ns() + ns).max(1) as f64;
            let (wait, name) = (words::verb(group, "waits", "wait"), group_name(group));
            let waits = words::of_every_second(lost_ns_per_s);
            (
                format!("{device_is}, and {name} {wait} {waits} for block IO"),
                words::group_entity(view, group),
                Cost { lost_ns_per_s, share, ..Cost::default() },
            )
        }
        None => (device_is, entity.clone(), Cost::default()),
    };
    entity.note = Some(
        "likely, not measured: the kernel reports nothing about requests that do not end".into(),
    );
    let severity = victim.map_or(Severity::Info, |(_, _, severity)| severity);
    Finding {
        title,
        device: Some(name),
        victim: who,
        cost,
        causes: vec![Cause { entity, share: Share::default() }],
        evidence: lines,
        fix: vec![Fix {
            action: "find out what the device itself waits for: its path, its server, its driver, or whoever froze it \
                     (`fsfreeze`, `dmsetup suspend`)"
                .into(),
            command: Some("dmesg -T | tail -n 50".into()),
            risk: None,
            expect: None,
        }],
        ..rule.finding(severity, confidence.value())
    }
}

fn in_flight(view: &View, stretch: Span) -> Evidence {
    let note = "by the counters of the disk: reads, writes and flushes that ended".to_owned();
    let label = Source::Diskstats.label();
    let mut line =
        evidence(view, "no request ended for", stretch.length_ns() as f64, Unit::Ns, label, note);
    (line.from_s, line.to_s) = (stretch.t0_ns as f64 / 1e9, stretch.t1_ns as f64 / 1e9);
    line
}
