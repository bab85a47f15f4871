// SPDX-License-Identifier: Apache-2.0 OR MIT
//! On what the threads of a ledger slept.

use super::LedgerState;
use serde::{Deserialize, Serialize};

/// Whether a sleep is time that somebody lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SleepKind {
    /// Nobody wanted anything of it.
    WaitsForWork,
    /// It waited for somebody or something else to go on.
    WaitsForOthers,
    /// It set a timer.
    OwnTimer,
    /// What was seen does not tell.
    NotKnown,
    /// The user said which threads serve requests, and it is none of them.
    NoEntry,
}

/// A thread that others waited for, in words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SleepLink {
    /// The thread; of another process, with that.
    pub who: String,
    /// What it did meanwhile.
    pub did: String,
}

/// A part of the time that threads were asleep, uninterruptibly or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SleepPart {
    /// Whether it is time that somebody lost.
    pub kind: SleepKind,
    /// The state of the ledger that it is part of.
    pub state: LedgerState,
    /// The system call, as in the manual pages; what is none, in parentheses.
    pub call: String,
    /// On what, in words; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    /// What ended it, in words; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub woken_by: Option<String>,
    /// What it waited for: the thread that ended it or held its lock, the one that this waited for, and so on. Empty if no
    /// thread of the host is known to have ended it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<SleepLink>,
    /// Time, in nanoseconds.
    pub ns: u64,
}
