// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a host is and how it is set up, as typed facts: the document `deburr.snapshot/1` (`docs/snapshot.md`).
//!
//! A [`Snapshot`] is a head (who took it, when, of which host) and [`Fact`]s in the order of their keys, each key once.
//!
//! - **key**: the path that it was read from (`/proc/sys/vm/swappiness`); where a file holds several facts, the path, `#`
//!   and the part (`/proc/cmdline#mitigations`). The same fact has the same key on every host. What exists once for
//!   each CPU, node, disk or network card is one fact whose key has a `*` in the place of the number or name
//!   (`/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor`) and whose value is a [`Value::Each`]; what exists
//!   once for each of a kind that has a meaning of its own (modules, their parameters, idle states) has a key each.
//! - **class**: what a difference of it means ([`Class`]). Only configuration and capability are compared.
//! - **area**: what it is about ([`Area`]).
//! - **value**: typed ([`Value`]). That a file is not there is a value ([`Value::Absent`]): it is what is to be
//!   compared where a driver is not loaded. [`Value::Unreadable`] and [`Value::TimedOut`] say that it is not known.
//!   Two values are the same if they are `==`; whether two hosts that have different numbers of CPUs agree, see
//!   [`Value::uniform`].
//!
//! A key that a snapshot does not have at all: where its parent was looked through (parameters of the command line,
//! modules, idle states) the thing is not there; but a snapshot of another version of deburr may just not have
//! looked. [`Snapshot::tool`] tells.
//!
//! [`Snapshot::parse`] reads a document and says clearly what is wrong with one that cannot be read. A snapshot of
//! another architecture is a snapshot like any other; who compares two says so where [`Host::arch`] differs.

pub mod ethtool;
pub mod filter;
mod fold;
pub mod form;
pub mod parts;
mod read;
#[cfg(test)]
mod tests;
pub mod whitelist;
mod write;

pub use fold::{Instance, fold};
pub use read::{MAX_BYTES, SnapshotError};

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Identifier of the document's schema.
pub const SCHEMA: &str = "deburr.snapshot/1";

/// What stands for a value that is kept out of snapshots (`docs/snapshot.md` has the list): a parameter of the kernel's
/// command line that may hold a secret or an address. That two hosts have it does not mean that they are alike.
pub const FILTERED: &str = "(filtered)";

/// A host at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`SCHEMA`].
    pub schema: String,
    /// Who took it.
    pub tool: Tool,
    /// RFC 3339 time in UTC.
    pub taken: String,
    /// Of which host.
    pub host: Host,
    /// How reading went.
    pub reading: Reading,
    /// The facts, by key, each key once.
    pub facts: Vec<Fact>,
}

/// The program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// Its version.
    pub version: String,
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name; absent if names were to be left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its kernel release; empty if that could not be read.
    pub kernel: String,
    /// Its architecture as the kernel calls it (`x86_64`); empty if that could not be read.
    pub arch: String,
}

/// How reading went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Files that were asked for; those that are not there count too.
    pub files: u64,
    /// Time that all of it took.
    pub took_ns: u64,
    /// Time that half of the files that were there did not need.
    pub median_ns: u64,
    /// Whether it was done as root: without, some files cannot be read.
    pub as_root: bool,
    /// Files whose reading was slow, slowest first: findings of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slow: Vec<SlowRead>,
    /// Whatever else should be known of it, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A file whose reading took long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowRead {
    /// The file itself, without `*` and `#`.
    pub path: String,
    /// Key of the fact that was read from it; of the first, if there are several.
    pub key: String,
    /// Time that opening, reading and closing it took.
    pub wall_ns: u64,
    /// How much of that was CPU time: near `wall_ns`, the kernel was busy; far below, it slept. Absent where the read
    /// was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
    /// Time that it took when it was read again at once; absent if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_ns: Option<u64>,
}

/// One thing that is known of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Where it was read; see the module.
    pub key: String,
    /// What a difference of it means.
    pub class: Class,
    /// What it is about.
    pub area: Area,
    /// What was read.
    pub value: Value,
    /// Time that reading the slowest file behind it took, if that was slow ([`Reading::slow`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_ns: Option<u64>,
}

/// What a difference of a fact means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Which machine it is: serial numbers, names. Differs between hosts as it must.
    Identity,
    /// Chosen by somebody, and can be changed: settings, parameters, versions of what is installed.
    Configuration,
    /// What hardware, firmware and kernel offer.
    Capability,
    /// Goes on by itself: amounts, states, what the kernel adapts. Differs between two moments.
    Counter,
    /// An address or number given at random or in order of arrival.
    Address,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 5] =
        [Self::Identity, Self::Configuration, Self::Capability, Self::Counter, Self::Address];

    /// Whether hosts that are meant to be alike should agree on it.
    #[must_use]
    pub fn is_compared(self) -> bool {
        matches!(self, Self::Configuration | Self::Capability)
    }

    /// Its name in documents.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Configuration => "configuration",
            Self::Capability => "capability",
            Self::Counter => "counter",
            Self::Address => "address",
        }
    }
}

/// What a fact is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Area {
    /// The kernel itself: version, command line, taint, `kernel.*`.
    Kernel,
    /// Modules, their parameters, live patches.
    Modules,
    /// Model, microcode, flags, topology, SMT, mitigations.
    Cpu,
    /// Frequency driver, governor, limits, boost.
    Frequency,
    /// Idle driver and states.
    Idle,
    /// Clock source, tick.
    Clock,
    /// Memory, nodes, huge pages, swap, `vm.*`.
    Memory,
    /// Block devices and their queues.
    Block,
    /// Mounts, `fs.*`.
    Filesystem,
    /// Network cards, `net.*`.
    Network,
    /// Who serves interrupts.
    Irq,
    /// cgroup layout.
    Cgroup,
    /// DMI, ACPI, EFI, thermal zones.
    Firmware,
    /// What the machine runs on.
    Hypervisor,
    /// Packages of kernel, firmware and microcode.
    Packages,
    /// One that a later version knows.
    #[serde(other)]
    Other,
}

impl Area {
    /// Its name in documents.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Modules => "modules",
            Self::Cpu => "cpu",
            Self::Frequency => "frequency",
            Self::Idle => "idle",
            Self::Clock => "clock",
            Self::Memory => "memory",
            Self::Block => "block",
            Self::Filesystem => "filesystem",
            Self::Network => "network",
            Self::Irq => "irq",
            Self::Cgroup => "cgroup",
            Self::Firmware => "firmware",
            Self::Hypervisor => "hypervisor",
            Self::Packages => "packages",
            Self::Other => "other",
        }
    }
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// Any text, without its last newline. Bytes that are no UTF-8 are written `\xNN`
    /// ([`crate::text::name::decode`]).
    Text(String),
    /// A whole number.
    Integer(Integer),
    /// On or off; of the command line: given without a value.
    Boolean(bool),
    /// Items whose order matters.
    List(Vec<String>),
    /// Items whose order does not matter.
    Set(BTreeSet<String>),
    /// Named items.
    Table(BTreeMap<String, String>),
    /// A value for each CPU, node, disk, ... that the `*` of the key stands for; made by [`fold`].
    Each(Vec<Part>),
    /// There is no such file, or no such part in it.
    Absent,
    /// It is there and could not be read or understood: why, as a part of a sentence.
    Unreadable(String),
    /// Reading it did not end.
    TimedOut {
        /// When it was given up.
        after_ms: u64,
    },
}

/// A whole number, and of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Integer {
    /// The number as it was read: from `i64::MIN` to `u64::MAX`.
    pub amount: i128,
    /// Of what; absent for plain numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<Unit>,
}

/// Instances that have the same value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Part {
    /// Which: names, or numbers and ranges of them (`8`, `0-3`), ascending.
    pub of: Vec<String>,
    /// Their value; never [`Value::Each`].
    pub value: Value,
}

/// What a number counts, in the unit that the kernel uses in that file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// 1024 bytes.
    Kib,
    /// Pages of memory.
    Pages,
    /// 512 bytes.
    Sectors,
    /// Per second.
    Hz,
    /// 1 000 per second.
    Khz,
    /// 1 000 000 per second.
    Mhz,
    /// Nanoseconds.
    Ns,
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
    /// Hundredths of a second.
    Centiseconds,
    /// Seconds.
    Seconds,
    /// Hundredths.
    Percent,
    /// Millions of bits a second.
    MbitPerS,
    /// One that a later version knows.
    #[serde(other)]
    Other,
}

impl Unit {
    /// Its symbol; empty if it has none that is known.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Bytes => "B",
            Self::Kib => "KiB",
            Self::Pages => "pages",
            Self::Sectors => "sectors",
            Self::Hz => "Hz",
            Self::Khz => "kHz",
            Self::Mhz => "MHz",
            Self::Ns => "ns",
            Self::Us => "us",
            Self::Ms => "ms",
            Self::Centiseconds => "cs",
            Self::Seconds => "s",
            Self::Percent => "%",
            Self::MbitPerS => "Mbit/s",
            Self::Other => "",
        }
    }
}

impl Value {
    /// A plain number.
    #[must_use]
    pub fn integer(amount: impl Into<i128>) -> Self {
        Self::Integer(Integer { amount: amount.into(), unit: None })
    }

    /// A text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Whether it is known: neither unreadable nor given up. [`Value::Absent`] is known.
    #[must_use]
    pub fn is_known(&self) -> bool {
        match self {
            Self::Unreadable(_) | Self::TimedOut { .. } => false,
            Self::Each(parts) => parts.iter().all(|part| part.value.is_known()),
            _ => true,
        }
    }

    /// The value that all instances have; the value itself if it is not one for each. `None` if they differ or if
    /// there is none.
    #[must_use]
    pub fn uniform(&self) -> Option<&Self> {
        match self {
            Self::Each(parts) => match parts.as_slice() {
                [part] => Some(&part.value),
                _ => None,
            },
            value => Some(value),
        }
    }
}

impl Snapshot {
    /// The fact of that key.
    #[must_use]
    pub fn fact(&self, key: &str) -> Option<&Fact> {
        let at = self.facts.binary_search_by(|fact| fact.key.as_str().cmp(key)).ok()?;
        self.facts.get(at)
    }

    /// Reads a document.
    ///
    /// # Errors
    /// If it is none, or one that cannot be understood whole: see [`SnapshotError`].
    pub fn parse(document: &[u8]) -> Result<Self, SnapshotError> {
        read::parse(document)
    }

    /// The document, one line for each fact.
    ///
    /// # Errors
    /// Never for a snapshot that was made or read by this crate: all of it has a form in JSON.
    pub fn document(&self) -> serde_json::Result<String> {
        write::document(self)
    }

    /// Brings facts into the order of their keys. Of two that have the same key the first stays.
    pub fn put_in_order(facts: &mut Vec<Fact>) {
        facts.sort_by(|a, b| a.key.cmp(&b.key));
        facts.dedup_by(|later, first| later.key == first.key);
    }
}
