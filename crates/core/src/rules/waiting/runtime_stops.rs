// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OFF010: a runtime has stopped all threads of its program, most often to collect garbage.

use super::virtual_machine::{Machine, awaited};
use super::waits::{self, For, Reason, Waits};
use crate::finding::{Area, Confirm, Finding, Fix, Question, Severity};
use crate::recording::Source;
use crate::rules::words::{self, group_name};
use crate::rules::{Check, Rule, Status, Verdict, severity};
use crate::view::View;

pub(in crate::rules) static RULE: Rule = Rule {
    code: "OFF010",
    area: Area::Waiting,
    question: Question::Others,
    name: "runtime-stops",
    summary: "a runtime stops all threads of its program, as to collect garbage",
    any_of: &[Source::Sched],
    helps: &[Source::Runtime],
    limits: &[&severity::LOSS_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("runtime_stops.md"),
    file: file!(),
    check: Check::Recording(check),
};

fn check(view: &View) -> Verdict {
    waits::verdict(
        view,
        |sleep| awaited(view, sleep).is_some(),
        (For::Turn, "for its virtual machine"),
        finding,
    )
}

fn finding(view: &View, severity: Severity, waits: &Waits<'_>) -> Finding {
    let behind = waits.behind(view);
    let finding = waits.finding(view, (&RULE, severity), ("machine", &behind));
    let meanwhile = match behind.reason {
        Reason::Queued => ", and waits for CPUs meanwhile",
        Reason::Throttled => ", and a CPU quota stops it meanwhile",
        Reason::BlockIo => ", and waits for block IO meanwhile",
        _ => "",
    };
    let stops = waits.sleeps.iter().filter(|it| awaited(view, it) == Some(Machine::Stops));
    let stopped_ns = stops.fold(0_u64, |sum, (.., ns)| sum.saturating_add(*ns));
    let does = match stopped_ns >= waits.ns / 2 {
        true => "which has stopped all threads, as to collect garbage",
        false => "which frees memory that is to be allocated",
    };
    Finding {
        title: format!(
            "{} {} {} for {} virtual machine (JVM), {does}{meanwhile}",
            group_name(waits.group),
            words::verb(waits.group, "waits", "wait"),
            words::of_every_second(waits.ns_per_s),
            words::verb(waits.group, "its", "their"),
        ),
        fix: vec![remedy(behind.reason)],
        confirm: Some(confirm(waits)),
        ..finding
    }
}

fn remedy(reason: Reason) -> Fix {
    let (action, risk) = match reason {
        Reason::Queued | Reason::Throttled => (
            "let the threads that collect have CPUs: a larger quota, fewer neighbours, and no more of them than there are CPUs \
             (`-XX:ParallelGCThreads`); `ends` in the evidence says behind whom they wait, or whose quota it is",
            "the time is taken from the other processes of the host; fewer threads that collect may take longer",
        ),
        Reason::BlockIo => (
            "keep the heap in memory: none of it swapped out, and no files mapped that the collector walks through",
            "memory that the heap holds is taken from others",
        ),
        _ => (
            "allocate less for each request, give the heap more room (`-Xmx`), or take a collector that works beside the threads \
             (`-XX:+UseG1GC` where it is the serial one, `-XX:+UseZGC`, `-XX:+UseShenandoahGC`)",
            "a larger heap is taken from other processes, and may be stopped for less often, but for longer; collectors that work \
             beside the threads take more CPU time",
        ),
    };
    Fix { action: action.into(), command: None, risk: Some(risk.into()), expect: None }
}

/// The machine's own account.
fn confirm(waits: &Waits<'_>) -> Confirm {
    let pid = waits.group.members.first().map_or("PID".into(), |(_, it)| it.pid.to_string());
    Confirm {
        command: format!("jstat -gcutil {pid} 1000 10"),
        expect: Some(
            "`GCT`, the seconds for which it has stopped its threads to collect, rises as fast as each of them is stopped; if it does \
             not, they are stopped for something else, which `-Xlog:safepoint` names"
                .into(),
        ),
    }
}
