// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The longest wait of a victim, told whole.

use super::Entity;
use serde::{Deserialize, Serialize};

/// One wait, and all that it was behind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LongestWait {
    /// When it ended: RFC 3339 time in UTC.
    pub at: String,
    /// When it ended, in seconds since the start of the window.
    pub at_s: f64,
    /// The process that waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its thread that waited.
    pub tid: u32,
    /// Length of the wait, in run queues and throttled by a quota, in nanoseconds.
    pub wait_ns: u64,
    /// What it was behind. The parts sum to `wait_ns`.
    pub parts: Vec<WaitPart>,
}

/// A part of a wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitPart {
    /// What ran meanwhile; of kind `cgroup` = its quota had run out; of kind `unknown`, with a note, where that is not known
    /// or nothing ran.
    #[serde(flatten)]
    pub entity: Entity,
    /// Length of the part, in nanoseconds.
    pub ns: u64,
}
