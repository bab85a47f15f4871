// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is fuzzed: each reader of bytes that others made, and what must hold whatever the bytes are.
//!
//! A target is a function of the bytes, which says whether it could read them. It passes if it returns: a panic, an overflow, memory beyond [`Target::memory`]
//! and a time limit (libFuzzer's) are findings, and so are the assertions, which say more than that.

#[path = "../../crates/cli/src/files/mod.rs"]
#[allow(
    dead_code,
    unused_qualifications,
    reason = "questions and answers are used here, and not what is done with them"
)]
mod files;
mod judged;
#[path = "../../crates/cli/src/reader/protocol.rs"]
mod protocol;
mod snapshot;
mod store;
mod targets;

pub use targets::page::{comparison, host_diff, transcript};
pub use targets::rows::seed as rows_of_recording;

use cap::Cap;
use std::alloc::System;

/// Counts memory, and refuses more than the limit: then the process aborts, which libFuzzer reports.
#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// A reader, as the fuzzer calls it.
pub struct Target {
    /// Name, also of its corpus.
    pub name: &'static str,
    /// The longest input that is tried, in bytes.
    pub longest: usize,
    /// Memory that one input may take, in bytes.
    pub memory: usize,
    read: fn(&[u8]) -> bool,
}

/// All targets: name, kB of the longest input, MB of memory. `scripts/fuzz` reads these lines.
pub const TARGETS: &[Target] = &[
    target_of("recording", 96, 256, targets::recording::read),
    target_of("rows", 16, 256, targets::rows::read),
    target_of("sqlite", 16, 64, targets::sqlite::read),
    target_of("snapshot", 16, 128, targets::snapshot::read),
    target_of("profile", 16, 128, targets::profile::read),
    target_of("program", 16, 128, targets::program::read),
    target_of("jvm", 8, 64, targets::jvm::read),
    target_of("mountinfo", 4, 16, targets::kernel_text::mountinfo),
    target_of("cgroup", 4, 16, targets::kernel_text::cgroup),
    target_of("process", 4, 16, targets::kernel_text::process),
    target_of("host", 4, 16, targets::kernel_text::host),
    target_of("names", 4, 16, targets::names::read),
    target_of("runtimes", 4, 16, targets::runtimes::read),
    target_of("facts", 8, 64, targets::facts::read),
    target_of("superblock", 68, 16, targets::disk::superblock),
    target_of("debugfs", 4, 16, targets::disk::answer),
    target_of("reader", 8, 16, targets::reader::read),
    target_of("transcript", 8, 64, targets::transcript::read),
    target_of("page", 24, 128, targets::page::read),
];

const fn target_of(
    name: &'static str,
    longest_kb: usize,
    memory_mb: usize,
    read: fn(&[u8]) -> bool,
) -> Target {
    Target { name, longest: longest_kb << 10, memory: memory_mb << 20, read }
}

/// The target of that name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

impl Target {
    /// Reads the bytes within the limit of memory. `false`: they are refused.
    pub fn run(&self, data: &[u8]) -> bool {
        let unlimited = MEMORY.limit();
        // The limit is above what is allocated already, so setting it cannot fail.
        let _ = MEMORY.set_limit(MEMORY.allocated() + self.memory);
        let is_read = (self.read)(data);
        let _ = MEMORY.set_limit(unlimited);
        is_read
    }
}
