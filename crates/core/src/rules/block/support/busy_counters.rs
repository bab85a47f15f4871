// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BLK003 without BPF: the kernel's own account of busy time in `/proc/diskstats`, which is coarse.

use super::overload::{BUSY, DEPTH, Overload};
use super::{device_remedies, knobs};
use crate::finding::{Cost, Entity, EntityKind, Finding, Severity, Unit};
use crate::recording::Source;
use crate::rules::confidence::Confidence;
use crate::rules::words::{evidence, ticked};
use crate::rules::{Rule, Verdict};
use crate::text::units;
use crate::view::View;

pub(in crate::rules::block) fn check(view: &View, rule: &Rule) -> Verdict {
    let block = view.block();
    let disks = block
        .disks()
        .iter()
        .filter(|(device, disk)| block.disk_of(**device) == **device && disk.seen_ns > 0);
    let Some((&device, disk)) = disks.max_by(|a, b| a.1.busy_share().total_cmp(&b.1.busy_share()))
    else {
        return Verdict::NoData {
            missing: vec!["/proc/diskstats: no device was read twice".into()],
        };
    };
    let name = block.device_name(device);
    let depth = disk.depth.total() as f64 / disk.busy.total().max(1) as f64;
    let busy = disk.busy_share();
    if busy < BUSY.value || depth <= DEPTH.value {
        return Verdict::Quiet {
            closest: format!(
                "{} was busy {} of the time by `/proc/diskstats`",
                ticked(&name),
                units::share(busy)
            ),
        };
    }
    let confidence = Confidence::of(view).with("coarse counters", 0.7);
    let note = format!(
        "of the time, {depth:.1} requests at once while busy; only BPF shows who waits for it"
    );
    let mut lines =
        vec![evidence(view, "device busy", busy, Unit::Ratio, Source::Diskstats.label(), note)];
    lines.extend(knobs::lines(view, Some(device)));
    lines.push(confidence.evidence(view));
    let mut entity = Entity::new(EntityKind::Device);
    entity.device = Some(name.clone());
    Verdict::Fired(vec![Finding {
        title: format!("{} is busy {} of the time", ticked(&name), units::share(busy)),
        device: Some(name),
        victim: entity,
        cost: Cost::default(),
        evidence: lines,
        fix: device_remedies::fixes(view, device, Overload::Always, false),
        ..rule.finding(Severity::Info, confidence.value())
    }])
}
