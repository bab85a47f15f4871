// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hardware, firmware, kernel and configuration of a host as typed facts: the document `deburr.snapshot/1`
//! (`docs/snapshot.md`).
//!
//! A [`Snapshot`] is a head (version of deburr, time, host) and [`Fact`]s sorted by key. Keys are unique.
//!
//! - **key**: the path of the file (`/proc/sys/vm/swappiness`), or, where a file holds several facts, the path, `#` and
//!   the part (`/proc/cmdline#mitigations`). The same fact has the same key on every host. A property that exists once
//!   for each CPU, node, disk or network card is one fact: its key has a `*` in place of the number or name
//!   (`/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor`), and its value is a [`Value::Each`]. Properties of
//!   instances with a meaning of their own (modules, their parameters, idle states) have a key each.
//! - **class**: what a difference in the value means ([`Class`]). Only configuration and capability are compared.
//! - **area**: subject of the fact ([`Area`]).
//! - **value**: typed ([`Value`]). A missing file is a value ([`Value::Absent`]), which is compared like any other, for
//!   example where a driver is not loaded. [`Value::Unreadable`] and [`Value::TimedOut`] mean that the value is not
//!   known. Two values are the same if they are `==`. To compare hosts with different numbers of CPUs, see
//!   [`Value::uniform`].
//!
//! If a snapshot does not have a key at all, and the parent of the key is enumerated (parameters of the command line,
//! modules, idle states), the item does not exist on that host. But another version of deburr may not have read it:
//! see [`Snapshot::tool`].
//!
//! [`Snapshot::parse`] reads a document, and explains in its error why a document cannot be read. It accepts snapshots
//! of other architectures; a comparison must report a different [`Host::arch`].

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

/// Placeholder for a value that is kept out of snapshots because it may hold a secret or an address (`docs/snapshot.md`
/// has the list). Two placeholders do not mean that the values are equal.
pub const FILTERED: &str = "(filtered)";

/// Facts of a host at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`SCHEMA`].
    pub schema: String,
    /// The program that took the snapshot.
    pub tool: Tool,
    /// Time at which it was taken: RFC 3339, UTC.
    pub taken: String,
    /// The host.
    pub host: Host,
    /// Cost and problems of reading the files.
    pub reading: Reading,
    /// The facts, sorted by key. Keys are unique.
    pub facts: Vec<Fact>,
}

/// The program that took a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// Version.
    pub version: String,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Host name; absent if names were redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Kernel release; empty if it could not be read.
    pub kernel: String,
    /// Architecture as named by the kernel (`x86_64`); empty if it could not be read.
    pub arch: String,
}

/// Cost and problems of reading the files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Number of files that were looked for, including those that do not exist.
    pub files: u64,
    /// Wall time to read all files.
    pub took_ns: u64,
    /// Median time to read a file, over the files that exist.
    pub median_ns: u64,
    /// Whether deburr ran as root. Otherwise some files cannot be read.
    pub as_root: bool,
    /// Files that were slow to read, slowest first. They are findings of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slow: Vec<SlowRead>,
    /// Further notes, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A file that was slow to read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowRead {
    /// Path of the file, without `*` and `#`.
    pub path: String,
    /// Key of the fact that was read from it, or of the first one if there are several.
    pub key: String,
    /// Wall time to open, read and close the file.
    pub wall_ns: u64,
    /// CPU time of the read. Close to `wall_ns`: the kernel was busy; far below it: the read slept. Absent if the read
    /// timed out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
    /// Wall time of a second read immediately after; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_ns: Option<u64>,
}

/// One property of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Source of the value, see the module documentation.
    pub key: String,
    /// What a difference in the value means.
    pub class: Class,
    /// Subject.
    pub area: Area,
    /// The value.
    pub value: Value,
    /// Wall time to read the slowest file behind the value, if it was slow ([`Reading::slow`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_ns: Option<u64>,
}

/// What a difference in the value of a fact means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Identifies the machine: serial numbers, names. Necessarily differs between hosts.
    Identity,
    /// Chosen by an administrator or installer, and can be changed: settings, parameters, versions of software.
    Configuration,
    /// Offered by hardware, firmware and kernel.
    Capability,
    /// Changes by itself over time: amounts, states, values that the kernel adapts.
    Counter,
    /// An address or number that is assigned at random or in order of arrival.
    Address,
}

impl Class {
    /// All classes.
    pub const ALL: [Self; 5] =
        [Self::Identity, Self::Configuration, Self::Capability, Self::Counter, Self::Address];

    /// Whether hosts that are meant to be identical should agree on facts of this class.
    #[must_use]
    pub fn is_compared(self) -> bool {
        matches!(self, Self::Configuration | Self::Capability)
    }

    /// Name in documents.
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

/// Subject of a fact.
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
    /// Assignment of interrupts to CPUs.
    Irq,
    /// cgroup layout.
    Cgroup,
    /// DMI, ACPI, EFI, thermal zones.
    Firmware,
    /// The hypervisor that the machine runs on.
    Hypervisor,
    /// Packages of kernel, firmware and microcode.
    Packages,
    /// An area of a later version.
    #[serde(other)]
    Other,
}

impl Area {
    /// Name in documents.
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

/// A value as it was read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// Any text, without the trailing newline. Bytes that are not valid UTF-8 are written as `\xNN`
    /// ([`crate::text::name::decode`]).
    Text(String),
    /// A whole number.
    Integer(Integer),
    /// On or off. `true` also stands for a parameter of the command line without a value.
    Boolean(bool),
    /// Items whose order matters.
    List(Vec<String>),
    /// Items whose order does not matter.
    Set(BTreeSet<String>),
    /// Named items.
    Table(BTreeMap<String, String>),
    /// A value for each CPU, node, disk, ... that the `*` of the key stands for. Built by [`fold`].
    Each(Vec<Part>),
    /// The file, or the part of it, does not exist.
    Absent,
    /// The file exists, but could not be read or parsed. Holds the reason, as part of a sentence.
    Unreadable(String),
    /// The read did not end in time.
    TimedOut {
        /// Time after which the read was given up.
        after_ms: u64,
    },
}

/// A whole number with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Integer {
    /// The number, from `i64::MIN` to `u64::MAX`.
    pub amount: i128,
    /// Unit; absent for plain numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<Unit>,
}

/// Instances with the same value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Part {
    /// The instances, ascending: names, or numbers and ranges of numbers (`8`, `0-3`).
    pub of: Vec<String>,
    /// The value; never a [`Value::Each`].
    pub value: Value,
}

/// Unit of a number, as the kernel uses it in that file.
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
    /// Hertz.
    Hz,
    /// Kilohertz.
    Khz,
    /// Megahertz.
    Mhz,
    /// Nanoseconds.
    Ns,
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
    /// Hundredths of a second (10 ms).
    Centiseconds,
    /// Seconds.
    Seconds,
    /// Percent.
    Percent,
    /// Millions of bits per second.
    MbitPerS,
    /// A unit of a later version.
    #[serde(other)]
    Other,
}

impl Unit {
    /// Symbol; empty for [`Unit::Other`].
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
    /// A whole number without a unit.
    #[must_use]
    pub fn integer(amount: impl Into<i128>) -> Self {
        Self::Integer(Integer { amount: amount.into(), unit: None })
    }

    /// A text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Whether the value is known: neither unreadable nor timed out, in any instance. [`Value::Absent`] is known.
    #[must_use]
    pub fn is_known(&self) -> bool {
        match self {
            Self::Unreadable(_) | Self::TimedOut { .. } => false,
            Self::Each(parts) => parts.iter().all(|part| part.value.is_known()),
            _ => true,
        }
    }

    /// The value that all instances have in common; the value itself if it is not a [`Value::Each`]. `None` if the
    /// instances differ or if there are none.
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
    /// The fact with this key.
    #[must_use]
    pub fn fact(&self, key: &str) -> Option<&Fact> {
        let at = self.facts.binary_search_by(|fact| fact.key.as_str().cmp(key)).ok()?;
        self.facts.get(at)
    }

    /// Parses a document.
    ///
    /// # Errors
    /// If the document is not a snapshot, or a damaged one, or of another version: see [`SnapshotError`].
    pub fn parse(document: &[u8]) -> Result<Self, SnapshotError> {
        read::parse(document)
    }

    /// The snapshot as a document, with one line for each fact.
    ///
    /// # Errors
    /// Never for a snapshot that this crate created or parsed, because all of its values can be written as JSON.
    pub fn document(&self) -> serde_json::Result<String> {
        write::document(self)
    }

    /// Sorts facts by key. Of facts with the same key, the first is kept.
    pub fn put_in_order(facts: &mut Vec<Fact>) {
        facts.sort_by(|a, b| a.key.cmp(&b.key));
        facts.dedup_by(|later, first| later.key == first.key);
    }
}
