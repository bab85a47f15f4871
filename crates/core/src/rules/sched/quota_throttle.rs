// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SCH002: threads that could run are stopped because a cgroup's CPU quota ran out.

use super::demand::{self, QuotaIncrease};
use super::evidence::Loss;
use super::longest_wait;
use super::quota::{self, Binding, counters};
use super::tails;
use crate::finding::{Area, Confirm, Cost, Finding, Fix, Question, Severity, Tail, Unit};
use crate::recording::{CgroupId, Source, State};
use crate::rules::candidates::{may_suffer, target_is_host};
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, group_name, ticked};
use crate::rules::{Check, Limit, Rule, Status, Verdict, remedy, severity, tail};
use crate::text::shell_quote;
use crate::text::units;
use crate::view::{CgroupView, Group, View};
use std::collections::BTreeMap;

const PEAKS: Limit = Limit {
    name: "peaks",
    value: 0.5,
    unit: "of the periods with work",
    why: "a quota that runs out less often meets peaks, and saving it up (burst) may be enough",
};
/// Maximum number of other groups throttled by the same quota that are named.
const MAX_OTHERS: usize = 3;

pub(in crate::rules) static RULE: Rule = Rule {
    code: "SCH002",
    area: Area::Sched,
    question: Question::Quota,
    name: "quota-throttle",
    summary: "threads that could run are stopped because a cgroup's CPU quota ran out",
    any_of: &[Source::Sched, Source::CgroupCpu],
    helps: &[Source::ProcStat],
    limits: &[&severity::LOSS_LIMITS, &tail::LIMITS, &[PEAKS]],
    status: Status::Preview("0.1"),
    doc: include_str!("quota_throttle.md"),
    file: file!(),
    check: Check::Recording(check),
};

fn check(view: &View) -> Verdict {
    let groups = view.groups();
    let (mut found, nearest) = by_ledger(view, groups.list());
    // Without the probe, or where it cannot separate throttling from queueing, only the kernel's counters are left.
    if found.is_empty() && !matches!(view.coverage(Source::Sched), Some(State::Active)) {
        found = by_counters(view);
    }
    if !found.is_empty() {
        return Verdict::Fired(found);
    }
    let quotas = view.cgroups().values().filter(|cgroup| cgroup.limit_cpus().is_some()).count();
    let quotas = match quotas {
        0 => "no cgroup has a quota".to_owned(),
        1 => "1 cgroup has a quota".to_owned(),
        many => format!("{many} cgroups have a quota"),
    };
    Verdict::Quiet {
        closest: match nearest {
            Some((name, loss)) => format!(
                "{name} came nearest: stopped for {}, {}; {quotas}",
                words::of_every_second(loss.ns_per_s),
                loss.of_wanted()
            ),
            None if view.covers(Source::CgroupCpu) => format!("{}; {quotas}", most_throttled(view)),
            None => "no process was stopped".into(),
        },
    }
}

/// The quota that ran out in the largest share of its periods, by the kernel's counters.
fn most_throttled(view: &View) -> String {
    let shares = view.cgroups().values().filter_map(|quota| {
        let share = quota.throttled_share().filter(|&share| share > 0.0)?;
        Some((share, quota.facts.as_ref()?))
    });
    match shares.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((share, facts)) => format!(
            "{} came nearest: its quota ran out in {} of the periods with work",
            ticked(&facts.path),
            units::share(share)
        ),
        None => "no process was stopped".into(),
    }
}

/// A throttled group and its loss.
type Victim<'g> = (Loss, &'g Group<'g>);

/// Severity of a victim's throttling by its mean or its tail, and the tail if that is worse.
fn severity_of(view: &View, (loss, group): &Victim<'_>) -> (Option<Severity>, Option<Tail>) {
    let by_mean = loss.severity();
    let again = !tail::came_at_once(&view.target_load().throttled);
    let tail = tails::of_throttling(view, group).filter(|_| again);
    let by_tail = tail.and_then(|tail| tail::severity(view, &tail, loss.ns_per_s));
    (by_mean.max(by_tail), tail.filter(|_| by_tail > by_mean))
}

/// One finding for each quota that throttled a group above the limits, about the group that it throttled longest. And
/// the victim that came nearest to the limits.
fn by_ledger<'g>(view: &View, groups: &'g [Group<'g>]) -> (Vec<Finding>, Option<(String, Loss)>) {
    let mut quotas: BTreeMap<Option<CgroupId>, (Binding, Vec<Victim<'g>>)> = BTreeMap::new();
    for group in groups.iter().filter(|group| may_suffer(view, group)) {
        let Some(usage) = group.usage.as_ref().filter(|usage| usage.states.throttled_ns > 0) else {
            continue;
        };
        let loss = Loss::of_usage(view, usage.states.throttled_ns, usage);
        let binding = quota::of(view, group.cgroup);
        let quota = quotas.entry(binding.level()).or_insert_with(|| (binding, vec![]));
        quota.1.push((loss, group));
    }
    let mut found = Vec::new();
    let mut nearest: Option<(String, Loss)> = None;
    for (binding, mut victims) in quotas.into_values() {
        // Stable sort: of equals, the group seen first stays first.
        victims.sort_by_key(|(loss, _)| std::cmp::Reverse(loss.ns));
        let severe = |victim: &Victim<'_>| severity_of(view, victim).0;
        match victims.iter().position(|victim| severe(victim).is_some()) {
            Some(at) => {
                let victim = victims.remove(at);
                found.push(of_victim(view, groups, &binding, victim, &victims));
            }
            None => {
                let near = |loss: &Loss| severity::nearness(loss.ns_per_s, loss.share);
                let nearer = |a: &&Victim<'_>, b: &&Victim<'_>| near(&a.0).total_cmp(&near(&b.0));
                let closest = victims.iter().max_by(nearer);
                let closest = closest.map(|&(loss, group)| (group_name(group), loss));
                nearest = nearest
                    .into_iter()
                    .chain(closest)
                    .max_by(|a, b| near(&a.1).total_cmp(&near(&b.1)));
            }
        }
    }
    (found, nearest)
}

fn of_victim(
    view: &View,
    groups: &[Group<'_>],
    binding: &Binding,
    victim: Victim<'_>,
    others: &[Victim<'_>],
) -> Finding {
    let (severity, worse_tail) = severity_of(view, &victim);
    let (loss, group) = victim;
    let quota = binding.level().and_then(|id| view.cgroups().get(&id));
    let facts = quota.and_then(|quota| quota.facts.as_ref());
    let is = words::verb(group, "is", "are");
    let by = match facts {
        Some(facts) => format!("by the CPU quota of {}", ticked(&facts.path)),
        None => "by a CPU quota".into(),
    };
    let name = group_name(group);
    let title = match &worse_tail {
        Some(tail) => format!(
            "{} of {name} is stopped for {} {by}: {}",
            tail::one_in(tail, "turn"),
            units::duration(tail.late_ns as f64),
            tail::words(tail, "their")
        ),
        None => format!("{name} {is} stopped for {} {by}", words::of_every_second(loss.ns_per_s)),
    };
    let usage = group.usage.clone().unwrap_or_default();
    let note = format!(
        "{} of the wall time of its threads, {}",
        units::share(loss.ns as f64 / usage.wall_ns.max(1) as f64),
        loss.of_wanted()
    );
    let label = Source::Sched.label();
    let mut all = vec![evidence(view, "throttled", loss.ns as f64, Unit::Ns, label, note)];
    let tail = tails::of_throttling(view, group);
    all.extend(tail.iter().map(|tail| tail::line(view, tail, label)));
    all.extend(quota.map(|quota| counters(view, quota)).unwrap_or_default());
    let note = "counted apart: waiting behind others is no throttling, see SCH001".to_owned();
    all.push(evidence(view, "run-queue wait", usage.contended_ns() as f64, Unit::Ns, label, note));
    if !others.is_empty() {
        let names: Vec<_> =
            others.iter().take(MAX_OTHERS).map(|(_, group)| group_name(group)).collect();
        let more = if others.len() > MAX_OTHERS { ", ..." } else { "" };
        let note = format!("processes or groups: {}{more}", names.join(", "));
        all.push(evidence(
            view,
            "also stopped by it",
            others.len() as f64,
            Unit::Count,
            label,
            note,
        ));
    }
    let periods = quota.and_then(|quota| quota.nr_periods.delta());
    let confidence = Confidence::of(view)
        .with_samples(periods.unwrap_or(usage.waits.total_count()))
        .with("level known", if binding.counted() { 1.0 } else { 0.8 });
    all.push(confidence.evidence(view));
    let raise = binding.level().map(|id| {
        let demand = demand::of_level(view, groups, id);
        QuotaIncrease { id, from: group.cgroup.unwrap_or(id), demand, binding, groups }
    });
    Finding {
        title,
        victim: words::group_entity(view, group),
        cost: Cost {
            lost_ns_per_s: loss.ns_per_s,
            share: loss.share,
            share_at_most: loss.share_at_most,
            tail,
            ..Cost::default()
        },
        causes: binding.causes(view),
        evidence: all,
        longest: longest_wait::of(view, group),
        fix: raise.map(|raise| fixes(view, &raise, usage.threads_max)).unwrap_or_default(),
        confirm: Some(words::look_again(
            group,
            "after the change: no throttled time in the ledger".into(),
        )),
        ..RULE.finding(severity.unwrap_or(Severity::Info), confidence.value())
    }
}

/// One finding for each quota that ran out by the kernel's counters, which do not say which threads it throttled.
fn by_counters(view: &View) -> Vec<Finding> {
    let looked_at = |id: &CgroupId| {
        target_is_host(view)
            || view.groups().list().iter().filter(|group| group.in_target).any(|group| {
                group
                    .cgroup
                    .is_some_and(|at| view.cgroup_path(at).iter().any(|(level, _)| level == id))
            })
    };
    let levels = view.cgroups().iter().filter(|(id, _)| looked_at(id));
    levels.filter_map(|(&id, quota)| of_counters(view, id, quota)).collect()
}

fn of_counters(view: &View, id: CgroupId, quota: &CgroupView) -> Option<Finding> {
    let facts = quota.facts.as_ref()?;
    let (loss, severity) = quota::counted_loss(view, quota)?;
    let periods = quota.nr_periods.delta().unwrap_or(0);
    // The counter does not say how many threads each queue held.
    let confidence = Confidence::of(view).with_samples(periods).with("threads not seen", 0.7);
    let mut all = counters(view, quota);
    all.push(confidence.evidence(view));
    let used_ns = quota.usage_ns.delta().unwrap_or(0);
    let binding = &quota::of_level(id);
    let demand = demand::of_counters(loss.ns + used_ns, loss.ns);
    let raise = QuotaIncrease { id, from: id, demand, binding, groups: &[] };
    let ran_out = quota.throttled_share().map_or("again and again".into(), |share| {
        format!("in {} of the periods with work", units::share(share))
    });
    Some(Finding {
        title: format!("{} runs out of its CPU quota {ran_out}", ticked(&facts.path)),
        victim: words::cgroup_entity(view, id),
        cost: Cost { lost_ns_per_s: loss.ns_per_s, share: loss.share, ..Cost::default() },
        causes: binding.causes(view),
        evidence: all,
        fix: fixes(view, &raise, 0),
        confirm: Some(Confirm {
            command: format!("sudo deburr --cgroup={} -d 30", shell_quote(&facts.path)),
            expect: Some(
                "as root, the ledger says how much of the threads' wall time is throttled".into(),
            ),
        }),
        ..RULE.finding(severity, confidence.value())
    })
}

/// Remedies for a quota: raise it, allow bursts, run fewer threads.
fn fixes(view: &View, raise: &QuotaIncrease<'_>, threads: u32) -> Vec<Fix> {
    let Some(quota) = view.cgroups().get(&raise.id) else { return vec![] };
    let (Some(facts), Some(limit_cpus)) = (quota.facts.as_ref(), quota.limit_cpus()) else {
        return vec![];
    };
    let most_cpus = f64::from(view.cpu_count().max(1));
    let wanted_cpus = view.per_second(raise.demand.wanted_ns) as f64 / 1e9;
    // Rounded up to half a CPU; at least a quarter more than now.
    let enough_cpus = ((wanted_cpus.max(limit_cpus * 1.25) * 2.0).ceil() / 2.0).min(most_cpus);
    let mut fixes = Vec::new();
    if limit_cpus < most_cpus {
        let doubt = raise.doubt(view, enough_cpus);
        fixes.push(remedy::raise_quota(facts, enough_cpus, demand::LEFT, doubt));
    }
    if quota.throttled_share().is_some_and(|share| share < PEAKS.value) {
        fixes.extend(remedy::burst(facts));
    }
    if f64::from(threads) > limit_cpus.ceil() {
        fixes.push(Fix {
            action: format!(
                "run at most {} at a time (`GOMAXPROCS`, `-XX:ActiveProcessorCount`, worker count)",
                units::counted(limit_cpus.ceil() as u64, "busy thread", "busy threads")
            ),
            command: None,
            risk: Some("more threads than the quota has CPUs use it up early in each period, then all stand still; \
                        but threads that block on IO need company".into()), expect: None,
        });
    }
    fixes
}
