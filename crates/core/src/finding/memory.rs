// SPDX-License-Identifier: Apache-2.0 OR MIT
//! For what the threads of a ledger waited when memory was short.

use serde::{Deserialize, Serialize};

/// Why a thread waits for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryWait {
    /// It frees memory at the limit of a memory cgroup.
    LimitReclaim,
    /// It frees memory of the host.
    DirectReclaim,
    /// It moves pages, to get a large one.
    Compaction,
    /// Pages of files that were dropped while in use are read back.
    RefaultFile,
    /// Pages that were swapped out are read back.
    RefaultSwap,
    /// The kernel makes it pause, for a cgroup that it is in is above its `memory.high`.
    AboveHigh,
    /// It is held up before or after it frees memory of the host.
    BesideReclaim,
    /// What was seen does not tell.
    NotKnown,
}

/// A part of the time that threads waited for memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPart {
    /// Why.
    pub kind: MemoryWait,
    /// Where that is not known, what it may be: all that is not ruled out. Empty = it is known, or anything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub may_be: Vec<MemoryWait>,
    /// Time off the CPU, in nanoseconds.
    pub ns: u64,
}
