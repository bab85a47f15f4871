// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OFF003: threads wait for another thread of their process, which is late for lack of a CPU or for a disk; or while a
//! client waits for them, for any other thread.

use super::virtual_machine;
use super::waits::{self, For, Reason, Sleep, Waits};
use crate::finding::{Area, Finding, Fix, Question, Severity, SleepKind};
use crate::recording::{ProcId, Slept, SleptOn, Source};
use crate::rules::asleep::kind::{
    self, is_address_space, is_file_lock, is_kernel_lock, is_lock, keeps_client_waiting,
};
use crate::rules::words::{self, group_name};
use crate::rules::{Check, Rule, Status, Verdict, severity};
use crate::view::View;
use std::collections::BTreeSet;

pub(in crate::rules) static RULE: Rule = Rule {
    code: "OFF003",
    area: Area::Waiting,
    question: Question::Others,
    name: "late-thread",
    summary: "threads wait for another thread that is late, or while a client waits",
    any_of: &[Source::Sched],
    helps: &[],
    limits: &[&severity::LOSS_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("late_thread.md"),
    file: file!(),
    check: Check::Recording(check),
};

fn check(view: &View) -> Verdict {
    waits::verdict(
        view,
        |sleep| is_late(sleep) && virtual_machine::awaited(view, sleep).is_none(),
        (For::Others, "for late threads, or while clients waited,"),
        finding,
    )
}

/// Another thread of the process ended it, and waited for a CPU or for a disk; or any thread, and a client waited meanwhile.
/// Locks, connections to others, and files that they serve, have rules of their own.
fn is_late((id, key, _): &Sleep<'_>) -> bool {
    let reason = Reason::of(&key.behind);
    let own = key.behind.iter().all(|it| it.proc == *id);
    let late = own && matches!(reason, Reason::Queued | Reason::Throttled | Reason::BlockIo);
    (late || keeps_client_waiting(*id, key))
        && !matches!(key.slept.on, SleptOn::Inet { .. })
        && !writes_to_terminal(&key.slept)
        && !kind::SENDS_MESSAGES.contains(&key.slept.call.as_str())
        && !kind::connects(&key.slept)
        && !kind::is_for_child(*id, &key.slept)
        && !kind::is_of_served_file(&key.slept)
        && !is_lock(&key.slept)
        && !is_file_lock(&key.slept)
        && !is_address_space(*id, &key.slept)
        && !is_kernel_lock(&key.slept)
        && kind::of(*id, key) == SleepKind::WaitsForOthers
}

fn writes_to_terminal(slept: &Slept) -> bool {
    slept.on == SleptOn::Character { terminal: true } && kind::sends(slept)
}

/// The process whose thread ended it, if that was waiting in the same way when it began, and was served first. Who is only told of
/// what others do in turn is waited for by none of them.
fn turn_of((id, key, _): &Sleep<'_>) -> Option<ProcId> {
    let first = key.behind.first().filter(|it| it.too && keeps_client_waiting(*id, key));
    first.map(|it| it.proc)
}

/// Who sleeps may be about to answer, or may have nothing to say: clients that ask to be told of events wait, too. They do not take
/// turns, but whether what is taken in turn has to be is not known.
fn severity_of(severity: Severity, reason: Reason, takes_turns: bool) -> Severity {
    match reason {
        Reason::Slept | Reason::NotSeen if takes_turns => severity.min(Severity::Medium),
        Reason::Slept | Reason::NotSeen => Severity::Info,
        _ => severity,
    }
}

fn finding(view: &View, severity: Severity, waits: &Waits<'_>) -> Finding {
    let behind = waits.behind(view);
    let own = waits.sleeps.iter().all(|(id, key, _)| key.behind.iter().all(|it| it.proc == *id));
    let (whom, wait) = match &behind.whom {
        Some(whom) if own => (format!("its own thread {whom}"), "waits"),
        Some(whom) => (whom.clone(), "waits"),
        None if own => ("its own threads".into(), "wait"),
        None => ("other threads".into(), "wait"),
    };
    let (late, action, risk) = match behind.reason {
        Reason::Throttled => (
            "which a CPU quota stops".to_owned(),
            "raise the CPU quota that `ends` in the evidence names, or run fewer threads, so that the one that others wait for is not stopped",
            "the time is taken from the other processes of the host",
        ),
        Reason::BlockIo => (
            format!("which {wait} for block IO"),
            "take the IO out of the thread that others wait for, or make it faster: the findings about disks say why it \
             is slow, and `ends` in the evidence beside whose requests",
            "what is handed on before it is on the disk may be lost in a crash",
        ),
        Reason::Slept => (
            format!("which {}", if behind.whom.is_some() { "sleeps" } else { "sleep" }),
            "see on what the thread sleeps that is waited for (`behind`): who holds a lock, or is in a transaction, must not \
             wait for a client or a timer meanwhile",
            "work that moves out of a transaction may see a state that has changed",
        ),
        Reason::Stopped => (
            format!("which {} stopped", if behind.whom.is_some() { "is" } else { "are" }),
            "find out what stops the thread that others wait for (SCH005): a tracer, signals, a freezer",
            "whoever stops it may need what it looks at to stand still",
        ),
        Reason::OnCpu => (
            format!("which {}", if behind.whom.is_some() { "computes" } else { "compute" }),
            "do less in the thread that is waited for, or divide its work among several",
            "work in parallel needs locks of its own",
        ),
        Reason::NotSeen => (
            "of which it is not known what they did".to_owned(),
            "see who ends the waits: `--profile` names the functions of both",
            "a profile makes each sleep of the target some microseconds longer while it is made",
        ),
        Reason::Queued => (
            format!("which {wait} for a CPU"),
            "let the thread that others wait for get a CPU: `ends` in the evidence says behind whom it waits",
            "precedence for one process is taken from the others",
        ),
    };
    let is_most = |is: &dyn Fn(&Sleep<'_>) -> bool| {
        let all = waits.sleeps.iter().filter(|it| is(it));
        all.fold(0, |sum: u64, (.., ns)| sum.saturating_add(*ns)) > waits.ns / 2
    };
    let awaited: BTreeSet<ProcId> = waits.sleeps.iter().filter_map(turn_of).collect();
    let takes_turns = is_most(&|it| turn_of(it).is_some() && awaited.contains(&it.0));
    let severity = severity_of(severity, behind.reason, takes_turns);
    let late = if takes_turns { format!("{late}: they take turns") } else { late };
    let of_clients = |(id, key, _): &Sleep<'_>| keeps_client_waiting(*id, key);
    let meanwhile = if is_most(&of_clients) { ", while clients wait for its answers," } else { "" };
    let finding = waits.finding(view, (&RULE, severity), ("behind late threads", &behind));
    Finding {
        title: format!(
            "{} {} {}{meanwhile} for {whom}, {late}",
            group_name(waits.group),
            words::verb(waits.group, "waits", "wait"),
            words::of_every_second(waits.ns_per_s)
        ),
        fix: vec![Fix {
            action: action.into(),
            command: None,
            risk: Some(risk.into()),
            expect: None,
        }],
        confirm: Some(
            waits.look_again(view, "after the change, the waiting for the thread falls".into()),
        ),
        ..finding
    }
}
