// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MEM002: threads free or move memory of the host before they get some.

use super::losses::{self, MemoryLoss, Victim, reclaimed};
use crate::finding::{Area, Evidence, Finding, Fix, Question, Unit};
use crate::recording::{ReclaimKind, Source};
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, group_name};
use crate::rules::{Check, Rule, Status, Verdict, severity};
use crate::text::units;
use crate::view::{Group, ReclaimKey, View};

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
        Ok(victims) => Verdict::Fired(victims.iter().map(|it| finding(view, it)).collect()),
        Err(quiet) => quiet,
    }
}

fn ns_of(view: &View, group: &Group<'_>, kind: ReclaimKind) -> u64 {
    reclaimed(view, group, |key| key.kind == kind).ns
}

fn finding(view: &View, victim: &Victim<'_, '_>) -> Finding {
    let Victim { severity, loss, group, .. } = victim;
    let [direct_ns, compaction_ns] =
        [ReclaimKind::Direct, ReclaimKind::Compaction].map(|kind| ns_of(view, group, kind));
    let moves = compaction_ns > direct_ns;
    let confidence = Confidence::of(view);
    let mut lines = lines(view, group);
    lines.push(confidence.evidence(view));
    let spends = words::verb(group, "spends", "spend");
    let (why, expect) = if moves {
        (
            "moving memory, to get large pages",
            "where it does not ask for large pages, or free memory lies in one piece, this time falls",
        )
    } else {
        ("freeing memory, because the host has none left", "with more free memory, this time falls")
    };
    Finding {
        title: format!(
            "{} {spends} {} {why}",
            group_name(group),
            words::of_every_second(loss.ns_per_s)
        ),
        victim: words::group_entity(view, group),
        cost: loss.cost(),
        evidence: lines,
        fix: fixes(moves),
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

fn fixes(moves: bool) -> Vec<Fix> {
    let fix = |action: &str, risk: &str| Fix {
        action: action.into(),
        command: None,
        risk: Some(risk.into()),
        expect: None,
    };
    let less = fix(
        "run less on the host, or give it more memory: see which processes hold most (`ps --sort=-rss`)",
        "swap only helps where much of what is in memory is not used",
    );
    let earlier = fix(
        "let the kernel begin to reclaim earlier, in the background (`vm.watermark_scale_factor`)",
        "that much more memory stays free, and is of no use to caches",
    );
    let seldom = fix(
        "ask for large pages in the background only (`/sys/kernel/mm/transparent_hugepage/defrag`: `defer`)",
        "memory is mapped in small pages until the background thread has made large ones",
    );
    let sooner = fix(
        "have the kernel put free memory together in the background, sooner (`vm.compaction_proactiveness`) or once \
         (`vm.compact_memory`)",
        "that takes CPU time, and whoever uses a page that is moved waits meanwhile",
    );
    if moves { vec![seldom, sooner, less] } else { vec![less, earlier] }
}
