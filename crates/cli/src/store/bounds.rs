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

/// The time and the memory that a recording may take.
#[derive(Debug)]
pub(super) struct Budget {
    started: Instant,
    most: Duration,
    /// Memory of this process before; `None` if it cannot be read.
    memory_bytes: Option<u64>,
    most_bytes: u64,
    rows: u64,
    /// Length of the rows since the last look.
    unseen_bytes: u64,
}

/// Rows, and bytes of them, between two looks at the clock and the memory.
const ROWS_PER_LOOK: u64 = 1024;
const BYTES_PER_LOOK: u64 = 1 << 20;
/// What is kept of a recording while it is read. Half an hour of a host that starts a hundred processes in a second takes
/// less than half of it. As much again, and more, is left for the report.
const MOST_BYTES: u64 = 400 << 20;
/// A recording is read at 20 MB/s and more; one that needs more time than this holds what no session writes.
const LEAST_TIME: Duration = Duration::from_secs(30);
const BYTES_PER_S: u64 = 10_000_000;

/// Most rows of a table. Of most tables every row is kept in memory in some way while a report is made of them: the view
/// keeps identities, events and spans. Ticks and readings are only summed up.
pub(super) fn most_rows(table: &str) -> u64 {
    match table {
        // Each may be megabytes once it is decompressed.
        "host_facts" => 10,
        "meta" | "coverage" | "ending" | "cpu_check" | "thread_ledger" => 10_000,
        // Two hours of a host that starts a hundred processes in a second, each of which is worth a row.
        "process" => 1_000_000,
        "file" | "runtime" | "mount" | "syscall_file" | "profile_stack" | "sleep_stack"
        | "setting" => 200_000,
        // The longest window, of 24 hours, has ten bins of the host and ten of the target in a second.
        "tick" | "load_bin" => 2_000_000,
        "process_tick" | "resent" | "sending" | "unread" | "accept_queue" | "held_back"
        | "datagrams" | "netns" | "listener" | "wait_bin" | "sleep" | "reclaim" | "interrupts"
        | "memory_reading" | "memory_held" | "blame" | "long_wait" | "schedstat" | "io_tick"
        | "io_wait" | "io_blame" | "idle" | "device_tick" | "request_bin" | "cgroup_reading"
        | "psi_reading" | "cpu_reading" | "cpu_time" | "disk_reading" | "named_threads" => {
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
        Self::of(LEAST_TIME + Duration::from_secs(bytes / BYTES_PER_S), MOST_BYTES)
    }

    pub(super) fn of(most: Duration, most_bytes: u64) -> Self {
        Self {
            started: Instant::now(),
            most,
            memory_bytes: memory_bytes(),
            most_bytes,
            rows: 0,
            unseen_bytes: 0,
        }
    }

    /// Allows so much more time.
    pub(super) fn add(&mut self, more: Duration) {
        self.most += more;
    }

    /// Called for every row, with its length.
    pub(super) fn spend(&mut self, bytes: usize) -> Result<(), Fault> {
        self.rows += 1;
        self.unseen_bytes += bytes as u64;
        if !self.rows.is_multiple_of(ROWS_PER_LOOK) && self.unseen_bytes < BYTES_PER_LOOK {
            return Ok(());
        }
        self.unseen_bytes = 0;
        if self.started.elapsed() > self.most {
            return Err(Fault::Limit(format!("reading took more than {} s", self.most.as_secs())));
        }
        let grown =
            memory_bytes().zip(self.memory_bytes).map(|(now, then)| now.saturating_sub(then));
        if grown.is_some_and(|grown| grown > self.most_bytes) {
            return Err(Fault::Limit(format!(
                "what was read so far takes more than {} MB of memory",
                self.most_bytes >> 20
            )));
        }
        Ok(())
    }
}

/// Memory of this process that is in use.
fn memory_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a session writes in 24 hours, the longest window.
    #[test]
    fn the_longest_window_is_within_the_bounds() {
        const SECONDS: u64 = 24 * 3600;
        // Of the host and of the target, ten times a second.
        assert!(most_rows("load_bin") >= 2 * 10 * SECONDS);
        // Of 50 processes outside the target and 50 of it, up to 33 parts of a wait each.
        assert!(most_rows("long_wait") >= 100 * 33 / 10 * SECONDS);
        // Of a hundred disks.
        assert!(most_rows("disk_reading") >= 100 * SECONDS);
        for once_a_second in ["tick", "observer_tick"] {
            assert!(most_rows(once_a_second) >= SECONDS, "{once_a_second}");
        }
    }
}
