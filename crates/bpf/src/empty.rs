// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that do nothing, attached to the hooks of the probes: the baseline of overhead measurements.

use crate::facts::facts;
use crate::object::LoadedObject;
use crate::skel::empty::{EmptySkel, EmptySkelBuilder};

/// The attached programs. Dropping it detaches them.
pub struct Empty {
    _object: LoadedObject<EmptySkel<'static>>,
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
        let created = facts().arguments("block_io_start").is_some();
        let created = if created { "on_start" } else { "on_insert" };
        Self::attach(&["on_queue", created, "on_issue", "on_complete"])
    }

    fn attach(names: &[&'static str]) -> Result<Self, String> {
        let mut object = LoadedObject::load(EmptySkelBuilder::default(), names, |_| Ok(()))?;
        object.attach_all()?;
        Ok(Self { _object: object })
    }
}
