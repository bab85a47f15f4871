// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SCH003: threads wait on one CPU's run queue while other CPUs are idle.

use super::blame::Blame;
use super::evidence::{self as lines, Loss};
use super::own_budget::OwnBudget;
use crate::finding::{
    Area, Cause, Cost, Entity, EntityKind, Evidence, Finding, Fix, Question, Severity, Share, Unit,
};
use crate::recording::Source;
use crate::rules::candidates::may_suffer;
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, group_name, ticked};
use crate::rules::{Check, Limit, Rule, Status, Verdict, remedy, severity};
use crate::text::units;
use crate::view::{Group, Idle, Usage, View};

const MAX_VICTIMS: usize = 5;
/// Maximum number of CPUs with an evidence line of their own.
const MAX_CPUS: usize = 8;
/// With fewer, nothing is said of those that were not looked at.
const MIN_LOOKED_AT: Limit = Limit {
    name: "min_looked_at",
    value: 20.0,
    unit: "waits looked at, where there were others",
    why: "if 20 of them show no idle CPU, then with 95 % certainty fewer than one in seven of the others does",
};
/// A CPU is named as idle only if it idled during at least this share of the waiting.
const IDLE_CPU_SHARE: f64 = 0.05;

pub(in crate::rules) static RULE: Rule = Rule {
    code: "SCH003",
    area: Area::Sched,
    question: Question::CpuWait,
    name: "idle-while-waiting",
    summary: "threads wait on a run queue while other CPUs are idle",
    any_of: &[Source::Timeline],
    helps: &[Source::Sched, Source::CgroupCpu],
    limits: &[&severity::LOSS_LIMITS, &[MIN_LOOKED_AT]],
    status: Status::Preview("0.1"),
    doc: include_str!("idle_while_waiting.md"),
    file: file!(),
    check: Check::Recording(check),
};

fn check(view: &View) -> Verdict {
    let groups = view.groups();
    let mut victims: Vec<(Severity, WaitingVictim<'_>)> = Vec::new();
    let mut nearest: Option<(Loss, &Group<'_>)> = None;
    let mut unseen: Option<(&Group<'_>, &Idle)> = None;
    let list = groups.list().iter().enumerate();
    for (at, group) in list.filter(|(_, group)| may_suffer(view, group)) {
        let Some(idle) = group.idle.as_ref().filter(|idle| idle.whole_ns() > 0) else { continue };
        let loss = loss(view, group, idle, estimated_ns(idle));
        let severity = loss.severity();
        if severity.is_none() && may_hide_a_loss(view, group, idle) {
            unseen = unseen.or(Some((group, idle)));
            continue;
        }
        match severity {
            Some(severity) => {
                let budget = OwnBudget::of(group, &Blame::of(&groups, at));
                let severity =
                    if budget.is_some() { severity::lowered(severity) } else { severity };
                victims.push((severity, WaitingVictim { group, idle, loss, budget }));
            }
            None if nearest.is_none_or(|(nearest, _)| loss.ns > nearest.ns) => {
                nearest = Some((loss, group));
            }
            None => {}
        }
    }
    if let (true, Some((group, idle))) = (victims.is_empty(), unseen) {
        return Verdict::NoData { missing: vec![too_little(group, idle)] };
    }
    if victims.is_empty() {
        return Verdict::Quiet {
            closest: match nearest {
                Some((loss, _)) if loss.ns == 0 => {
                    "no process waited long while a CPU was idle".into()
                }
                Some((loss, group)) => format!(
                    "{} came nearest: queued while a CPU was idle for {}",
                    group_name(group),
                    words::of_every_second(loss.ns_per_s)
                ),
                None => "no wait was long enough to be looked at".into(),
            },
        };
    }
    // Stable sort: of equals, the group seen first stays first.
    victims.sort_by_key(|(severity, hit)| std::cmp::Reverse((*severity, hit.loss.ns)));
    let findings = victims.iter().take(MAX_VICTIMS);
    Verdict::Fired(findings.map(|(severity, hit)| finding(view, hit, *severity)).collect())
}

/// A victim with its loss.
struct WaitingVictim<'g> {
    group: &'g Group<'g>,
    idle: &'g Idle,
    loss: Loss,
    /// Whether it may wait for its own budget.
    budget: Option<OwnBudget<'g>>,
}

/// Waiting while another CPU was idle. The waits that were looked at are a sample: they stand for the others too, if
/// they are enough.
fn estimated_ns(idle: &Idle) -> u64 {
    let idle_ns = idle.allowed_ns + idle.forbidden_ns;
    match is_known(idle) {
        true => (idle_ns as f64 / idle.looked_at().max(f64::MIN_POSITIVE)) as u64,
        false => idle_ns,
    }
}

/// Whether enough waits were looked at to say something of all.
fn is_known(idle: &Idle) -> bool {
    idle.skipped_ns == 0 || idle.waits as f64 >= MIN_LOOKED_AT.value
}

/// Whether a group may be a victim through the waits that were not looked at.
fn may_hide_a_loss(view: &View, group: &Group<'_>, idle: &Idle) -> bool {
    let most = loss(view, group, idle, idle.skipped_ns);
    !is_known(idle) && most.severity().is_some()
}

/// The reason for `NoData`.
fn too_little(group: &Group<'_>, idle: &Idle) -> String {
    format!(
        "{}: of {} in waits of {} or more of {}, {} was looked at; the others were too many at once, or their threads \
         were gone",
        Source::Timeline.label(),
        units::duration(idle.whole_ns() as f64),
        units::duration(idle.min_wait_ns as f64),
        group_name(group),
        units::share(idle.looked_at())
    )
}

/// What a group lost if it waited for `idle_ns` while another CPU was idle; at most the run-queue wait that the probe
/// measured, which excludes throttled time.
fn loss(view: &View, group: &Group<'_>, idle: &Idle, idle_ns: u64) -> Loss {
    match (&group.usage, &group.delay) {
        (Some(usage), _) => Loss::of_usage(view, idle_ns.min(usage.contended_ns()), usage),
        (None, Some(delay)) => Loss::of_delay(view, idle_ns.min(delay.delay_ns), delay),
        (None, None) => Loss::new(view, idle_ns, idle.whole_ns(), idle.whole_ns()),
    }
}

/// What keeps a thread off a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Constraint {
    /// Its affinity mask (`sched_setaffinity`, `taskset`, `CPUAffinity=`).
    Affinity,
    /// The cpuset of its cgroup.
    Cpuset,
    /// The affinity masks of single threads: together they may run on all CPUs.
    Threads,
}

fn bound(view: &View, group: &Group<'_>) -> Constraint {
    let facts = group.first();
    let online = view.meta().map(|meta| remedy::cpu_list(&meta.cpus_online)).unwrap_or_default();
    let allowed = facts.cpus_allowed.as_deref().map(remedy::cpus);
    let set = facts.cpuset_cpus.as_deref().map(remedy::cpus);
    match (allowed, set) {
        (Some(allowed), _) if remedy::cpus(&online).is_subset(&allowed) => Constraint::Threads,
        (Some(allowed), Some(set)) if set.is_subset(&allowed) => Constraint::Cpuset,
        _ => Constraint::Affinity,
    }
}

/// CPUs that idled during at least [`IDLE_CPU_SHARE`] of the waiting: those that the waiting threads were allowed on,
/// or those that they were not.
fn idle_cpus(idle: &Idle, allowed: bool) -> Vec<u32> {
    let enough = |ns: u64| ns as f64 >= IDLE_CPU_SHARE * idle.waits_ns as f64;
    let all = idle.cpus.iter().filter(|&(&(_, may), &ns)| may == allowed && enough(ns));
    all.map(|(&(cpu, _), _)| cpu).collect()
}

fn finding(view: &View, hit: &WaitingVictim<'_>, severity: Severity) -> Finding {
    let WaitingVictim { group, idle, loss, budget } = hit;
    let forbidden = idle.forbidden_ns >= idle.allowed_ns;
    let others = idle_cpus(idle, !forbidden);
    let are = if others.len() == 1 { "is" } else { "are" };
    let (wait, it) = (words::verb(group, "waits", "wait"), words::verb(group, "it", "they"));
    let may = if forbidden { "may not" } else { "may" };
    // Waits too short to be examined are not part of the claim, but their share lowers the confidence.
    let queued_ns = group.usage.as_ref().map_or(idle.waits_ns, Usage::contended_ns).max(1);
    let looked_at = (idle.waits_ns as f64 / queued_ns as f64).min(1.0);
    let mut confidence = Confidence::of(view)
        .with_samples(idle.waits)
        .with("waits looked at", 0.5 + 0.5 * looked_at);
    if budget.is_some() {
        confidence = confidence.with("own budget", 0.5);
    }
    let mut all = lines_of(view, group, idle);
    all.extend(budget.map(|budget| budget.line(view)));
    all.push(confidence.evidence(view));
    Finding {
        title: format!(
            "{} {wait} {} for a CPU{} while {}, where {it} {may} run, {are} idle",
            group_name(group),
            words::of_every_second(loss.ns_per_s),
            budget.map(|budget| format!(" or {}", budget.words())).unwrap_or_default(),
            remedy::named(&others)
        ),
        victim: words::group_entity(view, group),
        cost: Cost {
            lost_ns_per_s: loss.ns_per_s,
            share: loss.share,
            share_at_most: loss.share_at_most,
            ..Cost::default()
        },
        causes: causes(view, group, idle),
        evidence: all,
        fix: OwnBudget::unpromised(*budget, fixes(view, group, forbidden)),
        confirm: Some(words::look_again(
            group,
            "after the change: next to no waiting while a CPU idles".into(),
        )),
        ..RULE.finding(severity, confidence.value())
    }
}

/// What kept the group off the idle CPUs, as shares of the waiting while another CPU was idle.
fn causes(view: &View, group: &Group<'_>, idle: &Idle) -> Vec<Cause> {
    let whole_ns = idle.allowed_ns + idle.forbidden_ns;
    let facts = group.first();
    let mut setting = Entity::new(EntityKind::Setting);
    let (key, value) = match bound(view, group) {
        Constraint::Affinity => ("CPU affinity", facts.cpus_allowed.clone()),
        Constraint::Cpuset => ("cpuset.cpus", facts.cpuset_cpus.clone()),
        Constraint::Threads => {
            setting.note = Some("some of its threads may run on every CPU, others may not".into());
            ("CPU affinity of single threads", None)
        }
    };
    (setting.key, setting.value) = (Some(key.into()), value);
    let mut kernel = Entity::new(EntityKind::Kernel);
    kernel.note =
        Some("load balancing left work queued beside an idle CPU that was allowed".into());
    let mut causes = vec![
        Cause { entity: setting, share: Share::of(idle.forbidden_ns, whole_ns) },
        Cause { entity: kernel, share: Share::of(idle.allowed_ns, whole_ns) },
    ];
    causes.retain(|cause| cause.share.get() > 0.0);
    causes.sort_by(|a, b| b.share.get().total_cmp(&a.share.get()));
    causes
}

fn lines_of(view: &View, group: &Group<'_>, idle: &Idle) -> Vec<Evidence> {
    let label = Source::Timeline.label();
    let share = |ns: u64| ns as f64 / idle.waits_ns as f64;
    let mut whole = format!(
        "of {} in {} of {} or more",
        units::duration(idle.waits_ns as f64),
        units::counted(idle.waits, "wait", "waits"),
        units::duration(idle.min_wait_ns as f64)
    );
    whole += &lines::part_looked_at(idle);
    let mut all = vec![
        evidence(
            view,
            "a CPU that it may not use idled",
            share(idle.forbidden_ns),
            Unit::Ratio,
            label,
            whole.clone(),
        ),
        evidence(
            view,
            "a CPU that it may use idled",
            share(idle.allowed_ns),
            Unit::Ratio,
            label,
            whole,
        ),
    ];
    let mut cpus: Vec<_> =
        idle.cpus.iter().map(|(&(cpu, allowed), &ns)| (ns, cpu, allowed)).collect();
    cpus.sort_by_key(|&(ns, cpu, _)| (std::cmp::Reverse(ns), cpu));
    for &(ns, cpu, allowed) in cpus.iter().take(MAX_CPUS) {
        let may = if allowed { "allowed" } else { "not allowed" };
        let note = format!("{} of that waiting; {may}", units::share(share(ns)));
        all.push(evidence(
            view,
            &format!("CPU {cpu} idle meanwhile"),
            ns as f64,
            Unit::Ns,
            label,
            note,
        ));
    }
    let facts = group.first();
    let pid = facts.pid;
    let mut setting = |name: &str, source: String, list: &Option<String>| {
        if let Some(list) = list {
            all.push(evidence(view, name, 0.0, Unit::Text, &source, list.clone()));
        }
    };
    setting("CPUs allowed", format!("/proc/{pid}/status"), &facts.cpus_allowed);
    setting("CPUs of its cpuset", "cpuset.cpus".into(), &facts.cpuset_cpus);
    all
}

fn fixes(view: &View, group: &Group<'_>, forbidden: bool) -> Vec<Fix> {
    if !forbidden {
        return vec![Fix {
            action: "find out what keeps the load balancer away: isolated CPUs, `nohz_full`, cpuset partitions".into(),
            command: Some("cat /sys/devices/system/cpu/isolated /sys/devices/system/cpu/nohz_full".into()),
            risk: None, expect: None,
        }];
    }
    match bound(view, group) {
        Constraint::Affinity => remedy::widen(view, group).into_iter().collect(),
        Constraint::Cpuset => remedy::widen_cpuset(view, group).into_iter().collect(),
        Constraint::Threads => vec![Fix {
            action: format!(
                "find out which threads of {} are bound to CPUs, and what binds them",
                ticked(group.comm)
            ),
            command: Some(format!("taskset -acp {}", group.first().pid)),
            risk: None,
            expect: None,
        }],
    }
}
