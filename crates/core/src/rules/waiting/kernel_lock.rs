// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OFF005: threads wait for a lock of the kernel: that of the address space of their process, or another.

use super::waits::{self, For, Waits};
use crate::finding::{Area, Evidence, Finding, Fix, Question, Severity, Unit};
use crate::recording::{KernelLock, ProcId, Slept, SleptOn, Source, WokenBy};
use crate::rules::asleep::{kind, words as sleep_words};
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
    name: "kernel-lock",
    summary: "threads wait for a lock of the kernel, such as that of their address space",
    any_of: &[Source::Sched],
    helps: &[],
    limits: &[&severity::LOSS_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("kernel_lock.md"),
    file: file!(),
    check: Check::Recording(check),
};

fn check(view: &View) -> Verdict {
    let verdicts = [Lock::AddressSpace, Lock::Other].map(|lock| {
        waits::verdict(
            view,
            |(id, key, _)| lock.is_of(*id, &key.slept),
            (For::Turn, lock.waited_for()),
            |view, severity, waits| lock.finding(view, severity, waits),
        )
    });
    let [of_space, of_others] = verdicts;
    match (of_space, of_others) {
        (Verdict::Fired(space), Verdict::Fired(others)) => {
            Verdict::Fired(space.into_iter().chain(others).collect())
        }
        (Verdict::Quiet { closest }, Verdict::Quiet { closest: other }) => {
            Verdict::Quiet { closest: format!("{closest}; {other}") }
        }
        (fired @ Verdict::Fired(_), _) | (_, fired) => fired,
    }
}

/// Which of the kernel's locks.
#[derive(Clone, Copy)]
enum Lock {
    AddressSpace,
    Other,
}

impl Lock {
    fn is_of(self, own: ProcId, slept: &Slept) -> bool {
        match self {
            Self::AddressSpace => kind::is_address_space(own, slept),
            Self::Other => kind::is_kernel_lock(slept),
        }
    }

    fn waited_for(self) -> &'static str {
        match self {
            Self::AddressSpace => "for the lock of its address space",
            Self::Other => "for another lock of the kernel",
        }
    }

    fn finding(self, view: &View, severity: Severity, waits: &Waits<'_>) -> Finding {
        let (what, of) = match self {
            Self::AddressSpace => ("the lock of the address space (`mmap_lock`)", "address space"),
            Self::Other => ("a lock of the kernel", "lock"),
        };
        let behind = waits.behind(view);
        let mut finding = waits.finding(view, (&RULE, severity), (of, &behind));
        let calls = calls(view, waits);
        let within = match (self, calls.first()) {
            (Self::Other, Some((most, _))) => format!(" in {}", most.waits_in()),
            _ => String::new(),
        };
        finding.evidence.splice(1..1, lines(view, waits, &calls));
        let holder =
            behind.whom.as_ref().map(|whom| format!(", which {whom} uses")).unwrap_or_default();
        let title = format!(
            "{} {} {} for {what}{within}{holder}",
            group_name(waits.group),
            words::verb(waits.group, "waits", "wait"),
            words::of_every_second(waits.ns_per_s)
        );
        let confirm = waits
            .look_again(view, format!("after the change, the waiting {} falls", self.waited_for()));
        Finding { title, fix: vec![self.fix()], confirm: Some(confirm), ..finding }
    }

    fn fix(self) -> Fix {
        let (action, risk) = match self {
            Self::AddressSpace => (
                "map and unmap less: keep memory instead of giving it back (`M_TRIM_THRESHOLD`, a larger arena, the \
                 decay of the allocator), populate large mappings in small pieces, or before requests are served",
                "the process keeps more memory",
            ),
            Self::Other => (
                "do less at a time in the call that holds the lock (smaller writes, fewer entries in a directory), or \
                 let the threads work on different files, directories or descriptors",
                "small pieces cost more calls, and what was written at once no longer is",
            ),
        };
        Fix { action: action.into(), command: None, risk: Some(risk.into()), expect: None }
    }
}

/// Calls that wait for a lock, and those that release it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Calls<'v> {
    call: &'v str,
    /// On what that call is, if it is known.
    on: Option<String>,
    /// What the kernel says of the lock.
    lock: Option<KernelLock>,
    /// `None` = it is not known in what it was released.
    released_in: Option<&'v str>,
}

impl<'v> Calls<'v> {
    fn of(view: &View, slept: &'v Slept) -> Self {
        let Slept { call, on, woken, .. } = slept;
        let (lock, within) = match on {
            SleptOn::KernelLock { lock, within } => (Some(*lock), &**within),
            on => (None, on),
        };
        let released_in = match woken {
            WokenBy::Thread { call, .. } => Some(call.as_str()),
            _ => None,
        };
        Self { call, on: sleep_words::on(view, call, within), lock, released_in }
    }

    fn waits_in(&self) -> String {
        match &self.on {
            Some(on) => format!("{} on {on}", self.call),
            None => self.call.to_owned(),
        }
    }

    fn in_words(&self) -> String {
        let mut text = format!("in {}", self.waits_in());
        if let Some(lock) = self.lock {
            text += &format!(", {}", sleep_words::kernel_lock(lock));
        }
        if let Some(call) = self.released_in {
            text += &format!(", until a thread in {call} released it");
        }
        text
    }
}

/// In which calls they wait, and in which ones those were that released it; those with most time first.
fn calls<'v>(view: &View, waits: &Waits<'v>) -> Vec<(Calls<'v>, u64)> {
    let mut sums: BTreeMap<Calls<'v>, u64> = BTreeMap::new();
    for (_, key, ns) in &waits.sleeps {
        let sum = sums.entry(Calls::of(view, &key.slept)).or_default();
        *sum = sum.saturating_add(*ns);
    }
    let mut calls: Vec<_> = sums.into_iter().collect();
    calls.sort_by_key(|(_, ns)| Reverse(*ns));
    calls
}

fn lines(view: &View, waits: &Waits<'_>, calls: &[(Calls<'_>, u64)]) -> Vec<Evidence> {
    let line = |(calls, ns): &(Calls<'_>, u64)| {
        let share = units::share(*ns as f64 / waits.ns.max(1) as f64);
        let note = format!("{share} of it: {}", calls.in_words());
        evidence(view, "calls", *ns as f64, Unit::Ns, Source::Sched.label(), note)
    };
    calls.iter().take(MAX_CALLS).map(line).collect()
}
