// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MEM001: threads free memory at the limit of a memory cgroup before they get some.

use super::losses::{self, MemoryLoss, Victim, reclaimed};
use crate::finding::{Area, Cause, Evidence, Finding, Fix, Question, Share, Unit};
use crate::recording::{CgroupId, MemoryBound, ProcId, PsiResource, ReclaimKind, Source};
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, group_name, ticked};
use crate::rules::{Check, Rule, Status, Verdict, severity};
use crate::text::units;
use crate::view::{Group, Groups, PsiView, ReclaimKey, View};
use std::cmp::Reverse;
use std::collections::BTreeMap;

pub(in crate::rules) static RULE: Rule = Rule {
    code: "MEM001",
    area: Area::Memory,
    question: Question::Memory,
    name: "cgroup-limit-reclaim",
    summary: "threads free memory at the limit of a cgroup before they get some",
    any_of: &[Source::Reclaim],
    helps: &[Source::Sched, Source::Psi],
    limits: &[&severity::LOSS_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("cgroup_limit_reclaim.md"),
    file: file!(),
    check: Check::Recording(check),
};

/// Causes that are named; the others are left out of the list.
const MAX_CAUSES: usize = 4;
/// Of the victim's time: whoever allocates less is not named.
const LEAST_SHARE: f64 = 0.05;

fn at_limit(key: &ReclaimKey) -> bool {
    key.kind == ReclaimKind::Limit
}

fn check(view: &View) -> Verdict {
    if !view.covers(Source::Sched) {
        let missing = "the time in which threads want to run: no scheduler probe".to_owned();
        return Verdict::NoData { missing: vec![missing] };
    }
    let groups = view.groups();
    let lost = |group: &Group<'_>, usage: &_| {
        MemoryLoss::of(view, usage, reclaimed(view, group, at_limit).ns)
    };
    let said = ("freed memory at a limit", "no thread freed memory at the limit of a cgroup");
    match losses::victims(view, groups.list(), lost, said) {
        Ok(victims) => {
            Verdict::Fired(victims.iter().map(|victim| finding(view, &groups, victim)).collect())
        }
        Err(quiet) => quiet,
    }
}

/// The limits at which a group freed memory, by its time there, and which limit it is; the longest first.
fn levels(view: &View, group: &Group<'_>) -> Vec<(Option<CgroupId>, Option<MemoryBound>, u64)> {
    let mut sums: BTreeMap<_, u64> = BTreeMap::new();
    for (id, _) in &group.members {
        for (key, of) in view.reclaim().of(*id).filter(|(key, _)| at_limit(key)) {
            *sums.entry((key.cgroup, key.bound)).or_default() += of.ns;
        }
    }
    let mut levels: Vec<_> = sums.into_iter().map(|((id, bound), ns)| (id, bound, ns)).collect();
    levels.sort_by_key(|&(_, _, ns)| Reverse(ns));
    levels
}

fn file_of(bound: Option<MemoryBound>) -> &'static str {
    match bound {
        Some(MemoryBound::High) => "`memory.high`",
        _ => "`memory.max` (v1: `memory.limit_in_bytes`)",
    }
}

/// `` `/shop` (64 MiB) ``.
fn limit_in_words(view: &View, cgroup: Option<CgroupId>) -> String {
    let path = cgroup.and_then(|id| words::cgroup_path(view, id));
    let limit = cgroup.and_then(|id| view.reclaim().level(id).limit_bytes);
    match (path, limit) {
        (Some(path), Some(bytes)) => format!("{} ({})", ticked(&path), units::bytes(bytes as f64)),
        (Some(path), None) => ticked(&path),
        (None, _) => "a cgroup".into(),
    }
}

fn finding(view: &View, groups: &Groups<'_>, victim: &Victim<'_, '_>) -> Finding {
    let Victim { severity, loss, group, usage } = victim;
    let levels = levels(view, group);
    let binding = levels.first().and_then(|level| level.0);
    let causes = causes(view, groups, group, loss.ns, &levels);
    let confidence = Confidence::of(view);
    let mut lines = lines(view, group, loss, &levels);
    let of_memory = reclaimed(view, group, at_limit).memory_ns;
    let note = format!(
        "of {} in which its threads slept for want of memory, that much is part of this time",
        units::duration(usage.states.mem_stall_ns as f64)
    );
    let label = Source::Reclaim.label();
    lines.push(evidence(view, "waiting for memory in it", of_memory as f64, Unit::Ns, label, note));
    lines.push(confidence.evidence(view));
    let spends = words::verb(group, "spends", "spend");
    let who = causes.first().filter(|(at, ..)| !std::ptr::eq(&groups.list()[*at], *group));
    let behind = who.map_or_else(String::new, |(at, share)| {
        format!(
            ", {} of it for what {} allocates",
            units::share(*share),
            group_name(&groups.list()[*at])
        )
    });
    Finding {
        title: format!(
            "{} {spends} {} freeing memory at the limit of {}{behind}",
            group_name(group),
            words::of_every_second(loss.ns_per_s),
            limit_in_words(view, binding)
        ),
        victim: words::group_entity(view, group),
        cost: loss.cost(),
        causes: causes
            .iter()
            .map(|&(at, share)| Cause {
                entity: words::group_entity(view, &groups.list()[at]),
                share: Share::saturating(share),
            })
            .collect(),
        evidence: lines,
        fix: fixes(view, binding, levels.first().and_then(|level| level.1)),
        confirm: Some(words::look_again(
            group,
            "with a higher limit, or less allocated below it, the time at the limit falls".into(),
        )),
        ..RULE.finding(*severity, confidence.value())
    }
}

/// The groups that allocate where the victim's limits bind, with their share of its time.
fn causes(
    view: &View,
    groups: &Groups<'_>,
    group: &Group<'_>,
    lost_ns: u64,
    levels: &[(Option<CgroupId>, Option<MemoryBound>, u64)],
) -> Vec<(usize, f64)> {
    let victims: Vec<ProcId> = group.members.iter().map(|(id, _)| *id).collect();
    let mut cgroups: Vec<CgroupId> = levels.iter().filter_map(|level| level.0).collect();
    cgroups.sort_unstable();
    cgroups.dedup();
    let mut sums: BTreeMap<usize, u64> = BTreeMap::new();
    for cgroup in cgroups {
        for (cause, ns) in view.reclaim().blame(&victims, cgroup) {
            if let Some(at) = groups.index_of(cause) {
                *sums.entry(at).or_default() += ns;
            }
        }
    }
    let share = |ns: u64| ns as f64 / lost_ns.max(1) as f64;
    let mut causes: Vec<(usize, f64)> = sums.into_iter().map(|(at, ns)| (at, share(ns))).collect();
    causes.retain(|(_, share)| *share >= LEAST_SHARE);
    causes.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    causes.truncate(MAX_CAUSES);
    causes
}

fn lines(
    view: &View,
    group: &Group<'_>,
    loss: &MemoryLoss,
    levels: &[(Option<CgroupId>, Option<MemoryBound>, u64)],
) -> Vec<Evidence> {
    let label = Source::Reclaim.label();
    let of = reclaimed(view, group, at_limit);
    let note = losses::what_it_was(&of, loss.ns);
    let mut lines =
        vec![evidence(view, "reclaim at the limit", loss.ns as f64, Unit::Ns, label, note)];
    for &(cgroup, bound, ns) in levels.iter().take(3) {
        let part = units::share(ns as f64 / loss.ns.max(1) as f64);
        let Some(level) = cgroup.map(|id| view.reclaim().level(id)) else {
            let note = "at a limit that is not known: that of a cgroup which is gone, or of another than its own".to_owned();
            lines.push(evidence(view, "limit not known", ns as f64, Unit::Ns, label, note));
            continue;
        };
        let usage = level
            .usage_bytes
            .map_or_else(|| "an unknown amount".into(), |bytes| units::bytes(bytes as f64));
        let name = limit_in_words(view, cgroup);
        let note = format!(
            "{} of {name}, {usage} in use when it bound; {part} of the time",
            file_of(bound)
        );
        lines.push(evidence(
            view,
            "limit",
            level.limit_bytes.unwrap_or(0) as f64,
            Unit::Bytes,
            label,
            note,
        ));
    }
    let note = "that its threads freed, and used for what they wanted to allocate".to_owned();
    lines.push(evidence(view, "pages freed", of.pages as f64, Unit::Count, label, note));
    if let Some(some) = view.psi(None, PsiResource::Memory).and_then(PsiView::some_share) {
        let note = "of the wall time in which some thread of the host waited for memory, within \
                    the limit of a cgroup or not"
            .to_owned();
        lines.push(evidence(view, "memory pressure", some, Unit::Ratio, Source::Psi.label(), note));
    }
    lines
}

fn fixes(view: &View, cgroup: Option<CgroupId>, bound: Option<MemoryBound>) -> Vec<Fix> {
    let fix = |action: String, risk: &str| Fix {
        action,
        command: None,
        risk: Some(risk.into()),
        expect: None,
    };
    vec![
        fix(
            format!("raise {} of {}", file_of(bound), limit_in_words(view, cgroup)),
            "the memory that it gets is taken from the host's other processes",
        ),
        fix(
            "have what allocates below that limit keep less: smaller caches, or files read and written past the page \
             cache (`O_DIRECT`) where they are used once"
                .into(),
            "what is no longer kept must be computed or read again",
        ),
        fix(
            "move what allocates most into a cgroup with a limit of its own".into(),
            "there it frees its own memory, and may need more of the host's",
        ),
    ]
}
