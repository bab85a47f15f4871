// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Document of one measurement: totals, and rows by call and by file, largest total time first.

use crate::finding::{Area, Finding, Host, NotChecked, Report, RuledOut, Tool};
use crate::recording::{
    FILE_OP_NAMES, FileClass, SyscallFile, SyscallSpan, SyscallTotal, call_bucket_from_ns,
};
use crate::text::units;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Identifier of the document's schema.
pub const SCHEMA: &str = "deburr.syscalls/1";
/// Maximum number of files with a row of their own; the others are summed.
const MAX_FILES: usize = 1000;
/// Minimum number of calls for a 99th percentile.
const MIN_FOR_P99: u64 = 100;

/// Cost of system calls in one measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// [`SCHEMA`].
    pub schema: String,
    /// Parameters and circumstances of the measurement.
    #[serde(flatten)]
    pub setup: Setup,
    /// Number of processes that started during the measurement, including the command's own process.
    pub processes: u64,
    /// Number of all calls.
    pub calls: u64,
    /// Number of calls that returned with an error.
    pub errors: u64,
    /// Time in all calls. Concurrent calls of several threads add up.
    pub times: Times,
    /// Rows by call, largest total time first.
    pub syscalls: Vec<CallRow>,
    /// Rows by file, largest total time first. A call on a file also counts in [`Self::syscalls`].
    pub files: Vec<FileRow>,
    /// Calls on files that have no row.
    pub more_files: OmittedFiles,
    /// Findings, worst first.
    pub findings: Vec<Finding>,
    /// What was checked and not found.
    pub ruled_out: Vec<RuledOut>,
    /// What could not be checked.
    pub not_checked: Vec<NotChecked>,
    /// Limitations of the measurement.
    pub notes: Vec<String>,
}

/// Parameters and circumstances of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// The program that measured.
    pub tool: Tool,
    /// The host.
    pub host: Host,
    /// Start time, RFC 3339.
    pub start: String,
    /// Which processes were traced.
    pub subject: Subject,
    /// Total length of all measurements, in nanoseconds.
    pub window_ns: u64,
    /// Runs of the command, in order; empty if no command was started.
    pub runs: Vec<Run>,
    /// Number of calls and their time in each run, by name; empty with one run.
    #[serde(skip)]
    pub run_calls: Vec<BTreeMap<String, (u64, u64)>>,
    /// Whether a signal or the end of the process ended the measurement early.
    pub interrupted: bool,
}

/// The processes that were traced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Subject {
    /// A command and all processes that it starts.
    Command {
        /// Words of the command.
        command: Vec<String>,
    },
    /// A process and all processes that it starts.
    Process {
        /// Process id.
        pid: u32,
        /// Name of the process (comm).
        comm: String,
    },
    /// The processes with this name that existed at the start, and all processes that they start.
    Comm {
        /// Name of the processes (comm).
        comm: String,
    },
}

/// One run of the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Wall time from start to end.
    pub wall_ns: u64,
    /// User CPU time of the command and of the child processes that it waited for.
    pub user_ns: u64,
    /// System CPU time of the same processes.
    pub system_ns: u64,
    /// Exit status; absent if a signal killed the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// Signal that killed the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Number of system calls.
    pub calls: u64,
    /// Time in system calls.
    pub calls_ns: u64,
}

/// Breakdown of the time in calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// Wall time from entry to return.
    pub total_ns: u64,
    /// Time with a CPU: kernel work, including interrupts and time that a hypervisor took.
    pub on_cpu_ns: u64,
    /// Time asleep until an event occurred.
    pub blocked_ns: u64,
    /// Time runnable and waiting for a CPU. Absent if the kernel does not report it: then it is part of `blocked_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_ns: Option<u64>,
}

impl Times {
    pub(crate) fn new(ns: u64, off_ns: u64, wait_ns: u64, waits_known: bool) -> Self {
        let wait_ns = if waits_known { wait_ns } else { 0 };
        Self {
            total_ns: ns,
            on_cpu_ns: ns.saturating_sub(off_ns),
            blocked_ns: off_ns.saturating_sub(wait_ns),
            waiting_ns: waits_known.then_some(wait_ns),
        }
    }
}

/// Minimum and maximum over the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// Smallest number of calls.
    pub calls_min: u64,
    /// Largest number of calls.
    pub calls_max: u64,
    /// Shortest total time.
    pub ns_min: u64,
    /// Longest total time.
    pub ns_max: u64,
}

/// Calls of one name, over all runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallRow {
    /// Name of the call.
    pub name: String,
    /// Number of calls that returned.
    pub calls: u64,
    /// Number of calls that returned with an error.
    pub errors: u64,
    /// Number of calls in which the thread exited: `exit`, or it was killed.
    pub unfinished: u64,
    /// Number of calls that had not returned at the end.
    pub under_way: u64,
    /// Time of the calls that returned.
    #[serde(flatten)]
    pub times: Times,
    /// Mean duration; absent if no call returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_ns: Option<u64>,
    /// 99th percentile, within 25 %; absent with fewer than 100 calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    /// Longest call.
    pub max_ns: u64,
    /// Spread over the runs; absent with one run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
}

/// Calls of one kind on a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpRow {
    /// `open`, `read`, `write`, `getdents`, `ioctl`, `stat`, `readlink`, `other`. Similar calls count as one kind
    /// (`read`, `pread64`, `readv`, `sendfile`, ...).
    pub op: String,
    /// Number of calls.
    pub calls: u64,
    /// Time of the calls.
    pub ns: u64,
}

/// Calls on one file, over all runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileRow {
    /// Path of the file.
    pub path: String,
    /// Whether `path` is the whole path; otherwise it is only the end of it.
    pub complete: bool,
    /// Kind of filesystem.
    pub class: FileClass,
    /// Number of calls.
    pub calls: u64,
    /// Number of calls that returned with an error.
    pub errors: u64,
    /// Time of the calls.
    #[serde(flatten)]
    pub times: Times,
    /// Mean duration of a call.
    pub mean_ns: u64,
    /// Longest call.
    pub max_ns: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Calls by kind; kinds without calls are left out.
    pub ops: Vec<OpRow>,
}

/// Calls on files without a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OmittedFiles {
    /// Number of files whose rows were left out.
    pub files: u64,
    /// Number of calls on these files, on files for which the probe had no room, and on files that could not be
    /// determined.
    pub calls: u64,
    /// Time of these calls.
    pub ns: u64,
}

/// Builds the document from what was counted.
#[must_use]
pub fn profile(
    setup: Setup,
    span: &SyscallSpan,
    totals: &[SyscallTotal],
    files: &[SyscallFile],
    report: Option<&Report>,
) -> Profile {
    let known = span.waits_known;
    let sum = |of: fn(&SyscallTotal) -> u64| totals.iter().map(of).sum::<u64>();
    let times = Times::new(sum(|it| it.ns), sum(|it| it.off_ns), sum(|it| it.wait_ns), known);
    let mut syscalls: Vec<CallRow> =
        totals.iter().map(|total| call_row(total, &setup, known)).collect();
    syscalls.sort_by(|a, b| {
        let key = |it: &CallRow| (Reverse(it.times.total_ns), Reverse(it.calls));
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });
    let (files, more_files) = file_rows(span, files);
    let findings = report.map(|it| it.findings.clone()).unwrap_or_default();
    let ruled_out = report.map(|it| it.ruled_out.clone()).unwrap_or_default();
    let not_checked = report.map(|it| it.not_checked.clone()).unwrap_or_default();
    Profile {
        schema: SCHEMA.into(),
        processes: span.processes,
        calls: sum(|it| it.calls),
        errors: sum(|it| it.errors),
        times,
        notes: notes(&setup, span, totals, &more_files),
        setup,
        syscalls,
        files,
        more_files,
        findings: findings.into_iter().filter(|it| it.area == Area::Syscalls).collect(),
        ruled_out: ruled_out.into_iter().filter(|it| it.area == Area::Syscalls).collect(),
        not_checked: not_checked.into_iter().filter(|it| it.area == Area::Syscalls).collect(),
    }
}

fn call_row(total: &SyscallTotal, setup: &Setup, waits_known: bool) -> CallRow {
    let of_runs =
        || setup.run_calls.iter().map(|run| run.get(&total.name).copied().unwrap_or_default());
    let several = setup.run_calls.len() > 1;
    CallRow {
        name: total.name.clone(),
        calls: total.calls,
        errors: total.errors,
        unfinished: total.unfinished,
        under_way: total.under_way,
        times: Times::new(total.ns, total.off_ns, total.wait_ns, waits_known),
        mean_ns: total.ns.checked_div(total.calls),
        p99_ns: p99_ns(total),
        max_ns: total.max_ns,
        spread: several.then(|| Spread {
            calls_min: of_runs().map(|it| it.0).min().unwrap_or(0),
            calls_max: of_runs().map(|it| it.0).max().unwrap_or(0),
            ns_min: of_runs().map(|it| it.1).min().unwrap_or(0),
            ns_max: of_runs().map(|it| it.1).max().unwrap_or(0),
        }),
    }
}

/// Upper bound of the bucket that contains the 99th percentile, at most the longest call; `None` with fewer than
/// [`MIN_FOR_P99`] calls.
pub(crate) fn p99_ns(total: &SyscallTotal) -> Option<u64> {
    let all: u64 = total.hist.iter().map(|count| u64::from(*count)).sum();
    if all < MIN_FOR_P99 {
        return None;
    }
    let rank = all - all / 100;
    let mut below = 0;
    for (bucket, count) in total.hist.iter().enumerate() {
        below += u64::from(*count);
        if below >= rank {
            return Some(call_bucket_from_ns(bucket + 1).min(total.max_ns));
        }
    }
    Some(total.max_ns)
}

/// Rows of files, with one row for each path, and the sum of calls on files without a row.
fn file_rows(span: &SyscallSpan, files: &[SyscallFile]) -> (Vec<FileRow>, OmittedFiles) {
    let mut by_path: BTreeMap<(&str, bool), SyscallFile> = BTreeMap::new();
    let mut more = OmittedFiles {
        files: 0,
        calls: span.beyond_calls + span.unread_calls,
        ns: span.beyond_ns + span.unread_ns,
    };
    for file in files {
        if file.path.is_empty() {
            more.calls += file.all_calls();
            more.ns += file.all_ns();
            continue;
        }
        by_path
            .entry((&file.path, file.complete))
            .and_modify(|sum| sum.merge(file))
            .or_insert_with(|| file.clone());
    }
    let mut all: Vec<SyscallFile> = by_path.into_values().collect();
    // The sort is stable: ties stay in the order of their paths.
    all.sort_by_key(|file| (Reverse(file.all_ns()), Reverse(file.all_calls())));
    for file in all.iter().skip(MAX_FILES) {
        more.files += 1;
        more.calls += file.all_calls();
        more.ns += file.all_ns();
    }
    let rows = all.iter().take(MAX_FILES).map(|file| file_row(file, span.waits_known)).collect();
    (rows, more)
}

fn file_row(file: &SyscallFile, waits_known: bool) -> FileRow {
    let calls = file.all_calls();
    let ops = FILE_OP_NAMES.iter().zip(file.calls.iter().zip(file.ns));
    FileRow {
        path: file.path.clone(),
        complete: file.complete,
        class: file.class,
        calls,
        errors: file.errors,
        times: Times::new(file.all_ns(), file.off_ns, file.wait_ns, waits_known),
        mean_ns: file.all_ns() / calls.max(1),
        max_ns: file.max_ns,
        bytes: file.bytes,
        ops: ops
            .filter(|(_, (calls, _))| **calls > 0)
            .map(|(op, (calls, ns))| OpRow { op: (*op).into(), calls: *calls, ns })
            .collect(),
    }
}

fn notes(
    setup: &Setup,
    span: &SyscallSpan,
    totals: &[SyscallTotal],
    more: &OmittedFiles,
) -> Vec<String> {
    let mut notes = Vec::new();
    if span.lost > 0 {
        notes.push(format!(
            "{} were lost: the counts are too low",
            units::counted(span.lost, "thread or event", "threads or events")
        ));
    }
    if span.beyond_calls > 0 {
        notes.push(format!(
            "{} were about files for which the table had no room; files whose calls take long find some longer than \
             others",
            units::counted(span.beyond_calls, "call", "calls")
        ));
    }
    if span.unread_calls > 0 {
        notes.push(format!(
            "of {} the file could not be found out: it was closed meanwhile, or the name was not readable",
            units::counted(span.unread_calls, "call", "calls")
        ));
    }
    if more.files > 0 {
        notes.push(format!("{} have no row", units::counted(more.files, "file", "files")));
    }
    let under_way: u64 = totals.iter().map(|it| it.under_way).sum();
    if under_way > 0 {
        notes.push(format!(
            "{} had not returned at the end; their time is not counted",
            units::counted(under_way, "call", "calls")
        ));
    }
    if !span.waits_known {
        notes.push(
            "this kernel does not tell how long threads wait for a CPU: it counts as blocked"
                .into(),
        );
    }
    if setup.interrupted {
        notes.push("it was ended early".into());
    }
    if let Subject::Command { .. } = setup.subject {
        notes.push(
            "counting makes system calls slower (docs/overhead.md): system time holds that, too"
                .into(),
        );
    }
    notes
}
