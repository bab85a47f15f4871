// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SYS002: very many short system calls of one kind take much of a CPU.

use super::caller::{caller, share};
use crate::finding::{Area, Confirm, Cost, Evidence, Finding, Fix, Question, Severity, Unit};
use crate::recording::{FILE_OP_NAMES, FILE_OPS, ProcId, Source, SyscallFile, SyscallTotal};
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, ticked};
use crate::rules::{Check, Limit, Rule, Status, Verdict, severity};
use crate::text::units;
use crate::view::{SyscallGroup, View};

const RATE: Limit = Limit {
    name: "rate",
    value: 20_000.0,
    unit: "calls of one kind a second",
    why: "services that do useful work with each call seldom make more than some thousands on a CPU",
};
const SHORT: Limit = Limit {
    name: "short",
    value: 20.0,
    unit: "us on a CPU for each call",
    why: "calls that take longer do work that fewer calls would have to do as well",
};
/// The file, or that the calls fail, is mentioned if at least this share of the calls has it in common.
const MOST: f64 = 0.5;

pub(in crate::rules) static RULE: Rule = Rule {
    code: "SYS002",
    area: Area::Syscalls,
    question: Question::Syscalls,
    name: "syscall-storm",
    summary: "very many short system calls of one kind take much of a CPU",
    any_of: &[Source::Syscalls],
    helps: &[],
    limits: &[&[RATE, SHORT], &severity::LOSS_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("syscall_storm.md"),
    file: file!(),
    check: Check::Recording(check),
};

/// Calls of one kind by one process.
struct Storm<'v> {
    process: Option<ProcId>,
    group: &'v SyscallGroup,
    call: &'v SyscallTotal,
    per_s: u64,
    on_cpu_ns: u64,
    lost_ns_per_s: u64,
    share: f64,
}

fn check(view: &View) -> Verdict {
    let mut found = Vec::new();
    let mut nearest: Option<Storm<'_>> = None;
    for (&process, group) in view.syscalls().groups() {
        // Only the worst kind of each process: copying byte by byte both reads and writes.
        let mut worst: Option<(Severity, Storm<'_>)> = None;
        for call in group.calls.values().filter(|call| call.calls > 0) {
            let on_cpu_ns = call.ns.saturating_sub(call.off_ns);
            let storm = Storm {
                process,
                group,
                call,
                per_s: group.per_second(call.calls),
                on_cpu_ns,
                lost_ns_per_s: group.per_second(on_cpu_ns),
                share: share(view, process, group, (on_cpu_ns, 0)),
            };
            let short = on_cpu_ns as f64 / call.calls as f64 <= SHORT.value * 1e3;
            let many = storm.per_s as f64 >= RATE.value && short;
            match severity::of_loss(storm.lost_ns_per_s, storm.share).filter(|_| many) {
                // The purpose of the calls is not known: at most `medium`.
                Some(severity) => {
                    let less = |it: &(Severity, Storm<'_>)| it.1.on_cpu_ns < storm.on_cpu_ns;
                    if worst.as_ref().is_none_or(less) {
                        worst = Some((severity.min(Severity::Medium), storm));
                    }
                }
                None if nearest.as_ref().is_none_or(|it| it.per_s < storm.per_s) => {
                    nearest = Some(storm);
                }
                None => {}
            }
        }
        found.extend(worst);
    }
    if found.is_empty() {
        let closest = nearest.map_or("no calls were made".into(), |it| {
            format!(
                "{} came nearest: {} a second, {} of CPU time",
                ticked(&it.call.name),
                units::count(it.per_s as f64),
                words::of_every_second(it.lost_ns_per_s)
            )
        });
        return Verdict::Quiet { closest };
    }
    Verdict::Fired(found.into_iter().map(|(severity, it)| finding(view, severity, &it)).collect())
}

/// Calls on one file.
#[derive(Clone, Copy)]
struct FileCalls<'v> {
    file: &'v SyscallFile,
    calls: u64,
    /// Their operation, an index of [`FILE_OP_NAMES`].
    op: usize,
}

/// The file that at least [`MOST`] of the calls are about.
fn file_of<'v>(storm: &Storm<'v>) -> Option<FileCalls<'v>> {
    // The longest name is the one: `readlink` has `read` in it.
    let op = (0..FILE_OPS)
        .filter(|op| storm.call.name.contains(FILE_OP_NAMES[*op]))
        .max_by_key(|op| FILE_OP_NAMES[*op].len())?;
    let files =
        storm.group.files.values().map(|file| FileCalls { file, calls: file.calls[op], op });
    files.max_by_key(|it| it.calls).filter(|it| it.calls as f64 >= storm.call.calls as f64 * MOST)
}

fn finding(view: &View, severity: Severity, storm: &Storm<'_>) -> Finding {
    let (victim, name) = caller(view, storm.process);
    let of_file = file_of(storm);
    let about =
        of_file.map_or(String::new(), |it| format!(", mostly on {}", ticked(&it.file.path)));
    let confidence = Confidence::of(view).with_samples(storm.call.calls);
    let mut lines = lines(view, storm, of_file);
    lines.push(confidence.evidence(view));
    Finding {
        title: format!(
            "{name} calls {} {} times a second{about}: {} of CPU time in the kernel",
            ticked(&storm.call.name),
            units::count(storm.per_s as f64),
            words::of_every_second(storm.lost_ns_per_s)
        ),
        victim,
        cost: Cost { lost_ns_per_s: storm.lost_ns_per_s, share: storm.share, ..Cost::default() },
        evidence: lines,
        fix: fixes(storm, of_file),
        confirm: Some(Confirm {
            command: match storm.process.and_then(|id| view.processes().get(&id)?.facts.as_ref()) {
                Some(facts) => format!("deburr syscalls -p {} -d 5", facts.pid),
                None => "deburr syscalls -r 3 -- CMD".into(),
            },
            expect: Some("after the change: fewer of these calls, and less system time".into()),
        }),
        ..RULE.finding(severity, confidence.value())
    }
}

fn lines(view: &View, storm: &Storm<'_>, of_file: Option<FileCalls<'_>>) -> Vec<Evidence> {
    let label = Source::Syscalls.label();
    let call = storm.call;
    let mut lines = vec![
        evidence(view, "calls", call.calls as f64, Unit::Count, label, None),
        evidence(
            view,
            "on a CPU",
            storm.on_cpu_ns as f64,
            Unit::Ns,
            label,
            format!(
                "{} for each; counting them is part of it",
                units::duration(storm.on_cpu_ns as f64 / call.calls as f64)
            ),
        ),
    ];
    if call.errors as f64 >= call.calls as f64 * MOST {
        let share = call.errors as f64 / call.calls as f64;
        let note = "they achieve nothing: polling, or an answer that is not looked at".to_owned();
        lines.push(evidence(view, "failed", share, Unit::Ratio, label, note));
    }
    if let Some(FileCalls { file, calls, op }) = of_file {
        let note = format!(
            "{}; {} for each call that moved any",
            ticked(&file.path),
            units::bytes(file.bytes as f64 / (file.calls[1] + file.calls[2]).max(1) as f64)
        );
        let name = format!("{} of one file", FILE_OP_NAMES[op]);
        lines.push(evidence(view, &name, calls as f64, Unit::Count, label, note));
    }
    lines
}

fn fixes(storm: &Storm<'_>, of_file: Option<FileCalls<'_>>) -> Vec<Fix> {
    let call = storm.call;
    let moves = |name: &str| {
        name.contains("read") && !name.contains("readlink")
            || name.contains("write")
            || name.contains("recv")
            || name.contains("send")
    };
    let (action, risk) = if call.errors as f64 >= call.calls as f64 * MOST {
        (
            "wait for the event (poll, epoll, a blocking call) instead of asking again and again",
            "a wait needs a time limit where the event may not come",
        )
    } else if moves(&call.name) {
        match of_file {
            Some(FileCalls { file, .. })
                if file.bytes / (file.calls[1] + file.calls[2]).max(1) >= 65_536 =>
            {
                ("map the file, or keep what was read", "what is kept may be out of date")
            }
            _ => (
                "read and write in larger pieces: a buffer in the program, or vectored calls",
                "data in a buffer is lost when the program dies, and comes later",
            ),
        }
    } else {
        ("keep the answer, or ask less often", "an answer that is kept may be out of date")
    };
    vec![Fix { action: action.into(), command: None, risk: Some(risk.into()), expect: None }]
}
