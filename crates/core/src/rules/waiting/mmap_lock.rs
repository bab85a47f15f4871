// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OFF005: threads wait for the lock of the address space of their process.

use super::waits::{self, Waits};
use crate::finding::{Area, Evidence, Finding, Fix, Question, Severity, Unit};
use crate::recording::{Source, WokenBy};
use crate::rules::asleep::kind;
use crate::rules::words::{self, evidence, group_name};
use crate::rules::{Check, Rule, Status, Verdict, severity};
use crate::text::units;
use crate::view::View;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Pairs of calls that are named.
const MAX_CALLS: usize = 3;

pub(in crate::rules) static RULE: Rule = Rule {
    code: "OFF005",
    area: Area::Waiting,
    question: Question::Others,
    name: "mmap-lock",
    summary: "threads wait for the lock of the address space of their process",
    any_of: &[Source::Sched],
    helps: &[],
    limits: &[&severity::LOSS_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("mmap_lock.md"),
    file: file!(),
    check: Check::Recording(check),
};

fn check(view: &View) -> Verdict {
    waits::verdict(
        view,
        |(id, key, _)| kind::is_address_space(*id, &key.slept),
        "for the lock of its address space",
        finding,
    )
}

fn finding(view: &View, severity: Severity, waits: &Waits<'_>) -> Finding {
    let behind = waits.behind(view);
    let mut finding = waits.finding(view, (&RULE, severity), ("address space", &behind));
    finding.evidence.splice(1..1, lines(view, waits));
    let holder =
        behind.whom.as_ref().map(|whom| format!(", which {whom} uses")).unwrap_or_default();
    Finding {
        title: format!(
            "{} {} {} for the lock of the address space (`mmap_lock`){holder}",
            group_name(waits.group),
            words::verb(waits.group, "waits", "wait"),
            words::of_every_second(waits.ns_per_s)
        ),
        fix: vec![Fix {
            action: "map and unmap less: keep memory instead of giving it back (`M_TRIM_THRESHOLD`, a larger arena, the \
                     decay of the allocator), populate large mappings in small pieces, or before requests are served"
                .into(),
            command: None,
            risk: Some("the process keeps more memory".into()),
            expect: None,
        }],
        confirm: Some(waits.look_again(view,
            "after the change, the waiting for the address space falls".into(),
        )),
        ..finding
    }
}

/// In which calls they wait, and in which ones those were that released it.
fn lines(view: &View, waits: &Waits<'_>) -> Vec<Evidence> {
    let mut pairs: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (_, key, ns) in &waits.sleeps {
        if let WokenBy::Thread { call, .. } = &key.slept.woken {
            let sum = pairs.entry((&key.slept.call, call)).or_default();
            *sum = sum.saturating_add(*ns);
        }
    }
    let mut pairs: Vec<_> = pairs.into_iter().collect();
    pairs.sort_by_key(|(_, ns)| Reverse(*ns));
    let line = |((waits_in, released_in), ns): &((&str, &str), u64)| {
        let share = units::share(*ns as f64 / waits.ns.max(1) as f64);
        let note =
            format!("{share} of it: in {waits_in}, until a thread in {released_in} released it");
        evidence(view, "calls", *ns as f64, Unit::Ns, Source::Sched.label(), note)
    };
    pairs.iter().take(MAX_CALLS).map(line).collect()
}
