// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program that does nothing at every context switch: the floor that probes are measured against.

use crate::skel::empty::EmptySkelBuilder;
use crate::stats;
use libbpf_rs::Link;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;

/// The attached program.
pub struct Empty {
    skel: crate::skel::empty::EmptySkel<'static>,
    _link: Link,
}

impl Empty {
    /// Loads and attaches it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn attach() -> Result<Self, libbpf_rs::Error> {
        // One small allocation for the life of the process: the skeleton borrows it.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let skel = EmptySkelBuilder::default().open(storage)?.load()?;
        let link = skel.progs.on_switch.attach()?;
        Ok(Self { skel, _link: link })
    }

    /// Nanoseconds and runs counted while [`crate::RunStats`] lived.
    #[must_use]
    pub fn run_time(&self) -> Option<(u64, u64)> {
        stats::run_time(self.skel.progs.on_switch.as_fd())
    }
}
