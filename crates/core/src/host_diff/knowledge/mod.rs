// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is known to matter for latency, as a table: one file for each area.
//!
//! An entry says which keys it is about, how much they matter, why, what changing them risks, which time it costs, and
//! which side of a difference is the slower one. What no entry knows is compared all the same, and counts for little.

mod block;
mod clock;
mod cpu;
mod firmware;
mod frequency;
mod idle;
mod kernel;
mod memory;
mod modules;
mod network;
#[cfg(test)]
mod tests;

use super::document::Effect;
use crate::snapshot::{Area, Class};

/// From this weight on a difference is `high`.
pub const HIGH: u8 = 75;
/// From this weight on a difference is `medium`.
pub const MEDIUM: u8 = 50;
/// From this weight on a difference is `low`; below, `info`.
pub const LOW: u8 = 25;

/// What is known of some facts.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Of which keys: `*` stands for anything.
    pub keys: &'static [&'static str],
    /// What it is, in words.
    pub what: &'static str,
    /// How much a difference matters, 0 to 100.
    pub weight: u8,
    /// Why it does, as a sentence without a period.
    pub why: &'static str,
    /// Which time it costs.
    pub slows: &'static [Effect],
    /// Which side is the slower one.
    pub slower: Slower,
    /// What changing it risks.
    pub risk: Option<&'static str>,
    /// How to look at it, where reading the file is not the best way.
    pub look: Option<&'static str>,
    /// How to change it, where that does not follow from its key.
    pub change: Option<How>,
    /// What depends on each other and is changed together; empty: the area's name.
    pub group: &'static str,
    /// It says something only where one of these is in charge.
    pub only_with: Option<InCharge>,
    /// It follows from these, if they differ too.
    pub follows: &'static [&'static str],
    /// It says something of its own where it is there on some hosts only; else it follows from the driver.
    pub alone: bool,
    /// How much it matters if it is there on some hosts only, where that is less: such things come and go.
    pub where_missing: Option<u8>,
    /// It scales with the host's memory.
    pub scales: bool,
}

/// Which side of a difference is the slower one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slower {
    /// Either may be.
    Unknown,
    /// The larger number, and "on".
    Higher,
    /// The smaller number, and "off".
    Lower,
    /// Where it is there.
    Present,
    /// Where its text is one of these, or begins with one that ends in `*`.
    Text(&'static [&'static str]),
}

/// How something is changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum How {
    /// By a command in which `{}` stands for the value; `{param}` for the part of the key after `#`.
    Command(&'static str),
    /// On the kernel's command line; then the host boots.
    Boot(&'static str),
    /// In the firmware's set-up, or by another firmware.
    Firmware(&'static str),
    /// Not at all: it is what the machine is.
    Machine,
}

/// Who must be in charge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum InCharge {
    /// One of these idle drivers.
    Idle(&'static [&'static str]),
    /// One of these frequency drivers.
    Frequency(&'static [&'static str]),
}

const fn known(
    weight: u8,
    what: &'static str,
    keys: &'static [&'static str],
    why: &'static str,
) -> Known {
    Known {
        keys,
        what,
        weight,
        why,
        slows: &[],
        slower: Slower::Unknown,
        risk: None,
        look: None,
        change: None,
        group: "",
        only_with: None,
        follows: &[],
        alone: false,
        where_missing: None,
        scales: false,
    }
}

impl Known {
    const fn slows(mut self, slows: &'static [Effect], slower: Slower) -> Self {
        self.slows = slows;
        self.slower = slower;
        self
    }

    const fn risk(mut self, risk: &'static str) -> Self {
        self.risk = Some(risk);
        self
    }

    const fn look(mut self, look: &'static str) -> Self {
        self.look = Some(look);
        self
    }

    const fn change(mut self, how: How) -> Self {
        self.change = Some(how);
        self
    }

    const fn group(mut self, group: &'static str) -> Self {
        self.group = group;
        self
    }

    const fn only_with(mut self, who: InCharge) -> Self {
        self.only_with = Some(who);
        self
    }

    const fn follows(mut self, parents: &'static [&'static str]) -> Self {
        self.follows = parents;
        self
    }

    const fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    const fn comes_and_goes(mut self) -> Self {
        self.where_missing = Some(12);
        self
    }

    const fn scales(mut self) -> Self {
        self.scales = true;
        self
    }
}

/// Every table; within one, the first entry that fits counts.
const TABLES: &[&[Known]] = &[
    frequency::KNOWN,
    idle::KNOWN,
    cpu::KNOWN,
    clock::KNOWN,
    firmware::KNOWN,
    memory::KNOWN,
    block::KNOWN,
    network::KNOWN,
    // These end with what is known of any module and any parameter.
    modules::KNOWN,
    kernel::KNOWN,
];

/// What is known of a key.
#[must_use]
pub fn find(key: &str) -> Option<&'static Known> {
    TABLES.iter().copied().flatten().find(|known| known.keys.iter().any(|it| fits(it, key)))
}

/// Weight of a difference that no entry knows.
#[must_use]
pub fn unknown_weight(class: Class, area: Area) -> u8 {
    match (class, area) {
        (Class::Configuration, Area::Frequency | Area::Idle | Area::Clock) => 30,
        (Class::Configuration, Area::Cpu | Area::Irq | Area::Block) => 20,
        (Class::Capability, Area::Frequency | Area::Idle | Area::Cpu) => 15,
        _ => 10,
    }
}

/// Whether a key fits a pattern in which `*` stands for any text.
#[must_use]
pub fn fits(pattern: &str, key: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = key.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}
