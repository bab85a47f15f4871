// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that do nothing, attached to the hooks of the probes: the baseline of overhead measurements.

use crate::io_facts::io_facts;
use crate::object::{self, Programs};
use crate::skel::empty::{EmptySkel, EmptySkelBuilder};

/// The attached programs. Dropping it detaches them.
pub struct Empty {
    _programs: Programs,
    _skel: EmptySkel<'static>,
}

impl Empty {
    /// Attaches one program to `sched_switch`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn on_switch() -> Result<Self, String> {
        Self::attach(&["on_switch"])
    }

    /// Attaches one program to each step of a block request that the block probe observes: queueing, creation (or
    /// insertion, where the kernel lacks a hook for creation), issue and completion.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn on_block() -> Result<Self, String> {
        let created = io_facts().hooks.contains_key("block_io_start");
        let created = if created { "on_start" } else { "on_insert" };
        Self::attach(&["on_queue", created, "on_issue", "on_complete"])
    }

    fn attach(names: &[&'static str]) -> Result<Self, String> {
        let mut open = object::open(EmptySkelBuilder::default())?;
        object::choose(&mut open, names);
        let skel = object::load(open)?;
        Ok(Self { _programs: Programs::attach(&skel, names)?, _skel: skel })
    }
}
