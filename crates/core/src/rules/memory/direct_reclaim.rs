// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MEM002: threads free or move memory of the host before they get some.

use super::allocators::Allocators;
use super::holders::Holders;
use super::losses::{self, MemoryLoss, Victim, reclaimed};
use crate::finding::{
    Area, Cause, Entity, EntityKind, Evidence, Finding, Fix, Question, Share, Unit,
};
use crate::recording::{ReclaimKind, Source};
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, group_name};
use crate::rules::{Check, Rule, Status, Verdict, severity};
use crate::text::{chosen, units};
use crate::view::{Group, Groups, ReclaimKey, View};

pub(in crate::rules) static RULE: Rule = Rule {
    code: "MEM002",
    area: Area::Memory,
    question: Question::Memory,
    name: "direct-reclaim",
    summary: "threads free or move the host's memory before they get some",
    any_of: &[Source::Reclaim],
    helps: &[Source::Sched],
    limits: &[&severity::LOSS_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("direct_reclaim.md"),
    file: file!(),
    check: Check::Recording(check),
};

/// What a thread does that wants a large page where no memory lies in one piece.
const DEFRAG: &str = "/sys/kernel/mm/transparent_hugepage/defrag";
/// The choices with which threads move memory for a large page themselves: all that want one, or those that ask for it.
const WAITS: [&str; 3] = ["always", "defer+madvise", "madvise"];
/// The choices with which none does.
const NOBODY_WAITS: [&str; 2] = ["defer", "never"];

fn of_host(key: &ReclaimKey) -> bool {
    key.kind != ReclaimKind::Limit
}

fn check(view: &View) -> Verdict {
    if !view.covers(Source::Sched) {
        let missing = "the time in which threads want to run: no scheduler probe".to_owned();
        return Verdict::NoData { missing: vec![missing] };
    }
    let groups = view.groups();
    let lost = |group: &Group<'_>, usage: &_| {
        MemoryLoss::of(view, usage, reclaimed(view, group, of_host).ns)
    };
    let said = ("freed or moved memory", "no thread freed or moved the host's memory to get some");
    match losses::victims(view, groups.list(), lost, said) {
        Ok(victims) => {
            let holders = Holders::of(view, &groups);
            let finding = |it| finding(view, (&groups, &holders), it);
            Verdict::Fired(victims.iter().map(finding).collect())
        }
        Err(quiet) => quiet,
    }
}

fn ns_of(view: &View, group: &Group<'_>, kind: ReclaimKind) -> u64 {
    reclaimed(view, group, |key| key.kind == kind).ns
}

fn finding(
    view: &View,
    (groups, holders): (&Groups<'_>, &Holders<'_, '_>),
    victim: &Victim<'_, '_>,
) -> Finding {
    let Victim { severity, loss, group, .. } = victim;
    let [direct_ns, compaction_ns] =
        [ReclaimKind::Direct, ReclaimKind::Compaction].map(|kind| ns_of(view, group, kind));
    let moves = compaction_ns > direct_ns;
    let defrag = view.block().setting(DEFRAG).map(chosen);
    let confidence = Confidence::of(view);
    let mut lines = lines(view, group);
    lines.extend(holders.lines(view));
    lines.push(confidence.evidence(view));
    let spends = words::verb(group, "spends", "spend");
    let who = Allocators::of(view, groups, (group, loss.ns), [None]);
    let (why, expect) = if moves {
        (
            "moving memory, to get large pages".to_owned(),
            "where it does not ask for large pages, or free memory lies in one piece, this time falls",
        )
    } else {
        (
            format!("freeing memory, because the host has none left{}", who.behind(group)),
            "with more free memory, this time falls",
        )
    };
    let setting = defrag
        .filter(|now| WAITS.contains(now))
        .map(|now| cause(now, Share::of(compaction_ns.min(loss.ns), loss.ns)));
    Finding {
        title: format!(
            "{} {spends} {} {why}",
            group_name(group),
            words::of_every_second(loss.ns_per_s)
        ),
        victim: words::group_entity(view, group),
        cost: loss.cost(),
        causes: if moves { setting.into_iter().collect() } else { who.causes(view) },
        evidence: lines,
        fix: fixes(moves, defrag, holders),
        confirm: Some(words::look_again(group, expect.into())),
        ..RULE.finding(*severity, confidence.value())
    }
}

fn lines(view: &View, group: &Group<'_>) -> Vec<Evidence> {
    let label = Source::Reclaim.label();
    let mut lines = Vec::new();
    let kinds = [(ReclaimKind::Direct, "direct reclaim"), (ReclaimKind::Compaction, "compaction")];
    for (kind, name) in kinds {
        let of = reclaimed(view, group, |key| key.kind == kind);
        if of.count > 0 {
            let note = losses::what_it_was(&of, of.ns);
            lines.push(evidence(view, name, of.ns as f64, Unit::Ns, label, note));
        }
    }
    let own_ns = view.reclaim().of_kernel_ns(ReclaimKind::Compaction);
    if own_ns > 0 {
        let note =
            "of the kernel's own threads, which nobody waits for: no part of the loss".to_owned();
        lines.push(evidence(
            view,
            "compaction in the background",
            own_ns as f64,
            Unit::Ns,
            label,
            note,
        ));
    }
    let host = view.reclaim().counters(None);
    if let Some((least, low)) = host.and_then(|it| Some((it.least_free_bytes?, it.low_bytes?))) {
        let note = format!(
            "the least at the end of any second; below {} the kernel begins to reclaim in the background (`low` in \
             `/proc/zoneinfo`)",
            units::bytes(low as f64)
        );
        lines.push(evidence(view, "free memory", least as f64, Unit::Bytes, "/proc/vmstat", note));
    }
    lines
}

/// The setting by which threads move memory for large pages. A thread may also do it for pages of other sizes: for which
/// it was is not recorded.
fn cause(now: &str, share: Share) -> Cause {
    let mut entity = Entity::new(EntityKind::Setting);
    entity.key = Some(DEFRAG.into());
    entity.value = Some(now.into());
    entity.note = Some(
        "with it, a thread that wants a transparent huge page moves memory first; whether all was moved for such pages is not \
         recorded"
            .into(),
    );
    Cause { entity, share }
}

/// The remedies. `defrag`: the choice in [`DEFRAG`], if it is known.
fn fixes(moves: bool, defrag: Option<&str>, holders: &Holders<'_, '_>) -> Vec<Fix> {
    let fix = |action: &str, risk: &str| Fix {
        action: action.into(),
        command: None,
        risk: Some(risk.into()),
        expect: None,
    };
    let less = fix(
        &format!("run less on the host, or give it more memory: {}", holders.where_to_see()),
        "swap only helps where much of what is in memory is not used",
    );
    let earlier = fix(
        "let the kernel begin to reclaim earlier, in the background (`vm.watermark_scale_factor`)",
        "that much more memory stays free, and is of no use to caches",
    );
    let seldom = || Fix {
        command: Some(format!("echo defer > {DEFRAG}")),
        ..fix(
            "ask for large pages in the background only (`/sys/kernel/mm/transparent_hugepage/defrag`: `defer`)",
            "memory is mapped in small pages until the background thread has made large ones; until the next boot, for all \
             of the host's processes",
        )
    };
    let sooner = fix(
        "have the kernel put free memory together in the background, sooner (`vm.compaction_proactiveness`) or once \
         (`vm.compact_memory`)",
        "that takes CPU time, and whoever uses a page that is moved waits meanwhile",
    );
    if !moves {
        return vec![less, earlier];
    }
    // Where nobody waits for transparent huge pages, it is for others: of network buffers, drivers, `hugetlbfs`.
    let is_set = defrag.is_some_and(|now| NOBODY_WAITS.contains(&now));
    (!is_set).then(seldom).into_iter().chain([sooner, less]).collect()
}
