// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls of the processes whose calls were counted.

use crate::recording::{ProcId, SyscallFile, SyscallRecord, SyscallSpan, SyscallTotal};
use std::collections::BTreeMap;

/// Maximum number of files of one process; records of further files are counted in [`SyscallGroup::more_files`].
const MAX_FILES: usize = 20_000;

/// System calls by process. Each entry includes all processes that the process started. The key `None` stands for the
/// command, or for the whole target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SyscallView {
    groups: BTreeMap<Option<ProcId>, SyscallGroup>,
}

/// System calls of one process and all processes that it started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SyscallGroup {
    /// Time range, and calls that are missing from the tables. With several spans, their sum.
    pub span: SyscallSpan,
    /// Calls by name.
    pub calls: BTreeMap<String, SyscallTotal>,
    /// Calls by path and by whether the path is complete.
    pub files: BTreeMap<(String, bool), SyscallFile>,
    /// Number of file records that were not kept.
    pub more_files: u64,
}

impl SyscallView {
    pub(super) fn push(&mut self, record: &SyscallRecord) {
        let group = self.groups.entry(record.process()).or_default();
        match record {
            SyscallRecord::Span(span) => group.span(span),
            SyscallRecord::Call(total) => group.call(total),
            SyscallRecord::File(file) => group.file(file),
        }
    }

    /// Calls by process, `None` for the command or the whole target.
    #[must_use]
    pub fn groups(&self) -> &BTreeMap<Option<ProcId>, SyscallGroup> {
        &self.groups
    }
}

impl SyscallGroup {
    fn span(&mut self, span: &SyscallSpan) {
        let sum = &mut self.span;
        if sum.t1_ns == 0 {
            *sum = span.clone();
            return;
        }
        sum.t1_ns = sum.t1_ns.max(span.t1_ns);
        sum.processes = sum.processes.saturating_add(span.processes);
        sum.threads = sum.threads.saturating_add(span.threads);
        sum.waits_known &= span.waits_known;
        sum.beyond_calls = sum.beyond_calls.saturating_add(span.beyond_calls);
        sum.beyond_ns = sum.beyond_ns.saturating_add(span.beyond_ns);
        sum.unread_calls = sum.unread_calls.saturating_add(span.unread_calls);
        sum.unread_ns = sum.unread_ns.saturating_add(span.unread_ns);
        sum.lost = sum.lost.saturating_add(span.lost);
    }

    fn call(&mut self, total: &SyscallTotal) {
        let Some(sum) = self.calls.get_mut(&total.name) else {
            self.calls.insert(total.name.clone(), total.clone());
            return;
        };
        sum.t1_ns = sum.t1_ns.max(total.t1_ns);
        sum.calls = sum.calls.saturating_add(total.calls);
        sum.errors = sum.errors.saturating_add(total.errors);
        sum.unfinished = sum.unfinished.saturating_add(total.unfinished);
        sum.under_way = total.under_way;
        sum.ns = sum.ns.saturating_add(total.ns);
        sum.off_ns = sum.off_ns.saturating_add(total.off_ns);
        sum.wait_ns = sum.wait_ns.saturating_add(total.wait_ns);
        sum.max_ns = sum.max_ns.max(total.max_ns);
        sum.hist.resize(sum.hist.len().max(total.hist.len()), 0);
        for (sum, more) in sum.hist.iter_mut().zip(&total.hist) {
            *sum = sum.saturating_add(*more);
        }
    }

    fn file(&mut self, file: &SyscallFile) {
        let key = (file.path.clone(), file.complete);
        if let Some(sum) = self.files.get_mut(&key) {
            sum.merge(file);
        } else if self.files.len() < MAX_FILES {
            self.files.insert(key, file.clone());
        } else {
            self.more_files += 1;
        }
    }

    /// Length of the time range in which calls were counted, in nanoseconds.
    #[must_use]
    pub fn window_ns(&self) -> u64 {
        self.span.t1_ns.saturating_sub(self.span.t0_ns)
    }

    /// Converts a total over that time range to a rate per second. An empty range counts as 1 ns.
    #[must_use]
    pub fn per_second(&self, amount: u64) -> u64 {
        let window = u128::from(self.window_ns()).max(1);
        u64::try_from(u128::from(amount) * 1_000_000_000 / window).unwrap_or(u64::MAX)
    }

    /// Wall time of all calls that returned, in nanoseconds.
    #[must_use]
    pub fn all_ns(&self) -> u64 {
        self.calls.values().fold(0, |sum, call| sum.saturating_add(call.ns))
    }
}
