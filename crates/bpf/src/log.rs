// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a log in a mapped array, of which each CPU writes its own part as a ring.
//!
//! Writers do not wait for the reader: entries that are not read in time are overwritten, and counted.

use crate::mapped::{MappedOnUse, Plain};

/// Entries at the end of the ring that are not read: the newest and the oldest may be half-written meanwhile.
const MARGIN: u64 = 8;

/// Maximum number of entries of each CPU's part of a log.
const ENTRIES: u32 = 4096;
const ALL_ENTRIES: u32 = 1 << 19;

/// Entries of each CPU's part, with this many CPUs: a power of two, bounded so that the memory of a log is bounded.
pub(crate) fn entries_of_each(cpus: u32) -> u32 {
    (ALL_ENTRIES / cpus.max(1).next_power_of_two()).clamp(256, ENTRIES)
}

/// The log's entries and the reader's position in each CPU's part.
pub(crate) struct Log<T: Plain> {
    entries: MappedOnUse<T>,
    places: Vec<u64>,
    /// Entries of each CPU's part.
    length: u64,
    /// Entries overwritten before they were read, or that cannot be mapped.
    pub(crate) overrun: u64,
}

impl<T: Plain> Log<T> {
    /// Starts at the beginning: for a log that was just created.
    pub(crate) fn new(entries: MappedOnUse<T>, cpus: u32) -> Self {
        let length = entries.len() as u64 / u64::from(cpus);
        Self { entries, places: vec![0; cpus as usize], length, overrun: 0 }
    }

    /// Entries of each CPU's part.
    pub(crate) fn of_each(&self) -> u64 {
        self.length
    }

    /// Number of a CPU's entries so far that were read or found to be overwritten.
    pub(crate) fn place(&self, cpu: usize) -> u64 {
        self.places[cpu]
    }

    /// Calls `each` for all entries written since the last call: CPU by CPU, in order of time on each. `head` returns
    /// how many entries a CPU has written so far.
    pub(crate) fn read(&mut self, head: impl Fn(usize) -> u64, mut each: impl FnMut(&T)) {
        let mut batch = Vec::new();
        for cpu in 0..self.places.len() {
            let end = head(cpu);
            let mut from = self.places[cpu].max(end.saturating_sub(self.length - MARGIN));
            if from == end && self.places[cpu] == end {
                continue;
            }
            batch.clear();
            batch.extend((from..end).map_while(|at| {
                let index = cpu as u64 * self.length + at % self.length;
                self.entries.peek::<T>(index as usize, 0)
            }));
            // What cannot be mapped is lost, like what was overwritten.
            if batch.len() as u64 != end - from {
                batch.clear();
                from = end;
            }
            // Entries that the kernel may have overwritten meanwhile are dropped.
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
