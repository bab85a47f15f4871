// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SCH001: somebody waits on run queues because others run.

use super::blame::Blame;
use super::evidence::{self as lines, Loss};
use crate::finding::{Evidence, Finding, Fix, Severity, Unit};
use crate::recording::Source;
use crate::render::units;
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, group_name};
use crate::rules::{Limit, Rule, Status, Verdict, remedy, severity};
use crate::view::{Group, Groups, View, waits};

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
    why: "then it competes with itself: one level down",
};
const BATCH: Limit = Limit {
    name: "batch_share",
    value: lines::BATCH_SHARE,
    unit: "of its wall time in which a process wants to run",
    why: "on a whole host such a process takes what it gets: at most `low`, `info` if it queues behind itself",
};

pub(in crate::rules) static RULE: Rule = Rule {
    code: "SCH001",
    name: "run-queue-contention",
    summary: "threads that could run wait because others run on their CPUs",
    needs: &[Source::Sched, Source::Schedstat],
    helps: &[Source::Timeline, Source::CgroupCpu, Source::ProcStat, Source::Psi],
    limits: &{
        let [a, b, c, d, e, f, g] = severity::LOSS_LIMITS;
        [a, b, c, d, e, f, g, OWN_SHARE, BATCH, PLACEMENT_SHARE]
    },
    status: Status::Preview("0.1"),
    doc: include_str!("run_queue_contention.md"),
    file: file!(),
    check,
};

fn check(view: &View) -> Verdict {
    let groups = view.groups();
    let mut nearest: Option<(f64, &Group<'_>, Loss)> = None;
    let mut victims = Vec::new();
    let mut explained_by_quota = None;
    for (at, group) in groups.list().iter().enumerate() {
        let Some(loss) = loss(view, group).filter(|_| lines::may_suffer(view, group)) else {
            continue;
        };
        if group.usage.is_none() && super::quota_throttle::throttles(view, group) {
            explained_by_quota = Some(group_name(group));
            continue;
        }
        let Some(step) = severity::of_loss(loss.ns_per_s, loss.share) else {
            let near = severity::nearness(loss.ns_per_s, loss.share);
            if nearest.as_ref().is_none_or(|nearest| near > nearest.0) {
                nearest = Some((near, group, loss));
            }
            continue;
        };
        let blame = Blame::of(&groups, at);
        victims.push((adjusted(view, group, &loss, &blame, step), loss, at, blame));
    }
    victims.sort_by(|a, b| (b.0, b.1.ns, a.2).cmp(&(a.0, a.1.ns, b.2)));
    if victims.is_empty() {
        return quiet(nearest.map(|(_, group, loss)| (group, loss)), explained_by_quota);
    }
    let found = victims.len();
    victims.truncate(MAX_VICTIMS);
    let mut findings: Vec<Finding> = victims
        .into_iter()
        .map(|(severity, loss, at, blame)| finding(view, &groups, at, &loss, &blame, severity))
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

/// What a group lost to contention: with the probe, queued time without wake-up latency; without it, all delay.
fn loss(view: &View, group: &Group<'_>) -> Option<Loss> {
    match (&group.usage, &group.delay) {
        (Some(usage), _) => {
            Some(Loss::new(view, usage.contended_ns(), usage.wanted_ns(), usage.wall_ns))
        }
        (None, Some(delay)) => {
            Some(Loss::new(view, delay.delay_ns, delay.wanted_ns(), delay.wall_ns))
        }
        (None, None) => None,
    }
}

/// The severity of a loss, lowered where nobody but the victim itself, or its placement, is to blame.
fn adjusted(
    view: &View,
    group: &Group<'_>,
    loss: &Loss,
    blame: &Blame<'_>,
    step: Severity,
) -> Severity {
    let own = blame.own_share() >= OWN_SHARE.value;
    let mut severity = step;
    if own || placement_share(group).is_some_and(|share| share >= PLACEMENT_SHARE.value) {
        severity = severity::lowered(severity);
    }
    if lines::target_is_host(view) && loss.is_batch() {
        severity = severity.min(if own { Severity::Info } else { Severity::Low });
    }
    severity
}

/// Share of the looked-at waiting during which a CPU idled, allowed or not.
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
            "{} came nearest: it queued for {}, {} of the time in which it wanted to run",
            group_name(group),
            words::of_every_second(loss.ns_per_s),
            units::share(loss.share)
        ),
        (None, None) => {
            return Verdict::NoData { missing: vec!["no process of the target was seen".into()] };
        }
    };
    Verdict::Quiet { closest }
}

fn finding(
    view: &View,
    groups: &Groups<'_>,
    at: usize,
    loss: &Loss,
    blame: &Blame<'_>,
    severity: Severity,
) -> Finding {
    let group = &groups.list()[at];
    let mut confidence = Confidence::of(view);
    confidence = match &group.usage {
        Some(usage) => confidence
            .with_samples(usage.waits.total_count())
            .with("culprits known", 1.0 - 0.3 * blame.unexplained_share(loss.ns)),
        None => confidence
            .with_samples(group.delay.map_or(0, |delay| delay.slices))
            .with("queued or throttled", if view.covers(Source::CgroupCpu) { 0.7 } else { 0.5 }),
    };
    let mut evidence = victim_lines(view, group, loss);
    evidence.extend(lines::host_lines(view));
    evidence.push(confidence.evidence(view));
    Finding {
        code: RULE.code.into(),
        name: RULE.name.into(),
        severity,
        confidence: confidence.value(),
        title: title(group, loss, blame),
        victim: words::group_entity(view, group),
        cost: lines::cost(loss, group),
        causes: blame.causes(view, loss.ns),
        evidence,
        sizes: group.usage.as_ref().map(|usage| waits::size_classes(&usage.waits)).unwrap_or_default(),
        fix: fixes(view, group, blame),
        confirm: Some(words::look_again(
            group,
            "after the change: fewer waits of 1 ms and more, and another share of the ledger queued".into(),
        )),
    }
}

fn title(group: &Group<'_>, loss: &Loss, blame: &Blame<'_>) -> String {
    let name = group_name(group);
    let many = group.members.len() > 1;
    let wait = if many { "wait" } else { "waits" };
    let time = words::of_every_second(loss.ns_per_s);
    if group.usage.is_none() {
        let is = if many { "are" } else { "is" };
        return format!("{name} {is} runnable but not running for {time}: queued or throttled");
    }
    let share = |ns| units::share(ns as f64 / loss.ns.max(1) as f64);
    match (blame.own_ns, blame.worst_other()) {
        (own_ns, _) if blame.own_share() >= OWN_SHARE.value => {
            let whom = if many { "each other" } else { "its own other threads" };
            format!("{name} {wait} {time} for a CPU, {} of it behind {whom}", share(own_ns))
        }
        (_, Some((culprit, ns))) => {
            format!("{name} {wait} {time} for a CPU, {} of it behind {culprit}", share(ns))
        }
        (_, None) => format!("{name} {wait} {time} for a CPU"),
    }
}

fn victim_lines(view: &View, group: &Group<'_>, loss: &Loss) -> Vec<Evidence> {
    let Some(usage) = &group.usage else { return delay_lines(view, group) };
    let label = Source::Sched.label();
    let line =
        |name: &str, value: f64, unit, note: String| evidence(view, name, value, unit, label, note);
    let of_wall = units::share(loss.ns as f64 / usage.wall_ns.max(1) as f64);
    let mut all = vec![line(
        "run-queue wait",
        loss.ns as f64,
        Unit::Ns,
        format!(
            "{of_wall} of the wall time of its threads, {} of the time in which they wanted to run",
            units::share(loss.share)
        ),
    )];
    let (count, ns) = waits::at_least(&usage.waits, waits::LONG_WAIT_NS);
    let (all_count, all_ns) = (usage.waits.total_count(), usage.waits.total_ns());
    if all_count > 0 && all_ns > 0 {
        let by_time = ns as f64 / all_ns as f64;
        let by_count = units::share(count as f64 / all_count as f64);
        let note = format!(
            "of the waiting is in waits of 1 ms and more; they are {by_count} of the {}",
            units::counted(all_count, "wait", "waits")
        );
        all.push(line("long waits", by_time, Unit::Ratio, note));
    }
    if let Some((t0_ns, t1_ns, ns)) =
        usage.contended.fullest().filter(|_| usage.contended.bins().len() > 2)
    {
        let mut worst = line(
            "worst second",
            ns as f64 * 1e9 / (t1_ns - t0_ns).max(1) as f64,
            Unit::NsPerS,
            format!("on average {}", units::value(loss.ns_per_s as f64, Unit::NsPerS)),
        );
        (worst.from_s, worst.to_s) = (t0_ns as f64 / 1e9, t1_ns as f64 / 1e9);
        all.push(worst);
    }
    if usage.wakeup_latency_ns > 0 {
        let note = "not counted as contention: the CPU was idle and had to wake up".to_owned();
        all.push(line("wake-up latency", usage.wakeup_latency_ns as f64, Unit::Ns, note));
    }
    all.push(idle_line(view, group));
    all.push(quota_line(view, group, usage.states.throttled_ns));
    all
}

fn delay_lines(view: &View, group: &Group<'_>) -> Vec<Evidence> {
    let Some(delay) = &group.delay else { return vec![] };
    let note = format!(
        "runnable but not running, {} of the wall time of its threads; queueing and throttling in one, and \
         nobody to blame: that takes the BPF probe",
        units::share(delay.delay_ns as f64 / delay.wall_ns.max(1) as f64)
    );
    let label = Source::Schedstat.label();
    vec![
        evidence(view, "run-queue delay", delay.delay_ns as f64, Unit::Ns, label, note),
        idle_line(view, group),
    ]
}

/// Whether other CPUs idled meanwhile, or that this could not be seen.
fn idle_line(view: &View, group: &Group<'_>) -> Evidence {
    let label = Source::Timeline.label();
    let Some(idle) = group.idle.as_ref().filter(|idle| idle.waits_ns > 0) else {
        let note = if view.covers(Source::Timeline) {
            "none of its waits was long enough to be looked at"
        } else {
            "not seen: whether other CPUs idled while it waited takes the BPF timeline"
        };
        return evidence(view, "idle CPUs meanwhile", 0.0, Unit::Text, label, note.to_owned());
    };
    let share = |ns: u64| units::share(ns as f64 / idle.waits_ns as f64);
    let note = format!(
        "of the waiting in waits of {} and more passed while a CPU that it may use was idle; {} while only \
         CPUs were idle that it may not use",
        units::duration(idle.min_wait_ns as f64),
        share(idle.forbidden_ns)
    );
    let value = idle.allowed_ns as f64 / idle.waits_ns as f64;
    evidence(view, "idle CPUs meanwhile", value, Unit::Ratio, label, note)
}

/// Whether a quota was involved.
fn quota_line(view: &View, group: &Group<'_>, throttled_ns: u64) -> Evidence {
    let limit = group.cgroup.and_then(|id| {
        let path = view.cgroup_path(id);
        path.into_iter().filter_map(|(_, cgroup)| cgroup.limit_cpus()).min_by(f64::total_cmp)
    });
    let note = match (throttled_ns, limit) {
        (0, None) => "no quota stopped it; no cgroup above it was seen to have one".to_owned(),
        (0, Some(cpus)) => {
            format!(
                "no quota stopped it; the tightest above it allows {}",
                units::value(cpus, Unit::Cpus)
            )
        }
        (_, _) => "counted apart from the run-queue wait: see SCH002".to_owned(),
    };
    evidence(view, "throttled", throttled_ns as f64, Unit::Ns, Source::Sched.label(), note)
}

fn fixes(view: &View, group: &Group<'_>, blame: &Blame<'_>) -> Vec<Fix> {
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
        });
        return fixes;
    }
    let Some(culprit) = blame.worst_other_group() else {
        if group.usage.is_none() {
            fixes.push(Fix {
                action: "see behind whom it waits: run as root".into(),
                command: Some(format!("sudo {}", words::look_again(group, String::new()).command)),
                risk: None,
            });
        }
        return fixes;
    };
    if culprit.is_kernel() {
        fixes.push(Fix {
            action: format!(
                "find what gives {} its work: a kernel thread cannot be limited",
                words::ticked(culprit.comm)
            ),
            command: culprit.comm.starts_with("ksoftirqd").then(|| "cat /proc/softirqs".into()),
            risk: None,
        });
        return fixes;
    }
    fixes.extend(remedy::weight(view, group, culprit));
    fixes.extend(remedy::limit(view, group, culprit));
    fixes.extend(remedy::separate(view, culprit));
    fixes
}
