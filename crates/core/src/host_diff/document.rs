// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is said of the difference, as data: the document `deburr.diff/1` (`docs/diff.md`). Field names are stable;
//! additions only.

use crate::finding::{Finding, NotChecked, RuledOut, Severity};
use crate::snapshot::{Area, Class, Tool, Value};
use serde::{Deserialize, Serialize};

/// Identifier of the document's schema.
pub const SCHEMA: &str = "deburr.diff/1";

/// How hosts differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostDiff {
    /// [`SCHEMA`].
    pub schema: String,
    /// Who compared.
    pub tool: Tool,
    /// The hosts, in the order in which they were given.
    pub hosts: Vec<Host>,
    /// How many facts there are, by what became of them.
    pub facts: Counts,
    /// What differs and should not, what matters most first.
    pub differences: Vec<Difference>,
    /// What could not be compared.
    pub not_compared: Vec<NotCompared>,
    /// What differs as it must or may: identity, counters, addresses.
    pub aside: Vec<Aside>,
    /// What is measured slower; absent without measurements of two hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<super::Explanation>,
    /// What separates slow hosts from fast ones; absent unless it is said who is slow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub separation: Option<super::Separation>,
    /// How to find out which difference is the reason; absent if nobody is slow, or nothing can be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<super::Plan>,
    /// What is wrong, in the form of `deburr.report/1`.
    pub findings: Vec<Finding>,
    /// What was looked for and not found, likewise.
    pub ruled_out: Vec<RuledOut>,
    /// What could not be looked for, likewise.
    pub not_checked: Vec<NotChecked>,
    /// Whatever else should be known, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl HostDiff {
    /// What a host is called in sentences: its name, and its letter too where others have that name.
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
    pub fn separating(&self) -> Vec<(&Difference, &Held, &Held)> {
        let first = |slow: bool| self.hosts.iter().find(|host| host.slow == Some(slow));
        let (Some(separation), Some(slow), Some(fast)) =
            (&self.separation, first(true), first(false))
        else {
            return vec![];
        };
        let separates = |it: &&Difference| {
            separation.slow + separation.fast > 2
                && separation.best.contains(&it.key)
                && it.test.as_ref().is_some_and(super::Test::is_perfect)
        };
        let with_values =
            |it| Some((it, Difference::held_by(it, slow)?, Difference::held_by(it, fast)?));
        self.differences.iter().filter(separates).filter_map(with_values).collect()
    }
}

/// One of the hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// `A`, `B`, ...: what it is called in this document.
    pub id: String,
    /// Its name, or what the caller calls it if its name was left out.
    pub name: String,
    /// Its kernel release.
    pub kernel: String,
    /// Its architecture.
    pub arch: String,
    /// When its snapshot was taken, RFC 3339.
    pub taken: String,
    /// Version of deburr that took it.
    pub tool: Tool,
    /// Whether it is said to be slow; absent if nothing is said of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow: Option<bool>,
    /// Its driver of idle states; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_driver: Option<String>,
    /// Its driver of frequencies; absent if that is not known, `none` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency_driver: Option<String>,
    /// Differences in which it stands against a majority; 0 where there is no majority.
    pub outlier_in: u64,
}

/// What became of the facts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Keys that at least two hosts are known to have or not to have, and that should agree.
    pub compared: u64,
    /// Of these, those that agree.
    pub same: u64,
    /// Of these, those that differ.
    pub different: u64,
    /// Keys that could not be compared.
    pub not_compared: u64,
    /// Keys that differ as they must or may.
    pub aside: u64,
}

/// A fact that differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Its key.
    pub key: String,
    /// What it is about.
    pub area: Area,
    /// What a difference of it means.
    pub class: Class,
    /// How much it is known to matter.
    pub severity: Severity,
    /// The same, 0 to 100: it orders differences of one severity.
    pub weight: u8,
    /// What it is, in words; absent if nothing is known of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// Who has which value, most hosts first.
    pub values: Vec<Held>,
    /// Hosts on which it is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_on: Vec<String>,
    /// Hosts that it is known to make slower than the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slows: Vec<String>,
    /// Which time it costs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effect>,
    /// Why it matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Why it may not matter here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cautions: Vec<String>,
    /// Key of the difference that it follows from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<String>,
    /// What it depends on others with: those of one group are changed together.
    pub group: String,
    /// How to look at it.
    pub look: String,
    /// How to make it alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
    /// Share of the extra time that was measured that is of the kind that it costs, 0..1; absent if nothing was
    /// measured, or if it is not known what it costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explains: Option<f64>,
    /// What was measured that speaks for it, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub supported_by: Vec<String>,
    /// How it separates slow hosts from fast ones; absent unless it is said who is slow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<super::Test>,
}

impl Difference {
    /// What a host has; `None` if that is not known.
    #[must_use]
    pub fn held_by(&self, host: &Host) -> Option<&Held> {
        self.values.iter().find(|held| held.hosts.contains(&host.id))
    }
}

/// A value and who has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Hosts, in their order.
    pub hosts: Vec<String>,
    /// The value of the first of them.
    pub value: Value,
    /// The value in words: of long ones, what the other hosts do not have.
    pub shown: String,
}

/// How to make a fact alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// On which hosts.
    pub hosts: Vec<String>,
    /// A command, or what to do in words where there is none.
    pub text: String,
    /// Whether `text` can be pasted.
    pub is_command: bool,
    /// How to undo it.
    pub undo: String,
    /// What it takes.
    pub reach: Reach,
    /// What it risks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<String>,
}

/// What a change takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// It holds at once.
    Now,
    /// The host must boot.
    Boot,
    /// Somebody must go into the firmware's set-up.
    Firmware,
}

/// Which time something costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// CPU time in user mode.
    User,
    /// CPU time in the kernel.
    System,
    /// Time until a sleeping CPU runs.
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
    /// In words.
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
    /// What it is about.
    pub area: Area,
    /// On which hosts it is not known.
    pub hosts: Vec<String>,
    /// Why.
    pub why: String,
}

/// A fact that differs as it must or may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aside {
    /// Its key.
    pub key: String,
    /// Why it is put aside.
    pub class: Class,
    /// Who has which value.
    pub values: Vec<Held>,
}
