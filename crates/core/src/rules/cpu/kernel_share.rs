// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU005: most of the target's CPU time is spent in the kernel.

use crate::finding::{Area, Cost, Finding, Fix, Question, Severity, Unit};
use crate::recording::Source;
use crate::rules::candidates::{may_suffer, target_is_host};
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, group_name};
use crate::rules::{Check, Limit, Rule, Status, Verdict, cpu_split};
use crate::text::{Share, units};
use crate::view::{Group, View};

const KERNEL_SHARE: Limit = Limit {
    name: "kernel_share",
    value: 0.5,
    unit: "of the CPU time",
    why: "servers that move data through sockets and files spend a third to a half of it there",
};
const CPU_USED: Limit = Limit {
    name: "cpu_used",
    value: 200.0,
    unit: "ms of CPU time in each second",
    why: "less is no reason for being slow, wherever it is spent",
};

pub(in crate::rules) static RULE: Rule = Rule {
    code: "CPU005",
    area: Area::Cpu,
    question: Question::CpuSpeed,
    name: "kernel-share",
    summary: "most of the target's CPU time is spent in the kernel",
    any_of: &[Source::Sched, Source::Schedstat],
    helps: &[],
    limits: &[&[KERNEL_SHARE, CPU_USED]],
    status: Status::Preview("0.1"),
    doc: include_str!("kernel_share.md"),
    file: file!(),
    check: Check::Recording(check),
};

fn check(view: &View) -> Verdict {
    if target_is_host(view) {
        let missing =
            "the CPU time in the kernel is read of a target only (`-p`, `--comm`, `--cgroup`)";
        return Verdict::NoData { missing: vec![missing.into()] };
    }
    let groups = view.groups();
    let victims = groups.list().iter().filter(|group| may_suffer(view, group));
    let read: Vec<(&Group<'_>, u64, Share)> = victims
        .filter_map(|group| cpu_split::of(view, group).map(|(ns, share)| (group, ns, share)))
        .collect();
    let reaches = |ns: u64, share: Share| {
        let ms_per_s = view.per_second(ns) as f64 / 1e6;
        share.get() >= KERNEL_SHARE.value && ms_per_s >= CPU_USED.value
    };
    let found = read.iter().filter(|(_, ns, share)| reaches(*ns, *share));
    let found: Vec<Finding> =
        found.map(|&(group, ns, share)| finding(view, group, (ns, share))).collect();
    if !found.is_empty() {
        return Verdict::Fired(found);
    }
    let most = read.iter().max_by(|a, b| a.2.get().total_cmp(&b.2.get()));
    Verdict::Quiet {
        closest: match most {
            Some((group, _, share)) => format!(
                "{} came nearest: {} of its CPU time is in the kernel",
                group_name(group),
                units::share(share.get())
            ),
            None => "nobody ran for long enough to tell".into(),
        },
    }
}

fn finding(view: &View, group: &Group<'_>, (ns, share): (u64, Share)) -> Finding {
    let confidence = Confidence::of(view);
    let label = "/proc/PID/stat";
    let note = format!("of {} of CPU time", units::duration(ns as f64));
    Finding {
        title: format!(
            "{} {} {} of {} CPU time in the kernel",
            group_name(group),
            words::verb(group, "spends", "spend"),
            units::share(share.get()),
            words::verb(group, "its", "their")
        ),
        victim: words::group_entity(view, group),
        cost: Cost::default(),
        evidence: vec![
            evidence(view, "in the kernel", share.get(), Unit::Ratio, label, note),
            confidence.evidence(view),
        ],
        fix: vec![Fix {
            action: "see which system calls take the time, and which of them are needed".into(),
            command: match group.members.as_slice() {
                [(_, process)] if !process.many => {
                    Some(format!("sudo deburr syscalls -p {} -d 10", process.pid))
                }
                _ => None,
            },
            risk: Some(
                "counting all system calls costs each of them some tens of nanoseconds".into(),
            ),
            expect: None,
        }],
        confirm: Some(words::look_again(
            group,
            "with fewer or cheaper calls, the part in the kernel falls".into(),
        )),
        ..RULE.finding(Severity::Info, confidence.value())
    }
}
