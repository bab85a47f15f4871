// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parts of a time in which a thread did different things.

use super::{Did, Part};
use deburr_bpf::sched::Sleep;
use std::collections::VecDeque;

/// Parts up to a time.
pub(super) struct Parts {
    to_ns: u64,
    /// Up to where they are complete.
    pub(super) at_ns: u64,
    pub(super) all: Vec<Part>,
}

impl Parts {
    pub(super) fn new(from_ns: u64, to_ns: u64) -> Self {
        Self { to_ns, at_ns: from_ns, all: Vec::new() }
    }

    pub(super) fn until(&mut self, end_ns: u64, did: Did<Sleep>) {
        let end_ns = end_ns.min(self.to_ns);
        if end_ns > self.at_ns {
            self.all.push(Part { from_ns: self.at_ns, to_ns: end_ns, did });
            self.at_ns = end_ns;
        }
    }

    pub(super) fn asleep_until(&mut self, end_ns: u64, sleeps: &VecDeque<Sleep>) {
        if end_ns <= self.at_ns {
            return;
        }
        // They are in order, and each ends before the next begins.
        let first = sleeps.partition_point(|it| it.since_ns <= self.at_ns).saturating_sub(1);
        let here = sleeps.range(first..).take_while(|it| it.since_ns < end_ns);
        for sleep in here {
            let woken_ns = sleep.since_ns.saturating_add(sleep.slept_ns);
            if woken_ns > self.at_ns {
                self.until(sleep.since_ns.min(end_ns), Did::NotSeen);
                self.until(woken_ns.min(end_ns), Did::Slept(*sleep));
            }
        }
        self.until(end_ns, Did::NotSeen);
    }
}
