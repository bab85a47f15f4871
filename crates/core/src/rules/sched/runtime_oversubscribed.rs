// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SCH004: a runtime lets more threads run at a time than its process's CPU limit has room for.

use super::evidence::{self as lines, Loss};
use super::oversized::{OversizedProcess, TOO_MANY, case};
use super::quota::{self, counters};
use super::sized_threads::{self, SizedWaiting};
use crate::finding::{
    Area, Cause, Cost, Entity, EntityKind, Evidence, Finding, Question, Severity, Share, Unit,
};
use crate::limits::belief::origin;
use crate::limits::effective::LimitSource;
use crate::recording::{Confidence as Worth, Source};
use crate::rules::candidates::{may_suffer, target_is_host};
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, group_name};
use crate::rules::{Check, Limit, Rule, Status, Verdict, severity};
use crate::text::units;
use crate::view::{Group, GroupCulprit, Groups, View};

const NEAR_LIMIT: Limit = Limit {
    name: "near_limit",
    value: 0.7,
    unit: "of the limit used on average",
    why: "below, the quota runs out in peaks only; measured, too many threads were not felt below three quarters of it",
};

const EXPLAINS: Limit = Limit {
    name: "explains",
    value: 0.25,
    unit: "of what is lost, at least, is of threads that the number is for and that do not fit",
    why: "demand alone, of as many threads as fit, comes to nothing by this lower bound; less is too near to that",
};
const USED_UP: Limit = Limit {
    name: "used_up",
    value: 0.9,
    unit: "of the limit used on average",
    why: "from there on it may need more CPU time than it may use, with any number of threads: confidence falls",
};

pub(in crate::rules) static RULE: Rule = Rule {
    code: "SCH004",
    area: Area::Sched,
    question: Question::Quota,
    name: "runtime-oversubscribed",
    summary: "a runtime lets more threads run at a time than its process's CPU limit has room for",
    any_of: &[Source::Runtime],
    helps: &[Source::Sched, Source::CgroupCpu],
    limits: &[&[TOO_MANY, NEAR_LIMIT, EXPLAINS, USED_UP], &severity::LOSS_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("runtime_oversubscribed.md"),
    file: file!(),
    check: Check::Recording(check),
};

fn check(view: &View) -> Verdict {
    let groups = view.groups();
    let mut cases = Vec::new();
    let mut unread = Vec::new();
    for (at, group) in groups.list().iter().enumerate().filter(|(_, group)| may_suffer(view, group))
    {
        match case(view, at, group) {
            Some(case) => cases.push(case),
            None => unread.extend(unread_of(view, group)),
        }
    }
    let found: Vec<Finding> = cases
        .iter()
        .filter(|case| case.counts())
        .map(|case| finding(view, &groups, case))
        .collect();
    if !found.is_empty() {
        return Verdict::Fired(found);
    }
    if cases.is_empty() && !unread.is_empty() && !target_is_host(view) {
        return Verdict::NoData { missing: unread };
    }
    let nearest = cases.iter().max_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    let mut closest = match nearest {
        Some(case) => format!("{} came nearest: it {}", group_name(case.group), case.numbers()),
        None => "no process has a runtime that is known".into(),
    };
    if !unread.is_empty() {
        closest += &format!("; not read: {}", unread.join(", "));
    }
    Verdict::Quiet { closest }
}

fn unread_of(view: &View, group: &Group<'_>) -> Option<String> {
    let why = group
        .members
        .iter()
        .find_map(|(id, _)| view.processes().get(id)?.runtime.as_ref()?.unread.clone())?;
    Some(format!("{}: {why}", group_name(group)))
}

/// What a group loses by throttling and by its threads waiting behind each other, in nanoseconds.
#[derive(Clone, Copy)]
struct OversubscriptionLoss {
    throttled_ns: u64,
    behind_itself_ns: u64,
    loss: Loss,
}

/// What the thread count has to do with the loss.
#[derive(Clone, Copy)]
enum Role {
    /// It accounts for at least this share of the loss, 0..1.
    Cause(Severity, f64),
    /// There is a loss, but by threads that the number does not size.
    Others,
    /// There is a loss. The lower bound of the number's share is small, and its true share is not known.
    Open,
    /// There is a loss, but it is not known which threads were throttled.
    Unknown,
    /// There is no significant loss.
    None,
}

fn loses(
    view: &View,
    groups: &Groups<'_>,
    case: &OversizedProcess<'_>,
) -> Option<OversubscriptionLoss> {
    if let Some(usage) = &case.group.usage {
        let throttled_ns = usage.states.throttled_ns;
        let behind = groups.blame(case.at);
        let behind_itself_ns = behind
            .get(&GroupCulprit::Group(case.at))
            .copied()
            .unwrap_or(0)
            .min(usage.contended_ns());
        let loss = Loss::of_usage(view, throttled_ns + behind_itself_ns, usage);
        return Some(OversubscriptionLoss { throttled_ns, behind_itself_ns, loss });
    }
    // Without the probe: the kernel's counters at the level that binds.
    let (id, _) = case.limit.level.as_ref()?;
    let level = view.cgroups().get(id)?;
    let queues_ns = level.throttled_ns.delta()?;
    let wanted_ns = queues_ns.saturating_add(level.usage_ns.delta()?);
    let loss = Loss::new(view, queues_ns, wanted_ns, wanted_ns);
    Some(OversubscriptionLoss { throttled_ns: queues_ns, behind_itself_ns: 0, loss })
}

/// Share of the limit that was used on average; `None` if it is not known.
fn used(view: &View, case: &OversizedProcess<'_>) -> Option<f64> {
    let cpus = case.limit.effective.cpus;
    let by_level = match (&case.limit.level, case.limit.effective.bound) {
        (Some((id, _)), LimitSource::Quota) => view.cgroups().get(id)?.usage_ns.delta(),
        _ => None,
    };
    // Where the level's usage is not counted: at least what the group itself used.
    let own = || Some(case.group.usage.as_ref()?.states.on_cpu_ns);
    let ns = by_level.or_else(own)?;
    Some(ns as f64 / view.window_ns().max(1) as f64 / cpus.max(0.01))
}

/// Threads that fit in all processes of the group with a known runtime together.
fn room(case: &OversizedProcess<'_>) -> f64 {
    (case.limit.effective.cpus - 1e-9).ceil().max(1.0) * processes(case)
}

fn processes(case: &OversizedProcess<'_>) -> f64 {
    case.group.runtimes.iter().filter(|reading| reading.is_some()).count().max(1) as f64
}

/// Lower bound of the threads that the number sizes and that were throttled at once; `None` if it is not known.
fn at_once(
    view: &View,
    case: &OversizedProcess<'_>,
    loses: OversubscriptionLoss,
    of_sized: f64,
) -> Option<f64> {
    let (id, _) = case.limit.level.as_ref()?;
    Some(of_sized * sized_threads::stopped_at_once(loses.throttled_ns, view.cgroups().get(id)?)?)
}

/// The share of the waiting that was by threads that the number sizes, 0..1; `None` if it is not known.
fn of_sized(view: &View, case: &OversizedProcess<'_>) -> Option<f64> {
    match sized_threads::waited(view, case.group, case.reading) {
        SizedWaiting::Share(share) => Some(share),
        SizedWaiting::AllAsARule => Some(1.0),
        SizedWaiting::Unknown => None,
    }
}

/// Lower bound of the share of the loss that the number accounts for, 0..1; `None` if it is not known.
fn part(view: &View, case: &OversizedProcess<'_>, loses: OversubscriptionLoss) -> Option<f64> {
    let of_sized = of_sized(view, case)?;
    if case.limit.effective.bound != LimitSource::Quota || loses.throttled_ns == 0 {
        return Some(of_sized);
    }
    let fitting =
        room(case) + processes(case) * f64::from(sized_threads::watchers(case.reading.kind));
    // As many threads as fit would queue behind each other as well, so the same share applies to queueing.
    let part = of_sized * sized_threads::excess(at_once(view, case, loses, of_sized)?, fitting);
    Some(part.min(1.0))
}

fn bearing(view: &View, case: &OversizedProcess<'_>, loses: OversubscriptionLoss) -> Role {
    let Some(severity) = severity_of(view, case, loses) else { return Role::None };
    match (part(view, case, loses), of_sized(view, case)) {
        (Some(part), _) if part >= EXPLAINS.value => Role::Cause(severity, part),
        // The number's share is at most that of the threads that it sizes.
        (Some(_), Some(most)) if most < EXPLAINS.value => Role::Others,
        (Some(_), _) => Role::Open,
        (None, _) => Role::Unknown,
    }
}

/// Severity; `None` if the number is only a risk.
fn severity_of(
    view: &View,
    case: &OversizedProcess<'_>,
    loses: OversubscriptionLoss,
) -> Option<Severity> {
    let severity = loses.loss.severity()?;
    let near = used(view, case).is_none_or(|used| used >= NEAR_LIMIT.value);
    let by_quota = case.limit.effective.bound == LimitSource::Quota;
    // Under a quota, the symptom is throttling; a process that queues behind itself on its own CPUs may be batch work.
    let shows =
        if by_quota { loses.throttled_ns > 0 } else { !lines::is_batch(case.group, &loses.loss) };
    (near && shows).then_some(severity)
}

fn finding(view: &View, groups: &Groups<'_>, case: &OversizedProcess<'_>) -> Finding {
    let loses = loses(view, groups, case);
    let bearing = loses.map_or(Role::None, |loses| bearing(view, case, loses));
    let felt = match (loses, bearing) {
        (Some(loses), Role::Cause(severity, part)) => Some((loses, severity, part)),
        _ => None,
    };
    let name = group_name(case.group);
    let verb = |singular, plural| words::verb(case.group, singular, plural);
    let numbers = case.numbers_with(verb("counts", "count"), verb("lets", "let"));
    let title = match (bearing, felt) {
        (_, Some((loses, _, part))) => format!(
            "{name} {numbers}: its threads are stopped or wait for each other for {}, at least {} of it because they are too many",
            words::of_every_second(loses.loss.ns_per_s),
            units::share(part)
        ),
        (Role::Others, _) => {
            format!("{name} {numbers}; but it is other threads that are stopped")
        }
        (Role::Open, _) => format!(
            "{name} {numbers}; whether it is stopped because of that, or because it wants to run more than it may, is not known"
        ),
        (Role::Unknown, _) => {
            format!("{name} {numbers}; whether it is those threads that are stopped is not known")
        }
        _ => format!("{name} {numbers}; nothing was lost to that in this window"),
    };
    let worth = match case.belief.threads.confidence {
        Worth::Exact => 1.0,
        Worth::Start => 0.8,
        Worth::Bound => 0.5,
    };
    // That fewer threads are enough is known from earlier measurements, not from this window; the work may exceed the
    // limit with any number of threads.
    let is_used_up = used(view, case).is_some_and(|used| used >= USED_UP.value);
    let mut confidence = Confidence::of(view)
        .with("number of threads", worth)
        .with("demand not known", if is_used_up { 0.6 } else { 0.9 });
    if sized_threads::waited(view, case.group, case.reading) == SizedWaiting::AllAsARule {
        confidence = confidence.with("names of threads not seen", 0.8);
    }
    if felt.is_some() && used(view, case).is_none() {
        confidence = confidence.with("use of the limit not seen", 0.7);
    }
    let mut all = evidence_of(view, case, loses);
    if felt.is_none() {
        let (label, because) = (Source::Runtime.label(), case.belief.because.clone());
        all.insert(1, evidence(view, "reason", 0.0, Unit::Text, label, because));
    }
    all.push(confidence.evidence(view));
    let cost = felt.map_or_else(Cost::default, |(loses, ..)| Cost {
        lost_ns_per_s: loses.loss.ns_per_s,
        share: loses.loss.share,
        share_at_most: loses.loss.share_at_most,
        ..Cost::default()
    });
    Finding {
        title,
        victim: words::group_entity(view, case.group),
        cost,
        causes: felt.map(|(_, _, part)| causes(view, case, part)).unwrap_or_default(),
        evidence: all,
        fix: case.belief.fixes.clone(),
        confirm: Some(words::look_again(case.group, expected(case))),
        ..RULE.finding(felt.map_or(Severity::Info, |(_, severity, _)| severity), confidence.value())
    }
}

/// What to expect with the number that fits. Throttling remains if as many threads always want to run and the quota is
/// less than whole CPUs; how much CPU time the process needs is not known better than that.
fn expected(case: &OversizedProcess<'_>) -> String {
    let room = room(case);
    let left_ns_per_s = ((room - case.limit.effective.cpus).max(0.0) * 1e9) as u64;
    if case.limit.effective.bound != LimitSource::Quota || left_ns_per_s < 10_000_000 {
        return "after the change: next to no throttled time in the ledger. If requests are still late, it needs more CPU \
                time than it may use, with any number of threads"
            .into();
    }
    format!(
        "after the change: throttled for no more than {}; as much as that if it needs more CPU time than its quota with any \
         number of threads (see SCH002), little if it does not",
        words::of_every_second(left_ns_per_s)
    )
}

/// The causes: the setting with its share, and the quota with the rest.
fn causes(view: &View, case: &OversizedProcess<'_>, part: f64) -> Vec<Cause> {
    let mut all = vec![Cause { share: Share::saturating(part), ..cause(case) }];
    if let Some((id, _)) = case.limit.level.as_ref().filter(|_| part < 0.995) {
        let rest = quota::of_level(*id).causes(view).into_iter();
        all.extend(rest.map(|cause| Cause {
            share: Share::saturating(cause.share.get() * (1.0 - part)),
            ..cause
        }));
    }
    all.sort_by(|a, b| b.share.get().total_cmp(&a.share.get()));
    all
}

fn cause(case: &OversizedProcess<'_>) -> Cause {
    let threads = &case.belief.threads;
    let entity = Entity {
        key: Some(threads.name.clone()),
        value: Some(threads.value.to_string()),
        note: Some(case.belief.because.clone()),
        ..Entity::new(EntityKind::Setting)
    };
    Cause { entity, share: Share::WHOLE }
}

/// Evidence lines: which threads waited, and how many were throttled at once.
fn sized_lines(
    view: &View,
    case: &OversizedProcess<'_>,
    loses: Option<OversubscriptionLoss>,
) -> Vec<Evidence> {
    let mut all = Vec::new();
    let waited = sized_threads::waited(view, case.group, case.reading);
    let label = Source::Runtime.label();
    let name = &case.belief.threads.name;
    if let SizedWaiting::Share(share) = waited {
        let note = format!(
            "of the waiting for a CPU was by threads that {name} sizes, judging by their names"
        );
        all.push(evidence(view, "its threads", share, Unit::Ratio, label, note));
    }
    let at_once = loses
        .filter(|loses| loses.throttled_ns > 0)
        .and_then(|loses| at_once(view, case, loses, of_sized(view, case)?));
    if let Some(at_once) = at_once {
        let note = format!(
            "of those threads at least, on average over the periods in which the quota ran out; there is room for {}",
            room(case)
        );
        all.push(evidence(
            view,
            "stopped at once",
            at_once,
            Unit::Count,
            Source::CgroupCpu.label(),
            note,
        ));
    }
    all
}

fn evidence_of(
    view: &View,
    case: &OversizedProcess<'_>,
    loses: Option<OversubscriptionLoss>,
) -> Vec<Evidence> {
    let threads = &case.belief.threads;
    let version = case
        .reading
        .version
        .as_ref()
        .map(|version| format!(" {}", version.trim_start_matches("go")));
    let runtime = format!("{}{}", case.reading.kind.name(), version.unwrap_or_default());
    let worth = match threads.confidence {
        Worth::Exact => "read from the runtime itself",
        Worth::Start => "as it was started; the program may have changed it",
        Worth::Bound => "counted",
    };
    let fit = units::counted(case.belief.fitting.into(), "fits", "fit");
    let label = Source::Runtime.label();
    let mut all = vec![
        evidence(
            view,
            &threads.name,
            threads.value.into(),
            Unit::Count,
            label,
            format!("{runtime}, {worth} ({}); {fit}", threads.source),
        ),
        evidence(
            view,
            "CPU limit",
            case.limit.effective.cpus,
            Unit::Cpus,
            match case.limit.effective.bound {
                LimitSource::Quota | LimitSource::Cpuset => Source::CgroupCpu.label(),
                LimitSource::Affinity => "/proc/PID/status",
                LimitSource::Online => "/sys/devices/system/cpu",
            },
            origin(case.limit.circumstances()),
        ),
    ];
    if let Some(used) = used(view, case) {
        let note = "of the limit was used on average".to_owned();
        all.push(evidence(view, "use", used, Unit::Ratio, Source::CgroupCpu.label(), note));
    }
    if let Some(loses) = loses.filter(|_| case.group.usage.is_some()) {
        let label = Source::Sched.label();
        let ns = |name, ns: u64, note: &str| {
            evidence(view, name, ns as f64, Unit::Ns, label, note.to_owned())
        };
        all.push(ns(
            "throttled",
            loses.throttled_ns,
            "threads that could run and were stopped by the quota",
        ));
        all.push(ns(
            "waited behind itself",
            loses.behind_itself_ns,
            "queued while other threads of its own ran",
        ));
    }
    all.extend(sized_lines(view, case, loses));
    if let Some(usage) = &case.group.usage {
        let label = Source::Sched.label();
        let note = "threads take turns more often the more of them are allowed to run".to_owned();
        let switches = view.per_second(usage.switches) as f64;
        all.push(evidence(view, "context switches", switches, Unit::PerS, label, note));
        let note = "of the process; by itself it says nothing".to_owned();
        all.push(evidence(view, "threads", usage.threads_max.into(), Unit::Count, label, note));
    }
    if let Some(level) = case.limit.level.as_ref().and_then(|(id, _)| view.cgroups().get(id)) {
        all.extend(
            counters(view, level).into_iter().filter(|line| line.name != "throttled queues"),
        );
    }
    all
}
