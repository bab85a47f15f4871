// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BLK003: a device that cannot keep up, all the time or in stretches.

use super::support::beside_others::OTHERS_SHARE;
use super::support::clocks::Compared;
use super::support::hung::{self, HUNG};
use super::support::overload::{
    BUSY, CALM, DEPTH, DeviceLoss, Overload, SLOW, SLOW_ROTATING, depth, device_loss,
};
use super::support::rhythms::{RHYTHM, TimingEvidence};
use super::support::time_parts::BEFORE;
use super::support::victims::{STALL_LIMITS, Victim};
use super::support::{busy_counters, device_remedies, files, knobs, saturation, shares};
use crate::finding::{
    Area, Cause, Confirm, Cost, Entity, EntityKind, Evidence, Finding, Question, Severity, Share,
    Unit,
};
use crate::recording::{DevId, Source, StallKind};
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, group_name, ticked};
use crate::rules::{Check, Limit, Rule, Status, Verdict, severity};
use crate::stats::Span;
use crate::text::units;
use crate::view::block::stalls::spans;
use crate::view::block::{Activity, MIN_BUSY_STRETCH_NS};
use crate::view::{Groups, View};

const SPELL: Limit = Limit {
    name: "spell",
    value: MIN_BUSY_STRETCH_NS as f64 / 1e6,
    unit: "ms without a pause, seen in bins of 10 ms",
    why: "any request keeps a device busy for some milliseconds",
};
pub(in crate::rules) static RULE: Rule = Rule {
    code: "BLK003",
    area: Area::Block,
    question: Question::Disk,
    name: "device-saturated",
    summary: "a block device has more to do than it can, for long or in short stretches that averages hide",
    any_of: &[Source::Block, Source::Diskstats],
    helps: &[Source::Writeback, Source::Settings],
    limits: &[
        &[BUSY, SPELL, DEPTH, SLOW, SLOW_ROTATING, CALM, OTHERS_SHARE, RHYTHM, BEFORE, HUNG],
        &severity::LOSS_LIMITS,
        &STALL_LIMITS,
    ],
    status: Status::Preview("0.1"),
    doc: include_str!("device_saturated.md"),
    file: file!(),
    check: Check::Recording(check),
};

fn check(view: &View) -> Verdict {
    if !view.covers(Source::Block) {
        return busy_counters::check(view, &RULE);
    }
    let groups = view.groups();
    let victims = Victim::all(view, &groups);
    let mut findings = Vec::new();
    let mut hung = hung::findings(view, &groups, &RULE);
    for (&device, activity) in view.block().activity() {
        let how = Overload::of(view, device, activity);
        let mut hits: Vec<DeviceLoss<'_>> = victims
            .iter()
            .filter_map(|victim| device_loss(view, &groups, victim, device, how))
            .collect();
        hits.sort_by_key(|hit| (std::cmp::Reverse((hit.severity, hit.lost_ns)), hit.victim.at));
        let hit = hits.into_iter().next();
        // The mean of the requests' times is then that of the stretch in which none ended.
        if let (Overload::Slow(_), Some(finding)) = (how, hung.get_mut(&device)) {
            if let Some(hit) = &hit {
                hung::measured(finding, view, &groups, device, hit);
            }
            continue;
        }
        if hit.is_some() || how == Overload::Always {
            findings.push(finding(view, &groups, device, hit.as_ref(), how));
        }
    }
    findings.extend(hung.into_values());
    if !findings.is_empty() {
        return Verdict::Fired(findings);
    }
    quiet(view)
}

fn quiet(view: &View) -> Verdict {
    let activities = view.block().activity().iter();
    let Some((device, activity)) =
        activities.max_by(|a, b| a.1.busy_share().total_cmp(&b.1.busy_share()))
    else {
        return Verdict::Quiet { closest: "no block device did anything".into() };
    };
    let full = saturation::full(view, *device);
    let longest = full.iter().map(|spell| spell.span().length_ns()).max().unwrap_or(0);
    let spells = if full.is_empty() {
        "never for 50 ms without a pause".to_owned()
    } else {
        let number = units::counted(full.len() as u64, "stretch", "stretches");
        format!(
            "{number} without a pause, the longest {}; no process lost much in them",
            units::duration(longest as f64)
        )
    };
    let name = ticked(&view.block().device_name(*device));
    let busy = units::share(activity.busy_share());
    Verdict::Quiet { closest: format!("{name} was busy {busy} of the time, {spells}") }
}

fn finding(
    view: &View,
    groups: &Groups<'_>,
    device: DevId,
    hit: Option<&DeviceLoss<'_>>,
    how: Overload,
) -> Finding {
    let name = view.block().device_name(device);
    let confidence = Confidence::of(view)
        .with("a process loses by it", if hit.is_some() { 1.0 } else { 0.7 })
        .with_samples(if how != Overload::Stretches {
            50
        } else {
            saturation::full(view, device).len() as u64 * 4
        });
    let mut lines = device_lines(view, device);
    lines.extend(saturation::line(view, device, &[Span::ALWAYS]));
    lines.extend(saturation::latency_lines(view, device));
    let timed = timed(view, groups, device, hit);
    lines.extend(timed.lines);
    lines.extend(knobs::lines(view, Some(device)));
    lines.push(confidence.evidence(view));
    let mut entity = Entity::new(EntityKind::Device);
    entity.device = Some(name.clone());
    let busy = view.block().activity().get(&device).map_or(0.0, Activity::busy_share);
    let device_is = match how {
        Overload::Always => format!("{} is busy {} of the time", ticked(&name), units::share(busy)),
        Overload::Slow(mean_ns) => format!(
            "{} takes {} per request although hardly any others are in flight",
            ticked(&name),
            units::duration(mean_ns)
        ),
        Overload::Stretches => {
            let full = saturation::full(view, device).len() as u64;
            format!(
                "{} is full in {} of 50 ms or more ({} busy on average)",
                ticked(&name),
                units::counted(full, "stretch", "stretches"),
                units::share(busy)
            )
        }
    };
    let title = match hit {
        Some(hit) => format!(
            "{device_is}, and {} waits {} for it",
            group_name(hit.victim.group),
            words::of_every_second(view.per_second(hit.lost_ns))
        ),
        None => device_is,
    };
    let title = format!("{title}{}", timed.words);
    let reads_wait =
        hit.is_some_and(|hit| device_remedies::reads_behind_writes(view, groups, hit, device));
    Finding {
        title,
        device: Some(name),
        victim: hit
            .map_or_else(|| entity.clone(), |hit| words::group_entity(view, hit.victim.group)),
        cost: hit.map_or_else(Cost::default, |hit| {
            hit.victim.cost(view, hit.lost_ns, StallKind::Request, hit.longest_ns)
        }),
        causes: hit
            .map(|hit| shares::causes(view, groups, hit.victim.at, Some(device)))
            .filter(|causes| !causes.is_empty())
            .unwrap_or_else(|| {
                vec![Cause {
                    entity,
                    share: if hit.is_some() { Share::WHOLE } else { Share::default() },
                }]
            }),
        evidence: lines,
        rhythm_ns: timed.period_ns,
        chart: timed.chart,
        files: files::table(view, "read and written", |key| {
            view.block().disk_of(key.device) == device
        }),
        fix: device_remedies::fixes(view, device, how, reads_wait),
        confirm: Some(Confirm {
            command: "deburr -d 60".into(),
            expect: Some("after the change: fewer and shorter stretches without a pause".into()),
        }),
        ..RULE.finding(hit.map_or(Severity::Info, |hit| hit.severity), confidence.value())
    }
}

/// When the device is saturated or the victim stalls, and whose timer that may follow.
fn timed(
    view: &View,
    groups: &Groups<'_>,
    device: DevId,
    hit: Option<&DeviceLoss<'_>>,
) -> TimingEvidence {
    let Some(hit) = hit else {
        let full = saturation::full(view, device);
        let stretches = full.iter().map(|spell| spell.span()).collect();
        return TimingEvidence::of(view, groups, device, None, ("full stretches", stretches), None);
    };
    let compared = Compared::new(view, device, &hit.stalls);
    let what = ("stalls", spans(&hit.stalls));
    TimingEvidence::of(view, groups, device, Some(hit.victim.at), what, Some(&compared))
}

fn device_lines(view: &View, device: DevId) -> Vec<Evidence> {
    let Some(activity) = view.block().activity().get(&device) else { return vec![] };
    let label = Source::Block.label();
    let depth = depth(activity);
    let note = format!(
        "of the time; {} and {} a second, {depth:.1} requests at once while busy",
        units::counted(view.per_second(activity.ios.total()), "request", "requests"),
        units::bytes(view.per_second(activity.bytes.total()) as f64)
    );
    vec![evidence(view, "device busy", activity.busy_share(), Unit::Ratio, label, note)]
}
