// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BLK006: the kernel makes a writer pause because too much memory is dirty.

use super::support::victims::{STALL_LIMITS, Victim};
use super::support::{files, knobs, saturation};
use crate::finding::{Area, Cause, Confirm, Finding, Fix, Question, Severity, Share, Unit};
use crate::recording::{DevId, Source, StallKind};
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, group_name, ticked};
use crate::rules::{Check, Rule, Status, Verdict, severity};
use crate::stats::Span;
use crate::text::Target;
use crate::text::units;
use crate::view::{View, waits};

const MAX_VICTIMS: usize = 5;

pub(in crate::rules) static RULE: Rule = Rule {
    code: "BLK006",
    area: Area::Block,
    question: Question::Disk,
    name: "dirty-throttled-writer",
    summary: "writers are made to pause because more is dirty than the limits allow",
    any_of: &[Source::Writeback],
    helps: &[Source::Block, Source::Settings],
    limits: &[&severity::LOSS_LIMITS, &STALL_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("dirty_throttled_writer.md"),
    file: file!(),
    check: Check::Recording(check),
};

fn check(view: &View) -> Verdict {
    let groups = view.groups();
    let mut found = Vec::new();
    let mut nearest: Option<(u64, String)> = None;
    for victim in Victim::all(view, &groups) {
        let held = victim.held(StallKind::DirtyThrottle);
        let lost_ns = held.waits.total_ns();
        if lost_ns == 0 {
            continue;
        }
        if let Some(severity) = victim.severity(view, lost_ns, held.max_ns) {
            found.push((severity, lost_ns, victim));
        } else if nearest.as_ref().is_none_or(|nearest| lost_ns > nearest.0) {
            let time = words::of_every_second(view.per_second(lost_ns));
            nearest = Some((lost_ns, format!("{} paused {time}", group_name(victim.group))));
        }
    }
    if found.is_empty() {
        let closest = nearest.map_or("no writer was made to pause".into(), |(_, text)| text);
        return Verdict::Quiet { closest };
    }
    found.sort_by_key(|(severity, ns, victim)| (std::cmp::Reverse((*severity, *ns)), victim.at));
    found.truncate(MAX_VICTIMS);
    Verdict::Fired(
        found
            .iter()
            .map(|(severity, lost_ns, victim)| finding(view, victim, *lost_ns, *severity))
            .collect(),
    )
}

/// The limits on dirty memory that are in force, as path and value: the device's own before those of the host.
fn limits(view: &View, device: Option<DevId>) -> Vec<(String, String)> {
    let settings = view.block().settings();
    let bdi = settings.iter().filter(|(path, _)| {
        let own = device.is_none_or(|device| path.contains(&format!("/bdi/{device}/")));
        path.starts_with("/sys/class/bdi/") && own
    });
    // `max_bytes` is nonzero even for a device without a limit of its own: then it is the host's limit.
    let is_cut = |dir: &str| {
        let ratio = settings.get(&format!("{dir}/max_ratio")).and_then(Option::as_deref);
        ratio.is_none_or(|ratio| ratio.trim() != "100")
    };
    let differs = |path: &str, value: &str| match path.rsplit_once('/') {
        Some((_, "max_ratio")) => value != "100",
        Some((dir, "max_bytes")) => is_cut(dir),
        Some((_, "strict_limit" | "min_ratio" | "min_bytes")) => value != "0",
        _ => false,
    };
    let bdi = bdi.filter_map(|(path, value)| {
        let value = value.as_deref()?.trim();
        differs(path, value).then(|| (path.clone(), value.to_owned()))
    });
    let vm = |name: &str| {
        let value = knobs::vm(view, name).filter(|&value| value > 0)?;
        Some((format!("/proc/sys/vm/{name}"), value.to_string()))
    };
    let host = vm("dirty_bytes").or_else(|| vm("dirty_ratio"));
    bdi.chain(host).collect()
}

/// The disk whose dirty pages the victim waits for, if the kernel says so.
fn paused_for(view: &View, victim: &Victim<'_>) -> Option<DevId> {
    victim
        .stalls
        .iter()
        .filter(|stall| stall.kind == StallKind::DirtyThrottle)
        .find_map(|stall| stall.device)
        .or_else(|| {
            let members = victim.group.members.iter();
            let mut waits = members.flat_map(|(id, _)| view.block().waits_of(*id));
            waits.find(|((_, kind, _), _)| *kind == StallKind::DirtyThrottle)?.0.2
        })
        .map(|device| view.block().disk_of(device))
}

fn finding(view: &View, victim: &Victim<'_>, lost_ns: u64, severity: Severity) -> Finding {
    let held = victim.held(StallKind::DirtyThrottle);
    let device = paused_for(view, victim);
    let limits = limits(view, device);
    let confidence = Confidence::of(view)
        .with_samples(held.waits.total_count())
        .with("limit known", if limits.is_empty() { 0.8 } else { 1.0 });
    let label = Source::Writeback.label();
    let note = format!(
        "{} of every second in pauses, the longest {}",
        units::duration(view.per_second(lost_ns) as f64),
        units::duration(held.max_ns as f64)
    );
    let mut lines =
        vec![evidence(view, "pauses", held.waits.total_count() as f64, Unit::Count, label, note)];
    if !limits.is_empty() {
        let list: Vec<String> =
            limits.iter().map(|(path, value)| format!("{} {value}", ticked(path))).collect();
        let note = format!(
            "{}; pauses begin half-way between the background limit and these",
            list.join(", ")
        );
        lines.push(evidence(
            view,
            "limits in force",
            0.0,
            Unit::Text,
            Source::Settings.label(),
            note,
        ));
    }
    if let Some(device) = device {
        lines.extend(saturation::line(view, device, &[Span::ALWAYS]));
        lines.extend(saturation::latency_lines(view, device));
    }
    lines.extend(knobs::lines(view, device));
    lines.push(confidence.evidence(view));
    let to = device.map_or(String::new(), |device| {
        format!(" of {}", ticked(&view.block().device_name(device)))
    });
    let causes: Vec<Cause> = limits
        .first()
        .map(|(path, _)| {
            knobs::cause(view, path, Share::WHOLE, "as much may be dirty before writers pause")
        })
        .into_iter()
        .collect();
    Finding {
        title: format!(
            "{} {} made to pause for {}, because more is dirty than the limits{to} allow",
            group_name(victim.group),
            words::verb(victim.group, "is", "are"),
            words::of_every_second(view.per_second(lost_ns))
        ),
        victim: words::group_entity(view, victim.group),
        cost: victim.cost(view, lost_ns, StallKind::DirtyThrottle, held.max_ns),
        device: device.map(|device| view.block().device_name(device)),
        causes,
        evidence: lines,
        sizes: waits::size_classes(&held.waits),
        files: device.and_then(|device| {
            files::table(view, "written back", |key| view.block().disk_of(key.device) == device && key.reason.is_some())
        }),
        fix: fixes(&limits),
        confirm: Some(Confirm {
            command: "grep -E 'nr_dirty|nr_writeback ' /proc/vmstat".into(),
            expect: Some("while it pauses, `nr_dirty` and `nr_writeback` together are near `nr_dirty_threshold`, unless a device's own limit binds".into()),
        }),
        ..RULE.finding(severity, confidence.value())
    }
}

/// Limits of a device that a command may change.
const OF_DEVICE: [&str; 4] = [
    "/sys/class/bdi/*/max_ratio",
    "/sys/class/bdi/*/min_ratio",
    "/sys/class/bdi/*/min_bytes",
    "/sys/class/bdi/*/strict_limit",
];

fn fixes(limits: &[(String, String)]) -> Vec<Fix> {
    let mut fixes = vec![Fix {
        action: "let the writer wait where it chooses: write less at a time, or sync as it goes (`sync_file_range`, `fdatasync`)".into(),
        command: None,
        risk: Some("the device is no faster: pauses mean that more is written than it takes".into()), expect: None,
    }];
    if let Some((path, value)) = limits.iter().find(|(path, _)| path.starts_with("/sys/class/bdi/"))
    {
        // The kernel stores the limit as a ratio whichever file it is written to, and 0 bytes would mean that nothing
        // may be dirty.
        let command = match path.rsplit_once('/') {
            Some((dir, "max_ratio" | "max_bytes")) => {
                Target::of_kernel(&format!("{dir}/max_ratio"), &OF_DEVICE)
                    .map(|file| format!("echo 100 > {file}"))
            }
            _ => Target::of_kernel(path, &OF_DEVICE).map(|file| format!("echo 0 > {file}")),
        };
        fixes.push(Fix {
            action: format!("remove the device's own limit if nothing needs it ({} is {})", ticked(path), ticked(value)),
            command,
            risk: Some(format!("a slow device can then fill the host's share of dirty memory and make others pause; it was {value}")), expect: None,
        });
    }
    fixes.push(Fix {
        action: "a higher `vm.dirty_bytes` or `vm.dirty_ratio` takes longer bursts without a pause".into(),
        command: None,
        risk: Some("a sync then has more to write and stalls for longer, and more is lost when the power fails".into()), expect: None,
    });
    fixes.push(Fix {
        action: "a lower `vm.dirty_background_bytes` starts writing earlier, so that short bursts do not reach the limit".into(),
        command: None,
        risk: Some("what is overwritten again soon is written more often".into()), expect: None,
    });
    fixes
}
