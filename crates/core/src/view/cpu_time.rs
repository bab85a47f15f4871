// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU time of a process within the window, in the program and in the kernel.

use crate::recording::CpuTimeReading;

/// The first and the last reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTime {
    first: CpuTimeReading,
    last: CpuTimeReading,
}

impl CpuTime {
    pub(super) fn push(it: &mut Option<Box<Self>>, reading: CpuTimeReading) {
        match it {
            Some(it) => it.last = reading,
            None => *it = Some(Box::new(Self { first: reading, last: reading })),
        }
    }

    /// In the program itself, between both readings.
    #[must_use]
    pub fn user_ns(&self) -> u64 {
        self.last.user_ns.saturating_sub(self.first.user_ns)
    }

    /// In the kernel.
    #[must_use]
    pub fn system_ns(&self) -> u64 {
        self.last.system_ns.saturating_sub(self.first.system_ns)
    }
}
