// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The questions that a report answers first, and their answers.

use super::Severity;
use serde::{Deserialize, Serialize};

/// What somebody asks of a slow host. Every rule belongs to exactly one question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// Do threads wait for a CPU that others use, or that they may not use?
    CpuWait,
    /// Do CPU quotas stop threads that could run?
    Quota,
    /// Do the CPUs run more slowly than they seem to?
    CpuSpeed,
    /// Does anybody wait for block IO?
    Disk,
    /// Does anybody wait because memory is short?
    Memory,
    /// Do threads wait for others: for locks, and for answers?
    Others,
    /// Does the network, or a queue of a socket, lose what was sent?
    Network,
    /// Do system calls cost more than they need to?
    Syscalls,
    /// Does the host's configuration differ from that of hosts like it?
    Configuration,
    /// Can the observation be relied on?
    Observer,
}

impl Question {
    /// All questions, in the order of reports.
    pub const ALL: [Self; 10] = [
        Self::CpuWait,
        Self::Quota,
        Self::CpuSpeed,
        Self::Disk,
        Self::Memory,
        Self::Others,
        Self::Network,
        Self::Syscalls,
        Self::Configuration,
        Self::Observer,
    ];
}

/// The answer to a question, by the worst of what its rules answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// There is a finding above `info`.
    Found,
    /// There are findings, none of them above `info`.
    Info,
    /// It was checked, and nothing was found.
    Ok,
    /// None of its rules could be checked.
    Unknown,
}

/// A question and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionAnswer {
    /// The question.
    pub question: Question,
    /// Its answer.
    pub answer: Answer,
    /// Severity of the worst finding; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<Severity>,
    /// Codes of its rules that judge recordings.
    pub codes: Vec<String>,
    /// Whether some of it could not be checked: a rule lacked data, or its best source was missing. Always so if the
    /// answer is [`Answer::Unknown`].
    pub in_part: bool,
    /// Why not all of it could be checked, in two or three words: `no root`; absent if all of it could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
