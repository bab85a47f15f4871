// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BLK003: a device that cannot keep up, all the time or in stretches.

use super::clocks::Compared;
use super::victims::{self, STALL_LIMITS, Victim, longest_ns, of_stalls, stall_ns};
use super::{files, io_neighbour, knobs, saturation, shares};
use crate::finding::{
    Cause, Confirm, Cost, Entity, EntityKind, Evidence, Finding, Fix, Severity, Unit,
};
use crate::recording::{DevId, IoOp, Source, Stall, StallKind};
use crate::render::units;
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, group_name, ticked};
use crate::rules::{Limit, Rule, Status, Verdict};
use crate::stats::overlaps;
use crate::view::block::{Activity, MIN_SPELL_NS};
use crate::view::{Groups, View};

const BUSY: Limit = Limit {
    name: "busy",
    value: 0.9,
    unit: "of the window with a request in the queue or the device, more than `depth` of them on average",
    why: "what comes then waits for what is there",
};
const SPELL: Limit = Limit {
    name: "spell",
    value: MIN_SPELL_NS as f64 / 1e6,
    unit: "ms without a pause, seen in bins of 10 ms",
    why: "any request keeps a device busy for some milliseconds",
};
const DEPTH: Limit = Limit {
    name: "depth",
    value: saturation::MIN_DEPTH,
    unit: "requests at once on average, to be exceeded",
    why: "one at a time waits for nobody",
};

const SLOW: Limit = Limit {
    name: "slow",
    value: 5.0,
    unit: "ms that a request takes on average, at no more than `calm` at once",
    why: "no queue explains it: the device itself is slow",
};
const SLOW_ROTATING: Limit = Limit {
    name: "slow_rotating",
    value: 20.0,
    unit: "ms likewise, on a device that says it rotates",
    why: "8 to 12 ms are a seek and half a turn",
};
const CALM: Limit = Limit {
    name: "calm",
    value: 2.0,
    unit: "requests at once on average while the device is busy",
    why: "with more of them, waiting for each other is the reason",
};

pub(in crate::rules) static RULE: Rule = Rule {
    code: "BLK003",
    name: "device-saturated",
    summary: "a block device has more to do than it can, for long or in short stretches that averages hide",
    needs: &[Source::Block, Source::Diskstats],
    helps: &[Source::Writeback, Source::Settings],
    limits: &{
        let [a, b, c, d, e, f, g, h, i, j] = STALL_LIMITS;
        [
            BUSY,
            SPELL,
            DEPTH,
            SLOW,
            SLOW_ROTATING,
            CALM,
            io_neighbour::OTHERS_SHARE,
            a,
            b,
            c,
            d,
            e,
            f,
            g,
            h,
            i,
            j,
        ]
    },
    status: Status::Preview("0.2"),
    doc: include_str!("device_saturated.md"),
    file: file!(),
    check,
};

/// In what way a device cannot keep up.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// Busy nearly all the time, several requests deep.
    Always,
    /// Slow by itself: a request takes that long on average, though hardly any other is there.
    Slow(f64),
    /// In stretches.
    Stretches,
}

impl How {
    fn of(view: &View, device: DevId, activity: &Activity) -> Self {
        let depth = depth(activity);
        let mean_ns = mean_ns(view, device).unwrap_or(0.0);
        let rotates = knobs::queue(view, device, "rotational").is_some_and(|it| it.trim() == "1");
        let slow = if rotates { SLOW_ROTATING } else { SLOW };
        if mean_ns >= slow.value * 1e6 && depth <= CALM.value {
            Self::Slow(mean_ns)
        } else if activity.busy_share() >= BUSY.value && depth > DEPTH.value {
            Self::Always
        } else {
            Self::Stretches
        }
    }
}

fn depth(activity: &Activity) -> f64 {
    activity.depth.total() as f64 / activity.busy_ns.max(1) as f64
}

/// How long a request of a device takes on average, reads and writes together.
fn mean_ns(view: &View, device: DevId) -> Option<f64> {
    let latencies = [IoOp::Read, IoOp::Write];
    let seen = latencies.iter().filter_map(|&op| view.block().latency().get(&(device, op)));
    let (count, ns) = seen.fold((0, 0), |(count, ns), latency| {
        (count + latency.total.total_count(), ns + latency.total.total_ns())
    });
    (count > 0).then(|| ns as f64 / count as f64)
}

/// Somebody's loss on a device that was full.
struct Hit<'g> {
    victim: Victim<'g>,
    lost_ns: u64,
    longest_ns: u64,
    severity: Severity,
}

fn check(view: &View) -> Verdict {
    if !view.covers(Source::Block) {
        return by_counters(view);
    }
    let groups = view.groups();
    let victims = Victim::all(view, &groups);
    let mut findings = Vec::new();
    for (&device, activity) in view.block().activity() {
        let how = How::of(view, device, activity);
        let mut hits: Vec<Hit<'_>> =
            victims.iter().filter_map(|victim| hit(view, &groups, victim, device, how)).collect();
        hits.sort_by_key(|hit| (std::cmp::Reverse((hit.severity, hit.lost_ns)), hit.victim.at));
        let hit = hits.into_iter().next();
        if hit.is_some() || how == How::Always {
            findings.push(finding(view, &groups, device, hit.as_ref(), how));
        }
    }
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
    let longest = full.iter().map(|spell| spell.t1_ns - spell.t0_ns).max().unwrap_or(0);
    let spells = if full.is_empty() {
        "never for 50 ms without a pause".to_owned()
    } else {
        let number = units::counted(full.len() as u64, "stretch", "stretches");
        format!(
            "{number} without a pause, the longest {}; nobody lost much in them",
            units::duration(longest as f64)
        )
    };
    let name = ticked(&view.block().device_name(*device));
    let busy = units::share(activity.busy_share());
    Verdict::Quiet { closest: format!("{name} was busy {busy} of the time, {spells}") }
}

/// What a victim lost while the device was full, or to its slowness.
fn hit<'g>(
    view: &'g View,
    groups: &Groups<'g>,
    victim: &Victim<'g>,
    device: DevId,
    how: How,
) -> Option<Hit<'g>> {
    let mut stalls: Vec<&Stall> =
        victim.on_device(view, device, &[StallKind::Request, StallKind::Sync]);
    if how == How::Stretches {
        // What the flusher's and the journal's rules say is not said again.
        let compared = Compared::new(view, device, &stalls);
        if compared.blames_passes() {
            stalls.retain(|stall| !compared.in_passes.contains(stall));
        }
        if compared.blames_commits() {
            stalls.retain(|stall| !compared.in_commits.contains(stall));
        }
    }
    if !matches!(how, How::Slow(_)) {
        let spells: Vec<_> =
            saturation::full(view, device).iter().map(|spell| (spell.t0_ns, spell.t1_ns)).collect();
        stalls.retain(|stall| overlaps(&spells, (stall.t0_ns, stall.t1_ns)));
    }
    let longest_ns = longest_ns(&stalls);
    let waits = view.block().waits().iter().filter(|((proc, kind, dev), _)| {
        *kind == StallKind::Request
            && groups.index_of(*proc) == Some(victim.at)
            && dev.is_some_and(|dev| view.block().disk_of(dev) == device)
    });
    let waits_ns: u64 = waits.map(|(_, waits)| waits.waits.total_ns()).sum();
    let in_stalls_ns = stall_ns(&stalls);
    let lost_ns = if how == How::Stretches { in_stalls_ns } else { in_stalls_ns.max(waits_ns) };
    let mut severity = of_stalls(view.per_second(lost_ns), victim.share(lost_ns), longest_ns)?;
    let own = shares::own_share(view, groups, victim.at, Some(device));
    if !matches!(how, How::Slow(_)) && own.is_some_and(|own| own >= 0.5) {
        severity = victims::own_doing(view, severity);
    } else if shares::others_share(view, groups, victim.at, device)
        >= io_neighbour::OTHERS_SHARE.value
    {
        severity = crate::rules::severity::lowered(severity);
    }
    Some(Hit { victim: victim.clone(), lost_ns, longest_ns, severity })
}

fn finding(
    view: &View,
    groups: &Groups<'_>,
    device: DevId,
    hit: Option<&Hit<'_>>,
    how: How,
) -> Finding {
    let name = view.block().device_name(device);
    let confidence = Confidence::of(view)
        .with("somebody loses by it", if hit.is_some() { 1.0 } else { 0.7 })
        .with_samples(if how != How::Stretches {
            50
        } else {
            saturation::full(view, device).len() as u64 * 4
        });
    let mut lines = device_lines(view, device);
    lines.extend(saturation::line(view, device, &[(0, u64::MAX)]));
    lines.extend(saturation::latency_lines(view, device));
    lines.extend(knobs::lines(view, Some(device)));
    lines.push(confidence.evidence(view));
    let mut entity = Entity::new(EntityKind::Device);
    entity.device = Some(name.clone());
    let busy = view.block().activity().get(&device).map_or(0.0, Activity::busy_share);
    let device_is = match how {
        How::Always => format!("{} is busy {} of the time", ticked(&name), units::share(busy)),
        How::Slow(mean_ns) => format!(
            "{} takes {} for a request though hardly any other is there",
            ticked(&name),
            units::duration(mean_ns)
        ),
        How::Stretches => {
            let full = saturation::full(view, device).len() as u64;
            format!(
                "{} is full in {} of 50 ms and more ({} busy on average)",
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
    Finding {
        code: RULE.code.into(),
        name: RULE.name.into(),
        severity: hit.map_or(Severity::Info, |hit| hit.severity),
        confidence: confidence.value(),
        title,
        victim: hit
            .map_or_else(|| entity.clone(), |hit| words::group_entity(view, hit.victim.group)),
        cost: hit.map_or_else(Cost::default, |hit| {
            hit.victim.cost(view, hit.lost_ns, StallKind::Request, hit.longest_ns)
        }),
        causes: hit
            .map(|hit| shares::causes(view, groups, hit.victim.at, Some(device)))
            .filter(|causes| !causes.is_empty())
            .unwrap_or_else(|| {
                vec![Cause { entity, share: if hit.is_some() { 1.0 } else { 0.0 } }]
            }),
        evidence: lines,
        sizes: vec![],
        files: files::table(view, "read and written", |key| {
            view.block().disk_of(key.device) == device
        }),
        fix: fixes(view, device, how),
        confirm: Some(Confirm {
            command: "deburr -d 60".into(),
            expect: Some("after the change: fewer and shorter stretches without a pause".into()),
        }),
    }
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

/// For a device that is slow by itself.
fn slow_fixes(view: &View, device: DevId) -> Vec<Fix> {
    let name = view.block().device_name(device);
    vec![
        Fix {
            action: "look at the device itself and at what is below it: a failing disk, a rebuild of an array, a volume of the \
                     cloud that is out of credits, the network to a remote one"
                .into(),
            command: Some(format!("smartctl -a {}", crate::finding::shell_quote(&format!("/dev/{name}")))),
            risk: Some("virtual and stacked devices tell nothing of what is below them".into()),
        },
        Fix {
            action: "until then, ask it for less: bigger requests, fewer syncs, more in memory".into(),
            command: None,
            risk: Some("what is not synced is lost when the power fails".into()),
        },
    ]
}

fn fixes(view: &View, device: DevId, how: How) -> Vec<Fix> {
    if let How::Slow(_) = how {
        return slow_fixes(view, device);
    }
    let mut fixes = vec![
        Fix {
            action: "take away what need not be: see the table for what the requests are for".into(),
            command: None,
            risk: None,
        },
        Fix {
            action: "let requests of the one who waits go first: an IO weight or a limit on the others (`io.weight`, `io.max`), or \
                     their `ionice`"
                .into(),
            command: None,
            risk: Some("weights need the scheduler `bfq` or the controller `io.cost`; a limit stands in the way when the device \
                        is idle too"
                .into()),
        },
    ];
    if knobs::queue(view, device, "scheduler").is_some_and(|line| line.contains("[none]")) {
        let path = knobs::queue_path(view, device, "scheduler");
        fixes.push(Fix {
            action: "on a slow device, let a scheduler put reads before writes".into(),
            command: Some(format!("echo mq-deadline > {}", crate::finding::shell_quote(&path))),
            risk: Some("costs CPU time at high rates; it was `none`".into()),
        });
    }
    fixes
}

/// Without BPF: the kernel's own account of busy time, which is coarse.
fn by_counters(view: &View) -> Verdict {
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
        "of the time, {depth:.1} requests at once while busy; who waits for it takes BPF to see"
    );
    let mut lines =
        vec![evidence(view, "device busy", busy, Unit::Ratio, Source::Diskstats.label(), note)];
    lines.extend(knobs::lines(view, Some(device)));
    lines.push(confidence.evidence(view));
    let mut entity = Entity::new(EntityKind::Device);
    entity.device = Some(name.clone());
    Verdict::Fired(vec![Finding {
        code: RULE.code.into(),
        name: RULE.name.into(),
        severity: Severity::Info,
        confidence: confidence.value(),
        title: format!("{} is busy {} of the time", ticked(&name), units::share(busy)),
        victim: entity,
        cost: Cost::default(),
        causes: vec![],
        evidence: lines,
        sizes: vec![],
        files: None,
        fix: fixes(view, device, How::Always),
        confirm: None,
    }])
}
