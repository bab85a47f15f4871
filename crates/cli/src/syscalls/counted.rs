// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns the probe's counts into records.

use deburr_bpf::syscalls::Reading;
use deburr_core::recording::{FileClass, ProcId, SyscallFile, SyscallSpan, SyscallTotal};
use deburr_core::text::name;
use std::collections::BTreeMap;

/// The counts of one group.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupCounts {
    /// What was watched, and what did not fit.
    pub(crate) span: SyscallSpan,
    /// Totals by call.
    pub(crate) calls: Vec<SyscallTotal>,
    /// Totals by file, those with the most time first.
    pub(crate) files: Vec<SyscallFile>,
}

impl GroupCounts {
    /// The counts of one group in that time. Losses are those of all groups.
    pub(crate) fn of(
        reading: &Reading,
        group: u32,
        process: Option<ProcId>,
        (t0_ns, t1_ns): (u64, u64),
        waits_known: bool,
    ) -> Self {
        let span = SyscallSpan {
            t0_ns,
            t1_ns,
            process,
            processes: reading.processes,
            threads: reading.threads,
            waits_known,
            beyond_calls: reading.files_full,
            beyond_ns: reading.files_full_ns,
            unread_calls: reading.unread,
            unread_ns: reading.unread_ns,
            lost: reading.threads_collide + reading.missed,
        };
        let mut calls: BTreeMap<&str, SyscallTotal> = BTreeMap::new();
        for call in reading.calls.iter().filter(|call| call.group == group) {
            let mut hist = call.hist.clone();
            hist.truncate(hist.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1));
            let total = SyscallTotal {
                t0_ns,
                t1_ns,
                process,
                name: call.name.clone(),
                calls: call.calls,
                errors: call.errors,
                unfinished: call.unfinished,
                under_way: 0,
                ns: call.ns,
                off_ns: call.off_ns,
                wait_ns: call.wait_ns,
                max_ns: call.max_ns,
                hist,
            };
            calls.insert(&call.name, total);
        }
        for (_, name, _) in reading.under_way.iter().filter(|(of, ..)| *of == group) {
            let new = || SyscallTotal {
                t0_ns,
                t1_ns,
                process,
                name: name.clone(),
                ..SyscallTotal::default()
            };
            calls.entry(name).or_insert_with(new).under_way += 1;
        }
        let mut files: Vec<SyscallFile> = reading
            .files
            .iter()
            .filter(|file| file.group == group)
            .map(|file| {
                let path = name::decode(&file.path);
                SyscallFile {
                    t0_ns,
                    t1_ns,
                    process,
                    class: FileClass::of(file.magic, &path),
                    path,
                    complete: file.complete,
                    calls: file.calls,
                    ns: file.ns,
                    errors: file.errors,
                    max_ns: file.max_ns,
                    off_ns: file.off_ns,
                    wait_ns: file.wait_ns,
                    bytes: file.bytes,
                }
            })
            .collect();
        files.sort_by(|a, b| b.all_ns().cmp(&a.all_ns()).then_with(|| a.path.cmp(&b.path)));
        Self { span, calls: calls.into_values().collect(), files }
    }
}

/// Name -> number of calls and their time in nanoseconds, since an earlier reading.
pub(crate) fn since(earlier: &Reading, now: &Reading) -> BTreeMap<String, (u64, u64)> {
    let mut calls: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for call in &now.calls {
        let sum = calls.entry(call.name.clone()).or_default();
        *sum = (sum.0 + call.calls, sum.1 + call.ns);
    }
    for call in &earlier.calls {
        let sum = calls.entry(call.name.clone()).or_default();
        *sum = (sum.0.saturating_sub(call.calls), sum.1.saturating_sub(call.ns));
    }
    calls
}
