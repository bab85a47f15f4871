// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OFF009: threads wait in the kernel, uninterruptibly, until another process lets them go on.

use super::holder::{Holder, holder};
use super::waits::{self, For, Waits};
use crate::finding::{Area, Evidence, Finding, Fix, Question, Severity, Unit};
use crate::recording::{Process, Source, WokenBy};
use crate::rules::asleep::words as sleep_words;
use crate::rules::words::{self, evidence, group_name, ticked};
use crate::rules::{Check, Rule, Status, Verdict, severity};
use crate::text::units;
use crate::view::View;
use std::cmp::Reverse;
use std::collections::BTreeMap;

pub(in crate::rules) static RULE: Rule = Rule {
    code: "OFF009",
    area: Area::Waiting,
    question: Question::Others,
    name: "held-in-kernel",
    summary: "threads wait in the kernel, uninterruptibly, until another process lets them go on",
    any_of: &[Source::Sched],
    helps: &[],
    limits: &[&severity::LOSS_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("held_in_kernel.md"),
    file: file!(),
    check: Check::Recording(check),
};

/// Pairs of calls that are named.
const MAX_CALLS: usize = 3;
/// What a thread of the kernel does that ends a wait.
const KERNEL_WORK: &str = "(kernel work)";

fn check(view: &View) -> Verdict {
    waits::verdict(
        view,
        |sleep| holder(view, sleep).is_some(),
        (For::Turn, "for whoever held it in the kernel"),
        finding,
    )
}

/// Whom most of it is for.
fn most(view: &View, waits: &Waits<'_>) -> Holder {
    let mut sums: BTreeMap<Holder, u64> = BTreeMap::new();
    for sleep in &waits.sleeps {
        if let Some(holder) = holder(view, sleep) {
            let sum = sums.entry(holder).or_default();
            *sum = sum.saturating_add(sleep.2);
        }
    }
    sums.into_iter().max_by_key(|(_, ns)| *ns).map_or(Holder::Other, |(holder, _)| holder)
}

fn finding(view: &View, severity: Severity, waits: &Waits<'_>) -> Finding {
    let behind = waits.behind_or(view, |(_, key, _)| key.slept.woken.process());
    let calls = calls(view, waits);
    let most = most(view, waits);
    let within = calls.first().map(|((call, on, _), _)| words_of(call, on.as_deref()));
    let within = within.unwrap_or_else(|| "a call".into());
    let whom = behind.whom.clone().or_else(|| same_name(view, waits));
    let them = words::verb(waits.group, "it", "them");
    let until = match (most, whom) {
        (Holder::GracePeriod, _) => "until all CPUs have switched (a grace period of RCU)".into(),
        (_, Some(whom)) => format!("until {whom} lets {them} go on"),
        (_, None) => format!("until other processes let {them} go on"),
    };
    let mut finding = waits.finding(view, (&RULE, severity), ("held in the kernel", &behind));
    if most == Holder::GracePeriod {
        // The thread that ends it has done nothing for this one.
        finding.evidence.retain(|line| line.name != "behind");
    }
    finding.evidence.splice(1..1, lines(view, waits, &calls));
    Finding {
        title: format!(
            "{} {} {} in the kernel, in {within}, {until}",
            group_name(waits.group),
            words::verb(waits.group, "waits", "wait"),
            words::of_every_second(waits.ns_per_s),
        ),
        fix: fixes(view, waits, most),
        confirm: Some(waits.look_again(view, "after the change, the waiting falls".into())),
        ..finding
    }
}

/// A call, on what it is, and in which call the thread was that ended the wait.
type Calls<'v> = (&'v str, Option<String>, &'v str);

fn words_of(call: &str, on: Option<&str>) -> String {
    match on {
        Some(on) => format!("{call} on {on}"),
        None => call.to_owned(),
    }
}

/// In which calls they wait, those with most time first.
fn calls<'v>(view: &View, waits: &Waits<'v>) -> Vec<(Calls<'v>, u64)> {
    let mut sums: BTreeMap<Calls<'v>, u64> = BTreeMap::new();
    for (_, key, ns) in &waits.sleeps {
        let slept = &key.slept;
        let by = match &slept.woken {
            WokenBy::Thread { call, .. } => call.as_str(),
            _ => "",
        };
        let on = sleep_words::on(view, &slept.call, &slept.on);
        let sum = sums.entry((slept.call.as_str(), on, by)).or_default();
        *sum = sum.saturating_add(*ns);
    }
    let mut calls: Vec<_> = sums.into_iter().collect();
    calls.sort_by_key(|(_, ns)| Reverse(*ns));
    calls
}

fn lines(view: &View, waits: &Waits<'_>, calls: &[(Calls<'_>, u64)]) -> Vec<Evidence> {
    let line = |((call, on, by), ns): &(Calls<'_>, u64)| {
        let share = units::share(*ns as f64 / waits.ns.max(1) as f64);
        let mut note = format!("{share} of it: in {}", words_of(call, on.as_deref()));
        if !by.is_empty() && *by != KERNEL_WORK {
            note += &format!(", until a thread in {by} ended it");
        }
        evidence(view, "calls", *ns as f64, Unit::Ns, Source::Sched.label(), note)
    };
    calls.iter().take(MAX_CALLS).map(line).collect()
}

/// Those that ended it, by what `of` them, with the one that ended most, and for how long.
fn most_of<'v, K: Ord>(
    view: &'v View,
    waits: &Waits<'_>,
    of: impl Fn(&'v Process) -> K,
) -> Option<(K, u64)> {
    let mut sums: BTreeMap<K, u64> = BTreeMap::new();
    for (_, key, ns) in &waits.sleeps {
        let by = key.slept.woken.process().and_then(|id| view.processes().get(&id));
        if let Some(facts) = by.and_then(|process| process.facts.as_ref()) {
            let sum = sums.entry(of(facts)).or_default();
            *sum = sum.saturating_add(*ns);
        }
    }
    sums.into_iter().max_by_key(|(_, ns)| *ns)
}

/// The name that processes have in common that ended most of it, each a part.
fn same_name(view: &View, waits: &Waits<'_>) -> Option<String> {
    let (name, ns) = most_of(view, waits, |facts| &facts.comm)?;
    (2 * ns >= waits.ns).then(|| format!("one {} after the other", ticked(name)))
}

fn fixes(view: &View, waits: &Waits<'_>, most: Holder) -> Vec<Fix> {
    let fix = |action: &str, risk: &str| Fix {
        action: action.into(),
        command: None,
        risk: Some(risk.into()),
        expect: None,
    };
    let pid = most_of(view, waits, |facts| facts.pid).map(|(pid, _)| pid);
    let look = Fix {
        action: "see where the time of the process goes that ends these waits".into(),
        command: pid.map(|pid| format!("sudo deburr -p {pid} -d 30")),
        risk: None,
        expect: None,
    };
    match most {
        Holder::Writes => vec![
            look,
            Fix {
                command: pid.map(|pid| format!("sudo grep -l fanotify /proc/{pid}/fdinfo/*")),
                ..fix(
                    "if it scans files (it has asked to allow them, as its open files tell by `fanotify`): have it leave out those that the \
                     service uses, or look at them afterwards instead of before they may be used",
                    "these files are used before they were looked at",
                )
            },
        ],
        Holder::Controls => vec![
            look,
            fix(
                "if it freezes a filesystem (`fsfreeze`, a snapshot of LVM or of the virtual machine, a backup): keep it frozen no longer than \
                 the snapshot takes, or take it when the service is idle; if it mounts one when it is first used (`autofs`): mount it before",
                "a snapshot without it may hold files in the middle of a change",
            ),
        ],
        Holder::GracePeriod => vec![fix(
            "make the call less often, or its quick form: `MEMBARRIER_CMD_PRIVATE_EXPEDITED` for `membarrier`; network namespaces, mounts, and \
             filters of packets that are kept instead of made for each request",
            "the quick form of `membarrier` interrupts the other CPUs on which the process runs",
        )],
        Holder::Other => vec![look],
    }
}
