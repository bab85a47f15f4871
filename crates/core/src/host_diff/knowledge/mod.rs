// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A table of what is known to matter for latency: one file for each area.
//!
//! An entry states for patterns of keys how much a difference matters, why, what changing it risks, which kind of time
//! it costs, and which side is the slower one. Facts without an entry are compared as well, with a low weight.

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

pub use crate::text::fits;

use super::document::Effect;
use crate::snapshot::{Area, Class};

/// Minimum weight of a difference of severity `high`.
pub const HIGH: u8 = 75;
/// Minimum weight of a difference of severity `medium`.
pub const MEDIUM: u8 = 50;
/// Minimum weight of a difference of severity `low`; below it is `info`.
pub const LOW: u8 = 25;

/// What is known about some facts.
#[derive(Clone, Copy, Debug)]
pub struct Knowledge {
    /// Patterns of keys, in which `*` stands for any text.
    pub keys: &'static [&'static str],
    /// What the fact is, in words.
    pub what: &'static str,
    /// How much a difference matters, 0 to 100.
    pub weight: u8,
    /// Why a difference matters, as a sentence without a period.
    pub why: &'static str,
    /// Kinds of time that it costs.
    pub slows: &'static [Effect],
    /// Which side is the slower one.
    pub slower: SlowerSide,
    /// What changing it risks.
    pub risk: Option<&'static str>,
    /// Command to examine it, where reading the file is not the best way.
    pub look: Option<&'static str>,
    /// How to change it, where that does not follow from its key.
    pub change: Option<ChangeMethod>,
    /// Name of the group of facts that depend on each other and are changed together; empty: the area's name for
    /// frequencies and idle states, otherwise the key.
    pub group: &'static str,
    /// The fact has an effect only where one of these drivers is in charge.
    pub only_with: Option<RequiredDriver>,
    /// Patterns of keys that a difference follows from, if they differ as well.
    pub follows: &'static [&'static str],
    /// Existing on some hosts only is a difference in its own right; otherwise it follows from the driver of its area.
    pub alone: bool,
    /// Maximum weight if the fact exists on some hosts only, for things that come and go.
    pub where_missing: Option<u8>,
    /// The value scales with the host's memory.
    pub scales: bool,
}

/// Which side of a difference is the slower one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SlowerSide {
    /// Not known: either may be.
    Unknown,
    /// The side with the larger number, or with "on".
    Higher,
    /// The side with the smaller number, or with "off".
    Lower,
    /// The side where it exists.
    Present,
    /// The side whose text matches one of these patterns.
    Text(&'static [&'static str]),
}

/// How a fact is changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ChangeMethod {
    /// By a command in which `{}` stands for the value.
    Command(&'static str),
    /// By these instructions, such as for the kernel's command line, and a reboot.
    Boot(&'static str),
    /// By these instructions in the firmware set-up, or by other firmware.
    Firmware(&'static str),
    /// Not at all: it is a property of the machine.
    Machine,
}

/// Drivers of which one must be in charge for a fact to have an effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RequiredDriver {
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
) -> Knowledge {
    Knowledge {
        keys,
        what,
        weight,
        why,
        slows: &[],
        slower: SlowerSide::Unknown,
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

impl Knowledge {
    const fn slows(mut self, slows: &'static [Effect], slower: SlowerSide) -> Self {
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

    const fn change(mut self, how: ChangeMethod) -> Self {
        self.change = Some(how);
        self
    }

    const fn group(mut self, group: &'static str) -> Self {
        self.group = group;
        self
    }

    const fn only_with(mut self, who: RequiredDriver) -> Self {
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

/// All tables. The first entry with a matching pattern applies.
pub(super) const TABLES: &[&[Knowledge]] = &[
    frequency::KNOWN,
    idle::KNOWN,
    cpu::KNOWN,
    clock::KNOWN,
    firmware::KNOWN,
    memory::KNOWN,
    block::KNOWN,
    network::KNOWN,
    // Last, because these end with entries for any module and any parameter.
    modules::KNOWN,
    kernel::KNOWN,
];

/// What is known about the fact with this key.
#[must_use]
pub fn find(key: &str) -> Option<&'static Knowledge> {
    TABLES.iter().copied().flatten().find(|known| known.keys.iter().any(|it| fits(it, key)))
}

/// Weight of a difference without an entry.
#[must_use]
pub fn unknown_weight(class: Class, area: Area) -> u8 {
    match (class, area) {
        (Class::Configuration, Area::Frequency | Area::Idle | Area::Clock) => 30,
        (Class::Configuration, Area::Cpu | Area::Irq | Area::Block) => 20,
        (Class::Capability, Area::Frequency | Area::Idle | Area::Cpu) => 15,
        _ => 10,
    }
}
