// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BLK001 without BPF: bursts in `/proc/diskstats` that come at the flusher's interval.

use super::clocks::chance;
use super::{knobs, pass_lines, pass_remedies};
use crate::finding::{Cost, Entity, EntityKind, Finding, Fix, Severity, Unit};
use crate::recording::{DevId, Source};
use crate::rules::confidence::Confidence;
use crate::rules::words::{evidence, ticked};
use crate::rules::{Limit, Rule, Verdict};
use crate::stats::{Burst, Rhythm, bursts, rhythm};
use crate::text::units;
use crate::view::View;
use crate::view::block::DiskView;

/// Bursts with less than this between them are one: the flusher works in pieces.
const GAP_NS: u64 = 1_000_000_000;
/// A bin belongs to a burst only if the requests that completed in it took more than this in all, in percent of the
/// bin's length.
const FLOOR_PERCENT: u64 = 10;

pub(in crate::rules::block) const MIN_AWAIT: Limit = Limit {
    name: "min_await",
    value: 5.0,
    unit: "ms that a request takes within bursts (without BPF)",
    why: "below it, whoever shares the disk hardly notices",
};
pub(in crate::rules::block) const MIN_TIMES: Limit = Limit {
    name: "min_times",
    value: 3.0,
    unit: "times as long as a request takes outside of bursts (without BPF)",
    why: "a disk that is always slow is not slow because of bursts",
};

struct Bursty<'v> {
    device: DevId,
    disk: &'v DiskView,
    bursts: Vec<Burst>,
    rhythm: Rhythm,
    inside_ns: f64,
    outside_ns: f64,
}

pub(in crate::rules::block) fn check(view: &View, rule: &Rule) -> Verdict {
    let block = view.block();
    // A partition's bursts are those of its disk.
    let mut all: Vec<Bursty<'_>> = block
        .disks()
        .iter()
        .filter(|(device, _)| block.disk_of(**device) == **device)
        .map(|(&device, disk)| bursty(view, device, disk))
        .collect();
    all.sort_by(|a, b| b.inside_ns.total_cmp(&a.inside_ns));
    if all.iter().all(|it| it.disk.seen_ns == 0) {
        return Verdict::NoData {
            missing: vec!["/proc/diskstats: no device was read twice".into()],
        };
    }
    let slow = |it: &&Bursty<'_>| {
        it.inside_ns >= MIN_AWAIT.value * 1e6 && it.inside_ns >= MIN_TIMES.value * it.outside_ns
    };
    let findings: Vec<Finding> = all
        .iter()
        .filter(slow)
        .filter(|it| matches!(it.rhythm, Rhythm::Found { .. }))
        .map(|it| finding(view, it, rule))
        .collect();
    if !findings.is_empty() {
        return Verdict::Fired(findings);
    }
    let Some(worst) = all.iter().find(slow).or(all.first()) else {
        return Verdict::NoData { missing: vec!["/proc/diskstats: no device".into()] };
    };
    let name = ticked(&block.device_name(worst.device));
    match worst.rhythm {
        Rhythm::NeedsMore { for_ns } if slow(&worst) => Verdict::NoData {
            missing: vec![format!(
                "{} of {name}, too few for a period: needs {} more",
                units::counted(worst.bursts.len() as u64, "burst", "bursts"),
                units::duration(for_ns as f64)
            )],
        },
        _ => Verdict::Quiet {
            closest: format!(
                "{} of {name}, in which a request takes {} (outside of them {}), without the flusher's period; who stalls \
                 takes BPF to see",
                units::counted(worst.bursts.len() as u64, "burst", "bursts"),
                units::duration(worst.inside_ns),
                units::duration(worst.outside_ns)
            ),
        },
    }
}

fn bursty<'v>(view: &View, device: DevId, disk: &'v DiskView) -> Bursty<'v> {
    let width_ns = disk.time.width_ns();
    // The series ends with its last nonzero bin; the rest of the window was quiet.
    let mut bins = disk.time.bins();
    bins.resize(((view.window_ns() / width_ns) as usize).clamp(bins.len(), 1 << 16), 0);
    let found = bursts(&bins, width_ns, width_ns / 100 * FLOOR_PERCENT, GAP_NS);
    let lengths: u64 = found.iter().map(|burst| burst.t1_ns - burst.t0_ns).sum();
    let pass_ns = lengths / (found.len() as u64).max(1);
    let at: Vec<u64> = found.iter().map(|burst| burst.t0_ns).collect();
    let is_inside = |at: usize| {
        let t_ns = at as u64 * width_ns;
        found.iter().any(|burst| burst.t0_ns <= t_ns && t_ns < burst.t1_ns)
    };
    let mean = |inside: bool| {
        let sum = |bins: &[u64]| -> u64 {
            bins.iter().enumerate().filter(|(at, _)| is_inside(*at) == inside).map(|(_, n)| n).sum()
        };
        sum(&disk.time.bins()) as f64 / sum(&disk.ios.bins()).max(1) as f64
    };
    let rhythm = rhythm(&at, view.window_ns(), &pass_lines::clock(view, pass_ns));
    Bursty { device, disk, rhythm, inside_ns: mean(true), outside_ns: mean(false), bursts: found }
}

fn finding(view: &View, it: &Bursty<'_>, rule: &Rule) -> Finding {
    let Rhythm::Found { period_ns, pairs, p, .. } = it.rhythm else {
        unreachable!("only bursts with a period come here")
    };
    let name = view.block().device_name(it.device);
    let known = knobs::interval_ns(view).is_some();
    let confidence = Confidence::of(view)
        .with_samples(pairs * 4)
        .with("interval known", if known { 1.0 } else { 0.8 })
        .with("no passes seen", 0.7);
    let label = Source::Diskstats.label();
    let at: Vec<String> =
        it.bursts.iter().take(12).map(|burst| format!("{:.1}", burst.t0_ns as f64 / 1e9)).collect();
    let link =
        knobs::interval_ns(view).map_or("the flusher's interval could not be read".into(), |ns| {
            format!(
                "`vm.dirty_writeback_centisecs` is {}; by chance with probability {}",
                ns / 10_000_000,
                chance(p)
            )
        });
    let beside = format!(
        "within bursts; {} outside them; {} busy overall",
        units::duration(it.outside_ns),
        units::share(it.disk.busy_share())
    );
    let limits = "a journal's commits or a program's own timer can have the same period: with BPF, the passes \
                  themselves are seen, whom they hold up, and which files they write";
    let mut lines = vec![
        evidence(
            view,
            "bursts",
            it.bursts.len() as f64,
            Unit::Count,
            label,
            format!("at {} s", at.join(", ")),
        ),
        evidence(view, "period of the bursts", period_ns as f64, Unit::Ns, label, link),
        evidence(view, "a request takes", it.inside_ns, Unit::Ns, label, beside),
        evidence(view, "not told apart", 0.0, Unit::Text, label, limits.to_owned()),
    ];
    lines.extend(knobs::lines(view, Some(it.device)));
    lines.push(confidence.evidence(view));
    let mut device = Entity::new(EntityKind::Device);
    device.device = Some(name.clone());
    Finding {
        title: format!(
            "{} has bursts every {} in which a request takes {}, at the interval of the kernel's flusher",
            ticked(&name),
            pass_lines::seconds(period_ns),
            units::duration(it.inside_ns)
        ),
        device: Some(name),
        victim: device,
        cost: Cost::default(),
        rhythm_ns: Some(period_ns),
        evidence: lines,
        fix: vec![Fix {
            action: "see whom the bursts hold up, and which files are written: run as root".into(),
            command: Some("sudo deburr -d 60".into()),
            risk: None,
            expect: None,
        }],
        confirm: pass_remedies::look_again(view),
        ..rule.finding(Severity::Low, confidence.value().min(0.7))
    }
}
