// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much of a recording is read. A file can hold more than any session writes, and must then not take the memory or
//! the time of the host on which it is read.

use deburr_core::sqlite::Fault;
use std::time::{Duration, Instant};

/// The rows of a table that are read.
#[derive(Debug)]
pub(super) struct Counted {
    rows: u64,
    most: u64,
}

/// The time that a recording may take.
#[derive(Debug)]
pub(super) struct Budget {
    started: Instant,
    most: Duration,
    rows: u64,
}

/// Rows between two looks at the clock.
const ROWS_PER_LOOK: u64 = 1024;
/// A recording is read at 20 MB/s and more; one that needs more time than this holds what no session writes.
const LEAST_TIME: Duration = Duration::from_secs(30);
const BYTES_PER_S: u64 = 10_000_000;

/// Most rows of a table. Of most tables every row is kept in memory in some way while a report is made of them: the view
/// keeps identities, events and spans. Ticks and readings are only summed up.
pub(super) fn most_rows(table: &str) -> u64 {
    match table {
        "meta" | "coverage" | "ending" | "cpu_check" => 10_000,
        "process" | "file" | "runtime" | "mount" | "syscall_file" | "setting" => 200_000,
        "tick" => 2_000_000,
        "process_tick" | "blame" | "schedstat" | "io_tick" | "io_wait" | "io_blame" | "idle"
        | "device_tick" | "cgroup_reading" | "psi_reading" | "cpu_reading" | "named_threads" => {
            100_000_000
        }
        _ => 1_000_000,
    }
}

impl Counted {
    pub(super) fn new(table: &str) -> Self {
        Self { rows: 0, most: most_rows(table) }
    }

    /// Counts a row.
    pub(super) fn add(&mut self) -> Result<(), Fault> {
        self.rows += 1;
        if self.rows > self.most {
            return Err(Fault::Limit(format!("it has more than {} rows", self.most)));
        }
        Ok(())
    }
}

impl Budget {
    /// The budget for a recording of that size.
    pub(super) fn new(bytes: u64) -> Self {
        Self::of(LEAST_TIME + Duration::from_secs(bytes / BYTES_PER_S))
    }

    pub(super) fn of(most: Duration) -> Self {
        Self { started: Instant::now(), most, rows: 0 }
    }

    /// Called for every row.
    pub(super) fn spend(&mut self) -> Result<(), Fault> {
        self.rows += 1;
        if self.rows.is_multiple_of(ROWS_PER_LOOK) && self.started.elapsed() > self.most {
            return Err(Fault::Limit(format!("reading took more than {} s", self.most.as_secs())));
        }
        Ok(())
    }
}
