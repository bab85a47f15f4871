// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BLK001: passes of the kernel's flusher stall processes.

use super::support::clocks::{self, Compared};
use super::support::victims::{STALL_LIMITS, Victim};
use super::support::{by_counters, chart, files, knobs, pass_lines, pass_remedies, saturation};
use crate::finding::{Area, Cause, Entity, EntityKind, Finding, Question, Severity, Share};
use crate::recording::{DevId, Source, StallKind};
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, group_name, ticked};
use crate::rules::{Check, Limit, Rule, Status, Verdict, severity};
use crate::stats::{self, Rhythm, Span};
use crate::text::units;
use crate::view::View;
use crate::view::block::stalls::spans;

/// What bursts of the flusher stall: syncs and requests. Pauses of writers are BLK006.
const KINDS: [StallKind; 2] = [StallKind::Sync, StallKind::Request];
const MAX_VICTIMS: usize = 3;

const CHANCE: Limit = Limit {
    name: "chance",
    value: stats::SIGNIFICANT,
    unit: "at most, that as many stalls touch a pass by chance",
    why: "on loads without a clock the tests are wrong in at most 2 of 100 windows",
};
const STALLS: Limit = Limit {
    name: "stalls",
    value: stats::MIN_EPISODES as f64,
    unit: "inside passes at least",
    why: "two are a coincidence to anybody",
};

pub(in crate::rules) static RULE: Rule = Rule {
    code: "BLK001",
    area: Area::Block,
    question: Question::Disk,
    name: "writeback-bursts",
    summary: "the kernel writes dirty pages back in bursts, and whoever needs the disk meanwhile stalls",
    any_of: &[Source::Writeback, Source::Diskstats],
    helps: &[Source::Block, Source::Settings],
    limits: &[
        &[CHANCE, STALLS, by_counters::MIN_AWAIT, by_counters::MIN_TIMES],
        &severity::LOSS_LIMITS,
        &STALL_LIMITS,
    ],
    status: Status::Preview("0.1"),
    doc: include_str!("writeback_bursts.md"),
    file: file!(),
    check: Check::Recording(check),
};

/// A victim on a device, with its stalls compared with the passes.
struct StalledVictim<'g> {
    victim: Victim<'g>,
    device: DevId,
    compared: Compared<'g>,
    severity: Option<Severity>,
}

fn check(view: &View) -> Verdict {
    if !view.covers(Source::Writeback) {
        return by_counters::check(view, &RULE);
    }
    let groups = view.groups();
    let mut hits: Vec<StalledVictim<'_>> = Vec::new();
    for victim in Victim::all(view, &groups) {
        hits.extend(
            victim.devices(view).into_iter().map(|device| hit(view, victim.clone(), device)),
        );
    }
    hits.sort_by_key(|hit| {
        (
            std::cmp::Reverse((hit.severity, hit.compared.lost_in_passes_ns())),
            hit.victim.at,
            hit.device,
        )
    });
    let (mut sure, rest): (Vec<_>, Vec<_>) =
        hits.into_iter().partition(|hit| hit.severity.is_some() && hit.compared.blames_passes());
    if sure.is_empty() {
        return unsure(view, &rest);
    }
    sure.truncate(MAX_VICTIMS);
    Verdict::Fired(sure.iter().map(|hit| finding(view, &groups, hit)).collect())
}

fn hit<'g>(view: &'g View, victim: Victim<'g>, device: DevId) -> StalledVictim<'g> {
    let stalls = victim.on_device(view, device, &KINDS);
    let compared = Compared::new(view, device, &stalls);
    let lost_ns = compared.lost_in_passes_ns();
    let severity = victim.severity(view, lost_ns, compared.longest_in_passes_ns());
    StalledVictim { victim, device, compared, severity }
}

/// The verdict without a sure hit: too little was seen, or the passes are not the cause.
fn unsure(view: &View, hits: &[StalledVictim<'_>]) -> Verdict {
    let Some(hit) = hits.first().filter(|hit| hit.compared.passes.episodes > 0) else {
        let number = view.block().passes().len() as u64;
        let closest = format!(
            "no process stalled for 10 ms or more in {}",
            units::counted(number, "pass", "passes")
        );
        return Verdict::Quiet { closest };
    };
    let found = &hit.compared.passes;
    let name = group_name(hit.victim.group);
    let whose = (name.as_str(), "a pass of the flusher");
    if let Some(verdict) = clocks::without_pause(view, &hit.compared, found, whose) {
        return verdict;
    }
    if hit.severity.is_some()
        && let Some(missing) = clocks::may_be_chance(view, found, &name, "a pass of the flusher")
    {
        return Verdict::NoData { missing: vec![missing] };
    }
    let closest = format!(
        "{} of {} of {name} fall into passes of the flusher; chance alone would do that with probability {}; they take {} of \
         every second",
        found.inside,
        units::counted(found.episodes, "stall", "stalls"),
        clocks::chance(found.p),
        units::duration(view.per_second(hit.compared.lost_in_passes_ns()) as f64)
    );
    Verdict::Quiet { closest }
}

fn finding(view: &View, groups: &crate::view::Groups<'_>, hit: &StalledVictim<'_>) -> Finding {
    let StalledVictim { victim, device, compared, .. } = hit;
    let passes = view.block().unasked_passes_over(*device);
    let rhythm = pass_lines::rhythm_of(view, &passes);
    let pass_spans: Vec<_> = passes.iter().map(|pass| pass.span()).collect();
    let block = view.block();
    let table = files::table(view, "written back", |key| {
        block.disk_of(key.device) == *device
            && key.reason.as_deref().is_some_and(|reason| reason != "sync")
    });
    let confidence = Confidence::of(view)
        .with("no chance", 1.0 - compared.passes.p)
        .with_samples(compared.passes.inside * 4)
        .with(
            "follows the flusher's clock",
            if matches!(rhythm, Rhythm::Found { .. }) { 1.0 } else { 0.8 },
        );
    let mut lines = vec![pass_lines::coincidence(view, compared)];
    lines.extend(pass_lines::held_files(view, &compared.in_passes));
    lines.extend(pass_lines::period(view, &rhythm, &passes));
    lines.push(pass_lines::passes(view, &passes));
    lines.push(pass_lines::journal(view, *device, compared));
    lines.extend(pass_lines::dirtied(view, groups, *device, &passes));
    lines.extend(saturation::line(view, *device, &pass_spans));
    lines.extend(saturation::latency_lines(view, *device));
    lines.extend(knobs::lines(view, Some(*device)));
    lines.push(confidence.evidence(view));
    let kind = Victim::main_kind(&compared.in_passes);
    let lost_ns = compared.lost_in_passes_ns();
    Finding {
        title: title(view, hit, &rhythm),
        device: Some(block.device_name(*device)),
        victim: words::group_entity(view, victim.group),
        cost: victim.cost(view, lost_ns, kind, compared.longest_in_passes_ns()),
        causes: causes(view, *device),
        evidence: lines,
        sizes: crate::view::waits::size_classes(&victim.held(kind).waits),
        fix: pass_remedies::of_passes(view, *device, &passes, table.as_ref()),
        rhythm_ns: match rhythm {
            Rhythm::Found { period_ns, .. } => Some(period_ns),
            _ => None,
        },
        chart: chart::of(view, *device, marks(view, hit, &pass_spans)),
        files: table,
        confirm: pass_remedies::look_again(view),
        ..RULE.finding(hit.severity.unwrap_or(Severity::Info), confidence.value())
    }
}

/// The rows of the chart: passes, stalls, and the journal's commits unless they cover most of the window.
fn marks<'a>(view: &View, hit: &StalledVictim<'_>, passes: &[Span]) -> Vec<chart::MarkRow<'a>> {
    let stalls = spans(&hit.victim.on_device(view, hit.device, &KINDS));
    let mut marks = vec![("passes", passes.to_vec()), ("stalls", stalls)];
    let commits: Vec<_> = view.block().commits_on(hit.device).iter().map(|it| it.span()).collect();
    let cover = stats::covered_ns(&commits) as f64 / view.window_ns().max(1) as f64;
    if !commits.is_empty() && cover < clocks::COVER.value {
        marks.push(("commits", commits));
    }
    marks
}

fn title(view: &View, hit: &StalledVictim<'_>, rhythm: &Rhythm) -> String {
    let clock = match rhythm {
        Rhythm::Found { period_ns, .. } => format!(", every {}", pass_lines::seconds(*period_ns)),
        _ => String::new(),
    };
    format!(
        "{} {} {}, up to {} at once, while the kernel's flusher writes to {}{clock}",
        group_name(hit.victim.group),
        words::verb(hit.victim.group, "stalls", "stall"),
        words::of_every_second(view.per_second(hit.compared.lost_in_passes_ns())),
        units::duration(hit.compared.longest_in_passes_ns() as f64),
        ticked(&view.block().device_name(hit.device)),
    )
}

/// The cause: the flusher, for everything that is lost in its passes.
fn causes(view: &View, device: DevId) -> Vec<Cause> {
    let mut kernel = Entity::new(EntityKind::Kernel);
    kernel.comm = Some("flusher".into());
    kernel.device = Some(view.block().device_name(device));
    kernel.note = Some(match knobs::interval_ns(view) {
        Some(_) => "it wakes by `vm.dirty_writeback_centisecs`".into(),
        None => "writes back dirty pages".into(),
    });
    vec![Cause { entity: kernel, share: Share::WHOLE }]
}
