// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What other probes need in order to look at the watched threads, too.

use super::SchedProbe;
use std::os::fd::{AsFd as _, OwnedFd};

/// The table of the watched threads, and what the probe has found out about the kernel's memory.
#[derive(Debug)]
pub struct Watched {
    pub(crate) watches: OwnedFd,
    pub(crate) slots: u32,
    pub(crate) preempt_minus_rq: i64,
    pub(crate) regs_offset: u64,
}

impl SchedProbe {
    /// The table of the watched threads, for other probes; `None` = none are watched, or it cannot be shared.
    #[must_use]
    pub fn watched(&self) -> Option<Watched> {
        let maps = &self.object.skel.maps;
        let learned = maps.bss_data.as_deref().filter(|_| self.can_watch())?;
        Some(Watched {
            watches: maps.watches.as_fd().try_clone_to_owned().ok()?,
            slots: self.watch.mask + 1,
            preempt_minus_rq: self.preempt_minus_rq,
            regs_offset: learned.regs_offset,
        })
    }
}
