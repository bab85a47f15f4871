// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The result of a comparison as data: the document `deburr.diff/1` (`docs/diff.md`).
//! Field names are stable; fields are only added.

use crate::finding::{Finding, NotChecked, RuledOut, Severity};
use crate::snapshot::{Area, Class, Tool, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Identifier of the document's schema.
pub const SCHEMA: &str = "deburr.diff/1";

/// How hosts differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostDiff {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version of deburr that compared.
    pub tool: Tool,
    /// The hosts, in the order in which they were given.
    pub hosts: Vec<Host>,
    /// Numbers of facts by the outcome of their comparison.
    pub facts: Counts,
    /// Facts that differ and should not, most important first.
    pub differences: Vec<Difference>,
    /// Facts that could not be compared.
    pub not_compared: Vec<NotCompared>,
    /// Facts that differ as they must or may: identity, counters, addresses.
    pub aside: Vec<ExpectedDifference>,
    /// What was measured to be slower; absent without measurements of two hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<super::Explanation>,
    /// What separates slow hosts from fast ones; absent unless slow and fast hosts are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub separation: Option<super::Separation>,
    /// How to find out which difference is the reason; absent if no host is slow, or nothing can be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<super::Plan>,
    /// Findings of the rules, in the form of `deburr.report/1`.
    pub findings: Vec<Finding>,
    /// Rules that found nothing, likewise.
    pub ruled_out: Vec<RuledOut>,
    /// Rules that lacked data, likewise.
    pub not_checked: Vec<NotChecked>,
    /// Further remarks, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl HostDiff {
    /// What a host is called in sentences: its name, followed by its letter if other hosts have the same name.
    #[must_use]
    pub fn called(&self, host: &Host) -> String {
        let name = host.name.replace('`', "'");
        let alone = self.hosts.iter().filter(|other| other.name == host.name).count() < 2;
        if alone { name } else { format!("{name} ({})", host.id) }
    }

    /// The differences that separate every slow host from every fast one better than any other does, each with the
    /// value of the first slow host and that of the first fast one. Empty unless three hosts or more are compared,
    /// of which it is said who is slow.
    #[must_use]
    pub fn separating(&self) -> Vec<Contrast<'_>> {
        let first = |slow: bool| self.hosts.iter().find(|host| host.slow == Some(slow));
        let (Some(separation), Some(slow), Some(fast)) =
            (&self.separation, first(true), first(false))
        else {
            return vec![];
        };
        let best: BTreeSet<&String> = separation.best.iter().collect();
        let separates = |it: &&Difference| {
            separation.slow.saturating_add(separation.fast) > 2
                && best.contains(&it.key)
                && it.test.as_ref().is_some_and(super::Test::is_perfect)
        };
        let with_values = |difference| {
            let own = Difference::held_by(difference, slow)?;
            Some(Contrast { difference, own, other: Difference::held_by(difference, fast)? })
        };
        self.differences.iter().filter(separates).filter_map(with_values).collect()
    }
}

/// A difference, as seen from one host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contrast<'a> {
    /// What differs.
    pub difference: &'a Difference,
    /// The value of that host.
    pub own: &'a ValueOnHosts,
    /// The value that others have.
    pub other: &'a ValueOnHosts,
}

/// One of the hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Identifier in this document: `A`, `B`, ...
    pub id: String,
    /// Host name, or the caller's label if the snapshot has none.
    pub name: String,
    /// Kernel release.
    pub kernel: String,
    /// Architecture.
    pub arch: String,
    /// When the snapshot was taken, RFC 3339.
    pub taken: String,
    /// The version of deburr that took it.
    pub tool: Tool,
    /// Whether the host is slow; absent if that is not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow: Option<bool>,
    /// Driver of idle states; absent if not known, `none` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_driver: Option<String>,
    /// Driver of CPU frequencies; absent if not known, `none` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency_driver: Option<String>,
    /// Number of differences in which more than half of the hosts agree and this one differs from them.
    pub outlier_in: u64,
}

/// Numbers of facts by the outcome of their comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Keys that should agree and whose value or absence is known on at least two hosts.
    pub compared: u64,
    /// Compared keys on which all hosts agree.
    pub same: u64,
    /// Compared keys on which hosts differ.
    pub different: u64,
    /// Keys that could not be compared on some host.
    pub not_compared: u64,
    /// Keys that differ as they must or may.
    pub aside: u64,
}

/// A fact that differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Its key.
    pub key: String,
    /// Its area.
    pub area: Area,
    /// Its class.
    pub class: Class,
    /// How much the difference is known to matter.
    pub severity: Severity,
    /// The same as a number from 0 to 100, which orders differences of one severity.
    pub weight: u8,
    /// What the fact is, in words; absent if nothing is known about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// The values and the hosts that have them, most hosts first.
    pub values: Vec<ValueOnHosts>,
    /// Hosts on which the value is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_on: Vec<String>,
    /// Hosts that the difference is known to make slower than the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slows: Vec<String>,
    /// Kinds of time that it costs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effect>,
    /// Why it matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Why it may not matter here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cautions: Vec<String>,
    /// Key of the difference that this one follows from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<String>,
    /// Name of its group: differences of one group depend on each other and are changed together.
    pub group: String,
    /// Command to examine it.
    pub look: String,
    /// How to remove the difference; absent if that is not possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
    /// Share of the measured extra time that is of a kind that this difference costs, 0..1; absent if nothing was
    /// measured, or if it is not known what it costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explains: Option<f64>,
    /// Measurements that support this difference as the reason, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub supported_by: Vec<String>,
    /// How it separates slow hosts from fast ones; absent unless slow and fast hosts are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<super::Test>,
}

impl Difference {
    /// What a host has; `None` if that is not known.
    #[must_use]
    pub fn held_by(&self, host: &Host) -> Option<&ValueOnHosts> {
        self.values.iter().find(|held| held.hosts.contains(&host.id))
    }
}

/// A value and the hosts that have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueOnHosts {
    /// Identifiers of the hosts, in order.
    pub hosts: Vec<String>,
    /// The value of the first of them.
    pub value: Value,
    /// The value in words; of sets and tables, only what the other hosts do not all have.
    pub shown: String,
}

/// How to remove a difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Hosts to change.
    pub hosts: Vec<String>,
    /// A command, or instructions where there is no command.
    pub text: String,
    /// Whether `text` and `undo` are commands that can be pasted.
    pub is_command: bool,
    /// How to undo the change.
    pub undo: String,
    /// What it takes until the change has an effect.
    pub reach: TakesEffect,
    /// The risk of the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<String>,
}

/// What it takes until a change has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TakesEffect {
    /// It takes effect at once.
    Now,
    /// The host must be rebooted.
    Boot,
    /// The firmware set-up must be changed.
    Firmware,
}

/// Kind of time that something costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// CPU time in user mode.
    User,
    /// CPU time in the kernel.
    System,
    /// Time until an idle CPU runs.
    Wakeup,
    /// Waiting for a CPU.
    Queue,
    /// Waiting for disks.
    BlockIo,
    /// Waiting for memory.
    Memory,
    /// Waiting for the network.
    Network,
}

impl Effect {
    /// The kind of time in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::User => "CPU time in user mode",
            Self::System => "CPU time in the kernel",
            Self::Wakeup => "time until a sleeping CPU runs",
            Self::Queue => "waiting for a CPU",
            Self::BlockIo => "waiting for disks",
            Self::Memory => "waiting for memory",
            Self::Network => "waiting for the network",
        }
    }
}

/// A fact that could not be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotCompared {
    /// Its key.
    pub key: String,
    /// Its area.
    pub area: Area,
    /// Hosts on which its value is not known.
    pub hosts: Vec<String>,
    /// Why it is not known.
    pub why: String,
}

/// A fact that differs as it must or may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedDifference {
    /// Its key.
    pub key: String,
    /// Its class, which is the reason why it may differ.
    pub class: Class,
    /// The values and the hosts that have them.
    pub values: Vec<ValueOnHosts>,
}
