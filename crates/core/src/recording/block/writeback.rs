// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Passes of the kernel's flusher, and commits of journals.

use super::{DevId, ProcId};
use serde::{Deserialize, Serialize};

/// A pass of the kernel's flusher: pieces of its work on one device with pauses below a second between them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WritebackPass {
    /// Its first piece began.
    pub t0_ns: u64,
    /// Its last piece ended.
    pub t1_ns: u64,
    /// The device, or the filesystem's number where no device is behind it.
    pub device: DevId,
    /// Why, by the kernel's own word.
    pub reason: String,
    /// Inodes that were written.
    pub inodes: u64,
    /// Bytes that reached the device for it (of requests; the kernel's own page counts overstate).
    pub bytes: u64,
    /// Transfers for it.
    pub ios: u64,
    /// For how many whole seconds inodes had been dirty: `[seconds, inodes]`, ascending.
    pub ages: Vec<(u32, u32)>,
    /// Whole seconds since the same inode was last written back, for those seen before: `[seconds, inodes]`.
    pub since_last: Vec<(u32, u32)>,
    /// Who first dirtied them, those known, most first, at most 16: `[process, inodes]`.
    pub dirtied_by: Vec<(ProcId, u32)>,
    /// Who asked for it, those known, most first, at most 16: `[process, times]`. Empty of what the flusher does by its
    /// own clocks, and in older recordings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked_by: Vec<(ProcId, u32)>,
}

/// A commit of a filesystem's journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalCommit {
    /// It began.
    pub t0_ns: u64,
    /// It was on the device.
    pub t1_ns: u64,
    /// The device that holds the filesystem.
    pub device: DevId,
    /// `jbd2`, `xfs` or `btrfs`.
    pub kind: String,
    /// Blocks logged, where the kernel tells.
    pub blocks: Option<u64>,
}

impl WritebackPass {
    /// From when to when, in nanoseconds since the window began.
    #[must_use]
    pub fn span(&self) -> (u64, u64) {
        (self.t0_ns, self.t1_ns)
    }
}

impl JournalCommit {
    /// From when to when, in nanoseconds since the window began.
    #[must_use]
    pub fn span(&self) -> (u64, u64) {
        (self.t0_ns, self.t1_ns)
    }
}
