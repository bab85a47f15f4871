// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OFF001: threads wait for a lock that another thread holds.

use super::virtual_machine;
use super::waits::{self, Behind, For, Reason, Sleep, Waits};
use crate::finding::{Area, Evidence, Finding, Fix, Question, Severity, Unit};
use crate::recording::{FutexUser, SleptOn, Source};
use crate::rules::asleep::kind::is_lock;
use crate::rules::words::{self, evidence, group_name};
use crate::rules::{Check, Rule, Status, Verdict, severity};
use crate::text::units;
use crate::view::View;
use std::collections::BTreeMap;

pub(in crate::rules) static RULE: Rule = Rule {
    code: "OFF001",
    area: Area::Waiting,
    question: Question::Others,
    name: "lock-wait",
    summary: "threads wait for a lock that another thread holds",
    any_of: &[Source::Sched],
    helps: &[],
    limits: &[&severity::LOSS_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("lock_wait.md"),
    file: file!(),
    check: Check::Recording(check),
};

fn check(view: &View) -> Verdict {
    // A holder whom its runtime has stopped is not to blame (OFF010).
    let is = |sleep: &Sleep<'_>| {
        is_lock(&sleep.1.slept) && virtual_machine::awaited(view, sleep).is_none()
    };
    waits::verdict(view, is, (For::Turn, "for locks"), finding)
}

fn finding(view: &View, severity: Severity, waits: &Waits<'_>) -> Finding {
    let behind = waits.behind(view);
    let is_interpreters = is_interpreters(&waits.sleeps, waits.ns);
    let holder = match &behind.whom {
        _ if is_interpreters => {
            "the interpreter's lock (GIL), which another of its threads holds".into()
        }
        Some(whom) => format!("a lock that {whom} holds"),
        None => "locks".into(),
    };
    let mut finding = waits.finding(view, (&RULE, severity), ("lock wait", &behind));
    finding.evidence.insert(1, locks(view, &waits.sleeps, waits.ns));
    Finding {
        title: format!(
            "{} {} {} for {holder}{}",
            group_name(waits.group),
            words::verb(waits.group, "waits", "wait"),
            words::of_every_second(waits.ns_per_s),
            behind.reason.of_holder()
        ),
        fix: vec![remedy(&behind, is_interpreters)],
        confirm: Some(
            waits.look_again(view, "after the change, the waiting for locks falls".into()),
        ),
        ..finding
    }
}

/// Whether most of it was for the lock of an interpreter.
fn is_interpreters(sleeps: &[Sleep<'_>], whole_ns: u64) -> bool {
    let is = |on: &SleptOn| matches!(on, SleptOn::Futex { user: Some(FutexUser::Interpreter), .. });
    let of = sleeps.iter().filter(|(_, key, _)| is(&key.slept.on));
    of.fold(0_u64, |sum, (.., ns)| sum.saturating_add(*ns)) > whole_ns / 2
}

/// How much of it was for one lock.
fn locks(view: &View, sleeps: &[Sleep<'_>], whole_ns: u64) -> Evidence {
    let mut by_lock: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    for (id, key, ns) in sleeps {
        if let SleptOn::Futex { address, .. } = key.slept.on {
            let sum = by_lock.entry((id.0, address)).or_default();
            *sum = sum.saturating_add(*ns);
        }
    }
    let most = by_lock.iter().max_by_key(|(_, ns)| **ns);
    let note = most.map(|((_, address), ns)| {
        let share = units::share(*ns as f64 / whole_ns.max(1) as f64);
        match is_interpreters(sleeps, whole_ns) {
            true => format!("{share} of it for the interpreter's"),
            false => format!("{share} of it for the one at {address:#x}"),
        }
    });
    evidence(view, "locks", by_lock.len() as f64, Unit::Count, Source::Sched.label(), note)
}

impl Reason {
    /// What the holder of a lock does meanwhile, for most of the time.
    fn of_holder(self) -> &'static str {
        match self {
            Self::OnCpu => " while it computes",
            Self::Queued => " while it waits for a CPU",
            Self::Throttled => " while a CPU quota stops it",
            Self::BlockIo => " while it waits for block IO",
            Self::Slept => " while it sleeps",
            Self::Stopped => " while it is stopped",
            Self::NotSeen => "",
        }
    }
}

fn remedy(behind: &Behind, is_interpreters: bool) -> Fix {
    let (action, risk) = match behind.reason {
        Reason::OnCpu if is_interpreters => (
            "have what that thread computes done by processes of their own (`multiprocessing`, more workers with fewer threads \
             each), or by code that lets go of the interpreter's lock meanwhile",
            "processes share no memory: each needs a copy of what threads have in common",
        ),
        Reason::BlockIo | Reason::Slept if is_interpreters => (
            "let go of the interpreter's lock around the call in which its holder waits: in an extension between \
             `Py_BEGIN_ALLOW_THREADS` and `Py_END_ALLOW_THREADS`, with `ctypes` by `CDLL` instead of `PyDLL`",
            "objects of the interpreter must not be used meanwhile",
        ),
        Reason::Queued => (
            "let the thread that holds the lock get a CPU: `ends` in the evidence says behind whom it waits",
            "precedence for one process is taken from the others",
        ),
        Reason::Throttled => (
            "raise the CPU quota that `ends` in the evidence names: a thread that is stopped with the lock stops all that wait for it",
            "the time is taken from the other processes of the host",
        ),
        Reason::BlockIo => (
            "do not read or sync files while the lock is held: prepare before, or hand the writing to a thread that \
             holds no lock",
            "what was written only in memory is lost in a crash; decide which operations may return before",
        ),
        Reason::Slept => (
            "do not wait for anything while the lock is held: no timers, no answers of others",
            "work that moves out of the lock may see a state that has changed",
        ),
        Reason::Stopped => (
            "find out what stops the thread that holds the lock (SCH005): a tracer, signals, a freezer",
            "whoever stops it may need what it looks at to stand still",
        ),
        Reason::OnCpu => (
            "hold the lock for less of the work, or divide what it protects among several locks",
            "finer locks are harder to get right: look for an order of locking",
        ),
        Reason::NotSeen => (
            "find the function that holds the lock: `--profile` names those in which it is waited for and released",
            "a profile makes each sleep of the target some microseconds longer while it is made",
        ),
    };
    Fix { action: action.into(), command: None, risk: Some(risk.into()), expect: None }
}
