// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SYS001: a file whose contents are computed at each read takes far longer than others of its kind.

use super::caller::{caller, share};
use crate::finding::{
    Area, Cause, Confirm, Cost, Entity, EntityKind, Evidence, Finding, Fix, Question, Severity,
    Share, Unit,
};
use crate::recording::{FILE_OP_NAMES, FILE_OPS, FileClass, ProcId, Source, SyscallFile};
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, ticked};
use crate::rules::{Check, Limit, Rule, Status, Verdict, severity};
use crate::text::shell_quote;
use crate::text::units;
use crate::view::{SyscallGroup, View};

const SLOW: Limit = Limit {
    name: "slow",
    value: 20.0,
    unit: "ms a call",
    why: "the slowest reads of a healthy host (configuration space of devices) take up to 10 ms",
};
const RATIO: Limit = Limit {
    name: "ratio",
    value: 50.0,
    unit: "times the usual time of its kind",
    why: "of 5 600 files of /proc and /sys of a healthy host 99 % take less than twice the median of their kind",
};
const USUAL: Limit = Limit {
    name: "usual",
    value: 5.0,
    unit: "us a call",
    why: "the median of those files; what was measured here counts where it is more",
};
/// With fewer other files of its kind, the usual time on this host is not known.
const MIN_OTHERS: usize = 5;

pub(in crate::rules) static RULE: Rule = Rule {
    code: "SYS001",
    area: Area::Syscalls,
    question: Question::Syscalls,
    name: "slow-kernel-file",
    summary: "a file that is computed when it is read (procfs, sysfs, FUSE, ...) costs far more than its kind",
    any_of: &[Source::Syscalls],
    helps: &[],
    limits: &[&[SLOW, RATIO, USUAL], &severity::LOSS_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("slow_kernel_file.md"),
    file: file!(),
    check: Check::Recording(check),
};

/// The operation on a file that takes the most time.
struct CostliestOperation {
    op: &'static str,
    calls: u64,
    mean_ns: u64,
}

fn most(file: &SyscallFile) -> Option<CostliestOperation> {
    let op = (0..FILE_OPS).max_by_key(|op| (file.ns[*op], std::cmp::Reverse(*op)))?;
    let calls = file.calls[op];
    Some(CostliestOperation {
        op: FILE_OP_NAMES[op],
        calls,
        mean_ns: file.ns[op].checked_div(calls)?,
    })
}

/// Files for which waiting until something happens is normal.
fn waits_for_events(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    matches!(name, "kmsg" | "trace_pipe" | "trace_pipe_raw" | "mdstat" | "uevent_seqnum")
}

/// Usual time of a call on a file of that class on this host, in nanoseconds: the median over the group's files, at
/// least [`USUAL`].
fn usual_ns(group: &SyscallGroup, class: FileClass) -> u64 {
    let of_class = group.files.values().filter(|file| file.class == class);
    let mut all: Vec<u64> = of_class.filter_map(|file| Some(most(file)?.mean_ns)).collect();
    all.sort_unstable();
    let least = (USUAL.value * 1e3) as u64;
    if all.len() > MIN_OTHERS { all[all.len() / 2].max(least) } else { least }
}

/// A file that a process spends time in.
struct SlowFile<'v> {
    process: Option<ProcId>,
    group: &'v SyscallGroup,
    file: &'v SyscallFile,
    most: CostliestOperation,
    usual_ns: u64,
    lost_ns_per_s: u64,
    share: f64,
}

fn check(view: &View) -> Verdict {
    let mut found: Vec<(Severity, SlowFile<'_>)> = Vec::new();
    let mut nearest: Option<SlowFile<'_>> = None;
    for (&process, group) in view.syscalls().groups() {
        // A group has few classes and up to 20 000 files.
        let mut usual: Vec<(FileClass, u64)> = Vec::new();
        for file in group.files.values().filter(|file| file.class.is_computed()) {
            if waits_for_events(&file.path) {
                continue;
            }
            let known = usual.iter().find(|it| it.0 == file.class).map(|it| it.1);
            let usual_ns = known.unwrap_or_else(|| {
                let ns = usual_ns(group, file.class);
                usual.push((file.class, ns));
                ns
            });
            let Some(slow) = slow(view, process, group, (file, usual_ns)) else { continue };
            let is_slow = slow.most.mean_ns as f64 >= SLOW.value * 1e6
                || slow.most.mean_ns as f64 >= RATIO.value * slow.usual_ns as f64;
            match severity::of_loss(slow.lost_ns_per_s, slow.share).filter(|_| is_slow) {
                Some(severity) => found.push((severity, slow)),
                None if nearest.as_ref().is_none_or(|it| it.lost_ns_per_s < slow.lost_ns_per_s) => {
                    nearest = Some(slow);
                }
                None => {}
            }
        }
    }
    if found.is_empty() {
        let closest = nearest.map_or("no such file was used".into(), |it| {
            format!(
                "{} came nearest: {} of {} each, {}",
                ticked(&it.file.path),
                units::counted(it.most.calls, "call", "calls"),
                units::duration(it.most.mean_ns as f64),
                words::of_every_second(it.lost_ns_per_s)
            )
        });
        return Verdict::Quiet { closest };
    }
    Verdict::Fired(
        found.into_iter().map(|(severity, slow)| finding(view, severity, &slow)).collect(),
    )
}

fn slow<'v>(
    view: &View,
    process: Option<ProcId>,
    group: &'v SyscallGroup,
    (file, usual_ns): (&'v SyscallFile, u64),
) -> Option<SlowFile<'v>> {
    let lost_ns_per_s = group.per_second(file.all_ns());
    Some(SlowFile {
        process,
        group,
        file,
        most: most(file)?,
        usual_ns,
        lost_ns_per_s,
        share: share(view, process, group, (file.all_ns(), file.off_ns)),
    })
}

fn finding(view: &View, severity: Severity, slow: &SlowFile<'_>) -> Finding {
    let SlowFile { file, most, .. } = slow;
    let (victim, name) = caller(view, slow.process);
    let on_cpu_ns = file.all_ns().saturating_sub(file.off_ns);
    let busy = on_cpu_ns * 2 >= file.all_ns();
    let meanwhile = match (busy, file.class) {
        (true, _) => "the kernel works meanwhile",
        (false, FileClass::Fuse) => "it sleeps until a process answers",
        (false, _) => "it sleeps meanwhile",
    };
    let confidence = Confidence::of(view).with_samples(most.calls);
    let mut lines = lines(view, slow, on_cpu_ns);
    lines.push(confidence.evidence(view));
    let mut cause = Entity::new(EntityKind::File);
    cause.path = Some(file.path.clone());
    cause.note = Some(format!("{}; {meanwhile}", file.class.name()));
    Finding {
        title: format!(
            "{name} loses {} in {}: {} of {} each, and {meanwhile}",
            words::of_every_second(slow.lost_ns_per_s),
            ticked(&file.path),
            calls_of(most),
            units::duration(most.mean_ns as f64)
        ),
        victim,
        cost: Cost { lost_ns_per_s: slow.lost_ns_per_s, share: slow.share, ..Cost::default() },
        causes: vec![Cause { entity: cause, share: Share::WHOLE }],
        evidence: lines,
        fix: fixes(file, busy),
        confirm: Some(Confirm {
            command: format!("deburr syscalls -r 3 -- cat {}", shell_quote(&file.path)),
            expect: Some(
                "the same file on top, as slow as here; on a healthy host it is not".into(),
            ),
        }),
        ..RULE.finding(severity, confidence.value())
    }
}

fn calls_of(most: &CostliestOperation) -> String {
    units::counted(most.calls, &format!("`{}`", most.op), &format!("`{}`", most.op))
}

fn lines(view: &View, slow: &SlowFile<'_>, on_cpu_ns: u64) -> Vec<Evidence> {
    let SlowFile { file, most, group, .. } = slow;
    let label = Source::Syscalls.label();
    let line =
        |name: &str, ns: u64, note: String| evidence(view, name, ns as f64, Unit::Ns, label, note);
    let asleep = file.off_ns.saturating_sub(file.wait_ns);
    vec![
        line(
            "time in the file",
            file.all_ns(),
            format!(
                "{} of all time in system calls; {}",
                units::share(file.all_ns() as f64 / group.all_ns().max(1) as f64),
                units::counted(file.all_calls(), "call", "calls")
            ),
        ),
        line(
            &format!("mean `{}`", most.op),
            most.mean_ns,
            format!(
                "{} is usual for {} here; the longest took {}",
                units::duration(slow.usual_ns as f64),
                file.class.name(),
                units::duration(file.max_ns as f64)
            ),
        ),
        line("on a CPU", on_cpu_ns, "the kernel worked: it shows as system time".into()),
        line("asleep", asleep, "without using a CPU".into()),
    ]
}

fn fixes(file: &SyscallFile, busy: bool) -> Vec<Fix> {
    let fix = |action: String, command: Option<String>, risk: &str| Fix {
        action,
        command,
        risk: Some(risk.into()),
        expect: None,
    };
    let mut fixes = vec![fix(
        "read it less often, or not at all: find out what needs its contents".into(),
        None,
        "monitoring that relies on it sees less",
    )];
    if file.class == FileClass::Fuse {
        fixes.push(fix(
            "look at the process that serves this filesystem: its calls say what it waits for"
                .into(),
            Some("findmnt -t fuse,fuseblk -o TARGET,SOURCE".into()),
            "none: it only looks",
        ));
        return fixes;
    }
    let firmware = ["cpufreq", "thermal", "cpuidle", "power_supply", "hwmon", "acpi"];
    if firmware.iter().any(|word| file.path.contains(word)) {
        fixes.push(fix(
            "compare driver, modules, kernel command line and firmware with a host on which it is fast: such files ask \
             firmware or hardware"
                .into(),
            Some(format!(
                "deburr syscalls -o slow.json -- cat {}",
                shell_quote(&file.path)
            )),
            "none: it only looks",
        ));
    } else if busy {
        fixes.push(fix(
            "see where the kernel spends the time".into(),
            Some(format!("perf record -a -g -- cat {}", shell_quote(&file.path))),
            "perf costs some percent of the CPUs while it records",
        ));
    }
    fixes
}
