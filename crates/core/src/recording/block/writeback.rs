// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Passes of the kernel's flusher, and commits of filesystem journals.

use super::{DevId, ProcId, Reference, Source, observed};
use crate::stats::Span;
use serde::{Deserialize, Serialize};

/// A pass of the kernel's flusher: work items on one device with the same reason and less than a second between them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WritebackPass {
    /// Start of the first work item.
    pub t0_ns: u64,
    /// End of the last work item.
    pub t1_ns: u64,
    /// The device, or the device number of the filesystem if it has no device.
    pub device: DevId,
    /// The kernel's reason for writeback.
    pub reason: String,
    /// Number of inodes that were written.
    pub inodes: u64,
    /// Bytes that the pass wrote to the device, from its requests (the kernel's own page counts are too high).
    pub bytes: u64,
    /// Number of transfers of the pass.
    pub ios: u64,
    /// Histogram of the whole seconds for which inodes had been dirty: `[seconds, inodes]`, ascending.
    pub ages: Vec<(u32, u32)>,
    /// Histogram of the whole seconds since the same inode was last written back, for inodes that were seen before:
    /// `[seconds, inodes]`, ascending.
    pub since_last: Vec<(u32, u32)>,
    /// Processes that first dirtied the inodes, where known, most inodes first, at most 16: `[process, inodes]`.
    pub dirtied_by: Vec<(ProcId, u32)>,
    /// Processes that requested the pass, where known, most requests first, at most 16: `[process, requests]`. Empty
    /// for passes that the flusher starts by its own timers, and in older recordings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked_by: Vec<(ProcId, u32)>,
}

observed! {
    it: WritebackPass over t0_ns..t1_ns, from Source::Writeback;
    to [Reference::Filesystem(it.device)], it.dirtied_by.iter().chain(&it.asked_by).map(|by| by.0)
}

/// A commit of a filesystem's journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalCommit {
    /// Start of the commit.
    pub t0_ns: u64,
    /// Time at which the commit was on the device.
    pub t1_ns: u64,
    /// The device that holds the filesystem.
    pub device: DevId,
    /// `jbd2`, `xfs` or `btrfs`.
    pub kind: String,
    /// Number of blocks logged, where the kernel reports it.
    pub blocks: Option<u64>,
}

observed! { it: JournalCommit over t0_ns..t1_ns, from Source::Writeback; to [it.device] }

impl WritebackPass {
    /// From when to when.
    #[must_use]
    pub fn span(&self) -> Span {
        Span::new(self.t0_ns, self.t1_ns)
    }
}

impl JournalCommit {
    /// From when to when.
    #[must_use]
    pub fn span(&self) -> Span {
        Span::new(self.t0_ns, self.t1_ns)
    }
}
