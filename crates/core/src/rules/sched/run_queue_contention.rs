// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SCH001: threads wait on run queues because others run on their CPUs.

use super::blame::Blame;
use super::evidence::{self as lines, Loss};
use super::own_budget::OwnBudget;
use super::{longest_wait, quota, tails};
use crate::finding::{Area, Cost, Finding, Fix, Question, Severity, Share, Tail, Unit};
use crate::recording::Source;
use crate::rules::candidates::{may_suffer, target_is_host};
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, group_name};
use crate::rules::{Check, Limit, Rule, Status, Verdict, remedy, severity, tail};
use crate::text::units;
use crate::view::{Group, View, waits};

const MAX_VICTIMS: usize = 5;
const PLACEMENT_SHARE: Limit = Limit {
    name: "placement_share",
    value: 0.5,
    unit: "of the looked-at waiting while another CPU idled",
    why: "then placement is the reason and SCH003 leads: this one goes a level down",
};
const OWN_SHARE: Limit = Limit {
    name: "own_share",
    value: 0.5,
    unit: "of the blame on the victim's own threads",
    why: "then it competes with itself: one level down, and `info` below `dominant_share`, since threads that wake \
          up together queue behind each other on any host",
};

const MAX_UNKNOWN: Limit = Limit {
    name: "max_unknown",
    value: 0.5,
    unit: "of the target's time unattributed",
    why: "with more of it unknown, a quiet rule would rule out what was not seen",
};

pub(in crate::rules) static RULE: Rule = Rule {
    code: "SCH001",
    area: Area::Sched,
    question: Question::CpuWait,
    name: "run-queue-contention",
    summary: "threads that could run wait because others run on their CPUs",
    any_of: &[Source::Sched, Source::Schedstat],
    helps: &[Source::Timeline, Source::CgroupCpu, Source::ProcStat, Source::Psi],
    limits: &[
        &severity::LOSS_LIMITS,
        &tail::LIMITS,
        &[OWN_SHARE, PLACEMENT_SHARE, lines::BATCH_SHARE, lines::BATCH_RUN, MAX_UNKNOWN],
    ],
    status: Status::Preview("0.1"),
    doc: include_str!("run_queue_contention.md"),
    file: file!(),
    check: Check::Recording(check),
};

fn check(view: &View) -> Verdict {
    let groups = view.groups();
    let mut nearest: Option<(f64, &Group<'_>, Loss)> = None;
    let mut victims = Vec::new();
    let mut explained_by_quota = None;
    for (at, group) in groups.list().iter().enumerate() {
        let Some(loss) = loss(view, group).filter(|_| may_suffer(view, group)) else {
            continue;
        };
        if group.usage.is_none() && quota::throttles(view, group) {
            explained_by_quota = Some(group_name(group));
            continue;
        }
        let tail = tails::of_waits(view, &groups, at);
        let blame = Blame::of(&groups, at);
        let by_mean = loss.severity();
        let by_tail = by_tail(view, group, &loss, &blame, tail.as_ref());
        let Some(step) = by_mean.max(by_tail) else {
            let near = severity::nearness(loss.ns_per_s, loss.share);
            if nearest.as_ref().is_none_or(|nearest| near > nearest.0) {
                nearest = Some((near, group, loss));
            }
            continue;
        };
        let budget = OwnBudget::of(group, &blame);
        let step = adjusted(view, group, &loss, &blame, step);
        let step = if budget.is_some() { severity::lowered(step) } else { step };
        victims.push((
            step,
            WaitingVictim { loss, blame, tail, leads: by_tail > by_mean, budget },
            at,
        ));
    }
    victims.sort_by(|a, b| (b.0, b.1.loss.ns, a.2).cmp(&(a.0, a.1.loss.ns, b.2)));
    if victims.is_empty() {
        if let Some(missing) = unseen(view, groups.list()) {
            return Verdict::NoData { missing: vec![missing] };
        }
        return quiet(nearest.map(|(_, group, loss)| (group, loss)), explained_by_quota);
    }
    let found = victims.len();
    victims.truncate(MAX_VICTIMS);
    let mut findings: Vec<Finding> = victims
        .into_iter()
        .map(|(severity, hit, at)| finding(view, &groups.list()[at], &hit, severity))
        .collect();
    if found > MAX_VICTIMS {
        let note = "processes or groups above the limits that are not listed".to_owned();
        let more = (found - MAX_VICTIMS) as f64;
        findings[0].evidence.push(evidence(
            view,
            "more victims",
            more,
            Unit::Count,
            "deburr",
            note,
        ));
    }
    Verdict::Fired(findings)
}

/// A victim with its loss.
struct WaitingVictim<'g> {
    loss: Loss,
    blame: Blame<'g>,
    tail: Option<Tail>,
    /// Whether the tail gives the higher severity, so that the title is about it.
    leads: bool,
    /// Whether it may wait for its own budget.
    budget: Option<OwnBudget<'g>>,
}

/// The severity of the tail; `None` if the waiting fell into one second or was mostly behind the group itself.
fn by_tail(
    view: &View,
    group: &Group<'_>,
    loss: &Loss,
    blame: &Blame<'_>,
    tail: Option<&Tail>,
) -> Option<Severity> {
    let at_once = group.usage.as_ref().is_some_and(|usage| tail::came_at_once(&usage.contended));
    if at_once || blame.own_share() >= OWN_SHARE.value {
        return None;
    }
    tail::severity(view, tail?, loss.ns_per_s)
}

/// The reason for `NoData` if more than [`MAX_UNKNOWN`] of the target's time could not be attributed: then its waiting
/// is not known either.
fn unseen(view: &View, groups: &[Group<'_>]) -> Option<String> {
    let of_target = groups.iter().filter(|group| may_suffer(view, group));
    let (wall_ns, known_ns) =
        of_target.filter_map(|group| group.usage.as_ref()).fold((0, 0), |(wall, known), usage| {
            (wall + usage.wall_ns, known + usage.states.total_ns())
        });
    let unknown = 1.0 - known_ns as f64 / wall_ns.max(1) as f64;
    (wall_ns > 0 && unknown > MAX_UNKNOWN.value).then(|| {
        format!(
            "the ledger: {} of the target's time could not be attributed",
            units::share(unknown)
        )
    })
}

/// What a group lost to contention: with the probe, queued time without wake-up latency; without it, all run-queue
/// delay.
fn loss(view: &View, group: &Group<'_>) -> Option<Loss> {
    match (&group.usage, &group.delay) {
        (Some(usage), _) => Some(Loss::of_usage(view, usage.contended_ns(), usage)),
        (None, Some(delay)) => Some(Loss::of_delay(view, delay.delay_ns, delay)),
        (None, None) => None,
    }
}

/// Lowers the severity where the victim itself or its placement is to blame, and for batch work on a whole host.
fn adjusted(
    view: &View,
    group: &Group<'_>,
    loss: &Loss,
    blame: &Blame<'_>,
    step: Severity,
) -> Severity {
    let own = blame.own_share() >= OWN_SHARE.value;
    let mut severity = step;
    if own {
        // Threads that a quota throttled together are released together: their queueing is the quota's effect.
        let quota = group.usage.as_ref().is_some_and(|usage| usage.states.throttled_ns >= loss.ns);
        if quota || loss.share < severity::DOMINANT_SHARE.value {
            return Severity::Info;
        }
        severity = severity::lowered(severity);
    } else if placement_share(group).is_some_and(|share| share >= PLACEMENT_SHARE.value) {
        severity = severity::lowered(severity);
    }
    if target_is_host(view) && lines::is_batch(group, loss) {
        severity = severity.min(if own { Severity::Info } else { Severity::Low });
    }
    severity
}

/// Share of the examined waiting during which another CPU was idle, allowed or not.
fn placement_share(group: &Group<'_>) -> Option<f64> {
    let idle = group.idle.as_ref().filter(|idle| idle.waits_ns > 0)?;
    Some((idle.allowed_ns + idle.forbidden_ns) as f64 / idle.waits_ns as f64)
}

fn quiet(nearest: Option<(&Group<'_>, Loss)>, explained_by_quota: Option<String>) -> Verdict {
    let closest = match (nearest, explained_by_quota) {
        (_, Some(name)) => {
            format!(
                "{name} waits, but its CPU quota ran out and `/proc/PID/schedstat` cannot tell the two apart"
            )
        }
        (Some((group, loss)), None) => format!(
            "{} came nearest: queued for {}, {}",
            group_name(group),
            words::of_every_second(loss.ns_per_s),
            loss.of_wanted()
        ),
        (None, None) => {
            return Verdict::NoData { missing: vec!["no process of the target was seen".into()] };
        }
    };
    Verdict::Quiet { closest }
}

fn finding(view: &View, group: &Group<'_>, hit: &WaitingVictim<'_>, severity: Severity) -> Finding {
    let WaitingVictim { loss, blame, tail, budget, .. } = hit;
    let mut confidence = Confidence::of(view);
    confidence = match &group.usage {
        Some(usage) => confidence
            .with_samples(usage.waits.total_count())
            .with("culprits known", 1.0 - 0.3 * blame.unexplained_share(loss.ns)),
        None => confidence
            .with_samples(group.delay.map_or(0, |delay| delay.slices))
            .with("queued or throttled", if view.covers(Source::CgroupCpu) { 0.7 } else { 0.5 }),
    };
    if budget.is_some() {
        confidence = confidence.with("own budget", 0.5);
    }
    let mut evidence = lines::victim_lines(view, group, loss);
    evidence.splice(1..1, tail.iter().map(|it| tail::line(view, it, Source::Sched.label())));
    evidence.splice(1..1, budget.map(|budget| budget.line(view)));
    evidence.extend(lines::host_lines(view));
    evidence.push(confidence.evidence(view));
    Finding {
        title: title(group, hit),
        victim: words::group_entity(view, group),
        cost: Cost { tail: *tail, ..lines::cost(loss, group) },
        causes: OwnBudget::doubt(*budget, blame.causes(view, loss.ns)),
        evidence,
        sizes: group
            .usage
            .as_ref()
            .map(|usage| waits::size_classes(&usage.waits))
            .unwrap_or_default(),
        longest: longest_wait::of(view, group),
        fix: fixes(view, group, loss, blame),
        confirm: Some(words::look_again(
            group,
            match &group.usage {
                Some(_) => {
                    "after the change: less of the ledger queued, and fewer waits of 1 ms or more"
                        .into()
                }
                None => "after the change: less of the ledger queued or throttled".into(),
            },
        )),
        ..RULE.finding(severity, confidence.value())
    }
}

fn title(
    group: &Group<'_>,
    WaitingVictim { loss, blame, tail, leads, budget }: &WaitingVictim<'_>,
) -> String {
    let name = group_name(group);
    let wait = words::verb(group, "waits", "wait");
    let time = words::of_every_second(loss.ns_per_s);
    if group.usage.is_none() {
        let is = words::verb(group, "is", "are");
        return format!("{name} {is} runnable but not running for {time}: queued or throttled");
    }
    let share = |ns| units::share(Share::of(ns, loss.ns).get());
    let what = budget.map_or("a CPU".to_owned(), |budget| format!("a CPU or {}", budget.words()));
    let behind = |name: String| match budget {
        Some(_) => format!("while {name} ran"),
        None => format!("behind {name}"),
    };
    if let Some(tail) = tail.as_ref().filter(|_| *leads) {
        let behind = blame
            .worst_other()
            .map(|worst| format!(", {} of its waiting {}", share(worst.ns), behind(worst.name())));
        return format!(
            "{} of {name} waits {} for {what}{}: {}",
            tail::one_in(tail, "turn"),
            units::duration(tail.late_ns as f64),
            behind.unwrap_or_default(),
            tail::words(tail, "their")
        );
    }
    match (blame.own_ns, blame.worst_other()) {
        (own_ns, _) if blame.own_share() >= OWN_SHARE.value => {
            let whom = words::verb(group, "its own other threads", "each other");
            format!("{name} {wait} {time} for {what}, {} of it behind {whom}", share(own_ns))
        }
        (_, Some(worst)) => {
            let (part, culprit) = (share(worst.ns), behind(worst.name()));
            format!("{name} {wait} {time} for {what}, {part} of it {culprit}")
        }
        (_, None) => format!("{name} {wait} {time} for {what}"),
    }
}

fn fixes(view: &View, group: &Group<'_>, loss: &Loss, blame: &Blame<'_>) -> Vec<Fix> {
    let mut fixes = Vec::new();
    if blame.own_share() >= OWN_SHARE.value {
        let cpus = units::counted(view.cpu_count().into(), "CPU", "CPUs");
        fixes.push(Fix {
            action: format!(
                "let {} use no more running threads than the {cpus} it has",
                words::ticked(group.comm)
            ),
            command: None,
            risk: Some(
                "where threads block on something else too, fewer of them may leave CPUs idle"
                    .into(),
            ),
            expect: None,
        });
        return fixes;
    }
    let Some(worst) = blame.worst_other() else {
        if group.usage.is_none() {
            fixes.push(Fix {
                action: "see behind whom it waits: run as root".into(),
                command: Some(format!("sudo {}", words::look_again(group, String::new()).command)),
                risk: None,
                expect: None,
            });
        }
        return fixes;
    };
    if worst.group.is_kernel() {
        fixes.push(remedy::of_kernel(worst.group.comm));
        return fixes;
    }
    fixes.extend(remedy::behind(view, group, &worst.culprit(view, loss.ns)));
    fixes
}
