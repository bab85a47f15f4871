// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A log that each CPU writes its own part of, in an array that is mapped here.
//!
//! Nobody waits for the reader: what it did not read in time is overwritten, and counted.

use crate::mapped::{Mapped, Plain};

/// The newest and the oldest entry may be half-written while they are read.
const MARGIN: u64 = 8;

/// Entries of each CPU's part of a log, and of all together.
const ENTRIES: u32 = 4096;
const ALL_ENTRIES: u32 = 1 << 19;

/// For so many CPUs: a power of two, so many that a log does not take memory without bound.
pub(crate) fn entries_of_each(cpus: u32) -> u32 {
    (ALL_ENTRIES / cpus.max(1).next_power_of_two()).clamp(256, ENTRIES)
}

/// The log's entries and the reader's place in each CPU's part.
pub(crate) struct Log<T: Plain> {
    entries: Mapped<T>,
    places: Vec<u64>,
    /// Entries of each CPU.
    length: u64,
    /// Entries overwritten before they were read.
    pub(crate) overrun: u64,
}

impl<T: Plain> Log<T> {
    /// Begins at the beginning: a log that was just made.
    pub(crate) fn new(entries: Mapped<T>, cpus: u32) -> Self {
        let length = entries.len() as u64 / u64::from(cpus);
        Self { entries, places: vec![0; cpus as usize], length, overrun: 0 }
    }

    /// Entries of each CPU.
    pub(crate) fn of_each(&self) -> u64 {
        self.length
    }

    /// So many entries of a CPU were read or found to be overwritten.
    pub(crate) fn place(&self, cpu: usize) -> u64 {
        self.places[cpu]
    }

    /// Calls `each` for all that was written since the last call: CPU by CPU, in order of time on each. `head`
    /// tells how many entries a CPU has written by now.
    pub(crate) fn read(&mut self, head: impl Fn(usize) -> u64, mut each: impl FnMut(&T)) {
        let mut batch = Vec::new();
        for cpu in 0..self.places.len() {
            let end = head(cpu);
            let mut from = self.places[cpu].max(end.saturating_sub(self.length - MARGIN));
            if from == end && self.places[cpu] == end {
                continue;
            }
            batch.clear();
            batch.extend((from..end).map(|at| {
                let index = cpu as u64 * self.length + at % self.length;
                self.entries.peek::<T>(index as usize, 0)
            }));
            // What the kernel may have overwritten meanwhile is dropped.
            let safe = head(cpu).saturating_sub(self.length - MARGIN).min(end);
            if safe > from {
                batch.drain(..(safe - from) as usize);
                from = safe;
            }
            self.overrun += from - self.places[cpu];
            self.places[cpu] = end;
            batch.iter().for_each(&mut each);
        }
    }
}
